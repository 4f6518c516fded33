"""Dtypes of formats made at run time, of which a process of this PyTorch has up to 64: what makes a
new one known to Python. None is taken back."""

from __future__ import annotations

import torch

from .. import _C
from . import naming, testing


def define(fmt: _C.Format) -> torch.dtype:
    """The dtype of a format: there may be one already."""
    return _C.define(fmt, naming.name_of_format(fmt))


def announce(made: torch.dtype) -> None:
    """torch.<name>, so that repr() can be evaluated, and the tables of PyTorch that list dtypes:
    what files hold as untyped storages, and what torch.testing knows."""
    setattr(torch, _C.name_of(made), made)
    torch.storage._new_dtypes().add(made)
    testing.add(made)


def install() -> None:
    """The built-in dtypes are in those tables, but for torch.testing's."""
    for made in _C.builtin_dtypes():
        testing.add(made)
    _C.set_announcer(announce)
