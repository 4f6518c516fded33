"""Caches of functions that take dtypes or give what refers to them: emptied before numbers are
taken back, so that they keep none in use."""

from __future__ import annotations

import functools
from collections.abc import Callable

_made: list = []


def clearable_cache(function: Callable) -> Callable:
    """functools.lru_cache, emptied by ``clear``."""
    made = functools.lru_cache(maxsize=1024)(function)
    _made.append(made)
    return made


def clear() -> None:
    for cache in _made:
        cache.cache_clear()
