"""Graphs whose sizes vary: Dynamo's is one for all of them, and is recorded anew for sizes that come again."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable

import torch
from torch.types import py_sym_types
from torch.utils import _pytree as pytree

from .checkpoints import uses
from .operators import is_unknown
from .recording import NotRecordable

MOST_RECORDINGS = 32  # of one graph of Dynamo's; each holds up to two graphs over codes
_MOST_REMEMBERED = 1000  # sizes that have come once


class Mistaken(Exception):
    """Dynamo has taken a result for what it is not."""


def _is_number(node: torch.fx.Node) -> bool:
    """Whether a node reads what Dynamo has put into a tensor, a float of a user's that varies."""
    value = node.meta.get("example_value")
    return node.op == "call_method" and node.target == "item" and isinstance(value, py_sym_types) and value.node.has_hint()


def _is_symbolic(number: int | torch.SymInt) -> bool:
    return isinstance(number, torch.SymInt)


def has_unknown_sizes(graphs: Iterable[torch.fx.Graph]) -> bool:
    """Whether there is a number in them that values decide: a size, or what ``item`` reads of a result."""
    values = pytree.tree_leaves([node.meta.get("example_value") for graph in graphs for node in graph.nodes])
    return any(map(is_unknown, values))


class Varying:
    """What varies among a graph's operands, and what Dynamo takes its results for then. ``items``: the places of tensors that are numbers."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        known = [node.meta.get("example_value") for node in placeholders]
        self._numbers = [i for i, v in enumerate(known) if isinstance(v, torch.SymInt)]
        self.items = [i for i, node in enumerate(placeholders) if any(map(_is_number, uses(node)))]
        self._tensors = [i for i, v in enumerate(known) if isinstance(v, torch.Tensor) and any(map(_is_symbolic, (*v.shape, *v.stride())))]
        self._symbols = {known[i].node.expr: i for i in self._numbers}
        for i in self.items:
            numbers = (node.meta["example_value"] for node in uses(placeholders[i]) if _is_number(node))
            self._symbols |= {n.node.expr: i for n in numbers}
        self._results = []
        for node in gm.graph.output_node().args[0]:
            value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else node
            expected = isinstance(value, torch.Tensor)
            self._results.append((value.dtype, [n.node.expr if _is_symbolic(n) else n for n in value.shape]) if expected else None)

    def __bool__(self) -> bool:
        return bool(self._numbers or self._tensors or self.items)

    def key(self, values: list | tuple) -> tuple:
        """What a recording goes by."""
        numbers = (*(values[i] for i in self._numbers), *(values[i].item() for i in self.items))
        return (*numbers, *((values[i].shape, values[i].stride()) for i in self._tensors))

    def expect_known(self, values: list, results: list) -> None:
        """An error where a result is not what Dynamo took it for while it traced what follows."""
        at_hand = {s: v.item() if isinstance(v := values[i], torch.Tensor) else v for s, i in self._symbols.items()}
        for known, found in zip(self._results, results, strict=True):
            if known is not None:
                shape = tuple(n if isinstance(n, int) else int(n.xreplace(at_hand)) for n in known[1])
                if (known[0], shape) != (found.dtype, tuple(found.shape)):
                    raise Mistaken(f"{found.dtype} of shape {tuple(found.shape)} and not {known[0]} of shape {shape}")


class OfSizes:
    """The recordings of a graph, by its sizes. Sizes that come for the first time are eager code's: most of those of sentences never come again."""

    def __init__(self, varying: Varying, record: Callable, key: tuple, call: Callable) -> None:
        self._varying, self._record = varying, record
        self._calls: dict[tuple, Callable | None] = {key: call}
        self._came: set[tuple] = set()
        self._is_full = False
        self._lock = threading.Lock()

    def __call__(self, values: tuple) -> Callable | None:
        """What runs on these operands; None for eager code."""
        key = self._varying.key(values)
        if key in self._calls:
            return self._calls[key]
        with self._lock:
            if key not in self._calls and self._is_wanted(key):
                try:
                    self._calls[key] = self._record(values)
                except (NotRecordable, Mistaken):  # of these sizes alone: of others it was
                    self._calls[key] = None
            return self._calls.get(key)

    def _is_wanted(self, key: tuple) -> bool:
        if len(self._calls) >= MOST_RECORDINGS:
            if not self._is_full:
                self._is_full = True
                warnings.warn(
                    f"torch.compile has made graphs of {MOST_RECORDINGS} different sizes of a function in number formats; other sizes run as eager "
                    "code does. Pad to fewer sizes to have graphs of all.",
                    UserWarning,
                    stacklevel=3,
                )
            return False
        if key in self._came:
            return True
        if len(self._came) >= _MOST_REMEMBERED:
            self._came.clear()
        self._came.add(key)
        return False
