"""Layers in integer arithmetic: integer products, and integer sums that wrap around or saturate.
One scale then turns the sums into values.

Source: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference" (arXiv 1712.05877), section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..formats.layouts import fixed_format
from ..policies.accumulation import accumulation_block
from ..targets.integers import IntegerFormat
from .places import ACCUMULATOR, LayerRule
from .products import Geometry, product

_EXACT = 2**53  # float64 holds every integer up to this one


@dataclass(frozen=True)
class IntegerPlan:
    """How a layer's product runs on integers. ``accumulator`` is for example ``"int32"`` or
    ``"int20_saturate"``; the magnitude of a product is at most ``largest``."""

    accumulator: str
    largest: int

    @property
    def text(self) -> str:
        """The plan as graphs record it."""
        return f"{self.accumulator}; {self.largest}"

    def multiply(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        geometry: Geometry | None,
        scale: torch.Tensor,
        weight_scale: torch.Tensor,
    ) -> torch.Tensor:
        """Compute the values of the sums, in x's dtype, of operands that the float64 scales have
        already rounded."""
        # One scale for each channel of the weight, or one for all. In the output it belongs to the
        # channel dimension.
        along = weight_scale.reshape(-1) * scale.reshape(-1)
        rank = x.dim() - 1 if geometry is None else weight.dim() - 2
        factor = along if geometry is None else along.reshape(-1, *[1] * rank)
        numbers = torch.round(x.double() / scale), torch.round(weight.double() / weight_scale)
        offset = None if bias is None else torch.round(bias.double() / along)
        return (self.sums(*numbers, offset, geometry) * factor).to(x.dtype)

    def sums(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        geometry: Geometry | None,
    ) -> torch.Tensor:
        """Return the accumulator's integers, as float64. Operands are integers in float64."""
        match = ACCUMULATOR.fullmatch(self.accumulator)
        bits, saturates, largest = int(match[1]), bool(match[2]), self.largest
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        if bias is not None:
            bias = bias.clamp(low, high) if saturates else _wrap(bias, bits)
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
        if not saturates:
            # The sum is exact, so one wrap at the end equals a wrap at each step.
            y = product(x, weight, bias, geometry)
            return _wrap(y, bits)
        exact = product(x, weight, bias, geometry)
        if bound <= high:
            return exact
        operands, sums = fixed_format(31, 0), fixed_format(bits - 1, 0)
        with accumulation_block("format", accumulator=sums, fused=True):
            y = product(
                x.to(operands),
                weight.to(operands),
                None if bias is None else bias.to(operands),
                geometry,
            )
        return torch.where(exact.isnan(), exact, y.to(torch.float64))  # fixed point has no NaN


def _wrap(sums: torch.Tensor, bits: int) -> torch.Tensor:
    """Reduce sums modulo the accumulator's range. Infinities give NaN."""
    rest = torch.remainder(sums, 2.0**bits)
    return torch.where(rest < 2.0 ** (bits - 1), rest, rest - 2.0**bits)


def plan_of_integers(rule: LayerRule) -> IntegerPlan:
    reach = _reach(rule.activation.target) * _reach(rule.weight.target)
    return IntegerPlan(rule.accumulator, reach)


def find_scales(x: torch.Tensor, scales: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scales of the activation and the weight as tensors of float64."""
    if not x.is_floating_point():  # then nothing was rounded, and there is no scale
        raise TypeError(
            "expected a floating tensor as the input of a layer with arithmetic='integer', "
            f"but got {x.dtype}; convert it"
        )
    return tuple(
        torch.as_tensor(scales[name][0], dtype=torch.float64, device=x.device)
        for name in ("activation", "weight")
    )


def _reach(target: IntegerFormat) -> int:
    """Return the largest magnitude of an integer minus the zero point."""
    return (
        max(-target.lowest, target.largest) if target.symmetric else target.largest - target.lowest
    )
