"""How codes lie in memory, and what all of them mean."""

from __future__ import annotations

import torch

from . import _C

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The stock integers as wide as an element."""
    return _BITS[dtype.itemsize]


def values_of_codes(fmt: _C.Format) -> torch.Tensor:
    """The value of every code of a format, in their order, as float64 on the CPU; of formats of few bits, for they are 2^bits."""
    return _C.decode_exact(fmt, torch.arange(1 << fmt.bits, device="cpu"))
