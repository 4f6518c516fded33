"""Caches of functions whose arguments or results refer to dtypes. They are cleared before the
numbers of unused dtypes are taken back, since they would keep dtypes in use."""

from __future__ import annotations

import functools
from collections.abc import Callable

_caches: list = []


def clearable_cache(function: Callable) -> Callable:
    """Wrap a function in functools.lru_cache that ``clear`` clears."""
    cache = functools.lru_cache(maxsize=1024)(function)
    _caches.append(cache)
    return cache


def clear() -> None:
    for cache in _caches:
        cache.cache_clear()
