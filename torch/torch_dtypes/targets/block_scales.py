"""Scales of blocks: a power of two by one of four rules, a number of another format by one of four,
or HiF4's; and the scale of a tensor on top."""

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
FLOAT_RULES = ("nearest", "ceil", "four_over_six", "four_over_six_max")
# Rules that try two scales, which bring a block's largest magnitude to 6 or to 4, and the only
# element for which they are defined. Source: Cook et al., "Four over six: more accurate NVFP4
# quantization with adaptive block scaling" (arXiv 2512.02010).
CHOOSING_RULES = FLOAT_RULES[2:]
CHOOSING_ELEMENT = "e2m1finite"
# Names of the same rules in PyTorch's proposal for quantize_tensor (pytorch issue 195481).
RULE_ALIASES = {"rceil_e8m0": "rceil", "nvfp4_e4m3": "nearest"}

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
    expansion: float = 1.0,
) -> torch.Tensor:
    """Return absmax / full_scale (times a tensor scale's reciprocal, times ``expansion``), rounded
    to the scale format; at least its smallest positive number."""
    ratio = absmax / full_scale
    if inverse is not None:
        ratio = ratio * inverse
    if expansion != 1:
        ratio = ratio * expansion
    return round_to_grid(ratio, scale.name, "up" if rule == "ceil" else "nearest_even").clamp_min(
        scale.smallest
    )


def choose_scale(
    blocks: torch.Tensor,
    dims: list[int],
    six: torch.Tensor,
    four: torch.Tensor,
    above: torch.Tensor | None,
    rule: str,
) -> torch.Tensor:
    """Return for each block ``four`` if it gives the smaller error, else ``six``.

    The error is that of e2m1 elements rounded to nearest, in float64: the sum of squares over the
    block, or the largest magnitude.
    """
    error_of_six, error_of_four = (
        _find_error(blocks, dims, factor_of(own, above), rule) for own in (six, four)
    )
    return torch.where(error_of_four < error_of_six, four, six)


def _find_error(
    blocks: torch.Tensor, dims: list[int], factor: torch.Tensor, rule: str
) -> torch.Tensor:
    # By stock operators, which no count of roundings sees: these elements are not the result.
    y = blocks * factor.reciprocal()
    large, larger = ((y.abs() >= bound).to(y.dtype) for bound in (2, 4))
    step = (1 + large + 2 * larger) * 0.5
    values = ((y / step).round() * step).clamp(-6, 6) * factor
    error = (values.double() - blocks.double()).abs()
    if not dims:
        return error
    if rule == "four_over_six_max":
        return error.amax(dims, keepdim=True)
    return error.square().sum(dims, keepdim=True)


def factor_of(own: torch.Tensor, above: torch.Tensor | None) -> torch.Tensor:
    """Multiply the blocks' scales by the tensor's. The result is at least the smallest normal
    number; NaN stays."""
    return own if above is None else (own * above).clamp_min(torch.finfo(own.dtype).smallest_normal)


def brought_to(full_scale: float, scale: ScaleFormat, rule: str) -> float:
    """Return the magnitude to which a tensor's scale brings the tensor's largest one, for elements
    of this full scale.

    A rule that tries 3/2 of a scale leaves room for it: the largest block gets a power of two (256
    in e4m3, as in the paper).
    """
    largest = scale.largest
    if rule in CHOOSING_RULES:
        largest = math.ldexp(1, math.frexp(largest / 1.5)[1] - 1)
    return min(full_scale * largest, _LARGEST)


def tensor_scale(absmax: torch.Tensor, full_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tensor's encoding factor full_scale / max(absmax), and its reciprocal. Blocks with
    infinities or NaN do not count."""
    top = torch.where(absmax < math.inf, absmax, torch.zeros_like(absmax)).amax()
    encode = (torch.full_like(top, full_scale) / top).clamp_max(1 / _LEAST_TENSOR_SCALE)
    return encode, encode.reciprocal()
