"""The time of each layer in a training step, forward and backward, by a clock that hooks switch.

A module's time is its own: what runs in modules within it counts to those. Backward belongs to a
module from the moment when the gradient of its output is known, to the next such moment.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import nn

from ..diagnosis.divergence import tensors_in

LOSS = "(loss)"  # outside of the network
OPTIMIZER = "(optimizer)"


class _Clock:
    """Adds up the seconds of places, of which one is current. A place is a layer and a pass."""

    def __init__(self) -> None:
        self.seconds: Counter[tuple[str, str]] = Counter()
        self.start()
        self._calls: list[tuple[str, str]] = []  # the places around the current call
        self._outputs: dict[int, tuple[torch.Tensor, int]] = {}

    def start(self) -> None:
        self.place, self._since = (LOSS, "forward"), time.perf_counter()

    def switch(self, place: tuple[str, str]) -> None:
        now = time.perf_counter()
        self.seconds[self.place] += now - self._since
        self.place, self._since = place, now

    def start_pass(self, name: str) -> None:
        """Start a pass of a step, outside of all layers."""
        self._outputs.clear()
        self.switch((OPTIMIZER if name == "optimizer" else LOSS, name))

    def _is_output(self, t: torch.Tensor) -> bool:
        kept, version = self._outputs.get(id(t), (None, 0))
        return kept is t and version == t._version

    def _switch_at(self, t: torch.Tensor, layer: str) -> None:
        """Switch when the gradient of a tensor is known."""
        if t.requires_grad and not t.is_leaf:
            t.register_hook(lambda gradient: self.switch((layer, "backward")))

    @contextlib.contextmanager
    def attached_to(self, model: nn.Module) -> Iterator[None]:
        """Attach the hooks, in a block."""
        handles = []
        for name, module in model.named_modules():
            handles += [
                module.register_forward_pre_hook(self._build_enter(name), with_kwargs=True),
                module.register_forward_hook(self._build_leave(name)),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _build_enter(self, layer: str) -> Callable:
        def enter(module, args, kwargs):
            for t in tensors_in((args, kwargs)):
                if not self._is_output(t):  # backward goes from here to the surrounding module
                    self._switch_at(t, self.place[0])
            self._calls.append(self.place)
            self.switch((layer, "forward"))

        return enter

    def _build_leave(self, layer: str) -> Callable:
        def leave(module, args, output):
            for t in tensors_in(output):
                if not self._is_output(t):  # of a module within this one
                    self._outputs[id(t)] = t, t._version
                    self._switch_at(t, layer)
            self.switch(self._calls.pop())

        return leave


def layer_seconds(case: dict, run_step: Callable, steps: int) -> dict[tuple[str, str], float]:
    """Return the median seconds of each layer and pass over some steps."""
    by_step = []
    for _ in range(steps):
        clock = _Clock()
        with clock.attached_to(case["model"]):
            clock.start()
            run_step(case, clock.start_pass)
            clock.switch(clock.place)
        by_step.append(clock.seconds)
    places = dict.fromkeys(place for seconds in by_step for place in seconds)
    return {place: statistics.median(seconds[place] for seconds in by_step) for place in places}
