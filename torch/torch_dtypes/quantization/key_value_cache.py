"""Keys and values that are rounded once, where they enter the cache of transformers.

A key enters after its rotary embedding. Hardware stores it in the cache's format, and every later
step of generation reads the rounded numbers.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator

import torch
from torch import nn

from .places import CACHE
from .products import base_class
from .rounders import Rounder

# The argument of an attention's forward, by releases of transformers.
_ARGUMENTS = frozenset({"cache", "past_key_values", "past_key_value", "layer_past"})
# The class and module of every cache, so that the library need not be imported.
_CLASS = ("transformers.cache_utils", "Cache")


def takes_cache(module: nn.Module) -> bool:
    """Return whether a module's forward fills a cache: it takes one by a name of transformers, and
    no module inside does. A model that passes a cache on makes it itself at the first call."""
    takers = [part for part in module.modules() if _has_argument(part)]
    return takers == [module]


def _has_argument(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return False
    return not _ARGUMENTS.isdisjoint(inspect.signature(base_class(module).forward).parameters)


def _is_cache(value: object) -> bool:
    return any((kind.__module__, kind.__name__) == _CLASS for kind in type(value).__mro__)


@contextlib.contextmanager
def round_cache(
    rounders: dict[str, Rounder], training: bool, args: tuple, kwargs: dict
) -> Iterator[None]:
    """Run a block in which the caches among a module's arguments round what enters them.

    For the block, an attribute of the cache shadows its method ``update``. An encoder and decoder's
    cache holds two.
    """

    def round_one(name: str, x):
        rounder = rounders.get(name)
        return x if rounder is None else rounder(x, training)

    def shadow(cache):
        update = cache.update

        def round_and_update(key_states, value_states, *others, **named):
            pair = zip(CACHE, (key_states, value_states), strict=True)
            return update(*(round_one(name, x) for name, x in pair), *others, **named)

        cache.__dict__["update"] = round_and_update

    found = [value for value in (*args, *kwargs.values()) if _is_cache(value)]
    for cache in list(found):
        parts = (getattr(cache, f"{kind}_attention_cache", None) for kind in ("self", "cross"))
        found += [part for part in parts if part is not None]
    caches = {id(cache): cache for cache in found}.values()
    # A module around this one may round this cache, too.
    before = [(cache, cache.__dict__.get("update")) for cache in caches]
    try:
        for cache in caches:
            shadow(cache)
        yield
    finally:
        for cache, update in before:
            cache.__dict__.pop("update")
            if update is not None:
                cache.update = update
