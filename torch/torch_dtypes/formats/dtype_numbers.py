"""The numbers of dtypes, of which a process has 64: announces new dtypes to Python, and takes back
unused numbers."""

from __future__ import annotations

import gc
import threading
import time

import torch
from torch.utils._dtype_abbrs import dtype_abbrs

from .. import _C
from . import caches, naming, testing


def define(fmt: _C.Format) -> torch.dtype:
    """Return the dtype of a format, a new one if there is none yet."""
    return _C.define(fmt, naming.name_of_format(fmt))


def announce(dtype: torch.dtype) -> None:
    """Set torch.<name>, so that repr() can be evaluated, and add the dtype to torch.testing. The
    extension calls it for each new dtype object."""
    name = _C.name_of(dtype)
    if not hasattr(torch, name):
        setattr(torch, name, dtype)
        testing.add(dtype)


def _forget(name: str) -> None:
    """Remove a dtype from all places where ``announce`` put it."""
    dtype = torch.__dict__.pop(name, None)
    if dtype is not None:
        dtype_abbrs.pop(dtype, None)
        testing.remove(dtype)


def make_room() -> bool:
    """Take back the numbers of run-time formats whose dtypes nobody else refers to, and return
    whether there was one.

    Tensors know their format without its number. Their dtype is created again when it is needed.
    """
    if _take_back():
        return True
    if threading.active_count() == 1:
        return False
    # While another thread collects garbage, this one's collection returns at once.
    time.sleep(0.02)
    return _take_back()


def _take_back() -> bool:
    caches.clear()
    gc.collect()
    has_room = False
    for name in _C.formats_at_run_time():
        _forget(name)
        in_use = _C.retire(name)
        if in_use is None:
            has_room = True
        else:
            dtype_abbrs[in_use] = name
            announce(in_use)
    return has_room


def install() -> None:
    _C.set_announcer(announce)
    _C.set_room_maker(make_room)
