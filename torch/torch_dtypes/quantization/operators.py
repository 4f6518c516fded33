"""Operators that graphs record for layers that round, as ``torch.ops.torch_dtypes.product``.

Importing the package registers them, so that saved graphs that name them load. Their code loads at
the first call.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import torch

_GEOMETRY = (
    "int[]? stride, int[]? padding, int[]? dilation, bool transposed, int[]? output_padding, int "
    "groups"
)

# Each operator's schema, and the module with its functions.
_SCHEMAS = {
    "straight_through": ("(Tensor x, Tensor values, Tensor? passes) -> Tensor", "recorded"),
    "round_gradient": ("(Tensor x, str place) -> Tensor", "recorded"),
    "product": (
        "(Tensor x, Tensor weight, Tensor? bias, Tensor? scale, Tensor? weight_scale, str plan, "
        f"{_GEOMETRY}) -> Tensor",
        "product_operator",
    ),
    "product_backward": (
        f"(Tensor gradient, Tensor x, Tensor weight, bool[3] needs, str plan, {_GEOMETRY}) -> "
        "(Tensor, Tensor, Tensor)",
        "product_operator",
    ),
}
_DRAW = ("product", "product_backward")  # policies may round at random


def _late(module: str, kind: str, name: str) -> Callable:
    @functools.cache
    def load() -> Callable:
        return importlib.import_module(f".{module}", __package__).OPERATORS[name][kind]

    def call(*args, **kwargs):
        return load()(*args, **kwargs)

    return call


def _install() -> torch.library.Library:
    library = torch.library.Library("torch_dtypes", "FRAGMENT")
    for name, (schema, module) in _SCHEMAS.items():
        tags = (torch.Tag.nondeterministic_seeded,) if name in _DRAW else ()
        library.define(name + schema, tags=tags)
        library.impl(name, _late(module, "run", name), "CompositeExplicitAutograd")
        full = f"torch_dtypes::{name}"
        torch.library.register_fake(full, _late(module, "fake", name), lib=library)
        if name != "product_backward":
            torch.library.register_autograd(
                full,
                _late(module, "differentiate", name),
                setup_context=_late(module, "keep", name),
                lib=library,
            )
    return library


_LIBRARY = _install()  # kept, since the operators vanish with the library
