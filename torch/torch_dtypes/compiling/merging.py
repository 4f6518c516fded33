"""Recordings of several sizes as one: integers in which they differ become expressions of the sizes that tensors have when the program runs.

An expression is a product of up to three sizes, of the arguments and of the operator's own operands, times a number and plus one, and makes the
integer in every recording. Where there is none, or recordings differ in anything else, there is no program of all sizes.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from itertools import combinations_with_replacement

import torch
from torch.utils import _pytree as pytree

from .recording import NotRecordable, Recorded

_MOST_FACTORS = 3

Base = tuple[torch.fx.Node, int, list[int]]  # a dimension of a node's, and its size in each recording


def merge(recordings: list[Recorded], arguments: int) -> Recorded:
    """The first of the recordings with expressions in the place of what varies. ``arguments``: how many of the inputs are such, not state."""
    merged = _Merged(recordings, arguments)
    merged.compare()
    merged.write()
    return recordings[0]


def _differ(what: object) -> NotRecordable:
    return NotRecordable(f"what it does depends on its sizes otherwise than by sums and products of them ({what})")


class _Merged:
    def __init__(self, recordings: list[Recorded], arguments: int) -> None:
        self._recordings = recordings
        self._graph = recordings[0].recorder.graph
        self._lists = [list(r.recorder.graph.nodes) for r in recordings]
        self._places = [{node: i for i, node in enumerate(nodes)} for nodes in self._lists]
        self._changes: list[tuple] = []  # nodes, with the place of an integer among their arguments and its expression
        self._arguments = [node for node in recordings[0].inputs[:arguments] if node is not None]

    def compare(self) -> None:
        first, *others = self._recordings
        if len({len(nodes) for nodes in self._lists}) > 1:
            raise _differ("how many operators it runs")
        for nodes in zip(*self._lists, strict=True):
            if len({(n.op, n.target if n.op == "call_function" else None) for n in nodes}) > 1:
                raise _differ(" or ".join(dict.fromkeys(str(n.target) for n in nodes)))
            self._merge_arguments(nodes)
        for r in others:
            if r.recorder.constants.keys() != first.recorder.constants.keys() or r.mutated != first.mutated:
                raise _differ("what it writes to")
            for name, constant in first.recorder.constants.items():
                if not torch.equal(constant, r.recorder.constants[name]):
                    raise _differ("a tensor that it makes of numbers")
        for results in zip(*(r.results for r in self._recordings), strict=True):
            if not isinstance(results[0], torch.Tensor) and any(v != results[0] for v in results):
                raise _differ("a number that it returns")
        for outputs in zip(*(r.outputs for r in self._recordings), strict=True):
            if len({None if n is None else p[n] for p, n in zip(self._places, outputs, strict=True)}) > 1:
                raise _differ("what it returns")

    def write(self) -> None:
        for node, i, factors, line in self._changes:
            leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
            with self._graph.inserting_before(node):
                leaves[i] = self._written(factors, *line)
            node.args, node.kwargs = pytree.tree_unflatten(leaves, spec)
        self._recordings[0].forward_nodes = list(self._graph.nodes)

    def _merge_arguments(self, nodes: tuple[torch.fx.Node, ...]) -> None:
        flat = [pytree.tree_flatten((n.args, dict(n.kwargs))) for n in nodes]
        if any(spec != flat[0][1] for _, spec in flat):
            raise _differ(nodes[0].target)
        for i, each in enumerate(zip(*(leaves for leaves, _ in flat), strict=True)):
            if isinstance(each[0], torch.fx.Node):
                if len({p[n] for p, n in zip(self._places, each, strict=True)}) > 1:
                    raise _differ(nodes[0].target)
            elif all(type(v) is int for v in each) and len(set(each)) > 1:
                self._changes.append((nodes[0], i, *self._expression(nodes[0], list(each))))
            elif any(type(v) is not type(each[0]) or v != each[0] for v in each):
                raise _differ(f"{each[0]} or {next(v for v in each if v != each[0])} in {nodes[0].target}")

    def _bases(self, node: torch.fx.Node) -> list[Base]:
        found = []
        for n in dict.fromkeys([*node.all_input_nodes, *self._arguments]):
            i = self._places[0][n]
            shapes = [r.recorder.tensors[nodes[i]].shape for r, nodes in zip(self._recordings, self._lists, strict=True)]
            found += [(n, d, sizes) for d, sizes in enumerate(map(list, zip(*shapes, strict=True))) if len(set(sizes)) > 1]
        return found

    def _expression(self, node: torch.fx.Node, values: list[int]) -> tuple[tuple[Base, ...], tuple[Fraction, int]]:
        bases = self._bases(node)
        for plain in (True, False):  # without a summand, then with one
            for count in range(1, _MOST_FACTORS + 1):
                for factors in combinations_with_replacement(bases, count):
                    line = _line(values, [math.prod(sizes) for sizes in zip(*(b[2] for b in factors), strict=True)])
                    if line is not None and (line[1] == 0 or not plain):
                        return factors, line
        raise _differ(f"{values[0]} in {node.target}")

    def _written(self, factors: tuple[Base, ...], factor: Fraction, summand: int) -> torch.fx.Node:
        call = self._graph.call_function
        made = None
        for node, d, _ in factors:
            size = call(torch.ops.aten.sym_size.int, (node, d))
            made = size if made is None else call(operator.mul, (made, size))
        for func, number, neutral in ((operator.mul, factor.numerator, 1), (operator.floordiv, factor.denominator, 1), (operator.add, summand, 0)):
            if number != neutral:
                made = call(func, (made, number))
        return made


def _line(values: list[int], products: list[int]) -> tuple[Fraction, int] | None:
    """The factor and the summand that make the values of the products."""
    other = next((i for i, p in enumerate(products) if p != products[0]), None)
    if other is None:
        return None
    factor = Fraction(values[other] - values[0], products[other] - products[0])
    summand = values[0] - factor * products[0]
    if not factor or summand.denominator != 1 or any(factor * p + summand != v for p, v in zip(products, values, strict=True)):
        return None
    return factor, int(summand)
