"""Counts of the numbers that one layer and pass rounded to one format."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from fractions import Fraction

from ..report.folders import finite_or_none

# In the order of tables, and of Pass in aten/src/ATen/Observation.h.
PASSES = ("forward", "backward", "weights", "gradients", "updates", "states", "accumulation")
OUTSIDE = "(outside)"  # numbers rounded outside of all layers' calls and backward passes
BLOCK_FIELDS = ("scales", "clipped", "flushed")  # counts of blocks, by integers
SHARES = (
    "overflow",    "saturated",   "underflow",   "to_zero",     "subnormal",   "zeros",
    "nan_in",      "infinite_in", "nan_made",    "inexact",     "unchanged",   "elements",
    "nonzero",     "clipped_blocks",             "flushed_blocks",
)  # fmt: skip


@dataclass(frozen=True)
class RoundingCounts:
    """Counts of one layer, pass and format. x is a number before rounding, r the number after it. A
    table in docs/reference/rounding-counts.md defines each count.

    Attributes:
        layer: the module's qualified name, ``""`` for the model itself, ``"(outside)"`` for numbers
            that no module of it rounded (the loss).
        where: the pass: ``"forward"``, ``"backward"``, ``"weights"``, ``"gradients"``,
            ``"updates"``, ``"states"`` or ``"accumulation"``.
        format: the format's name.
        elements: the number of rounded numbers, of which every count below is a part.
        overflow: x is finite and beyond the range, or r is not finite. saturated: x is beyond the
            range or infinite, and r is the outermost number.
        underflow: x is within the range, not 0, and below the smallest positive number in
            magnitude, or r = 0. to_zero: the underflows with r = 0.
        subnormal: x is from the smallest positive number up to the smallest normal one in
            magnitude, and r is not 0.
        zeros: r = 0, for any x. nan_in: x is NaN. infinite_in: x is infinite. nan_made: r is NaN
            (NaR) and x is not. inexact: x is not NaN and r differs from x.
        signal, noise: the sums of x^2 and of (x - r)^2 where both are finite. The squares have 24
            bits, so each is within a relative 2^-21.
        exponents: the count of finite nonzero x by exponent, floor(log2 |x|). (-1023: below
            float64's normal numbers.)
        unchanged, compared: for updates, how many parameters a step did not change, and of how
            many; else 0.
        blocks: of a block format, the number of blocks; else 0, and the counts below are empty.
        scales: the count of blocks by floor(log2) of their own scale, without the tensor's. Blocks
            of zeros, and those with an infinity or NaN, are left out.
        clipped, flushed: the count of blocks by the share of their nonzero numbers that were
            beyond the block's range, or became 0: in tenths, rounded up.
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
    blocks: int = 0
    scales: dict[int, int] = field(default_factory=dict)
    clipped: dict[int, int] = field(default_factory=dict)
    flushed: dict[int, int] = field(default_factory=dict)

    @property
    def clipped_blocks(self) -> int:
        """Count of blocks with a number beyond their range."""
        return sum(n for tenths, n in self.clipped.items() if tenths)

    @property
    def flushed_blocks(self) -> int:
        """Count of blocks in which a number became 0."""
        return sum(n for tenths, n in self.flushed.items() if tenths)

    @property
    def nonzero(self) -> int:
        """Count of numbers that were not 0 before rounding, infinities and NaN included. Zeros
        count too if the format has no 0 to keep them."""
        zero = self.elements - sum(self.exponents.values()) - self.infinite_in - self.nan_in
        return self.elements - min(zero, self.zeros)

    def share(self, count: str) -> float:
        """Return a count, by its name, as a share of the numbers to which it may happen. For most
        counts these are the ``nonzero``. All formats with a 0 keep an exact 0, and the zeros of a
        mostly dead layer would hide the rest. ``zeros``, ``elements`` and ``nonzero`` are shares of
        ``elements``, ``unchanged`` is one of ``compared``, ``clipped_blocks`` and
        ``flushed_blocks`` are of ``blocks``.

        The share is 0 if all numbers were 0, and NaN if there were none.

        Raises:
            AttributeError: an unknown name.
        """
        if count not in SHARES:
            raise AttributeError(
                f"expected the name of a count, one of {', '.join(SHARES)}, but got {count!r}"
            )
        if count == "unchanged":
            return self.unchanged / self.compared if self.compared else math.nan
        if count in ("clipped_blocks", "flushed_blocks"):
            return getattr(self, count) / self.blocks if self.blocks else math.nan
        if not self.elements:
            return math.nan
        of = self.elements if count in ("zeros", "elements", "nonzero") else self.nonzero
        return getattr(self, count) / of if of else 0.0

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio of the rounding in decibels: 10 log10(signal / noise). Infinite if
        nothing was lost, NaN if all numbers were 0."""
        if self.noise == 0:
            return math.inf if self.signal > 0 else math.nan
        return (
            10 * (math.log10(self.signal) - math.log10(self.noise))
            if self.signal > 0
            else -math.inf
        )

    @property
    def trouble(self) -> float:
        """Share of nonzero numbers that left the range: overflows, underflows, infinities and NaN
        made. For updates it is the share of unchanged parameters if that is more. Tables are sorted
        by it."""
        left = (
            (self.overflow + self.underflow + self.nan_made) / self.nonzero if self.nonzero else 0.0
        )
        return max(left, self.share("unchanged")) if self.compared else left

    def as_json(self) -> dict:
        """Return plain data, including ``snr`` and ``nonzero``, with ``None`` for infinities and
        NaN."""
        data = asdict(self) | {"snr": self.snr, "nonzero": self.nonzero}
        data |= {
            name: {str(e): n for e, n in sorted(getattr(self, name).items())}
            for name in ("exponents", *BLOCK_FIELDS)
        }
        if not self.blocks:  # so that files of other formats stay as they were
            for name in ("blocks", *BLOCK_FIELDS):
                del data[name]
        return finite_or_none(data)


def _sum(bins: list[tuple[int, int, int, int]], column: int) -> float:
    """Sum over exponents, exactly, and round to float64 once."""
    total = sum((Fraction(b[column]) * Fraction(2) ** (2 * b[0] - 22) for b in bins), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf


def build_counts(
    layer: str, where: str, name: str, raw: dict, unchanged: tuple[int, int]
) -> RoundingCounts:
    """Build the record of the extension's raw counts, or of those of ``count_blocks``."""
    if "bins" not in raw:
        return RoundingCounts(
            layer, where, name, **raw, unchanged=unchanged[0], compared=unchanged[1]
        )
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
