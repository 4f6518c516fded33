"""Hooks that attribute roundings to layers and passes, around the counters in C++
(aten/src/ATen/Observation.h)."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ... import _C
from ...formats import naming
from ...formats.dtypes import is_format_dtype
from ...quantization.operands import View, find_views
from ...quantization.places import leaves_axis_open
from ...quantization.products import is_convolution, sums_over_several
from ...targets.base import Target
from ...targets.block_targets import BlockFormat
from ..diagnosis.divergence import tensors_in
from .blocks import BlockCounter, to_nearest
from .counts import OUTSIDE, PASSES
from .outliers import ChannelMagnitudes

_FORWARD, _BACKWARD, _WEIGHTS, _GRADIENTS, _UPDATES, _STATES = range(6)


class _Thread(threading.local):
    """The state of the hooks on one thread: the calls under way, and the tensors that are
    outputs."""

    def __init__(self):
        self.calls: list[tuple[int, tuple]] = []
        self.steps: list[tuple] = []
        self.outputs: dict[int, tuple[weakref.ref, int]] = {}

    def is_output(self, t: torch.Tensor) -> bool:
        kept, version = self.outputs.get(id(t), (None, 0))
        return kept is not None and kept() is t and version == _version(t)

    def note(self, t: torch.Tensor) -> None:
        self.outputs[id(t)] = weakref.ref(t), _version(t)


def _version(t: torch.Tensor) -> int:
    return -1 if t.is_inference() else t._version


class Hooks:
    """The hooks of one observation, and its counters."""

    def __init__(
        self,
        model: nn.Module,
        formats: Sequence[_C.Format | Target],
        channels: ChannelMagnitudes | None = None,
    ) -> None:
        self.observer, self.channels = _C.Observer(), channels
        self.model = model
        self.formats = [f for f in formats if isinstance(f, _C.Format)]
        self.blocks = [f for f in formats if isinstance(f, Target)]  # or quantisers
        self.block_counter = BlockCounter()
        # A random mode would draw other results. Whether parameters stay is decided by rounding to
        # nearest.
        self.steady = [_nearest(f) for f in (*self.formats, *self.blocks)]
        modules = list(model.named_modules())
        self.layers = [OUTSIDE, *(name for name, _ in modules)]
        self.unchanged: dict[tuple[int, str], list[int]] = {}
        self._number = {module: i for i, (_, module) in enumerate(modules, 1)}
        self._views = {
            layer: _find_views(module)
            for module, layer in self._number.items()
            if is_convolution(module) and sums_over_several(module)
        }
        self._thread = _Thread()
        self._handles: list = []
        self._with_hook: set[torch.Tensor] = set()  # tied parameters have one hook
        self._on_tensors: list = []  # handles, which do not keep tensors alive
        self._before: dict[torch.Tensor, torch.Tensor] = {}
        self._stepped = False
        self.called = False  # whether the model or a module of it ran
        self._open = False  # copies of the model keep the hooks after detach

    # ---- attach and detach ----

    def attach(self) -> None:
        _C.observers_open(1)
        self._open = True
        try:
            for module, layer in self._number.items():
                self._attach_to(module, layer)
            self._handles.append(register_optimizer_step_pre_hook(self._before_step))
            self._handles.append(register_optimizer_step_post_hook(self._after_step))
            self._know_parameters()
            _C.observe_enter(self.observer, 0, -1, False)
            _C.observe_backward_layer(self.observer, 0)
        except BaseException:
            self.detach()
            raise

    def _attach_to(self, module: nn.Module, layer: int) -> None:
        enter, leave = self._build_enter_hook(layer), self._build_leave_hook(layer)
        self._handles += [
            module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True),
            module.register_forward_hook(leave, always_call=True),
        ]
        for p in module._parameters.values():
            if p is not None and p.requires_grad and p.is_leaf and p not in self._with_hook:
                self._with_hook.add(p)
                self._handles.append(p.register_post_accumulate_grad_hook(self._note_gradient))

    def try_formats(self) -> None:
        """Raise before the model runs if its GPU cannot compute with one of the formats."""
        for device in {p.device for p in self.model.parameters() if p.is_cuda}:
            for f in self.formats:
                try:
                    self.observer.measure(torch.empty(0, device=device), 0, _WEIGHTS, [f])
                except NotImplementedError as error:
                    name = naming.name_of_format(f)
                    raise NotImplementedError(
                        "observe: expected formats with which a GPU computes, for a model on "
                        f"{device}, but got {name}: leave it out, or observe a copy of the model "
                        f"on the CPU ({error})"
                    ) from error

    def detach(self) -> None:
        self._open = False
        _C.observe_enter(None, 0, -1, False)
        _C.observers_open(-1)
        for handle in (*self._handles, *self._on_tensors):
            handle.remove()
        self._handles, self._on_tensors = [], []
        self._before = {}
        self._thread = _Thread()

    def finish(self) -> None:
        """Measure weights once, at the end: those of format dtypes, and all if no optimizer
        stepped."""
        for p, layer in self._layers_of_parameters().items():
            if is_format_dtype(p.dtype):
                self.observer.measure_exact(p, layer, _WEIGHTS)
            elif not self._stepped:
                self._measure(p, layer, _WEIGHTS)

    def _layers_of_parameters(self) -> dict[torch.Tensor, int]:
        layers: dict[torch.Tensor, int] = {}
        for module, layer in self._number.items():
            for p in module._parameters.values():
                if p is not None:
                    layers.setdefault(p, layer)
        return layers

    def _know_parameters(self) -> None:
        self.parameters = self._layers_of_parameters()
        self.observer.know_parameters(list(self.parameters), list(self.parameters.values()))

    def _measure(
        self, t: torch.Tensor, layer: int, where: int, in_blocks: torch.dtype | None = None
    ) -> None:
        """Count a tensor's numbers in each format; in block formats those of ``in_blocks``, if it
        is given, in which kernels compute."""
        if (
            (self.formats or self.blocks)
            and t.is_floating_point()
            and t.layout is torch.strided
            and not t.is_meta
            and not is_format_dtype(t.dtype)
        ):
            if self.formats:
                self.observer.measure(t.detach(), layer, where, self.formats)
            if self.blocks:
                with _pause_observation():
                    own = t if in_blocks is None else t.to(in_blocks)
                    for f in self.blocks:
                        laid = self._lay(own, layer, where, f)
                        self.block_counter.measure(laid, layer, where, [f])

    def _lay(self, t: torch.Tensor, layer: int, where: int, f: _C.Format | Target) -> torch.Tensor:
        """Return a tensor of a convolution with the channels last, along which rules lay blocks."""
        view = self._views.get(layer, {}).get(where)
        if view is None or not isinstance(f, Target) or not leaves_axis_open(f):
            return t
        return view.bring(t) if t.dim() >= -view.axis else t

    # ---- forward and backward ----

    def _on(self, t: torch.Tensor, hook) -> None:
        if t.requires_grad and torch.is_grad_enabled():
            self._on_tensors.append(t.register_hook(hook))
            if len(self._on_tensors) > 10_000:
                self._on_tensors = [h for h in self._on_tensors if h.hooks_dict_ref() is not None]

    def _build_enter_hook(self, layer: int):
        def hook(module, args, kwargs):
            if not self._open:
                return
            now = self._thread
            self.called = True
            if not now.calls:
                now.outputs.clear()
                self._know_parameters()
                _C.observe_backward_layer(self.observer, 0)
            before = _C.observe_enter(self.observer, layer, -1, False)
            now.calls.append((layer, before))
            outer = before[1] if before[0] is not None else 0
            if self.channels is not None:
                self.channels.see(self.layers[layer], module, args, kwargs)
            for t in tensors_in((args, kwargs)):
                # When backward leaves this call, it enters the surrounding call, or the layer with
                # this output.
                if t.requires_grad and not t.is_leaf and not now.is_output(t):
                    self._on(
                        t,
                        lambda gradient, outer=outer: _C.observe_backward_layer(
                            self.observer, outer
                        ),
                    )

        return hook

    def _build_leave_hook(self, layer: int):
        def hook(module, args, output):
            if not self._open:
                return
            now = self._thread
            while now.calls:  # after an exception, inner calls may not have left
                left, before = now.calls.pop()
                if left == layer:
                    _C.observe_enter(*before)
                    break
            for t in tensors_in(output):
                if now.is_output(t):  # the output of a layer within this one
                    continue
                now.note(t)
                self._measure(t, layer, _FORWARD)
                self._on(t, self._build_gradient_hook(layer))

        return hook

    def _build_gradient_hook(self, layer: int):
        def hook(gradient):
            if self._open:
                _C.observe_backward_layer(self.observer, layer)
                self._measure(gradient, layer, _BACKWARD)

        return hook

    def _note_gradient(self, p: torch.Tensor) -> None:
        layer = self.parameters.get(p) if self._open else None
        if layer is None or p.grad is None or p.grad.layout is not torch.strided:
            return
        if is_format_dtype(p.grad.dtype):
            self.observer.claim(p.grad, layer)
        self._measure(p.grad, layer, _GRADIENTS)

    # ---- the optimizer ----

    def _before_step(self, optimizer, args, kwargs) -> None:
        now = self._thread
        own = self._find_parameters(optimizer)
        nested = bool(now.steps)
        if not nested and own:
            self._know_parameters()
            self._stepped = True
            known = [(t, self.parameters[p]) for p in own for t in self._tensors_of(optimizer, p)]
            self.observer.know_states([t for t, _ in known], [layer for _, layer in known])
            for p in own:
                self._measure(p, self.parameters[p], _WEIGHTS)
                if p.grad is not None and (self.steady or is_format_dtype(p.dtype)):
                    self._before[p] = p.detach().clone()
        # This observation ignores an optimizer of another model.
        now.steps.append(_C.observe_enter(self.observer if own or nested else None, 0, -1, True))

    def _find_parameters(self, optimizer) -> list[torch.Tensor]:
        """Return the model's parameters that an optimizer steps."""
        groups = optimizer.param_groups
        return [p for group in groups for p in group["params"] if p in self.parameters]

    @staticmethod
    def _tensors_of(optimizer, p: torch.Tensor) -> Iterator[torch.Tensor]:
        if p.grad is not None and p.grad.layout is torch.strided:
            yield p.grad
        for t in tensors_in(dict(optimizer.state.get(p, {}))):
            if t.layout is torch.strided:
                yield t

    def _after_step(self, optimizer, args, kwargs) -> None:
        now = self._thread
        if now.steps:
            _C.observe_enter(*now.steps.pop())
        if now.steps:
            return
        for p, before in self._before.items():
            layer = self.parameters[p]
            if is_format_dtype(p.dtype):
                name = naming.name_of_format(_C.format_of(p.dtype))
                bits = _BITS[p.itemsize]
                same = (before.view(bits) == p.detach().view(bits)).sum()
                self._count_unchanged(layer, name, int(same), p.numel())
                continue
            update = p.detach().double() - before.double()
            in_blocks = torch.float64 if p.dtype == torch.float64 else torch.float32
            self._measure(update, layer, _UPDATES, in_blocks)
            for f, steady in zip((*self.formats, *self.blocks), self.steady, strict=True):
                dtype = in_blocks if isinstance(f, BlockFormat) else torch.float64
                with _pause_observation():
                    lay = functools.partial(self._lay, layer=layer, where=_WEIGHTS, f=f)
                    old = _round(lay(before.to(dtype)), steady)
                    new = _round((old + lay(update)).to(dtype), steady)
                self._count_unchanged(layer, _name(f), int((old == new).sum()), p.numel())
        self._before = {}
        if self.steady:
            for p in self._find_parameters(optimizer):
                for t in _find_states(optimizer, p):
                    self._measure(t, self.parameters[p], _STATES)

    def _count_unchanged(self, layer: int, name: str, same: int, of: int) -> None:
        kept = self.unchanged.setdefault((layer, name), [0, 0])
        kept[0] += same
        kept[1] += of

    def read(self) -> Iterator[tuple[str, str, str, dict, tuple[int, int]]]:
        """Yield the counts so far: layer, pass, format and raw counts.

        The last item is a pair for updates: the number of unchanged parameters, and of compared
        ones.
        """
        entries = [(*entry[:2], _name(entry[2]), entry[3]) for entry in self.observer.entries()]
        for layer, where, canonical, raw in (*entries, *self.block_counter.entries()):
            is_update = PASSES[where] == "updates"
            unchanged = self.unchanged.get((layer, canonical), (0, 0)) if is_update else (0, 0)
            yield self.layers[layer], PASSES[where], canonical, raw, tuple(unchanged)


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _find_states(optimizer, p: torch.Tensor) -> Iterator[torch.Tensor]:
    """Iterate over the states of a parameter, but for counts of steps and other single numbers."""
    for name, state in dict(optimizer.state.get(p, {})).items():
        for t in tensors_in(state) if name != "step" else ():
            if t.dim() or not p.dim():
                yield t


