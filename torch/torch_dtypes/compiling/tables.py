"""Chains of elementwise operators that depend on one tensor of codes: one look-up in a table of all codes.

``gelu(x * 1.5 + 0.25)`` of a format of at most 16 bits is a function of x's code. Its table is what the chain's own operators make of all
codes, so the bits are theirs.
"""

from __future__ import annotations

import torch

from .. import _C
from ..formats import dtype as dtype_of
from . import operators

MAX_BITS = 16
_MAX_TABLES = 64  # kept for graphs to come: 128 KiB each for 16 bits

look_up = torch.ops.torch_dtypes_codes.look_up.default
torch.library.register_fake("torch_dtypes_codes::look_up", lambda input, table: operators.dense_like(input), lib=operators.library)
_known: dict[tuple, torch.Tensor] = {}


def _is_elementwise(node: torch.fx.Node) -> bool:
    """A deterministic operator on codes of one narrow format, whose result is of it too."""
    func = operators.stock(node.target)
    if func is None or torch.Tag.pointwise not in func.tags or torch.Tag.nondeterministic_seeded in func.tags or operators.written(func):
        return False
    names = set(node.kwargs["formats"].split(","))
    if len(names) != 1 or operators.STOCK in names or len(func._schema.returns) != 1:
        return False
    fmt = _C.format_of(dtype_of(names.pop()))
    return fmt.itemsize * 8 <= MAX_BITS


class Tables:
    """What of a graph's nodes is a function of one other node's codes."""

    def __init__(self, nodes: list[torch.fx.Node], tensors: dict[torch.fx.Node, torch.Tensor]) -> None:
        self._tensors = tensors
        self._origins: dict[torch.fx.Node, tuple[torch.fx.Node, int]] = {}  # and how many operators lie between
        overwritten = {n.args[0] for n in nodes if n.target is torch.ops.aten.copy_.default}
        for node in nodes:
            if node.op == "call_function" and not overwritten and _is_elementwise(node):
                self._see(node)

    def _see(self, node: torch.fx.Node) -> None:
        result = self._tensors[node]
        found = [self._origins.get(n, (n, 0)) for n in node.all_input_nodes]
        origins = {origin for origin, _ in found}
        if len(origins) != 1 or not _C.is_format_tensor(result):
            return
        origin = origins.pop()
        source = self._tensors[origin]
        same = source.dtype is result.dtype and source.shape == result.shape and source.stride() == result.stride()
        if same and source.numel() and source.is_contiguous():
            self._origins[node] = origin, 1 + max(count for _, count in found)

    def longer(self) -> dict[torch.fx.Node, torch.fx.Node]:
        """Nodes for which a look-up replaces two operators or more, with the node whose codes it takes."""
        return {node: origin for node, (origin, count) in self._origins.items() if count > 1}

    def table(self, node: torch.fx.Node) -> torch.Tensor:
        """The node's codes for all of its origin's."""
        key = self._text(node, self._origins[node][0])
        if (known := _known.get(key)) is None:
            if len(_known) >= _MAX_TABLES:
                _known.clear()
            dtype = self._tensors[node].dtype
            bits = torch.arange(2 ** (8 * dtype.itemsize), dtype=torch.int32).to(torch.uint8 if dtype.itemsize == 1 else torch.int16)
            known = _known[key] = self._values(node, {self._origins[node][0]: bits})
        return known

    def _values(self, node: torch.fx.Node, values: dict) -> torch.Tensor:
        if node not in values:
            given = {n: self._values(n, values) for n in node.all_input_nodes}
            args = torch.fx.map_arg(node.args, given.__getitem__)
            values[node] = node.target(*args, **node.kwargs)
        return values[node]

    def _text(self, node: torch.fx.Node, origin: torch.fx.Node) -> tuple:
        if node is origin:
            return ("x",)
        return node.target, repr(torch.fx.map_arg(node.args, lambda n: self._text(n, origin))), repr(node.kwargs)
