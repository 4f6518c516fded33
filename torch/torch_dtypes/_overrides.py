"""What rounding() and accumulate() give: an override of the calling thread as a context manager."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable


class Override(contextlib.ContextDecorator):
    """A block under one override. One object can be entered any number of times, within itself and in several threads at once."""

    def __init__(self, exchange: Callable, value: object) -> None:
        self._exchange = exchange  # sets the override and returns what it was
        self._value = value
        self._entered = threading.local()  # what this thread's blocks go back to: an override is the thread's

    def __enter__(self) -> None:
        previous = self._exchange(self._value)
        if not hasattr(self._entered, "previous"):
            self._entered.previous = []
        self._entered.previous.append(previous)

    def __exit__(self, *_exception) -> None:
        previous = getattr(self._entered, "previous", None)
        if not previous:
            raise RuntimeError("expected a block to end on the thread on which it began, but got an end without a beginning: write 'with ...:'")
        self._exchange(previous.pop())

    def __call__(self, function):
        # Such a function returns before its body runs, so that the override would hold for nothing.
        for kind in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction):
            if kind(function):
                raise TypeError(f"expected a function that runs when it is called, but got {function!r}. Put the with block inside it.")
        return super().__call__(function)
