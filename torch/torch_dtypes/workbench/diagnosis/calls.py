"""What hooks before a module's calls have found, for the hooks after them."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch

Found = TypeVar("Found")


class Calls(Generic[Found]):
    """Calls of modules that have not returned, the innermost last."""

    def __init__(self) -> None:
        self._running: list[tuple[torch.nn.Module, Found]] = []

    def begin(self, module: torch.nn.Module, found: Found) -> None:
        self._running.append((module, found))

    def end(self, module: torch.nn.Module) -> Found:
        """What was found as the call began that returns now. Calls within it that are left over
        have raised, which their caller caught."""
        while (call := self._running.pop())[0] is not module:
            pass
        return call[1]
