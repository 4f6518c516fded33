"""The flags of an operation, by IEEE 754-2019, section 7.

The standard defines them for binary floats, from the exact result v and the mode:

- *invalid* (7.2): no result is defined: inf - inf, 0 * inf, 0 / 0, inf / inf, the root of a number
  below 0; a cast of NaN or an infinity to a format that has none. The NaNs of number formats are
  quiet, so a NaN operand raises nothing.
- *divide by zero* (7.3): a finite number other than 0 is divided by 0.
- *overflow* (7.4): v, rounded as if the exponents went on, exceeds the largest finite number,
  whatever the result is.
- *underflow* (7.5): v, rounded as if the exponents went on, is strictly between the smallest normal
  numbers of both signs, and the result is inexact. So tininess is detected after rounding, as on
  x86 and RISC-V, also for formats without subnormals.
- *inexact* (7.6): the result is not v.

The posit standard has no flags. Here, overflow means that v is beyond maxpos, and underflow that it
is between 0 and minpos. A result NaR is invalid, or a division by 0. For fixed point, overflow
means that the rounded integer is out of range; there is no underflow. For tables of values,
overflow means that v is beyond the outermost number of its sign, or that its sign has none.
Underflow means that v is between 0 and the smallest number.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch

from ... import _C
from ...formats.code_types import values_of_codes

INEXACT, UNDERFLOW, OVERFLOW, DIVIDE_BY_ZERO, INVALID = 1, 2, 4, 8, 16
NAMES = {
    "inexact": INEXACT,
    "underflow": UNDERFLOW,
    "overflow": OVERFLOW,
    "divide_by_zero": DIVIDE_BY_ZERO,
    "invalid": INVALID,
}
BITS = 5


@dataclass(frozen=True)
class _Step:
    """Two neighbouring magnitudes of a grid: the lower one, the distance, and whether the lower one
    is odd."""

    lower: float
    distance: float
    odd: bool
    # Whether every number of the grid is odd, so that ties go away from 0 (IEEE 754-2019, section
    # 4.3.1).
    one_digit: bool = False

    def reaches_next(
        self, magnitude: torch.Tensor, negative: torch.Tensor, mode: str
    ) -> torch.Tensor:
        """Return where a magnitude, rounded on the grid, is at least the upper of the two."""
        rounding = _C.Rounding.__members__[mode]
        if rounding.draws:
            raise ValueError(f"expected a deterministic rounding mode, but got {mode!r}")
        middle = self.lower + self.distance / 2
        half, rest = magnitude >= middle, magnitude != middle
        up = torch.zeros_like(negative)
        for case in itertools.product((False, True), repeat=3):
            sign, *cut = case
            if rounding.rounds_up(sign, self.odd or self.one_digit, *cut):
                up |= (negative == sign) & (half == cut[0]) & (rest == cut[1])
        return (magnitude >= self.lower + self.distance) | ((magnitude > self.lower) & up)


def finite_values(fmt: _C.Format) -> torch.Tensor:
    """Return a table's finite numbers, in the order of codes."""
    values = values_of_codes(fmt)
    return values[values.isfinite()]


@dataclass(frozen=True)
class Range:
    """The ends of a format's range, on both sides and towards 0."""

    fmt: _C.Format

    def _value(self, code: int) -> float:
        return _C.decode_exact(self.fmt, torch.tensor([code], device="cpu")).item()

    def overflows(self, exact: torch.Tensor, mode: str) -> torch.Tensor:
        fmt, magnitude, negative = self.fmt, exact.abs(), exact < 0
        if fmt.kind == _C.Kind.table:
            values = finite_values(fmt)
            return (exact > max(values.max().item(), 0.0)) | (exact < min(values.min().item(), 0.0))
        largest = self._value(fmt.max_code)
        if fmt.is_tapered:
            return magnitude > largest
        if fmt.kind == _C.Kind.fixed:
            lowest = (
                0.0
                if not fmt.is_signed
                else largest + (0.0 if fmt.symmetric else math.ldexp(1.0, -fmt.frac_bits))
            )
            top, bottom = (
                _Step(m, 2.0**-fmt.frac_bits, int(m * 2**fmt.frac_bits) % 2 == 1)
                for m in (largest, lowest)
            )
            return torch.where(
                negative,
                bottom.reaches_next(magnitude, negative, mode),
                top.reaches_next(magnitude, negative, mode),
            )
        distance = math.ldexp(1.0, max(math.frexp(largest)[1] - 1, fmt.min_exponent) - fmt.man_bits)
        return _Step(largest, distance, fmt.max_code % 2 == 1, self._one_digit).reaches_next(
            magnitude, negative, mode
        )

    def is_tiny(self, exact: torch.Tensor, mode: str) -> torch.Tensor:
        fmt, magnitude, negative = self.fmt, exact.abs(), exact < 0
        if fmt.is_tapered:
            return (magnitude > 0) & (magnitude < self._value(1))
        if fmt.kind == _C.Kind.table:
            values = finite_values(fmt)
            smallest = [
                min((sign * values)[sign * values > 0].tolist(), default=0.0) for sign in (1, -1)
            ]
            return (magnitude > 0) & torch.where(
                negative, magnitude < smallest[1], magnitude < smallest[0]
            )
        if fmt.kind == _C.Kind.fixed:
            return torch.zeros_like(negative)
        normal = math.ldexp(1.0, fmt.min_exponent)
        distance = math.ldexp(normal, -fmt.man_bits - 1)
        below = _Step(normal - distance, distance, fmt.man_bits > 0, self._one_digit)
        return (magnitude > 0) & ~below.reaches_next(magnitude, negative, mode)

    @property
    def _one_digit(self) -> bool:
        return self.fmt.man_bits == 0 and self.fmt.specials not in (
            _C.Specials.fnuz,
            _C.Specials.p3109,
        )
