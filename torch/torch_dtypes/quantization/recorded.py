"""Operators that keep a rounding layer's gradients in torch.jit.trace and torch.export.

Eager code defines gradients by autograd nodes and tensor hooks, but a trace records only operators.
Without these operators, a trace would compute the right values and wrong gradients, or none.
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
def read_rounder(text: str) -> Rounder:
    """Restore a rounder from its text."""
    fields = json.loads(text)
    if fields["scale"] and fields["scale"]["when"] != "call":
        raise RuntimeError(
            f"expected eager code for {fields['format']} with a scale of other calls, but got a "
            "trace or an export, which remembers no calls; set when='call'"
        )
    scale = None if fields["scale"] is None else ScaleRule(**fields["scale"])
    place = Place(target(fields["format"]), fields["rounding"], "pass", scale, fields.get("axis"))
    return Rounder(place, fields.get("role", "error"), nn.Identity())


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


def _round_gradient(ctx, gradient):
    return read_rounder(ctx.place)(gradient), None


OPERATORS = {
    "straight_through": {
        "run": _straight_through,
        "fake": _straight_through,
        "keep": _keep_passes,
        "differentiate": _pass,
    },
    "round_gradient": {
        "run": _same,
        "fake": _same,
        "keep": _keep_place,
        "differentiate": _round_gradient,
    },
}
