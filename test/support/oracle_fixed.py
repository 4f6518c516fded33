"""Fixed-point formats by their definition, in exact integers. The module shares no code with the
implementation.

A code is an integer in units of 2^-frac_bits, in two's complement or unsigned. A value is rounded
to such an integer, where its magnitude decides half and odd. An integer out of range then saturates
or wraps. Either number of bits may be negative."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from oracle import WORD, flip_coin, goes_out
from rationals import Fraction


@dataclass(frozen=True)
class Fixed:
    int_bits: int
    frac_bits: int
    signed_codes: bool = True
    overflow: str = "saturate"
    symmetric: bool = False

    posit = False

    @property
    def bits(self) -> int:
        return self.signed_codes + self.int_bits + self.frac_bits

    @property
    def unit(self) -> Fraction:
        return Fraction(2) ** -self.frac_bits

    @property
    def highest(self) -> int:
        """Return the largest value, in units of 2^-frac_bits."""
        return (1 << self.int_bits + self.frac_bits) - 1

    @property
    def lowest(self) -> int:
        if not self.signed_codes:
            return 0
        return -self.highest if self.symmetric else -self.highest - 1

    def integer(self, code: int) -> int:
        """Return the value of a code in units of 2^-frac_bits."""
        return code - (1 << self.bits) if self.signed_codes and code >> self.bits - 1 else code

    def decode(self, code: int) -> Fraction:
        return self.integer(code) * self.unit

    def fit(self, n: int) -> int:
        """Return the code of a rounded integer, saturated or wrapped."""
        if self.overflow == "saturate":
            n = min(max(n, self.lowest), self.highest)
        return n % (1 << self.bits)

    def fitted_array(self, n: np.ndarray) -> np.ndarray:
        if self.overflow == "saturate":
            n = np.minimum(np.maximum(n, self.lowest), self.highest)
        return (n % (1 << self.bits)).astype(np.int64)

    def special(self, x: float) -> int:
        """Return the code of a NaN, an infinity or a zero."""
        if math.isinf(x):
            return (self.highest if x > 0 else self.lowest) % (1 << self.bits)
        return 0

    def encode(self, x: Fraction | float, mode: str = "nearest_even", word: int = 0) -> int:
        if isinstance(x, float) and not math.isfinite(x):
            return self.special(x)
        scaled = Fraction(x) / self.unit
        n = round_magnitude(abs(scaled), mode, scaled < 0, word)
        return self.fit(-n if scaled < 0 else n)

    def encode_sqrt(self, x: Fraction, mode: str = "nearest_even") -> int:
        """Return the code of a root. The root is first rounded to 64 more bits, odd where it is
        inexact, which keeps the final rounding right."""
        scaled = x / self.unit**2 * (1 << 128)
        root = math.isqrt(math.floor(scaled))
        return self.encode(Fraction(root | (root * root != scaled), 1 << 64) * self.unit, mode)


def round_magnitude(m: Fraction, mode: str, negative: bool, word: int = 0) -> int:
    """Round a magnitude to an integer."""
    n = math.floor(m)
    half = (m - n > Fraction(1, 2)) - (m - n < Fraction(1, 2))
    n += m != n and goes_out(mode, half, n % 2 == 1, negative, flip_coin(mode, m - n, word))
    if mode == "up_down" and n:
        n += 1 if word >= WORD // 2 else -1
    return n


def round_quotients(n: np.ndarray, d: np.ndarray | int, mode: str) -> np.ndarray:
    """Round n / d to integers, in arrays of integers; d > 0."""
    q, r = abs(n) // d, abs(n) % d
    negative = n < 0
    q = q + (goes_out(mode, np.sign(2 * r - d), q % 2 == 1, negative) & (r != 0))
    return np.where(negative, -q, q)


def inputs(spec: Fixed, count: int = 400) -> np.ndarray:
    """Return float64 numbers: values, halves and thirds of units with their float64 neighbours,
    over the range and beyond it, and special values."""
    rng = np.random.default_rng(spec.bits)
    top = spec.highest
    ends = [
        0,
        1,
        2,
        top - 2,
        top - 1,
        top,
        top + 1,
        top + 2,
        2 * top,
        2 * top + 2,
        3 * top + 5,
        -spec.lowest,
        -spec.lowest + 1,
    ]
    n = np.array(
        range(min(top + 3, count))
        if top < count
        else [*ends, *(rng.integers(0, top, count) >> rng.integers(0, 20, count)).tolist()]
    )
    units = np.concatenate([n, n + 0.25, n + 0.5, n + 0.75, ends])
    x = np.ldexp(np.abs(units), -spec.frac_bits)
    extra = [
        np.inf,
        np.nan,
        1e300,
        1e30,
        5e-324,
        1e-30,
        2.0**63,
        2.0**62 + 2.0**11,
        2.0**33 + 0.5,
        3 * 2.0**40 + 0.5,
        1e17 / 3,
    ]
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, 0), extra])
    return np.unique(np.concatenate([x, -x]).view(np.int64)).view(np.float64)
