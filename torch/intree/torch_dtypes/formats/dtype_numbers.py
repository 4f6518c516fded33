"""Dtypes of formats made at run time, and their announcement to Python.

A process of this PyTorch has up to 64. None is released.
"""

from __future__ import annotations

import torch

from .. import _C
from . import naming, testing


def define(fmt: _C.Format) -> torch.dtype:
    """Return the dtype of a format, which may exist already."""
    return _C.define(fmt, naming.name_of_format(fmt))


def announce(dtype: torch.dtype) -> None:
    """Add a dtype to torch, so that repr() can be evaluated, and to PyTorch's lists of dtypes.

    The lists are those of untyped storages in files and of torch.testing.
    """
    setattr(torch, _C.name_of(dtype), dtype)
    torch.storage._new_dtypes().add(dtype)
    testing.add(dtype)


def install() -> None:
    """Add the built-in dtypes to the list of torch.testing; they are in all others."""
    for dtype in _C.builtin_dtypes():
        testing.add(dtype)
    _C.set_announcer(announce)
