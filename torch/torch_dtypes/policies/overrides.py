"""Override: the context manager of rounding() and accumulate(), for the calling thread."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import warnings
from collections.abc import Callable

from .. import _C


class Override(contextlib.ContextDecorator):
    """A block with one override. One object can be entered any number of times, within itself and
    in several threads at once.

    A user's block warns at its end if nothing in it followed the override, unless an exception ends
    it.
    """

    def __init__(
        self,
        exchange: Callable,
        value: object,
        counts: str | None = None,
        idle: str = "",
        setting: object = None,
    ) -> None:
        self._exchange = exchange  # sets the override and returns the previous one
        self._value = value
        # Index of the count of uses that a user's block must raise; None without a warning.
        self._counts = ("rounding", "accumulation").index(counts) if counts else None
        # The warning of a block without uses, and the setting that it names.
        self._idle, self._setting = idle, setting
        # Previous overrides, which blocks restore. An override belongs to its thread.
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
                "expected a block to end on the thread on which it began, but got an end without a "
                "beginning; write 'with ...:'"
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
        # These functions return before their body runs, so the override would have no effect.
        for kind in (
            inspect.isgeneratorfunction,
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
        ):
            if kind(function):
                raise TypeError(
                    f"expected a function that runs when it is called, but got {function!r}; put "
                    "the with block inside it"
                )
        return super().__call__(function)
