"""Results of a compiled function that share memory with an operand or with one another: eager code's objects, made again outside of the graph.

A graph gives new memory alone. An operand that is returned is that operand, and a view is made of the tensor that it is a view of, so that ``_base``,
version counters and gradients of what is written later are eager code's.
"""

from __future__ import annotations

import contextlib
import operator
from dataclasses import dataclass

import torch

from .recording import NotRecordable, Recorded

_autograd = torch._C._autograd
_UNSEEN = "a result shares memory with another tensor in a way that a graph does not see"


def _storage(tensor: torch.Tensor) -> int:
    """What tells storages apart while they live."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else -id(tensor)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where its elements begin and end in memory."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    start = tensor.data_ptr()
    return start, start + extent * tensor.element_size()


def overlap(tensors: list[torch.Tensor], written: list[int]) -> bool:
    """Whether one that is written to, by its place, shares elements with another: of which a recording, on copies, knows nothing."""
    if not written:
        return False
    storages = [_storage(v) for v in tensors]
    for i in written:
        if storages.count(storages[i]) > 1:
            start, end = _span(tensors[i])
            others = (_span(v) for k, v in enumerate(tensors) if k != i and storages[k] == storages[i])
            if any(low < end and start < high for low, high in others):
                return True
    return False


def _share_counter(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_inference() or b.is_inference():  # which have none
        return False
    before = b._version
    torch.autograd.graph.increment_version(a)
    return b._version != before


def _is_view(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def seen(node: torch.fx.Node) -> torch.fx.Node:
    """What a view is one of; another node itself."""
    while _is_view(node):
        node = node.args[0]
    return node


_ITSELF = [(torch.ops.aten.alias.default, (), {}, None)]


def _views_between(start: torch.fx.Node, end: torch.fx.Node) -> list[tuple]:
    """The calls that make a view of what it is one of: operators, their further arguments, and which of several results is meant."""
    calls, pick, node = [], None, end
    while node is not start:
        if not _is_view(node) or any(n is not node.args[0] for n in node.all_input_nodes):
            raise NotRecordable(_UNSEEN)
        if node.target is operator.getitem:
            pick = node.args[1]
        else:
            calls.insert(0, (node.target, node.args[1:], node.kwargs, pick))
            pick = None
        node = node.args[0]
    return calls


def _viewed(value: torch.Tensor, views: list[tuple]) -> torch.Tensor:
    for func, args, kwargs, pick in views:
        value = func(value, *args, **kwargs)
        value = value if pick is None else value[pick]
    return value


@dataclass(frozen=True)
class _Given:
    """By the graph."""

    place: int

    def make(self, found: list[torch.Tensor], made: list[torch.Tensor]) -> torch.Tensor:
        return found[self.place]


@dataclass(frozen=True)
class _View:
    """Of a tensor that is made before. ``creation``: what eager code's view knows of the modes in which it was made."""

    source: int
    views: list[tuple]
    grad: bool
    creation: object

    def make(self, found: list[torch.Tensor], made: list[torch.Tensor]) -> torch.Tensor:
        with contextlib.nullcontext() if self.grad else torch.no_grad():
            view = _viewed(made[self.source], self.views)
        if view._is_view() and not torch.is_inference_mode_enabled():  # where it has that mode's
            _autograd._set_creation_meta(view, self.creation)
        return view


@dataclass(frozen=True)
class _Apart:
    """The same memory as a tensor's that is made before, and no view of it: behind ``detach``, or of another version counter behind ``data``."""

    source: int
    views: list[tuple]
    counted: bool

    def make(self, found: list[torch.Tensor], made: list[torch.Tensor]) -> torch.Tensor:
        value = _viewed(made[self.source], self.views)
        return value.detach() if self.counted else value.data


class Results:
    """A function's tensors, of its operands and of what a graph gives."""

    def __init__(self, operands: int, steps: list, places: list[int]) -> None:
        self._operands, self._steps, self._places = operands, steps, places
        self._are_the_graphs = places == [operands + i for i, step in enumerate(steps) if isinstance(step, _Given)]

    def of(self, operands: list[torch.Tensor], found: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._are_the_graphs:
            return found
        made = operands[: self._operands]
        for step in self._steps:
            made.append(step.make(found, made))
        return [made[i] for i in self._places]


class Origins:
    """Where the tensors that a function returns come from. ``nodes``, ``examples``: of those that a graph is to give."""

    def __init__(self, recorded: Recorded) -> None:
        self.nodes: list[torch.fx.Node] = []
        self.examples: list[torch.Tensor] = []
        self._recorder = recorded.recorder
        self._known = [recorded.recorder.tensors[n] for n in recorded.inputs if n is not None]  # operands, then what each step makes
        operands, self._steps = len(self._known), []
        places = [self._place(v) for v in recorded.results if isinstance(v, torch.Tensor)]
        self.results = Results(operands, self._steps, places)

    def _place(self, tensor: torch.Tensor) -> int:
        for i, known in enumerate(self._known):
            if known is tensor:
                return i
        node = self._recorder.node(tensor)
        if (base := tensor._base) is not None:
            source = self._place(base)
            views = _views_between(self._recorder.node(base), node) or _ITSELF
            return self._add(_View(source, views, not base.requires_grad, _autograd._get_creation_meta(tensor)), tensor)
        for i, known in enumerate(self._known):
            if known._base is None and _storage(known) == _storage(tensor):
                return self._add(_Apart(i, _views_between(self._recorder.node(known), node), _share_counter(known, tensor)), tensor)
        if (whole := seen(node)) is not node:
            if _storage(memory := self._recorder.tensors[whole]) != _storage(tensor):
                raise NotRecordable(_UNSEEN)
            self._give(whole, memory)
            return self._place(tensor)
        return self._give(node, tensor)

    def _give(self, node: torch.fx.Node, tensor: torch.Tensor) -> int:
        self.nodes.append(node)
        self.examples.append(tensor)
        return self._add(_Given(len(self.nodes) - 1), tensor)

    def _add(self, step: _Given | _View | _Apart, tensor: torch.Tensor) -> int:
        self._steps.append(step)
        self._known.append(tensor)
        return len(self._known) - 1
