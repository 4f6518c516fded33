"""Chains of elementwise operators of one format, fused: what a graph has of them is one operator, which goes through memory once.

Within a chain, what depends on one code (of at most 16 bits) or on two (of 8) is looked up in a table; the rest is arithmetic of machine numbers,
rounded to the format after each operator (``Chain.h``).
"""

from __future__ import annotations

import math

import torch

from .. import _C
from ..formats import dtype as dtype_of
from . import operators
from .tables import most_origins, table

aten = torch.ops.aten
chain = torch.ops.torch_dtypes_codes.chain.default


def _fake(operands, tables, *, program: str) -> list[torch.Tensor]:
    count = len(program.rpartition("give")[2].split())
    return [torch.empty_like(operands[0]) for _ in range(count)]


torch.library.register_fake("torch_dtypes_codes::chain", _fake, lib=operators.library)

_BINARY = {
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), "add"),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), "sub"),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), "mul"),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), "div"),
}


def arithmetic(node: torch.fx.Node) -> tuple | None:
    """A node as a step of machine numbers, its name and its operands; None where it is none."""
    func, (first, *rest) = operators.stock(node.target), node.args
    if func is aten.sqrt.default:
        return "sqrt", first
    if func is aten.reciprocal.default:
        return "div", 1.0, first
    found = ("sub", rest[0], first) if func is aten.rsub.Scalar else (_BINARY[func], first, rest[0]) if func in _BINARY else None
    if found is None or (len(rest) == 2 and (isinstance(rest[1], bool) or rest[1] != 1)):  # of alpha
        return None
    return found if all(isinstance(v, torch.fx.Node) or _is_plain(v) for v in found[1:]) else None


def _is_plain(number: object) -> bool:
    """Whether eager code's arithmetic takes a number as the float64 that it is."""
    return not isinstance(number, (bool, complex)) and math.isfinite(number) and float(number) == number


def _is_elementwise(node: torch.fx.Node, tensors: dict) -> bool:
    """A deterministic operator on codes of one format on the CPU, whose result is of it too, dense, and has a step. A chain has one mode: where the
    format's arithmetic draws, operators that round nothing are in no chain either."""
    func = operators.stock(node.target) if node.op == "call_function" else None
    if func is None or torch.Tag.pointwise not in func.tags or torch.Tag.nondeterministic_seeded in node.target.tags or operators.written(func):
        return False
    names = set(node.kwargs["formats"].split(","))
    if len(names) != 1 or operators.STOCK in names or len(func._schema.returns) != 1:
        return False
    result, dtype = tensors[node], dtype_of(names.pop())
    if result.dtype is not dtype or result.device.type != "cpu" or not result.numel() or operators.takes_random_words(dtype):
        return False
    if not aten.is_non_overlapping_and_dense(_C.alias_codes(result)):
        return False
    return arithmetic(node) is not None or 0 < len(node.all_input_nodes) <= most_origins(dtype)


