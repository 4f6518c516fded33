"""The suite ``fuzzy``: the cost of stochastic float32 arithmetic, for operators in a block of
``torch_dtypes.fuzzy``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .measuring import Group, Row, Sizes

SUMMARY = "Elementwise float32 operators in a block of torch_dtypes.fuzzy, over stock float32's."

_MODES = ("stochastic", "up_down")
_CALLS = {
    "a + b": "a + b",
    "a * b": "a * b",
    "a / b": "a / b",
    "a * 0.3": "a * 0.3",
    "relu": "torch.relu(a)",
    "exp": "torch.exp(a)",
}
_LIMIT = 3.0


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    def group(what: str, code: str, n: int) -> Group:
        def operands():
            a, b = torch.randn(n), torch.randn(n)
            return {
                name: {"a": a, "b": b}
                for name in ("float32", *(f"e8m23_{mode}" for mode in _MODES))
            }

        fuzzy = {
            f"e8m23_{mode}": f"with torch_dtypes.fuzzy(mode={mode!r}, seed=0): {code}"
            for mode in _MODES
        }
        rows = [Row(f"{what}, {n:,} elements", name, "float32", _LIMIT) for name in fuzzy]
        return Group({"float32": code} | fuzzy, operands, rows, rounds=20)

    return [
        group(what, code, n)
        for n in (sizes.elements, sizes.function_elements)
        for what, code in _CALLS.items()
    ]
