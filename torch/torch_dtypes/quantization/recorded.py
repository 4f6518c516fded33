"""Gradients in what torch.jit.trace and torch.export record: operators of stock tensors, whose
backward passes are those of a layer that rounds.

They record operators, not the nodes of autograd's graph and hooks of tensors by which eager code
says what a gradient is: without these operators a trace would compute the layer's values and other
gradients, or none.
"""

from __future__ import annotations

import functools
import json

from torch import nn

from ..targets.lookup import target
from .places import Place
from .rounders import Rounder
from .scale_rules import ScaleRule


@functools.lru_cache(maxsize=1024)
def _read(text: str):
    said = json.loads(text)
    if said["scale"] and said["scale"]["when"] == "delayed":
        raise RuntimeError(
            "expected gradients of eager code to be scaled by those of the calls before "
            f"({said['format']}), but got a trace's or an export's, which "
            "remember none; when='call' scales each by itself"
        )
    scale = None if said["scale"] is None else ScaleRule(**said["scale"])
    return Rounder(
        Place(target(said["format"]), said["rounding"], "pass", scale), "error", nn.Identity()
    )


def _straight_through(x, values, passes):
    return values.clone()


def _keep_passes(ctx, inputs, output):
    passes = inputs[2]
    ctx.has_mask = passes is not None
    if ctx.has_mask:
        ctx.save_for_backward(passes)


def _pass(ctx, gradient):
    return (gradient.where(ctx.saved_tensors[0], 0.0) if ctx.has_mask else gradient), None, None


def _same(x, place):
    return x.clone()


def _keep_place(ctx, inputs, output):
    ctx.place = inputs[1]


def _round(ctx, gradient):
    return _read(ctx.place)(gradient), None


OPERATORS = {
    "straight_through": {
        "run": _straight_through,
        "fake": _straight_through,
        "keep": _keep_passes,
        "differentiate": _pass,
    },
    "round_gradient": {"run": _same, "fake": _same, "keep": _keep_place, "differentiate": _round},
}
