"""What a checkpointed function found in its first pass, given again where the function is computed again for backward.

A scale of the tensors before would be another one then, since the first pass's tensor is among them: backward would go by other values than those
that were computed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

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
        raise RuntimeError("expected a checkpointed function that computes again what it computed, but got other calls of its layers")
    for record in _here.records:
        record.setdefault(owner, []).append(found)
    return found
