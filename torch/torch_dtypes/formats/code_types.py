"""How codes lie in memory, and what all of them mean."""

from __future__ import annotations

import torch

from .. import _C

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The stock integers as wide as an element."""
    return _BITS[dtype.itemsize]


def compute_type(*dtypes: torch.dtype | None) -> torch.dtype:
    """The stock dtype in which these are computed with: float32, or float64 where a value of one of
    them is not in it."""
    for dtype in dtypes:
        fmt = _C.format_of(dtype) if dtype is not None else None
        if dtype is torch.float64 or (fmt is not None and not fmt.fits_float):
            return torch.float64
    return torch.float32


def values_of_codes(fmt: _C.Format) -> torch.Tensor:
    """The value of every code of a format, in their order, as float64 on the CPU; of formats of few
    bits, for they are 2^bits."""
    return _C.decode_exact(fmt, torch.arange(1 << fmt.bits, device="cpu"))
