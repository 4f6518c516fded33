"""The suite ``backends``: chop by stock tensor operations, as a GPU without this package's kernels
computes it, over the kernels and Pychop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

import torch_dtypes

from .measuring import SPEED_UP, Group, Row, Sizes
from .peers import is_installed, module

SUMMARY = (
    "Rounding float32 by stock tensor operations on the CPU, eager and compiled, over this "
    "package's kernels, and how many times as fast as Pychop."
)
# Pychop's arguments, if it has the format.
_FORMATS: dict[str, tuple[int, int] | None] = {
    "q52": (5, 2),
    "e5m10": (5, 10),
    "bf16": (8, 7),
    "posit16es2": None,
}
# Pychop's number of each mode, and the most that compiled code may take for floats.
_MODES = {"nearest_even": (1, 2), "up": (2, 2), "toward_zero": (4, 2), "stochastic": (5, 5)}


def _by_stock(call: Callable) -> Callable:
    """Return a function that runs a call with stock operations."""

    def run(x: torch.Tensor) -> torch.Tensor:
        torch_dtypes.set_backend("stock")
        try:
            return call(x)
        finally:
            torch_dtypes.set_backend(None)

    return run


def _group(name: str, mode: str, sizes: Sizes) -> Group:
    number, limit = _MODES[mode]
    bits = _FORMATS[name]
    peer = bits if is_installed("pychop") else None

    def chop(x: torch.Tensor) -> torch.Tensor:
        return torch_dtypes.chop(x, name, mode)

    def spaces() -> dict[str, dict]:
        torch.compiler.reset()  # one function is compiled for eight kinds of arguments at most
        compiled = torch.compile(torch_dtypes.chop, fullgraph=True)
        functions = {
            "kernels": chop,
            "eager": _by_stock(chop),
            "compiled": _by_stock(functools.partial(compiled, D=name, rounding=mode)),
        }
        if peer:
            pychop = module("pychop")
            pychop.backend("torch")
            functions["pychop"] = pychop.Chop(exp_bits=peer[0], sig_bits=peer[1], rmode=number)
        x = torch.randn(sizes.peer_elements)
        return {case: {"x": x, "chop": function} for case, function in functions.items()}

    cases = ["kernels", "eager", "compiled", *(["pychop"] if peer else [])]
    codes = dict.fromkeys(cases, "chop(x)")
    work = f"chop to {name}, {mode}"
    rows = [Row(work, "eager", "kernels"), Row(work, "compiled", "kernels", bits and limit)]
    if peer:
        rows.append(Row(work, "eager", "pychop", 2, SPEED_UP))
    return Group(codes, spaces, rows, rounds=15)


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    """The formats are those that Pychop has, too, so ``dtypes`` changes nothing."""
    return [_group(name, mode, sizes) for name in _FORMATS for mode in _MODES]


def notes(sizes: Sizes) -> list[str]:
    return [] if is_installed("pychop") else ["pychop: not installed: pip install pychop"]
