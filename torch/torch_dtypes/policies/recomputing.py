"""What holds in the first pass of a checkpointed function, and what it found there, given again
where the function is computed again for backward.

A block around the first pass, as of rounding(), may be over then. And a scale of the tensors before
would be another one, since the first pass's tensor is among them: backward would go by other values
than those that were computed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from .. import _C

Record = dict[object, list]  # what each object found, in its order


class _Here(threading.local):
    def __init__(self) -> None:
        self.records: list[Record] = []  # of the first passes now running, the outer ones first
        self.repeats: dict[object, Iterator] | None = None  # of the recomputation now running


_here = _Here()


@contextlib.contextmanager
def recording(record: Record):
    """A first pass: ``once`` keeps what it finds."""
    _here.records.append(record)
    try:
        yield
    finally:
        _here.records = [kept for kept in _here.records if kept is not record]


@contextlib.contextmanager
def repeating(record: Record):
    """A recomputation: ``once`` gives what it found in the first pass."""
    before, _here.repeats = _here.repeats, {key: iter(found) for key, found in record.items()}
    try:
        yield
    finally:
        _here.repeats = before


def once(owner: object, find: Callable):
    """``find()``, or what it was in the first pass of what is computed again."""
    if _here.repeats is None and not _here.records:
        return find()
    found = find() if _here.repeats is None else next(_here.repeats.get(owner, iter(())), None)
    if found is None:
        raise RuntimeError(
            "expected a checkpointed function that computes again what it computed, but got "
            "other calls of its layers"
        )
    for record in _here.records:
        record.setdefault(owner, []).append(found)
    return found


# Each returns what it was.
_EXCHANGES = (_C.set_rounding_override, _C.set_few_bits_override, _C.set_accumulation_override)


def carried(function: Callable) -> tuple[contextlib.AbstractContextManager, Callable]:
    """A context for the first pass of a function, and the function as it is called later: under the
    overrides that hold now on this thread, also where there are none, with the scales that the
    first pass found."""
    record: Record = {}
    overrides = (_C.rounding_override(), _C.few_bits_override(), _C.accumulation_override())

    def repeat(*args: object, **kwargs: object) -> object:
        around = [exchange(value) for exchange, value in zip(_EXCHANGES, overrides, strict=True)]
        try:
            with repeating(record):
                return function(*args, **kwargs)
        finally:
            for exchange, value in zip(_EXCHANGES, around, strict=True):
                exchange(value)

    return recording(record), repeat
