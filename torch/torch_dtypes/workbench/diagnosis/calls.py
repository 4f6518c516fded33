"""Passes values from forward-pre hooks to the matching forward hooks."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch

Found = TypeVar("Found")


class Calls(Generic[Found]):
    """Calls of modules that have not returned, the innermost last, each with a value."""

    def __init__(self) -> None:
        self._running: list[tuple[torch.nn.Module, Found]] = []

    def begin(self, module: torch.nn.Module, value: Found) -> None:
        self._running.append((module, value))

    def end(self, module: torch.nn.Module) -> Found:
        """Return the value of the call that ends now. Inner calls that are left have raised, and
        their caller caught it."""
        while (call := self._running.pop())[0] is not module:
            pass
        return call[1]
