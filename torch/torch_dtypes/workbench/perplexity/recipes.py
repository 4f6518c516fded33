"""Recipes of ``torch-dtypes perplexity``: which numbers of a language model have a format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ...formats.arguments import nearest
from ...quantization.attention import is_attention
from ...quantization.layers import is_quantized, state_of
from ...quantization.places import leaves_axis_open
from ...quantization.products import is_convolution, is_linear, makes_products
from ...quantization.rules import key_of
from ...targets.lookup import target
from ..sensitivity.layers import check_model
from ..training.recipes import resolve

_LAYER = ("weight", "activation")
_CACHE = ("key", "value")
_ATTENTION = ("query", "key", "value", "probabilities")
RECIPES = {
    "weights": "weights of linear layers and experts",
    "activations": "their inputs",
    "ptq": "both",
    "cache": "keys and values, as a cache stores them",
    "attention": "the operands of attention's two products",
    "products": "ptq and attention",
    "all": "the whole model in the dtype",
}
# The places of layers, and those of attention.
_PLACES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "weights": (_LAYER[:1], ()),
    "activations": (_LAYER[1:], ()),
    "ptq": (_LAYER, ()),
    "cache": ((), _CACHE),
    "attention": ((), _ATTENTION),
    "products": (_LAYER, _ATTENTION),
}


def find_layers(model: nn.Module, keep: Sequence[str], output_layer: bool) -> dict[str, list[str]]:
    """Return the names of the modules to round: ``linear`` layers (and
    ``nn.MultiheadAttention``, which multiplies by its own weights), ``experts`` (modules with a
    weight of three dimensions, and no layer inside) and ``attention``.

    Args:
        keep: names, regular expressions or types of modules that stay in high precision, with all
            modules inside them.
        output_layer: whether the output layer is rounded too.

    Raises:
        TypeError, ValueError: the model is not float32 or has rules; a key that matches nothing.
    """
    check_model(model)
    kept = {inner for outer in _match(model, keep) for inner in outer.modules()}
    linear = [m for m in model.modules() if is_linear(m)]
    if not output_layer:
        own = getattr(model, "get_output_embeddings", lambda: None)()
        kept.update([own] if own is not None else linear[-1:])
    whole = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    parts = {m.out_proj for m in whole}
    kinds = {
        "linear": lambda m, name: m in whole or (is_linear(m) and m not in parts),
        "experts": lambda m, name: _has_experts(m),
        "attention": is_attention,
    }
    return {
        kind: [n for n, m in model.named_modules() if m not in kept and is_kind(m, n)]
        for kind, is_kind in kinds.items()
    }


def _match(model: nn.Module, keys: Sequence[str]) -> set[nn.Module]:
    modules = dict(model.named_modules())
    matched: set[nn.Module] = set()
    for text in keys:
        key = key_of(text, set(modules))
        own = {module for name, module in modules.items() if key.rank(module, name) is not None}
        if not own:
            raise ValueError(
                f"expected --keep to match a module, but got {text!r}, which matches none; of "
                f"names {nearest(text, modules)}"
            )
        matched |= own
    return matched


def _has_experts(module: nn.Module) -> bool:
    return (
        any(p.dim() > 2 for p in module.parameters(recurse=False))
        and not is_convolution(module)
        and makes_products(module)
    )


def build_rules(recipe: str, format: str, layers: dict[str, list[str]]) -> dict[str, Any]:
    """Return the rules of a recipe in a format, by the modules' names.

    Numbers are rounded as they are. Blocks lie along each product's sum, but in a cache along the
    features of a head. Integers have scales, which need no data: one for each output channel of
    weights, and one for each token of other operands (in attention, of each head). In experts each
    matrix has one scale, and so has each input.

    Raises:
        ValueError: the model has no module that the recipe rounds.
    """
    a_target, (own, within) = target(format), _PLACES[recipe]
    of_features = recipe == "cache" and leaves_axis_open(a_target)
    plain = {"format": format, "axis": -1} if of_features else format
    per = {"weight": "channel"}

    def rule(places: tuple[str, ...]) -> dict[str, Any]:
        if not a_target.needs_scale:
            return dict.fromkeys(places, plain)
        return {place: {"format": format, "per": per.get(place, "token")} for place in places}

    rules: dict[str, Any] = {}
    if own:
        operand = {"format": format, "when": "call"} if a_target.needs_scale else format
        rules |= {name: rule(own) for name in layers["linear"]}
        rules |= {name: {"forward": dict.fromkeys(own, operand)} for name in layers["experts"]}
    if within:
        rules |= {name: rules.get(name, {}) | rule(within) for name in layers["attention"]}
    if not rules or (within and not layers["attention"]):
        raise ValueError(
            f"expected a model with {'attention' if within else 'linear layers'} for --recipe "
            f"{recipe}, but got none that is not kept; use another recipe, or keep fewer"
        )
    return rules


def find_dtype(format: str) -> torch.dtype:
    """Return the dtype of a whole model in a format.

    Raises:
        ValueError: blocks and integers, which are no dtypes.
    """
    try:
        return resolve(format, "all")
    except ValueError as error:
        raise ValueError(
            f"expected a dtype for --recipe all, but got {format}; use --recipe ptq for blocks and "
            "integers"
        ) from error


def fill_cache(model: nn.Module) -> None:
    """Let a model of transformers fill a cache in each pass if a rule rounds what enters it, and
    otherwise none."""
    config = getattr(model, "config", None)
    if hasattr(config, "use_cache"):
        states = (state_of(m) for m in model.modules() if is_quantized(m))
        config.use_cache = any(state.rule.names_cache for state in states)


def bits_a_weight(model: nn.Module) -> float:
    """Return the mean bits of a weight in the layers whose rule rounds weights; NaN if none does or
    a quantiser does not tell."""
    bits = count = 0
    for module in model.modules():
        if not is_quantized(module):
            continue
        rule = state_of(module).rule
        place = rule.products()["forward"].weight or rule.weight
        if place is not None:
            own = sum(p.numel() for p in module.parameters(recurse=False) if p.dim() > 1)
            bits, count = bits + own * place.target.bits_per_value, count + own
    return bits / count if count else math.nan
