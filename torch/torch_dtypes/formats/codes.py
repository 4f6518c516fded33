"""Tensors as their codes, and back."""

from __future__ import annotations

import torch

from .. import _C
from .code_types import bits_dtype
from .dtypes import dtype as dtype_of

__all__ = ["codes", "from_codes"]


def codes(tensor: torch.Tensor) -> torch.Tensor:
    """The codes of a tensor's elements: a stock integer tensor (uint8, int16, int32 or int64, as
    wide as an element) on the same memory.

    Writing to one of the two is seen in the other. The codes lie in an element's low bits; those
    above are zero. Process groups of ``torch.distributed`` move codes; not every backend knows
    int16, so send their bytes::

        received = torch_dtypes.codes(torch.empty_like(x)).view(torch.uint8)
        # The sender: torch_dtypes.codes(x).view(torch.uint8)
        torch.distributed.broadcast(received, src=0)
        y = torch_dtypes.from_codes(received.view(torch.int16), x.dtype)

    Args:
        tensor: of a dtype of this package, of any shape; the result has its shape and strides.

    Raises:
        TypeError: not a tensor, or one of a stock dtype.

    Example::

        >>> torch_dtypes.codes(torch.tensor([1.0, -1.0, 0.0], dtype=torch.posit8es1))
        tensor([ 64, 192,   0], dtype=torch.uint8)
    """
    if not isinstance(tensor, torch.Tensor) or not _C.is_format_tensor(tensor):
        raise TypeError(
            "expected a tensor of a number format, but got "
            f"{getattr(tensor, 'dtype', type(tensor))}"
        )
    return tensor.detach().view(bits_dtype(tensor.dtype))


def refuse_beyond(words: torch.Tensor, dtype: torch.dtype) -> None:
    """An error where an element of an integer tensor, as wide as the dtype's, is no code of it."""
    bits = _C.format_of(dtype).bits
    if (
        bits < 8 * dtype.itemsize
        and words.device.type != "meta"
        and (words.bitwise_right_shift(bits) != 0).any()
    ):
        raise ValueError(f"expected codes of {dtype} from 0 to {2**bits - 1}, but got one beyond")


def from_codes(codes: torch.Tensor, dtype: torch.dtype | str) -> torch.Tensor:
    """The tensor of these codes, on the same memory: the inverse of ``codes``.

    Args:
        codes: an integer tensor as wide as an element of ``dtype``, signed or not.
        dtype: a dtype of this package, or the name of one.

    Raises:
        TypeError: no integers, integers of another width, or a stock dtype.
        ValueError: a number that is no code of the format, or an unknown name.

    Example::

        >>> torch_dtypes.from_codes(torch.tensor([0x38, 0x78], dtype=torch.uint8), torch.q43)
        tensor([1., inf], dtype=torch.q43)
    """
    made = dtype_of(dtype)
    found = codes.dtype if isinstance(codes, torch.Tensor) else None
    if (
        found is None
        or found.is_floating_point
        or found.is_complex
        or found is torch.bool
        or found.itemsize != made.itemsize
    ):
        raise TypeError(
            f"expected codes of {made} as a tensor of {bits_dtype(made)}, but got "
            f"{found or type(codes)}: convert with .to()"
        )
    words = codes.view(bits_dtype(made))
    refuse_beyond(words, made)
    return words.view(made)
