"""The suite ``fuzzy``: the cost of random rounding in float32, in a block of
``torch_dtypes.fuzzy``: operators, and networks by level."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..training.generators import forked_generators
from .measuring import Group, Row, Sizes
from .training import STEP, TITLES, namespace

SUMMARY = (
    "Elementwise float32 operators and networks in a block of torch_dtypes.fuzzy, over stock "
    "float32's."
)

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
# The arguments of each level, and the targets for the two modes: of answers of the Fuzzy PyTorch
# paper's MNIST network, and of a training step.
_LEVELS = {
    "operator": ({}, (None, None), (None, None)),
    "fused": ({"level": "instruction"}, (10.0, 8.0), (15.0, 15.0)),
    "apart": ({"level": "instruction", "fused": False}, (18.0, 13.0), (None, None)),
}
_STEP_IMAGES = 8


def _mnist_network(images: int) -> dict:
    """Return the variables of the answers: two convolutions, pooling and two linear layers."""
    nn = torch.nn
    with forked_generators():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
        layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(128, 10)).requires_grad_(False)
        return {"model": model, "images": torch.rand(images, 1, 28, 28)}


def _by_level(work: str, code: str, variables, step: bool) -> Group:
    codes, rows = {"float32": code}, []
    for level, (options, *limits) in _LEVELS.items():
        for mode, limit in zip(_MODES, limits[step], strict=True):
            name = f"{mode}, {level}"
            arguments = {"mode": mode, "seed": 0, **options}
            block = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
            codes[name] = f"with torch_dtypes.fuzzy({block}): {code}"
            rows.append(Row(work, name, "float32", limit))
    return Group(codes, lambda: {n: variables() for n in codes}, rows, rounds=3, quick_rounds=1)


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

    elementwise = [
        group(what, code, n)
        for n in (sizes.elements, sizes.function_elements)
        for what, code in _CALLS.items()
    ]
    images, (network, batch) = sizes.fuzzy_images, sizes.networks[-1]
    batch = min(batch, _STEP_IMAGES)
    return [
        *elementwise,
        _by_level(
            f"MNIST network, batch {images}",
            "model(images)",
            lambda: _mnist_network(images),
            step=False,
        ),
        _by_level(
            f"{TITLES[network]} step, batch {batch}",
            STEP,
            lambda: namespace(network, batch, torch.float32),
            step=True,
        ),
    ]
