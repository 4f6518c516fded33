"""Dtypes of formats made at run time, of which a process of this PyTorch has up to 64: what makes a new one known to Python. None is taken back."""

from __future__ import annotations

import copyreg

import torch

from . import _C, _names, _testing


def define(fmt: _C.Format) -> torch.dtype:
    """The dtype of a format: there may be one already."""
    return _C.define(fmt, _names.name_of_format(fmt))


def announce(made: torch.dtype) -> None:
    """torch.<name>, so that repr() can be evaluated, and the tables of PyTorch that list dtypes: what files hold as untyped storages, and what
    torch.testing knows."""
    setattr(torch, _C.name_of(made), made)
    torch.storage._new_dtypes().add(made)
    _testing.add(made)


def reduced(dtype: torch.dtype):
    """What pickles and files hold of a dtype. A format made at run time is made again from its name, in a process that need not know it yet;
    all others are PyTorch's own, by their names in torch."""
    from . import _serialization
    from .tables.making import written_name

    if _C.format_of(dtype) is None or dtype in _C.builtin_dtypes():
        return dtype.__reduce__()
    return _serialization.rebuild_dtype, (written_name(_C.name_of(dtype)),)


def install() -> None:
    """The built-in dtypes are in those tables, but for torch.testing's."""
    from . import _serialization  # it stands above this module

    copyreg.pickle(torch.dtype, reduced)
    _serialization.allow(torch.serialization.add_safe_globals)
    for made in _C.builtin_dtypes():
        _testing.add(made)
    _C.set_announcer(announce)