def _find_views(module: nn.Module) -> dict[int, View]:
    """Return the views of a convolution's outputs, errors, weights and updates, as its products
    sum. Gradients of weights stand in no product."""
    views = find_views(module)
    channels, of_weight = views["input_grad"][0], views["forward"][1]
    return {
        _FORWARD: channels,
        _BACKWARD: channels,
        _WEIGHTS: of_weight,
        _UPDATES: of_weight,
    }


def _name(f: _C.Format | Target) -> str:
    return f.name if isinstance(f, Target) else naming.name_of_format(f)


def _round(x: torch.Tensor, f: _C.Format | Target) -> torch.Tensor:
    if isinstance(f, Target):
        return (f.adapt_to(x.dim()) if isinstance(f, BlockFormat) else f).quantize(x)
    return torch.ops.torch_dtypes.chop(x, _name(f))


def _nearest(f: _C.Format | Target) -> _C.Format | Target:
    if isinstance(f, Target):
        return to_nearest(f)
    plain = _C.Format(f)
    if f.rounding.name in naming.DRAWING_MODES:
        plain.rounding = _C.Rounding.nearest_even
    return plain


@contextlib.contextmanager
def _pause_observation():
    before = _C.observe_enter(None, 0, -1, False)
    try:
        yield
    finally:
        _C.observe_enter(*before)
