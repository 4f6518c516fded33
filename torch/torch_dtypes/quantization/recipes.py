"""Published recipes of low-precision training, by name: rules of ``quantize_``."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..formats.arguments import nearest
from ..targets.chop import chop
from ..targets.lookup import target
from .products import is_linear

__all__ = ["RECIPES", "Recipe", "recipe"]


@dataclass(frozen=True)
class Recipe:
    """A recipe: the rule of its linear layers, where it is published, and how this one differs."""

    rule: dict[str, Any]
    source: str
    note: str = ""


def _everywhere(format: str) -> dict[str, str]:
    return dict.fromkeys(("weight", "activation", "error"), format)


def _delayed(format: str) -> dict[str, Any]:
    return {"format": format, "scale": "free", "when": "delayed", "history": 1024}


class _ThreeQuarters:
    """MXFP4 of 3/4 of a number, times 4/3.

    Scales are the standard's, of the whole number, so that a block's largest element lies below 8.
    Three quarters of it lie below 6, the largest element, and nothing is clipped. The paper
    multiplies each product by 16/9 instead, which is 4/3 for each operand.
    """

    name = "mxfp4_three_quarters"
    bits = 4 + 8 / 32

    def quantize(self, x, *, axis, generator, rounding):
        x = x.movedim(axis, -1)
        scales = target("mxfp4").scales(x)
        if scales.dim() > x.dim():  # several blocks
            scales = scales.flatten(-2).repeat_interleave(32, -1)[..., : x.shape[-1]]
        elements = chop(x * 0.75 / scales, "e2m1finite", rounding, generator=generator)
        return (elements * scales * (4 / 3)).movedim(-1, axis)


THREE_QUARTERS = _ThreeQuarters()
_TILE = "block<e4m3fn_saturate,float32,128>"
_MXFP4 = {"format": f"{__name__}:THREE_QUARTERS", "rounding": "stochastic"}
RECIPES = {
    "nvfp4": Recipe(
        {
            "forward": {"activation": "nvfp4", "weight": "nvfp4_16x16"},
            "input_grad": {"error": "nvfp4_stochastic", "weight": "nvfp4_16x16"},
            "weight_grad": {
                "error": "nvfp4_stochastic",
                "activation": "nvfp4",
                "transform": "hadamard16",
            },
        },
        "NVIDIA, Pretraining large language models with NVFP4 (arXiv 2509.25149)",
        "The paper leaves the first and last blocks in bfloat16 too: name them with None.",
    ),
    "mxfp8": Recipe(
        _everywhere("mxfp8_e4m3_rceil"),
        "Mishra et al., Recipes for pre-training LLMs with MXFP8 (arXiv 2506.08027)",
    ),
    "mxfp4_backward": Recipe(
        {
            "forward": {"activation": "bfloat16", "weight": "bfloat16"},
            "input_grad": {"error": _MXFP4, "weight": _MXFP4, "transform": "hadamard64"},
            "weight_grad": {"error": _MXFP4, "activation": _MXFP4, "transform": "hadamard64"},
        },
        "Tseng, Yu, Park, Training LLMs with MXFP4 (arXiv 2502.20586)",
    ),
    "deepseek_v3": Recipe(
        {
            "activation": _TILE,
            "error": _TILE,
            "weight": "block<e4m3fn_saturate,float32,128x128>",
        },
        "DeepSeek-V3 technical report (arXiv 2412.19437), section 3.3",
        "Sums are float32's, as if promoted at once.",
    ),
    "fp8_delayed": Recipe(
        {
            "weight": _delayed("float8_e4m3fn"),
            "activation": _delayed("float8_e4m3fn"),
            "error": _delayed("float8_e5m2"),
        },
        "Micikevicius et al., FP8 formats for deep learning (arXiv 2209.05433); scales as in "
        "Transformer Engine's DelayedScaling",
    ),
}


def recipe(name: str, model: nn.Module) -> dict[str, Any]:
    """Return the rules of a recipe for a model: of its linear layers, without the last one.

    All of these recipes leave embeddings, normalisation, attention and the output layer in high
    precision. The result is a plain dict with names as keys, so that it can be changed, printed and
    written as YAML. ``quantize_(model, "nvfp4")`` takes it as it is.

    Args:
        name: ``"nvfp4"``, ``"mxfp8"``, ``"mxfp4_backward"``, ``"deepseek_v3"`` or
            ``"fp8_delayed"``. ``RECIPES`` has each with its source.
        model: any module with linear layers (``nn.Linear``, transformers' ``Conv1D``).

    Raises:
        ValueError: an unknown name, or a model without linear layers.

    Example::

        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        >>> torch_dtypes.quantization.recipe("mxfp8", model)["2"] is None
        True
    """
    if name not in RECIPES:
        raise ValueError(
            "expected the name of a recipe or a path that ends in .yaml (in Python rules are a "
            f"dict, {{nn.Linear: dict(weight='q43')}}), but got {name!r}; of recipes "
            f"{nearest(name, RECIPES)}"
        )
    in_attention = {m.out_proj for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
    linear = [(n, m) for n, m in model.named_modules() if is_linear(m) and m not in in_attention]
    if not linear:
        raise ValueError(
            f"expected a model with linear layers for the recipe {name!r}, but got a "
            f"{type(model).__name__} without any"
        )
    *reached, last = linear if len(linear) > 1 else (*linear, None)
    rules: dict[str, Any] = {n: copy.deepcopy(RECIPES[name].rule) for n, _ in reached}
    if last is not None:
        rules[last[0]] = None
    return rules
