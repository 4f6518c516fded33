"""Replacements for the infinities in stock Python functions, in the stock runs too: a format
without infinities has other numbers there."""

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
    """Return the results of torch.masked's functions for no elements: an infinity, or the format's
    largest number."""
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
    """Add -inf to a masked score, or the format's largest number. The stock run that rounds between
    kernels would turn -inf into NaN. It would also miss how the other scores are rounded."""
    ours = F._canonical_mask

    def mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
        wanted = target_type if torch_dtypes.is_format_dtype(target_type) else dtype
        # The stock function looks its own name up in F again.
        with _disable_current_modes(), mock.patch.object(F, "_canonical_mask", ours):
            made = ours(mask, mask_name, other_type, other_name, wanted, check_other)
            return None if made is None else made.to(target_type)

    with (
        mock.patch.object(F, "_canonical_mask", mask)
        if lacks_infinity(dtype)
        else contextlib.nullcontext()
    ):
        yield
