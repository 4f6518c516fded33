"""Layers in integer arithmetic: integer products, and integer sums that wrap around or saturate.
One scale then turns the sums into values.

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
from .products import Geometry, gradients, operator_arguments, prepare_input, product

_EXACT = 2**53  # float64 holds every integer up to this one
_STRAIGHT = contextlib.nullcontext()


class IntegerPlan:
    """How a layer's product runs on integers. ``accumulator`` is for example ``"int32"`` or
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
        """Compute the layer's output from an input and a weight that ``scales`` ("activation",
        "weight") have already rounded."""
        if not x.is_floating_point():  # then nothing was rounded, and there is no scale
            raise TypeError(
                "expected a floating tensor as the input of a layer with arithmetic='integer', "
                f"but got {x.dtype}; convert it"
            )
        scale, weight_scale = (
            torch.as_tensor(scales[name][0], dtype=torch.float64, device=x.device)
            for name in ("activation", "weight")
        )
        x, geometry = prepare_input(module, x, output_size)
        largest = _reach(state.rounders["activation"].place.target) * _reach(
            state.parameters["weight"].place.target
        )
        # A recorded graph would differentiate through the rounding to integers; one operator
        # hides it.
        if torch.compiler.is_compiling() or is_recorded():
            operands = (x, weight, bias, scale, weight_scale, self.accumulator, largest)
            return torch.ops.torch_dtypes.integer_product(*operands, *operator_arguments(geometry))
        return _IntegerProduct.apply(x, weight, bias, geometry, self, scale, weight_scale, largest)

    def sums(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        geometry: Geometry | None,
        largest: int,
    ) -> torch.Tensor:
        """Return the accumulator's integers, as float64. Operands are integers in float64; the
        magnitude of a product is at most ``largest``."""
        low, high = -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        if bias is not None:
            bias = bias.clamp(low, high) if self.saturates else self._wrap(bias)
        taps = (
            weight[0].numel()
            if geometry is None or not geometry.transposed
            else weight.numel() // weight.shape[1] // geometry.groups
        )
        bound = taps * largest + (0 if bias is None else high + 1)
        if bound > _EXACT:
            raise ValueError(
                f"expected sums of at most 2^53, which float64 holds exactly, but got {taps} "
                f"products of up to {largest}; use integers of fewer bits"
            )
        if not self.saturates:
            # The sum is exact, so one wrap at the end equals a wrap at each step.
            y = product(x, weight, bias, geometry)
            return self._wrap(y)
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

    def _wrap(self, sums: torch.Tensor) -> torch.Tensor:
        """Reduce sums modulo the accumulator's range. Infinities give NaN."""
        rest = torch.remainder(sums, 2.0**self.bits)
        return torch.where(rest < 2.0 ** (self.bits - 1), rest, rest - 2.0**self.bits)


def integer_product(
    x, weight, bias, geometry: Geometry | None, plan: IntegerPlan, scale, weight_scale, largest: int
) -> torch.Tensor:
    """Compute the values of the sums, in x's dtype. Scales are float64."""
    # One scale for each channel of the weight, or one for all. In the output it belongs to the
    # channel dimension.
    along = weight_scale.reshape(-1) * scale.reshape(-1)
    rank = x.dim() - 1 if geometry is None else weight.dim() - 2
    factor = along if geometry is None else along.reshape(-1, *[1] * rank)
    numbers = torch.round(x.double() / scale), torch.round(weight.double() / weight_scale)
    offset = None if bias is None else torch.round(bias.double() / along)
    return (plan.sums(*numbers, offset, geometry, largest) * factor).to(x.dtype)


class _IntegerProduct(torch.autograd.Function):
    """Integer product forward. Backward differentiates the same product of the values behind the
    integers (straight through)."""

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
    """Return the largest magnitude of an integer minus the zero point."""
    return (
        max(-target.lowest, target.largest) if target.symmetric else target.largest - target.lowest
    )


# ---- the operator of stock tensors that graphs record: torch.ops.torch_dtypes.integer_product ----


def _product(x, weight, bias, scale, weight_scale, accumulator, largest, *geometry):
    shape = product_operator.geometry_of(*geometry)
    return integer_product(
        x, weight, bias, shape, IntegerPlan(accumulator), scale, weight_scale, largest
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
    results = gradients(
        gradient,
        x,
        weight,
        ctx.has_bias,
        geometry,
        ctx.needs_input_grad[:3],
        (_STRAIGHT, _STRAIGHT),
    )
    return *results, *[None] * (len(ctx.needs_input_grad) - 3)


OPERATORS = {
    "integer_product": {
        "run": _product,
        "fake": _fake_product,
        "keep": _keep,
        "differentiate": _differentiate,
    },
}
