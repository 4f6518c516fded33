"""Overrides and scales of a checkpointed function's first pass, restored when backward computes it
again.

A block around the first pass, as of rounding(), may have ended by then. A delayed scale would be
another one, since its history now has the first pass's tensor. Backward would then use other values
than forward did.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from .. import _C

Record = dict[object, list]  # the results of each owner's ``find_once``, in order


class _Passes(threading.local):
    def __init__(self) -> None:
        self.records: list[Record] = []  # of the first passes now running, outermost first
        self.repeats: dict[object, Iterator] | None = None  # of the recomputation now running
        self.forbidding: str | None = None  # the kind of module that forbids checkpoints now


_passes = _Passes()


@contextlib.contextmanager
def record_pass(record: Record):
    """Run a first pass, in which ``find_once`` records its results."""
    _passes.records.append(record)
    try:
        yield
    finally:
        _passes.records = [kept for kept in _passes.records if kept is not record]


@contextlib.contextmanager
def repeat_pass(record: Record):
    """Run a recomputation, in which ``find_once`` returns the results of the first pass."""
    before, _passes.repeats = _passes.repeats, {key: iter(values) for key, values in record.items()}
    try:
        yield
    finally:
        _passes.repeats = before


def find_once(owner: object, find: Callable):
    """Return ``find()``, or in a recomputation its result from the first pass."""
    if _passes.repeats is None and not _passes.records:
        return find()
    result = find() if _passes.repeats is None else next(_passes.repeats.get(owner, iter(())), None)
    if result is None:
        raise RuntimeError(
            "expected a checkpointed function to repeat the calls of its first pass, but got other "
            "calls of its layers"
        )
    for record in _passes.records:
        record.setdefault(owner, []).append(result)
    return result


@contextlib.contextmanager
def forbid_checkpoints(kind: str):
    """Run a block, as of the forward of a module of this kind, in which a checkpoint raises
    ValueError: its recomputation would miss the block."""
    before, _passes.forbidding = _passes.forbidding, kind
    try:
        yield
    finally:
        _passes.forbidding = before


# Each returns the previous value.
_EXCHANGES = (_C.set_rounding_override, _C.set_few_bits_override, _C.set_accumulation_override)


def carry_overrides(function: Callable) -> tuple[contextlib.AbstractContextManager, Callable]:
    """Return a context for a function's first pass, and the function for its recomputation.

    The recomputation runs under this thread's present overrides, or none, with the scales of the
    first pass.
    """
    if _passes.forbidding is not None:
        raise ValueError(
            "expected no checkpoint within the forward of a module whose rule reaches its own "
            f"products, but got one within {_passes.forbidding}; put the checkpoint around the "
            "module"
        )
    record: Record = {}
    overrides = (_C.rounding_override(), _C.few_bits_override(), _C.accumulation_override())

    def repeat(*args: object, **kwargs: object) -> object:
        around = [exchange(value) for exchange, value in zip(_EXCHANGES, overrides, strict=True)]
        try:
            with repeat_pass(record):
                return function(*args, **kwargs)
        finally:
            for exchange, value in zip(_EXCHANGES, around, strict=True):
                exchange(value)

    return record_pass(record), repeat
