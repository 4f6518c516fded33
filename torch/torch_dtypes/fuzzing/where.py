"""Tell whether a chosen module runs now, forward or backward."""

from __future__ import annotations

import bisect
import threading

import torch
from torch import nn


class Where:
    """Tracks whether a chosen module runs now, or ran the operator that is being differentiated.

    Autograd numbers the nodes of a thread in the order of recording. The numbers at which modules
    begin and end tell which module a node belongs to.
    """

    def __init__(self, model: nn.Module, chosen: set[str], nested: bool) -> None:
        self.model, self.chosen, self.nested = model, chosen, nested
        self.stack: list[bool] = []
        self.places: list[int] = []  # sequence numbers at which the state changes
        self.states: list[bool] = []  # whether nodes from there on are of a chosen module
        self.hooks: list = []
        self.thread = threading.get_ident()

    def watch(self) -> None:
        for name, module in self.model.named_modules(remove_duplicate=False):
            here = name in self.chosen
            self.hooks.append(
                module.register_forward_pre_hook(lambda *_, here=here: self._enter(here))
            )
            self.hooks.append(
                module.register_forward_hook(lambda *_: self._exit(), always_call=True)
            )

    def unwatch(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()
        self.stack.clear()

    def _enter(self, here: bool) -> None:
        if threading.get_ident() == self.thread:
            self.stack.append(here or (self.nested and self._inside()))
            self._note()

    def _exit(self) -> None:
        if threading.get_ident() == self.thread and self.stack:
            self.stack.pop()
            self._note()

    def _inside(self) -> bool:
        return bool(self.stack) and self.stack[-1]

    def _note(self) -> None:
        state, number = self._inside(), torch.autograd._get_sequence_nr()
        if self.places and self.places[-1] == number:
            self.states[-1] = state
        elif not self.states or self.states[-1] != state:
            self.places.append(number)
            self.states.append(state)

    def chosen_now(self) -> bool:
        node = torch._C._current_autograd_node()
        # In forward, or in backward where activations are recomputed.
        if node is None or self.stack:
            return self._inside()
        at = bisect.bisect_right(self.places, node._sequence_nr()) - 1
        # The last change is the end of a module.
        return at >= 0 and at < len(self.states) - 1 and self.states[at]
