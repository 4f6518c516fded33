"""The suite ``quantization``: a step of a network whose layers round by rules, over steps of stock
float32 and qtorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import nn

import torch_dtypes

from ..training.recipes import build_optimizer
from ..training.records import Config
from . import peers
from .measuring import SPEED_UP, Group, Row, Sizes
from .training import STEP, TITLES, namespace

SUMMARY = (
    "A training step by torch_dtypes.quantize_: weights and every layer's output rounded to q43, "
    "errors to q52; products in float32."
)
_LIMIT, _PEER_LIMIT = 1.6, 2
_PRODUCTS = (nn.Conv2d, nn.Linear)
_NATIVE = dict.fromkeys(_PRODUCTS, "q43")
_MODES = {"q43, q52": "nearest_even", "q43, q52, stochastic": "stochastic"}


def _is_other_layer(module: nn.Module, name: str) -> bool:
    return not isinstance(module, _PRODUCTS) and not list(module.children())


def rules(mode: str) -> dict:
    places = {
        place: {"format": name, "rounding": mode}
        for place, name in (("output", "q43"), ("error", "q52"))
    }
    weight = {"weight": {"format": "q43", "rounding": mode}}
    return dict.fromkeys(_PRODUCTS, weight | places) | {_is_other_layer: places}


def by_rules(model: str, batch_size: int, rules: dict) -> dict:
    space = namespace(model, batch_size, torch.float32)
    torch_dtypes.quantize_(space["model"], rules)
    return space


def by_qtorch(model: str, batch_size: int, mode: str) -> dict:
    """Build the same roundings as in qtorch's documentation: a quantizer after each layer, and its
    optimizer around Adam for the weights."""
    mode = mode.removesuffix("_even")
    quant, optim, lib = (peers.module(name) for name in ("qtorch.quant", "qtorch.optim", "qtorch"))
    narrow, wide = lib.FloatingPoint(exp=4, man=3), lib.FloatingPoint(exp=5, man=2)
    space = namespace(model, batch_size, torch.float32)
    network = space["model"]
    for name, layer in list(network.named_modules()):
        if not list(layer.children()):
            owner, _, last = name.rpartition(".")
            setattr(
                network.get_submodule(owner),
                last,
                nn.Sequential(layer, quant.Quantizer(narrow, wide, mode, mode)),
            )

    def round_e4m3(x):
        return quant.float_quantize(x, exp=4, man=3, rounding=mode)

    return space | {
        "optimizer": optim.OptimLP(
            build_optimizer(Config(model), network.parameters()), weight_quant=round_e4m3
        )
    }


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    """Build the groups. The rules give the formats, so ``dtypes`` changes nothing."""
    result = []
    for model, batch_size in sizes.networks:
        work = f"{TITLES[model]} step, batch {batch_size}"
        rows = [
            *(Row(work, name, "float32", _LIMIT) for name in _MODES),
            Row(work, "q43 natively", "float32"),
        ]
        ways: dict[str, Callable[[], dict]] = {
            "float32": functools.partial(namespace, model, batch_size, torch.float32),
            **{
                name: functools.partial(by_rules, model, batch_size, rules(mode))
                for name, mode in _MODES.items()
            },
            "q43 natively": functools.partial(by_rules, model, batch_size, _NATIVE),
        }
        result.append(_group(ways, rows, model))
        for name, mode in _MODES.items() if peers.is_installed("qtorch") else ():
            pair = {
                name: ways[name],
                "qtorch": functools.partial(by_qtorch, model, batch_size, mode),
            }
            result.append(_group(pair, [Row(work, name, "qtorch", _PEER_LIMIT, SPEED_UP)], model))
    return result


def _group(ways: dict[str, Callable[[], dict]], rows: list[Row], model: str) -> Group:
    rounds, quick = (40, 5) if model == "lenet5" else (3, 1)
    return Group(
        dict.fromkeys(ways, STEP),
        lambda: {name: make() for name, make in ways.items()},
        rows,
        rounds=rounds,
        quick_rounds=quick,
    )


def notes(sizes: Sizes) -> list[str]:
    return [] if peers.is_installed("qtorch") else ["qtorch: not installed: pip install qtorch"]