class Chain:
    """Nodes that become one operator.

    ``operands``: the nodes that it takes; ``results``: the members that others need; ``looks_up``: whether one look-up is all there is to it.
    """

    def __init__(self, members: list[torch.fx.Node]) -> None:
        self.members = members

    def finish(self, results: list[torch.fx.Node], tensors: dict) -> bool:
        """Works out the steps. False where there is nothing to gain, or no operand laid out as the results."""
        self.results, self._tensors = results, tensors
        self._dtype = tensors[results[0]].dtype
        self._find_origins()
        self.operands: list[torch.fx.Node] = []
        self.tables: list[torch.Tensor] = []
        self._steps: list[tuple] = []
        self._done: set[torch.fx.Node] = set()
        for node in results:
            self._build(node)
        if not self._put_like_first():
            return False
        self.looks_up = len(results) == len(self._steps) == 1 and self._steps[0][1] == "look_up" and len(self.operands) == 1
        return len(self.members) > 1 or arithmetic(self.members[0]) is None

    def _find_origins(self) -> None:
        """For each member the nodes of whose codes it is a function, and how many operators lie between."""
        most = most_origins(self._dtype)
        self._origins: dict[torch.fx.Node, tuple[list[torch.fx.Node], int]] = {}
        for node in self.members:
            before = [self._origins.get(n, ([n], 0)) for n in node.all_input_nodes]
            found = list(dict.fromkeys(origin for origins, _ in before for origin in origins))
            count = 1 + max(n for _, n in before)
            if len(found) > most:
                found, count = list(node.all_input_nodes), 1
            self._origins[node] = (found, count) if len(found) <= most else ([node], 0)

    def _build(self, node: torch.fx.Node) -> None:
        if node in self._done:
            return
        self._done.add(node)
        if node not in self._origins:
            self.operands.append(node)
            return
        origins, count = self._origins[node]
        step = arithmetic(node)
        if origins == [node] or (self._dtype.itemsize == 2 and count == 1 and step is not None):
            name, *values = step
        else:
            name, values = "look_up" if len(origins) == 1 else "look_up_pair", origins
            self.tables.append(table(node, origins, self._dtype))
        place = [len(self.tables) - 1] if name.startswith("look_up") else []
        for v in values:
            if isinstance(v, torch.fx.Node):
                self._build(v)
        self._steps.append((node, name, values, place))

    def _put_like_first(self) -> bool:
        """Puts an operand that is laid out as the results first."""
        result = self._tensors[self.results[0]]
        like = (n for n in self.operands if (t := self._tensors[n]).shape == result.shape and t.stride() == result.stride())
        first = next(like, None)
        self.operands.sort(key=lambda n: n is not first)
        return first is not None

    @property
    def program(self) -> str:
        """The steps as Chain.h reads them."""
        places = {n: i for i, n in enumerate([*self.operands, *(step[0] for step in self._steps)])}
        parts = [f"{_C.name_of(self._dtype)} of {len(self.operands)}"]
        for _, name, values, place in self._steps:
            given = [str(places[v]) if isinstance(v, torch.fx.Node) else f"#{float(v).hex()}" for v in values]
            parts.append(" ".join([name, *given, *map(str, place)]))
        return "; ".join([*parts, " ".join(["give", *(str(places[n]) for n in self.results)])])


def find_chains(nodes: list[torch.fx.Node], outputs: list[torch.fx.Node], live: set[torch.fx.Node], tensors: dict) -> list[Chain]:
    """What of a graph's nodes, of which some are live, becomes one operator each. None reaches across a node that writes to memory."""
    group_of: dict[torch.fx.Node, frozenset] = {}
    barred: set[torch.fx.Node] = set()  # before the last node that writes
    for node in nodes:
        if node.target is aten.copy_.default:
            barred.update(group_of)
        elif node in live and _is_elementwise(node, tensors):
            near = {group_of[n] for n in node.all_input_nodes if n in group_of and n not in barred and _alike(tensors[n], tensors[node])}
            choices = (frozenset({node}).union(*groups) for groups in [near, *([g] for g in near), []])
            chosen = next(members for members in choices if not _is_reached_again(members, group_of))
            group_of.update(dict.fromkeys(chosen, chosen))
    found = []
    order = {node: i for i, node in enumerate(nodes)}
    kept = set(outputs)
    for members in dict.fromkeys(group_of.values()):
        made = Chain(sorted(members, key=order.__getitem__))
        results = [m for m in made.members if m in kept or any(u in live and u not in members for u in m.users)]
        if results and made.finish(results, tensors):
            found.append(made)
    return found


def _stays(node: torch.fx.Node) -> bool:
    """Whether a node has to run though nobody needs its result: it writes to memory, or draws."""
    return node.target is aten.copy_.default or (
        isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    )


def live_among(nodes: list[torch.fx.Node], outputs: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """What outputs need, and what stays."""
    live = set(outputs)
    for node in reversed(nodes):
        if node in live or _stays(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return live.intersection(nodes)


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride()


def _is_reached_again(members: frozenset, group_of: dict) -> bool:
    """Whether what members take depends on one of them by way of other nodes, so that they cannot be one node."""
    ahead = [n for m in members for n in m.all_input_nodes if n not in members]
    seen = set()
    while ahead:
        node = ahead.pop()
        if node in members:
            return True
        if node not in seen:
            group = group_of.get(node, frozenset({node}))
            seen |= group
            ahead += [n for m in group for n in m.all_input_nodes if n not in group]
    return False
