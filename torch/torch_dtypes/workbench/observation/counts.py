"""What is counted of the numbers that were rounded in one layer and pass, to one format."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from fractions import Fraction

# The order of passes in tables; c10's Pass in aten/src/ATen/Observation.h.
PASSES = ("forward", "backward", "weights", "gradients", "updates", "states", "accumulation")
OUTSIDE = "(outside)"  # what no layer's call or backward pass rounded
SHARES = (
    "overflow",    "saturated",   "underflow",   "to_zero",     "subnormal",   "zeros",
    "nan_in",      "infinite_in", "nan_made",    "inexact",     "unchanged",   "elements",
    "nonzero",
)  # fmt: skip


@dataclass(frozen=True)
class RoundingCounts:
    """Counts of one layer, pass and format. x is a number before rounding, r what it became.
    docs/reference/rounding-counts.md has each count's meaning in a table.

    Attributes:
        layer: the module's qualified name, ``""`` for the model itself, ``"(outside)"`` for what no
            module of it rounded (the loss).
        where: the pass: ``"forward"``, ``"backward"``, ``"weights"``, ``"gradients"``,
            ``"updates"``, ``"states"`` or ``"accumulation"``.
        format: the format's name.
        elements: how many numbers were rounded; every count below is a part of them.
        overflow: x finite and beyond the range, or r not finite. saturated: x beyond, or infinite,
            and r the outermost number.
        underflow: x within the range, not 0, and below the smallest positive number in magnitude,
            or r = 0. to_zero: those of them with r = 0.
        subnormal: x from the smallest positive number up to the smallest normal one in magnitude, r
            not 0.
        zeros: r = 0, whatever x was. nan_in: x NaN. infinite_in: x infinite. nan_made: r NaN (NaR)
            and x not. inexact: x not NaN and r not x.
        signal, noise: the sums of x^2 and of (x - r)^2 where both are finite; of squares of 24
            bits, so each within 2^-21 of itself.
        exponents: how many finite x there were by exponent, floor(log2 |x|), without zeros. (-1023:
            below float64's normal numbers.)
        unchanged, compared: of updates, how many parameters a step left as they were, and of how
            many; else 0.
    """

    layer: str
    where: str
    format: str
    elements: int
    overflow: int = 0
    saturated: int = 0
    underflow: int = 0
    to_zero: int = 0
    subnormal: int = 0
    zeros: int = 0
    nan_in: int = 0
    infinite_in: int = 0
    nan_made: int = 0
    inexact: int = 0
    signal: float = 0.0
    noise: float = 0.0
    exponents: dict[int, int] = field(default_factory=dict)
    unchanged: int = 0
    compared: int = 0

    @property
    def nonzero(self) -> int:
        """How many numbers were not 0 before rounding, infinities and NaN among them; and each 0
        that the format, having none, could not keep."""
        zero = self.elements - sum(self.exponents.values()) - self.infinite_in - self.nan_in
        return self.elements - min(zero, self.zeros)

    def share(self, count: str) -> float:
        """A count by its name, over the numbers to which it may happen: ``nonzero``, since all
        formats with a 0 keep an exact one, and the zeros of a layer that is mostly dead would hide
        what becomes of the rest. ``zeros``, ``elements`` and ``nonzero``: over ``elements``;
        ``unchanged``: over ``compared``.

        0 where all numbers were 0; NaN of nothing.

        Raises:
            AttributeError: no count has that name.
        """
        if count not in SHARES:
            raise AttributeError(
                f"expected the name of a count, one of {', '.join(SHARES)}, but got {count!r}"
            )
        if count == "unchanged":
            return self.unchanged / self.compared if self.compared else math.nan
        if not self.elements:
            return math.nan
        of = self.elements if count in ("zeros", "elements", "nonzero") else self.nonzero
        return getattr(self, count) / of if of else 0.0

    @property
    def snr(self) -> float:
        """The signal-to-noise ratio of the rounding in decibels: 10 log10(signal / noise); infinite
        where nothing was lost, NaN where all was 0."""
        if self.noise == 0:
            return math.inf if self.signal > 0 else math.nan
        return (
            10 * (math.log10(self.signal) - math.log10(self.noise))
            if self.signal > 0
            else -math.inf
        )

    @property
    def trouble(self) -> float:
        """The share of numbers other than 0 that left the range: overflows, underflows, infinities
        and NaN made; of updates, of parameters left as they were if that is more. Tables are sorted
        by it."""
        left = (
            (self.overflow + self.underflow + self.nan_made) / self.nonzero if self.nonzero else 0.0
        )
        return max(left, self.share("unchanged")) if self.compared else left

    def as_json(self) -> dict:
        """Plain data, ``snr`` and ``nonzero`` among it, with ``None`` for what is not finite."""
        data = asdict(self) | {
            "snr": self.snr,
            "nonzero": self.nonzero,
            "exponents": {str(e): n for e, n in sorted(self.exponents.items())},
        }
        return {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in data.items()
        }


def _sum(bins: list[tuple[int, int, int, int]], column: int) -> float:
    """The sum over exponents, exact until it is one float64."""
    total = sum((Fraction(b[column]) * Fraction(2) ** (2 * b[0] - 22) for b in bins), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf


def counted(
    layer: str, where: str, name: str, raw: dict, unchanged: tuple[int, int]
) -> RoundingCounts:
    """The record of what the extension counted."""
    bins = raw["bins"]
    exponents = {e: count for e, count, _, _ in bins if count}
    plain = {k: v for k, v in raw.items() if k != "bins"}
    same, of = unchanged
    return RoundingCounts(
        layer,
        where,
        name,
        **plain,
        signal=_sum(bins, 2),
        noise=_sum(bins, 3),
        exponents=exponents,
        unchanged=same,
        compared=of,
    )
