"""torch.ops.torch_dtypes.product: a layer's product for graphs, under an accumulation policy or
with operands that each product rounds.

A graph cannot hold format tensors. It records the operands in float, and the plan as a text. Eager
code calls ``products.py`` directly, with the same bits.
"""

from __future__ import annotations

import torch

from ..formats.caches import clearable_cache
from ..formats.dtypes import dtype as dtype_of
from ..policies.accumulation import Accumulation
from . import product_plans, products
from .integer_layers import IntegerPlan
from .operands import read_operands
from .places import ACCUMULATOR


@clearable_cache
def _read(text: str):
    """Return the plan and the operands of a text; each is None if the text has none."""
    written, _, operands = text.partition("\n")
    plan = None
    carrier, *policies = written.split("; ")
    if ACCUMULATOR.fullmatch(carrier):
        plan = IntegerPlan(carrier, int(policies[0]))
    elif written:
        dtype = getattr(torch, carrier, None)
        plan = product_plans.ProductPlan(
            dtype if isinstance(dtype, torch.dtype) else dtype_of(carrier),
            tuple(map(Accumulation, policies)),
        )
    return plan, read_operands(operands) if operands else None


def geometry_of(stride, padding, dilation, transposed, output_padding, groups):
    if stride is None:
        return None
    return products.Geometry(
        tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups
    )


def _product(x, weight, bias, scale, weight_scale, plan, *geometry):
    how = geometry_of(*geometry), *_read(plan)
    return products.forward(x, weight, bias, *how, scales=(scale, weight_scale)).contiguous()


def _product_backward(gradient, x, weight, needs, plan, *geometry):
    results = products.backward(
        gradient, x, weight, needs[2], geometry_of(*geometry), tuple(needs), *_read(plan)
    )
    return tuple(x.new_empty(0) if t is None else t.contiguous() for t in results)


def _fake_product(x, weight, bias, scale, weight_scale, plan, *geometry):
    y = products.product(x, weight, bias, geometry_of(*geometry))
    return y.new_empty(y.shape)


def _fake_product_backward(gradient, x, weight, needs, plan, *geometry):
    channels = weight.shape[1] * geometry[-1] if geometry[3] else weight.shape[0]
    of_bias = gradient.shape if geometry[0] is None and weight.dim() > 2 else (channels,)
    like = (x, x.shape), (weight, weight.shape), (weight, of_bias)
    return tuple(
        t.new_empty(shape if needed else 0) for needed, (t, shape) in zip(needs, like, strict=True)
    )


def _keep(ctx, inputs, output):
    x, weight, bias, scale, _, plan, *ctx.geometry = inputs
    ctx.plan = plan if scale is None else ""  # gradients are of values, not of integers
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _differentiate(ctx, gradient):
    x, weight = ctx.saved_tensors
    needs = [*ctx.needs_input_grad[:2], ctx.has_bias and ctx.needs_input_grad[2]]
    results = torch.ops.torch_dtypes.product_backward(
        gradient, x, weight, needs, ctx.plan, *ctx.geometry
    )
    return *(t if needed else None for needed, t in zip(needs, results, strict=True)), *[None] * 9


OPERATORS = {
    "product": {
        "run": _product,
        "fake": _fake_product,
        "keep": _keep,
        "differentiate": _differentiate,
    },
    "product_backward": {"run": _product_backward, "fake": _fake_product_backward},
}
