"""Stock dtypes for codes and for computing, and the values of all codes."""

from __future__ import annotations

import torch

from .. import _C

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the stock integer dtype as wide as an element."""
    return _BITS[dtype.itemsize]


def compute_type(*dtypes: torch.dtype | None) -> torch.dtype:
    """Return the compute dtype of these dtypes: float32, or float64 if float32 lacks a value of
    one."""
    for dtype in dtypes:
        fmt = _C.format_of(dtype) if dtype is not None else None
        if dtype is torch.float64 or (fmt is not None and not fmt.fits_float):
            return torch.float64
    return torch.float32


def values_of_codes(fmt: _C.Format) -> torch.Tensor:
    """Return the values of all 2^bits codes of a format, in order, as float64 on the CPU. Use it
    for formats of few bits only."""
    return _C.decode_exact(fmt, torch.arange(1 << fmt.bits, device="cpu"))
