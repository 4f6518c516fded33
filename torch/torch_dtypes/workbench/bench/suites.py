"""The suites by name, and those of operators: casts, arithmetic, functions, products, the overhead
of a small operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import torch_dtypes

from . import (
    backends,
    blocks,
    fuzzing,
    language,
    memory,
    networks,
    observation,
    optimizers,
    peers,
    quantization,
    scaling,
    training,
)
from .measuring import OVER, RATE, RATIO, Group, Row, Sizes, name_of, named_dtypes

_ENCODE = {
    "q43": 1.2,
    "q52": 1.2,
    "e5m5": 1.2,
    "e5m6": 1.2,
    "posit16es2": 1.5,
    "posit8es0": 1.5,
    "posit8es1": 1.5,
    "posit8es2": 1.5,
}
# e6m9fn_normal: DLFloat16
_TABLES = {"nf4": 1.2, "hif8": 1.2, "e8m0": 1.2, "takum16_linear": 4.0, "e6m9fn_normal": 4.0}
_DECODE = dict.fromkeys(_ENCODE, 1.1) | _TABLES
_ARITHMETIC = {"q43": 4.0, "posit16es2": 6.0}
_IN_CACHE = {"q43": 2.2, "q52": 2.2, "e5m5": 2.2, "posit8es1": 2.5, "posit16es2": 3.0}
_TWO = ("q43", "posit16es2")
_WITHOUT_TABLES = ("posit32es2", "posit16es2_stochastic")


def casts(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    if dtypes is None:
        return _casts(sizes, list(_ENCODE), _TWO) + _casts(
            sizes, list(_TABLES), ("nf4", "takum16_linear")
        )
    # Dtypes with tables make their own group: the memory of a case depends on the large results
    # that the other cases of its group free.
    apart = [
        [name_of(d) for d in dtypes if (torch_dtypes.format_of(d).table_name is None) is plain]
        for plain in (True, False)
    ]
    return [group for names in apart if names for group in _casts(sizes, names, names)]


def _casts(sizes: Sizes, names: list[str], drawn_too: Sequence[str]) -> list[Group]:
    """Compare casts to dtypes, all with tables or all without, with those to bfloat16, and tables
    also with a copy. ``drawn_too`` names dtypes for stochastic rounding too."""
    named = {name: torch_dtypes.dtype(name) for name in names}
    # Holds the dtypes, as ``named`` does: one without references may lose its number, and torch
    # forgets its name.
    drawing = {}
    limits, size = _ENCODE | _TABLES, f"{sizes.elements:,} elements"

    def values():
        x = torch.randn(sizes.elements)
        return {name: {"x": x, "dtype": drawing.get(name)} for name in encode}

    def codes():
        x = torch.randn(sizes.elements)
        return {"bfloat16": {"x": x.bfloat16()}} | {
            name: {"x": x.to(d)} for name, d in named.items()
        }

    encode = {"bfloat16": "x.to(torch.bfloat16)"} | {name: f"x.to(torch.{name})" for name in named}
    rows = [Row(f"encode from float32, {size}", n, "bfloat16", limits.get(n)) for n in named]
    if torch_dtypes.format_of(next(iter(named.values()))).table_name is not None:
        encode["float32"] = "x.clone()"
        rows += [
            Row(f"encode from float32 over a copy, {size}", n, "float32", limits.get(n))
            for n in named
        ]
    for name in drawn_too:
        if torch_dtypes.format_of(named[name]).rounding.name != "stochastic":
            dtype = torch_dtypes.with_rounding(named[name], "stochastic")
            drawing[drawn := name_of(dtype)] = dtype
            encode[drawn] = f"x.to(torch.{drawn})"
            rows.append(
                Row(
                    f"encode, stochastic rounding over nearest, {size}",
                    drawn,
                    name,
                    3 if name in _TWO else None,
                )
            )
    decode = {name: "x.to(torch.float32)" for name in ("bfloat16", *named)}
    back = [Row(f"decode to float32, {size}", n, "bfloat16", _DECODE.get(n)) for n in named]
    timing = {"rounds": 20, "least_seconds": sizes.cast_seconds}
    return [Group(encode, values, rows, **timing), Group(decode, codes, back, **timing)]


def arithmetic(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    def group(elements: int, limits: dict[str, float], sign: str) -> Group:
        named = named_dtypes(dtypes, list(limits))

        def operands():
            a, b = torch.randn(elements), torch.randn(elements)
            return {
                name: {"a": a.to(d), "b": b.to(d)}
                for name, d in {"bfloat16": torch.bfloat16, **named}.items()
            }

        return Group(
            dict.fromkeys(("bfloat16", *named), f"a {sign} b"),
            operands,
            [
                Row(f"a {sign} b, {elements:,} elements", n, "bfloat16", limits.get(n))
                for n in named
            ],
            rounds=20,
            least_seconds=sizes.cast_seconds if limits is _IN_CACHE else 0,
        )

    # In memory, and in a processor's cache.
    together = {sizes.elements: _ARITHMETIC, sizes.cached_elements: _IN_CACHE}
    return [group(n, limits, sign) for n, limits in together.items() for sign in "+-*"]


def functions(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    # In two groups: a case that takes turns with calls that free large tensors pays for fresh
    # memory.
    together = (
        [dtypes]
        if dtypes
        else [list(map(torch_dtypes.dtype, names)) for names in (_TWO, _WITHOUT_TABLES)]
    )
    calls = {
        "tanh": "torch.tanh(x)",
        "exp": "torch.exp(x)",
        "sigmoid": "torch.sigmoid(x)",
        "gelu": "torch.nn.functional.gelu(x)",
    }

    def group(named: dict[str, torch.dtype], what: str) -> Group:
        def operands():
            x = torch.randn(sizes.function_elements)
            return {name: {"x": x.to(d)} for name, d in {"float32": torch.float32, **named}.items()}

        rows = [
            Row(
                f"{what}, {sizes.function_elements:,} elements",
                n,
                "float32",
                1 if n in _TWO else None,
            )
            for n in named
        ]
        return Group(dict.fromkeys(("float32", *named), calls[what]), operands, rows)

    return [group({name_of(d): d for d in some}, what) for some in together for what in calls]


def matmul(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    def group(
        n: int, policy: str, what: str, measure: str, limits: dict[str, float], rounds: int
    ) -> Group:
        named = named_dtypes(dtypes, list(limits))

        def operands():
            a, b = torch.randn(n, n), torch.randn(n, n)
            return {
                name: {"a": a.to(d), "b": b.to(d)}
                for name, d in {"float32": torch.float32, **named}.items()
            }

        ours = f"with torch_dtypes.accumulate('{policy}'): a @ b"
        rows = [
            Row(
                f"matmul {n}^3, {what}",
                name,
                "float32",
                limits.get(name),
                measure,
                n**3,
            )
            for name in named
        ]
        return Group(
            {"float32": "a @ b"} | dict.fromkeys(named, ours),
            operands,
            rows,
            rounds=rounds,
            quick_rounds=min(rounds, 3),
        )

    def both(limit: float) -> dict[str, float]:
        return dict.fromkeys(_TWO, limit)

    n, blocks = sizes.rounded_matmul, "block(terms=16, extra_bits=2)"
    each_step = both(400) | {"e5m7": 2000}
    return [
        group(sizes.matmul, "float32", "sums in float32", RATIO, both(1.25), 10),
        group(n, "format", "every step rounded", RATE, each_step, 5),
        group(n, "exact", "exact sums", RATE, both(100), 5),
        group(n, blocks, "blocks of 16 into float32", RATE, both(200), 5),
    ]


def overhead(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, _TWO)

    def operands():
        # Make the tables of functions before: a call of many elements makes them, or else many
        # small calls.
        for d in named.values():
            many = torch.zeros(1 << 17, dtype=d)
            torch.tanh(many), torch.relu(many)
        x, m = torch.linspace(-1, 1, 8), torch.tensor([[1.0, 0.5], [0.25, -1.0]])
        return {
            name: {"x": x.to(d), "m": m.to(d), "f": x}
            for name, d in {"float32": torch.float32, **named}.items()
        }

    calls = {
        "x + x": "x + x",
        "x * 2": "x * 2",
        "tanh": "torch.tanh(x)",
        "mm of 2 x 2": "torch.mm(m, m)",
        "x.sum()": "x.sum()",
        "relu": "torch.relu(x)",
    }
    groups = []
    for what, code in calls.items():
        rows = [
            Row(f"{what}, {4 if 'mm' in what else 8} elements", n, "float32", 2, OVER)
            for n in named
        ]
        if what == "x + x":
            rows += [Row(f"{what}, 8 elements", n, "float32", 1.4) for n in named]
        groups.append(
            Group(
                dict.fromkeys(("float32", *named), code),
                operands,
                rows,
                rounds=30,
                quick_rounds=5,
                calls=sizes.calls,
            )
        )
    casting = {"bfloat16": "f.to(torch.bfloat16)"} | {n: f"f.to(torch.{n})" for n in named}

    def cast_operands():
        x = torch.linspace(-1, 1, 8)
        return {name: {"f": x} for name in casting}

    rows = [Row("cast from float32, 8 elements", n, "bfloat16", 2, OVER) for n in named]
    groups.append(Group(casting, cast_operands, rows, rounds=30, quick_rounds=5, calls=sizes.calls))
    return groups


@dataclass(frozen=True)
class Suite:
    """A suite: a sentence on it, and functions that build its groups and its notes (lines on cases
    that could not be measured), and sentences on its rows."""

    summary: str
    groups: Callable[[Sizes, Sequence[torch.dtype] | None], list[Group]]
    notes: Callable[[Sizes], list[str]] = lambda sizes: []
    sentences: Callable[[list[dict]], list[str]] = lambda rows: []


SUITES: dict[str, Suite] = {
    "casts": Suite("Casts, over the stock cast between float32 and bfloat16.", casts),
    "arithmetic": Suite("Correctly rounded + - *, over stock bfloat16's.", arithmetic),
    "functions": Suite("Elementary functions, over stock float32's.", functions),
    "blocks": Suite(blocks.SUMMARY, blocks.groups),
    "matmul": Suite(
        "Products of square matrices, over stock float32's: sums in float32, rounded at every "
        "step, exact, or in blocks.",
        matmul,
    ),
    "training": Suite(
        "A training step with Adam (gradients to zero, forward, backward, step), over stock "
        "float32's.",
        training.groups,
    ),
    "networks": Suite(networks.SUMMARY, networks.groups, networks.notes, networks.sentences),
    "quantization": Suite(quantization.SUMMARY, quantization.groups, quantization.notes),
    "language": Suite(language.SUMMARY, language.groups, language.notes),
    "optimizers": Suite(optimizers.SUMMARY, optimizers.groups),
    "observation": Suite(observation.SUMMARY, observation.groups),
    "overhead": Suite("One call on a handful of elements, over the stock call.", overhead),
    "fuzzy": Suite(fuzzing.SUMMARY, fuzzing.groups),
    "memory": Suite(memory.SUMMARY, memory.groups),
    "peers": Suite(peers.SUMMARY, peers.groups, peers.notes),
    "backends": Suite(backends.SUMMARY, backends.groups, backends.notes),
    "scaling": Suite(scaling.SUMMARY, scaling.groups, scaling.notes),
}
DEFAULT_SUITES = tuple(
    name for name in SUITES if name not in ("networks", "language", "peers", "backends", "scaling")
)
