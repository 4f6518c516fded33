"""What rounding() and accumulate() give: an override of the calling thread as a context manager."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import warnings
from collections.abc import Callable

from .. import _C


class Override(contextlib.ContextDecorator):
    """A block under one override. One object can be entered any number of times, within itself and
    in several threads at once.

    A user's block that ends without an exception, and in which nothing followed the override,
    warns.
    """

    def __init__(
        self,
        exchange: Callable,
        value: object,
        counts: str | None = None,
        idle: str = "",
        setting: object = None,
    ) -> None:
        self._exchange = exchange  # sets the override and returns what it was
        self._value = value
        # What a user's block is to have followed.
        self._counts = ("rounding", "accumulation").index(counts) if counts else None
        # The warning where it has not, and what it says was set.
        self._idle, self._setting = idle, setting
        # What this thread's blocks go back to: an override is the thread's.
        self._entered = threading.local()

    def __enter__(self) -> None:
        previous = self._exchange(self._value)
        if not hasattr(self._entered, "previous"):
            self._entered.previous = []
        self._entered.previous.append((previous, self._uses()))

    def __exit__(self, exception=None, *_traceback) -> None:
        entered = getattr(self._entered, "previous", None)
        if not entered:
            raise RuntimeError(
                "expected a block to end on the thread on which it began, but got an end without "
                "a beginning: write 'with ...:'"
            )
        previous, uses = entered.pop()
        self._exchange(previous)
        if exception is None and self._counts is not None and self._uses() == uses:
            is_decorated = sys._getframe(1).f_code.co_filename == contextlib.__file__
            warnings.warn(
                self._idle.format(self._setting), UserWarning, stacklevel=3 if is_decorated else 2
            )

    def _uses(self) -> int:
        return 0 if self._counts is None else _C.override_uses()[self._counts]

    def __call__(self, function):
        # Such a function returns before its body runs, so that the override would hold for nothing.
        for kind in (
            inspect.isgeneratorfunction,
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
        ):
            if kind(function):
                raise TypeError(
                    f"expected a function that runs when it is called, but got {function!r}. Put "
                    "the with block inside it."
                )
        return super().__call__(function)
