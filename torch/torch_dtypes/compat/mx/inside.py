"""Functions that run on PyTorch's own operators, although ``inject_pyt_ops`` has replaced them."""

from __future__ import annotations

import functools
import threading

_thread = threading.local()


def is_inside() -> bool:
    """Return whether this thread is within a function of ``stock_within``."""
    return getattr(_thread, "depth", 0) > 0


def stock_within(function):
    """Let a function, and all that it calls, see PyTorch's own operators."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        _thread.depth = getattr(_thread, "depth", 0) + 1
        try:
            return function(*args, **kwargs)
        finally:
            _thread.depth -= 1

    return call
