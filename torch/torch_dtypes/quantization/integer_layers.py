"""Layers in integer arithmetic: integer products, integer sums that wrap around or saturate, one
scale behind.

Source: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference" (arXiv 1712.05877), section 2.
"""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from ..formats.layouts import fixed_format
from ..policies.accumulation import accumulation_block
from ..targets.base import is_recorded
from ..targets.integers import IntegerFormat
from . import product_operator
from .derivatives import first_only
from .places import ACCUMULATOR
from .products import Geometry, gradients, operator_arguments, prepared, product

_EXACT = 2**53  # up to which float64 has every integer
_STRAIGHT = contextlib.nullcontext()


class IntegerPlan:
    """How a layer's product runs on integers. ``accumulator``: ``"int32"``,
    ``"int20_saturate"``."""

    def __init__(self, accumulator: str) -> None:
        match = ACCUMULATOR.fullmatch(accumulator)
        self.accumulator, self.bits, self.saturates = accumulator, int(match[1]), bool(match[2])

    def __call__(
        self,
        module: nn.Module,
        state,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        output_size=None,
        *,
        scales,
    ) -> torch.Tensor:
        """The layer's output for an input and a weight that are rounded already, by ``scales``
        ("activation", "weight")."""
        if not x.is_floating_point():  # so nothing was rounded, and there is no scale
            raise TypeError(
                "expected a floating tensor as the input of a layer with arithmetic='integer', "
                f"but got {x.dtype}; convert it"
            )
        scale, weight_scale = (
            torch.as_tensor(scales[name][0], dtype=torch.float64, device=x.device)
            for name in ("activation", "weight")
        )
        x, geometry = prepared(module, x, output_size)
        largest = _reach(state.rounders["activation"].place.target) * _reach(
            state.parameters["weight"].place.target
        )
        # Which would differentiate what the integers are rounded by.
        if torch.compiler.is_compiling() or is_recorded():
            given = (x, weight, bias, scale, weight_scale, self.accumulator, largest)
            return torch.ops.torch_dtypes.integer_product(*given, *operator_arguments(geometry))
        return _IntegerProduct.apply(x, weight, bias, geometry, self, scale, weight_scale, largest)

    def sums(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        geometry: Geometry | None,
        largest: int,
    ) -> torch.Tensor:
        """The accumulator's integers, as float64. Operands are integers in float64, and a product's
        magnitude is ``largest`` at most."""
        low, high = -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        if bias is not None:
            bias = bias.clamp(low, high) if self.saturates else self._wrapped(bias)
        taps = (
            weight[0].numel()
            if geometry is None or not geometry.transposed
            else weight.numel() // weight.shape[1] // geometry.groups
        )
        bound = taps * largest + (0 if bias is None else high + 1)
        if bound > _EXACT:
            raise ValueError(
                f"expected sums that float64 holds exactly (up to 2^53), but got {taps} products "
                f"of up to {largest}"
            )
        if not self.saturates:
            # Exact, so that one wrap at the end is as good as one at each step.
            y = product(x, weight, bias, geometry)
            return self._wrapped(y)
        exact = product(x, weight, bias, geometry)
        if bound <= high:
            return exact
        operands, sums = fixed_format(31, 0), fixed_format(self.bits - 1, 0)
        with accumulation_block("format", accumulator=sums, fused=True):
            y = product(
                x.to(operands),
                weight.to(operands),
                None if bias is None else bias.to(operands),
                geometry,
            )
        return torch.where(exact.isnan(), exact, y.to(torch.float64))  # fixed point has no NaN

    def _wrapped(self, sums: torch.Tensor) -> torch.Tensor:
        """The accumulator's integers that are congruent to these; NaN of what is infinite."""
        rest = torch.remainder(sums, 2.0**self.bits)
        return torch.where(rest < 2.0 ** (self.bits - 1), rest, rest - 2.0**self.bits)


def integer_product(
    x, weight, bias, geometry: Geometry | None, plan: IntegerPlan, scale, weight_scale, largest: int
) -> torch.Tensor:
    """The values of the sums, in x's dtype. Scales are float64."""
    # One scale for each channel of the weight, or one for all; behind the product it lies along the
    # output's channels.
    along = weight_scale.reshape(-1) * scale.reshape(-1)
    rank = x.dim() - 1 if geometry is None else weight.dim() - 2
    factor = along if geometry is None else along.reshape(-1, *[1] * rank)
    numbers = torch.round(x.double() / scale), torch.round(weight.double() / weight_scale)
    offset = None if bias is None else torch.round(bias.double() / along)
    return (plan.sums(*numbers, offset, geometry, largest) * factor).to(x.dtype)


class _IntegerProduct(torch.autograd.Function):
    """Integers forward; backward the derivative of the same product of the values that they stand
    for (straight through)."""

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
        return *gradients(
            g,
            x,
            weight,
            ctx.has_bias,
            ctx.geometry,
            ctx.needs_input_grad[:3],
            (_STRAIGHT, _STRAIGHT),
        ), *[None] * 5


def _reach(target: IntegerFormat) -> int:
    """The largest magnitude of an integer less the zero point."""
    return (
        max(-target.lowest, target.largest) if target.symmetric else target.largest - target.lowest
    )


# ---- for graphs, an operator of stock tensors: torch.ops.torch_dtypes.integer_product ----


def _product(x, weight, bias, scale, weight_scale, accumulator, largest, *geometry):
    made = product_operator.geometry_of(*geometry)
    return integer_product(
        x, weight, bias, made, IntegerPlan(accumulator), scale, weight_scale, largest
    ).contiguous()


def _fake_product(x, weight, bias, scale, weight_scale, accumulator, largest, *geometry):
    return x.new_empty(product(x, weight, bias, product_operator.geometry_of(*geometry)).shape)


def _keep(ctx, inputs, output):
    x, weight, bias, _, _, _, _, *ctx.geometry = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _differentiate(ctx, gradient):
    x, weight = ctx.saved_tensors
    geometry = product_operator.geometry_of(*ctx.geometry)
    found = gradients(
        gradient,
        x,
        weight,
        ctx.has_bias,
        geometry,
        ctx.needs_input_grad[:3],
        (_STRAIGHT, _STRAIGHT),
    )
    return *found, *[None] * (len(ctx.needs_input_grad) - 3)


OPERATORS = {
    "integer_product": {
        "run": _product,
        "fake": _fake_product,
        "keep": _keep,
        "differentiate": _differentiate,
    },
}
