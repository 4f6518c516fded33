"""What stock Python functions have infinities for, in the stock runs too: what a format without
them has instead."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

import torch_dtypes


def lacks_infinity(dtype: torch.dtype) -> bool:
    return not torch.tensor(float("inf"), dtype=dtype).isinf()


@contextlib.contextmanager
def identities(dtype: torch.dtype) -> Iterator[None]:
    """What torch.masked's functions give for no elements at all is an infinity, or the format's
    outermost number."""
    stock = torch.masked._ops._reduction_identity

    def identity(name, x, *args):
        return (
            stock(name, x.to(dtype), *args).to(x.dtype)
            if x.is_floating_point()
            else stock(name, x, *args)
        )

    with (
        mock.patch.object(torch.masked._ops, "_reduction_identity", identity)
        if lacks_infinity(dtype)
        else contextlib.nullcontext()
    ):
        yield


@contextlib.contextmanager
def attention_masks(dtype: torch.dtype) -> Iterator[None]:
    """A masked score gets -inf added, or the format's outermost number. The stock run that rounds
    between kernels would make NaN of -inf, and know nothing of the rounding of what is not
    masked."""
    ours = F._canonical_mask

    def mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
        wanted = target_type if torch_dtypes.is_format_dtype(target_type) else dtype
        # Which asks it itself.
        with _disable_current_modes(), mock.patch.object(F, "_canonical_mask", ours):
            made = ours(mask, mask_name, other_type, other_name, wanted, check_other)
            return None if made is None else made.to(target_type)

    with (
        mock.patch.object(F, "_canonical_mask", mask)
        if lacks_infinity(dtype)
        else contextlib.nullcontext()
    ):
        yield
