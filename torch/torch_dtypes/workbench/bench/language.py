"""The suite ``language``: training steps and generation of a language model of ten million
parameters, over stock float32's. The model is transformers' Llama, whose cache rules round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import torch_dtypes

from ...quantization.attention import is_attention
from ..training.generators import forked_generators
from . import peers
from .measuring import Group, Row, Sizes, named_dtypes

SUMMARY = (
    "A language model of ten million parameters: a training step with Adam in a dtype and in "
    "mxfp8 by rules (weights, activations and errors), and generation with a rounded cache, over "
    "stock float32's."
)
STEP = "optimizer.zero_grad(); model(ids, labels=ids).loss.backward(); optimizer.step()"
_MORE = "model.generate(ids, max_new_tokens=more, min_new_tokens=more, do_sample=False)"
_STEP_LIMIT, _RULES_LIMIT, _CACHE_LIMIT = 1.25, 1.4, 1.3
_DTYPES = ("posit16es2",)
_RULES = {
    nn.Linear: dict.fromkeys(("weight", "activation", "error"), "mxfp8_e4m3"),
    "lm_head": None,
}
_CACHES = {
    "q43 cache": "q43",
    "mxfp8 cache": "mxfp8_e4m3",
    "int8 cache": {"format": "int8", "per": "token"},
}


def namespace(sizes: Sizes, change: Callable[[nn.Module], Any], tokens: int) -> dict:
    """Return the variables of a case: the same weights and ids for every one, with the model
    changed."""
    import transformers

    layers, width, length, more = sizes.language
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        max_position_embeddings=length + more,
    )
    with forked_generators():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
        ids = torch.randint(256, (max(tokens // length, 1), min(tokens, length)))
    change(model)
    optimizer = torch.optim.Adam(model.parameters())
    return {"model": model, "optimizer": optimizer, "ids": ids, "more": more}


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    if not peers.is_installed("transformers"):
        return []
    layers, width, length, more = sizes.language
    named = named_dtypes(dtypes, _DTYPES)
    changes: dict[str, Callable[[nn.Module], Any]] = {
        "float32": lambda model: model,
        **{name: lambda model, d=d: model.to(d) for name, d in named.items()},
        "mxfp8 by rules": lambda model: torch_dtypes.quantize_(model, _RULES),
    }
    caches: dict[str, Callable[[nn.Module], Any]] = {"float32": lambda model: model} | {
        name: lambda model, place=place: torch_dtypes.quantize_(
            model, {is_attention: {"key_cache": place, "value_cache": place}}
        )
        for name, place in _CACHES.items()
    }
    size = f"{layers} layers, width {width}"
    steps = [Row(f"step, {size}, 4 x {length}", n, "float32", _STEP_LIMIT) for n in named]
    steps.append(Row(f"step, {size}, 4 x {length}", "mxfp8 by rules", "float32", _RULES_LIMIT))
    work = f"{more} tokens generated, {size}"
    return [
        Group(
            dict.fromkeys(ways, code),
            lambda ways=ways, tokens=tokens: {
                name: namespace(sizes, change, tokens) for name, change in ways.items()
            },
            rows,
            rounds=5,
            quick_rounds=1,
        )
        for ways, code, rows, tokens in (
            (changes, STEP, steps, 4 * length),
            (caches, _MORE, [Row(work, n, "float32", _CACHE_LIMIT) for n in _CACHES], length // 4),
        )
    ]


def notes(sizes: Sizes) -> list[str]:
    return (
        []
        if peers.is_installed("transformers")
        else ["transformers: not installed: pip install transformers"]
    )
