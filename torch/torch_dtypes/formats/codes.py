"""Conversion of tensors to their codes, and back."""

from __future__ import annotations

import torch

from .. import _C
from .code_types import bits_dtype
from .dtypes import dtype as dtype_of

__all__ = ["codes", "from_codes"]


def codes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the codes of a tensor's elements: a stock integer tensor (uint8, int16, int32 or
    int64, as wide as an element) on the same memory.

    A write to one of the two changes the other. A code fills an element's low bits; the bits above
    are zero. Process groups of ``torch.distributed`` move codes. Not every backend takes int16, so
    send their bytes::

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
    """Refuse an integer tensor, as wide as the dtype's elements, with an element that is no code of
    the dtype."""
    bits = _C.format_of(dtype).bits
    if (
        bits < 8 * dtype.itemsize
        and words.device.type != "meta"
        and (words.bitwise_right_shift(bits) != 0).any()
    ):
        raise ValueError(
            f"expected codes of {dtype} from 0 to {2**bits - 1}, but got one beyond; clear the "
            "bits above"
        )


def from_codes(codes: torch.Tensor, dtype: torch.dtype | str) -> torch.Tensor:
    """Return the tensor of these codes, on the same memory: the inverse of ``codes``.

    Args:
        codes: an integer tensor as wide as an element of ``dtype``, signed or not.
        dtype: a dtype of this package, or the name of one.

    Raises:
        TypeError: other numbers than integers, integers of another width, or a stock dtype.
        ValueError: a number that is no code of the format, or an unknown name.

    Example::

        >>> torch_dtypes.from_codes(torch.tensor([0x38, 0x78], dtype=torch.uint8), torch.q43)
        tensor([1., inf], dtype=torch.q43)
    """
    dtype = dtype_of(dtype)
    stored = codes.dtype if isinstance(codes, torch.Tensor) else None
    if (
        stored is None
        or stored.is_floating_point
        or stored.is_complex
        or stored is torch.bool
        or stored.itemsize != dtype.itemsize
    ):
        raise TypeError(
            f"expected codes of {dtype} as a tensor of {bits_dtype(dtype)}, but got "
            f"{stored or type(codes)}; convert with .to()"
        )
    words = codes.view(bits_dtype(dtype))
    refuse_beyond(words, dtype)
    return words.view(dtype)
