"""Scales of blocks: a power of two by one of four rules, a number of another format, or HiF4's; and
the scale of a tensor on top."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .. import _C
from ..formats import naming
from ..formats.dtypes import format_of
from ..formats.patterns import name_pattern
from . import micro_exponents
from .base import full_scale_of, saturate_format
from .grid import round_to_grid

_POWERS = name_pattern(r"e(\d+)m0")
_STOCK = {"float32": "e8m23", "bfloat16": "e8m7", "float16": "e5m10"}
POWER_RULES = ("floor", "ceil", "even", "rceil")
FLOAT_RULES = ("nearest", "ceil")

# The least scale of a tensor. Times the smallest number of a scale format it is a normal float32
# number, so its reciprocal is finite.
_LEAST_TENSOR_SCALE = 2.0**-117
# The limit to which a tensor's scale brings its largest magnitude. float32 holds it, and the
# numbers that round up from it.
_LARGEST = 2.0**126


@dataclass(frozen=True)
class ScaleFormat:
    """The numbers of a block's scale: powers of two of ``bits`` bits (E8M0 has 2^-127 to 2^127, and
    a NaN), a format, or HiF4's."""

    name: str
    bits: int
    smallest: float
    largest: float
    powers: bool
    micro: bool = False  # whether parts of a block have exponents below its scale

    @property
    def lowest_exponent(self) -> int:
        return 1 - (1 << self.bits - 1)

    @property
    def highest_exponent(self) -> int:
        """The exponent of the largest power of two; the code above it is NaN."""
        return (1 << self.bits - 1) - 1


def scale_format(value: object) -> ScaleFormat:
    """Return the format of a block's scale by its name, dtype or format."""
    if isinstance(value, str) and (match := _POWERS.fullmatch(value)):
        bits = int(match[1])
        if not 2 <= bits <= 8:
            raise ValueError(
                f"expected a scale of 2 to 8 exponent bits ('e8m0'), but got {value!r}"
            )
        top = (1 << bits - 1) - 1
        return ScaleFormat(value, bits, math.ldexp(1, -top), math.ldexp(1, top), True)
    if isinstance(value, str) and value == "hif4":
        return ScaleFormat(
            "hif4", 32, micro_exponents.SMALLEST, micro_exponents.LARGEST, False, micro=True
        )
    value = _STOCK.get(str(value).removeprefix("torch."), value)
    fmt = _C.Format(value) if isinstance(value, _C.Format) else format_of(value)
    if fmt.kind == _C.Kind.table and _POWERS.fullmatch(fmt.table_name):
        return scale_format(fmt.table_name)
    if not fmt.fits_float:
        raise ValueError(
            "expected a block's scale as 'e8m0' or a format whose values float32 has, but got "
            f"{naming.name_of_format(fmt)!r}"
        )
    if math.isnan(fmt.smallest):
        raise ValueError(
            "expected a block's scale of a format with positive values, but got "
            f"{naming.name_of_format(fmt)!r}"
        )
    fmt = saturate_format(fmt)
    fmt.rounding = _C.Rounding.nearest_even
    return ScaleFormat(
        naming.name_of_format(fmt), fmt.bits, max(fmt.smallest, 2.0**-126), fmt.largest, False
    )


def mantissa_threshold(rule: str, element: _C.Format) -> tuple[float, bool]:
    """Return the significand (in [1/2, 1), as frexp gives it) of a block's absmax from which the
    scale doubles, and whether that significand is included."""
    if rule == "floor":
        return 1.0, True
    if rule == "ceil":
        return 0.5, False
    if rule == "rceil":
        return math.frexp(full_scale_of(element))[0], False
    return 1 - math.ldexp(1, -(element.significand_bits + 1)), True


def power_scale(
    absmax: torch.Tensor, exponent: int, threshold: tuple[float, bool], scale: ScaleFormat
) -> torch.Tensor:
    """Return 2^(floor(log2(absmax)) - exponent), doubled from the threshold on, within the range of
    the scale format."""
    limits = torch.finfo(absmax.dtype)
    positive = absmax.clamp_min(limits.smallest_normal * limits.eps)
    fraction = torch.frexp(positive).mantissa
    # The quotient is an exact power of two.
    power = (positive / (fraction * 2)) * math.ldexp(1, -exponent)
    bound, included = threshold
    if bound < 1:
        power = torch.where(fraction >= bound if included else fraction > bound, power * 2, power)
    # Magnitudes that the tensor's scale has brought beyond the dtype's range.
    power = torch.where(absmax < math.inf, power, scale.largest)
    return power.clamp(scale.smallest, scale.largest)


def float_scale(
    absmax: torch.Tensor,
    full_scale: float,
    inverse: torch.Tensor | None,
    rule: str,
    scale: ScaleFormat,
) -> torch.Tensor:
    """Return absmax / full_scale (times a tensor scale's reciprocal), rounded to the scale format;
    at least its smallest positive number."""
    ratio = absmax / full_scale
    if inverse is not None:
        ratio = ratio * inverse
    return round_to_grid(ratio, scale.name, "up" if rule == "ceil" else "nearest_even").clamp_min(
        scale.smallest
    )


def brought_to(full_scale: float, scale: ScaleFormat) -> float:
    """Return the magnitude to which a tensor's scale brings the tensor's largest one, for elements
    of this full scale."""
    return min(full_scale * scale.largest, _LARGEST)


def tensor_scale(absmax: torch.Tensor, full_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tensor's encoding factor full_scale / max(absmax), and its reciprocal. Blocks with
    infinities or NaN do not count."""
    top = torch.where(absmax < math.inf, absmax, torch.zeros_like(absmax)).amax()
    encode = (torch.full_like(top, full_scale) / top).clamp_max(1 / _LEAST_TENSOR_SCALE)
    return encode, encode.reciprocal()
