"""How codes lie in memory."""

from __future__ import annotations

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The stock integers as wide as an element."""
    return _BITS[dtype.itemsize]
