"""The suite ``graphs``: what torch.compile makes of chains of elementwise operators and of LeNet-5 in a dtype, over the same in eager code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

import torch_dtypes

from .measuring import SPEED_UP, Group, Row, Sizes, name_of
from .training import STEP, TITLES, namespace

SUMMARY = "Code in a dtype under torch.compile, over the same code in eager mode; chains of elementwise operators and LeNet-5."
_DTYPES = ("posit16es2", "q43")
_EAGER, _CALL = "eager", "f(*given)"
_LIMIT = 2


_CHAINS = {  # by operands
    1: "lambda x: torch.nn.functional.gelu(x * 1.5 + 0.25)",
    3: "lambda x, a, b: torch.nn.functional.gelu(x * a + b)",
}


def _made(code: str) -> Callable:
    """A function of no file: Dynamo does not begin in this package's."""
    return eval(compile(code, "<bench>", "eval"), {"torch": torch})


def _compiled_before(spaces: dict[str, dict], code: str) -> dict[str, dict]:
    """A group's namespaces, the line run in each: compiling is not timed."""
    for space in spaces.values():
        exec(code, {"torch": torch} | space)
    return spaces


def _chain(operands: int, dtype: torch.dtype, elements: int) -> Group:
    name, f = name_of(dtype), _made(_CHAINS[operands])

    def spaces():
        torch.manual_seed(0)
        given = [torch.randn(elements).to(dtype) for _ in range(operands)]
        return _compiled_before({name: {"f": torch.compile(f, fullgraph=True), "given": given}, _EAGER: {"f": f, "given": given}}, _CALL)

    what = _CHAINS[operands].partition("functional.")[2]
    row = Row(f"{what}, {elements:,} elements", name, _EAGER, _LIMIT, SPEED_UP)
    return Group(dict.fromkeys((name, _EAGER), _CALL), spaces, [row], rounds=40, least_seconds=0.005)


def _network(what: str, code: str, dtype: torch.dtype, batch_size: int) -> Group:
    name = name_of(dtype)

    def spaces():
        compiled, eager = (namespace("lenet5", batch_size, dtype) for _ in range(2))
        compiled["model"] = torch.compile(_made("lambda model: lambda images: model(images)")(compiled["model"]), fullgraph=True)
        return _compiled_before({name: compiled, _EAGER: eager}, code)

    row = Row(f"{TITLES['lenet5']} {what}, batch {batch_size}", name, _EAGER, measure=SPEED_UP)
    return Group(dict.fromkeys((name, _EAGER), code), spaces, [row], rounds=20, least_seconds=0.02)


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    """Two chains, forward, and LeNet-5 forward and in a training step."""
    found = []
    for dtype in dtypes or map(torch_dtypes.dtype, _DTYPES):
        for elements in sizes.chains:
            found += [_chain(operands, dtype, elements) for operands in _CHAINS]
        for batch_size in (batch for model, batch in sizes.networks if model == "lenet5"):
            found.append(_network("forward", "with torch.no_grad(): model(images)", dtype, batch_size))
            found.append(_network("step", STEP, dtype, batch_size))
    return found
