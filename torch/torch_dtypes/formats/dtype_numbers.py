"""The numbers of dtypes, of which a process has 64: what makes a new dtype known to Python, and
what takes back a number that nobody uses."""

from __future__ import annotations

import gc
import threading
import time

import torch
from torch.utils._dtype_abbrs import dtype_abbrs

from .. import _C
from . import caches, naming, testing


def define(fmt: _C.Format) -> torch.dtype:
    """The dtype of a format: there may be one already."""
    return _C.define(fmt, naming.name_of_format(fmt))


def announce(made: torch.dtype) -> None:
    """torch.<name>, so that repr() can be evaluated, and what torch.testing knows. Called by the
    extension for each new dtype object."""
    name = _C.name_of(made)
    if not hasattr(torch, name):
        setattr(torch, name, made)
        testing.add(made)


def _forget(name: str) -> None:
    """Lets go of a dtype wherever the package itself has put it."""
    made = torch.__dict__.pop(name, None)
    if made is not None:
        dtype_abbrs.pop(made, None)
        testing.remove(made)


def make_room() -> bool:
    """Takes back the numbers of the formats made at run time whose dtypes nobody else refers to;
    whether there was one.

    Tensors know their format without its number: their dtype is made anew when it is asked for.
    """
    if _take_back():
        return True
    if threading.active_count() == 1:
        return False
    # Where another thread collects, this one's collection ends at once with nothing.
    time.sleep(0.02)
    return _take_back()


def _take_back() -> bool:
    caches.clear()
    gc.collect()
    found = False
    for name in _C.formats_at_run_time():
        _forget(name)
        in_use = _C.retire(name)
        if in_use is None:
            found = True
        else:
            dtype_abbrs[in_use] = name
            announce(in_use)
    return found


def install() -> None:
    _C.set_announcer(announce)
    _C.set_room_maker(make_room)
