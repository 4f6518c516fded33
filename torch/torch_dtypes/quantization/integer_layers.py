"""Layers in integer arithmetic: integer products, integer sums that wrap around or saturate, one scale behind.

Source: Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference" (arXiv 1712.05877), section 2.
"""

from __future__ import annotations

import contextlib
import re

import torch
from torch import nn

from .._derivatives import first_only
from ..accumulation import accumulate
from ..formats import fixed_format
from .base import is_recorded, straight_through
from .integers import IntegerFormat
from .products import Geometry, gradients, prepared, product
from .targets import Target

_ACCUMULATOR = re.compile(r"int(\d+)(_wrap|_saturate)?")
_EXACT = 2**53  # up to which float64 has every integer
_STRAIGHT = contextlib.nullcontext()


def is_integer(target: Target) -> bool:
    return isinstance(target, IntegerFormat)


def accumulator_name(value: object, where: str) -> str:
    """The canonical name of an accumulator's integers."""
    name = "int32" if value is None else value
    match = _ACCUMULATOR.fullmatch(name) if isinstance(name, str) else None
    if not match or not 2 <= int(match[1]) <= 32:
        raise ValueError(
            f"expected accumulator of {where} as the name of integers of 2 to 32 bits, 'int32' (it wraps around) or 'int20_saturate', but got "
            f"{value!r}"
        )
    return name.removesuffix("_wrap")


class IntegerPlan:
    """How a layer's product runs on integers. ``accumulator``: ``"int32"``, ``"int20_saturate"``."""

    def __init__(self, accumulator: str) -> None:
        match = _ACCUMULATOR.fullmatch(accumulator)
        self.accumulator, self.bits, self.saturates = accumulator, int(match[1]), bool(match[2])

    def __call__(self, module: nn.Module, state, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, output_size=None) -> torch.Tensor:
        """The layer's output for an input and a weight that are rounded already."""
        if not x.is_floating_point():  # so nothing was rounded, and there is no scale
            raise TypeError(f"expected a floating tensor as the input of a layer with arithmetic='integer', but got {x.dtype}; convert it")
        scale, weight_scale = state.rounders["activation"].last_scale, state.parameters["weight"].last_scale
        x, geometry = prepared(module, x, output_size)
        largest = _reach(state.rounders["activation"].place.target) * _reach(state.parameters["weight"].place.target)
        if is_recorded():  # which would differentiate what the integers are rounded by
            with torch.no_grad():
                values = integer_product(x, weight, bias, geometry, self, scale, weight_scale, largest)
            return straight_through(product(x, weight, bias, geometry), values)
        return _IntegerProduct.apply(x, weight, bias, geometry, self, scale, weight_scale, largest)

    def sums(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry | None, largest: int) -> torch.Tensor:
        """The accumulator's integers, as float64. Operands are integers in float64, and a product's magnitude is ``largest`` at most."""
        low, high = -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        if bias is not None:
            bias = bias.clamp(low, high)
        taps = weight[0].numel() if geometry is None or not geometry.transposed else weight.numel() // weight.shape[1] // geometry.groups
        bound = taps * largest + (0 if bias is None else high + 1)
        if bound > _EXACT:
            raise ValueError(f"expected sums that float64 holds exactly (up to 2^53), but got {taps} products of up to {largest}")
        if not self.saturates:
            y = product(x, weight, bias, geometry)  # exact, so that one wrap at the end is as good as one at each step
            return torch.remainder(y - low, 2.0**self.bits) + low
        if bound <= high:
            return product(x, weight, bias, geometry)
        operands, sums = fixed_format(31, 0), fixed_format(self.bits - 1, 0)
        with accumulate("format", accumulator=sums, fused=True):
            y = product(x.to(operands), weight.to(operands), None if bias is None else bias.to(operands), geometry)
        return y.to(torch.float64)


def integer_product(x, weight, bias, geometry: Geometry | None, plan: IntegerPlan, scale, weight_scale, largest: int) -> torch.Tensor:
    """The values of the sums, in x's dtype."""
    step = _wide(scale)
    # One scale for each channel of the weight, or one for all; behind the product it lies along the output's channels.
    weight_step = _wide(weight_scale)
    along = weight_step.reshape(-1) * step.reshape(-1)
    rank = x.dim() - 1 if geometry is None else weight.dim() - 2
    factor = along if geometry is None else along.reshape(-1, *[1] * rank)
    numbers = torch.round(x.double() / step), torch.round(weight.double() / weight_step)
    offset = None if bias is None else torch.round(bias.double() / along)
    return (plan.sums(*numbers, offset, geometry, largest) * factor).to(x.dtype)


class _IntegerProduct(torch.autograd.Function):
    """Integers forward; backward the derivative of the same product of the values that they stand for (straight through)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, geometry, plan, scale, weight_scale, largest):
        return integer_product(x, weight, bias, geometry, plan, scale, weight_scale, largest)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.geometry, *_ = inputs
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None

    @staticmethod
    @first_only("a quantised layer with arithmetic='integer'", "leave arithmetic out of its rule")
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return *gradients(g, x, weight, ctx.has_bias, ctx.geometry, ctx.needs_input_grad[:3], (_STRAIGHT, _STRAIGHT)), *[None] * 5


def _reach(target: IntegerFormat) -> int:
    """The largest magnitude of an integer less the zero point."""
    return max(-target.lowest, target.largest) if target.symmetric else target.largest - target.lowest


def _wide(scale) -> torch.Tensor:
    return torch.as_tensor(scale, dtype=torch.float64)
