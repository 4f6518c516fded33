"""Observation of a script: networks become known when they are first called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from .hooks import Hooks
from .statistics import Statistics


class ScriptHooks(Hooks):
    """Hooks of an observation that begins before there is a model.

    A module that is called, and is unknown, is a network with its own layers, named after its
    class: ``Net.conv1``; the second of one class ``Net-2``.
    """

    def __init__(self) -> None:
        super().__init__(nn.Module(), [])
        self._names: dict[str, int] = {}

    def attach(self) -> None:
        super().attach()
        self._handles.append(register_module_forward_pre_hook(self._adopt))

    def _adopt(self, module: nn.Module, inputs: tuple) -> None:
        """Attach hooks to a network at its first call. PyTorch has listed that call's hooks before,
        so the first of them runs here."""
        if module in self._number:
            return
        kind = type(module).__name__
        self._names[kind] = count = self._names.get(kind, 0) + 1
        root = kind if count == 1 else f"{kind}-{count}"
        for name, part in module.named_modules():
            if part not in self._number:
                self._number[part] = layer = len(self.layers)
                self.layers.append(f"{root}.{name}" if name else root)
                self._attach_to(part, layer)
        self._build_enter_hook(self._number[module])(module, inputs, {})


@contextlib.contextmanager
def observe_script() -> Iterator[Statistics]:
    """Count what rounding does in a block, by network and layer. One at a time."""
    hooks = ScriptHooks()
    hooks.attach()
    stats = Statistics(hooks)
    try:
        yield stats
    finally:
        hooks.detach()
        hooks.finish()
        stats.close()
