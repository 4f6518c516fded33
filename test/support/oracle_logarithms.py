"""Logarithmic takums and LNS by their definitions, in integers: the logarithms of codes and of the
boundaries between them, and the code of a number.

A magnitude is base^(n / unit), where the base is 2 for lns and e for takums. Boundaries, too, are
multiples of the unit. So a result whose logarithm is an integer, or a ratio of two, is rounded by
comparing integers. The module shares no code with the implementation."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import mpmath
import numpy as np
from oracle import goes_out
from oracle_takum import fields


@dataclass(frozen=True)
class Logarithms:
    """Codes of positive numbers in order, their logarithms, and those of the boundaries between
    them, in units of 1 / unit."""

    bits: int
    base: int | None  # None: e
    unit: int
    codes: np.ndarray
    logs: np.ndarray
    between: np.ndarray
    zero: int
    nan: int

    @functools.cached_property
    def of_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return by code the sign, or 0 where there is no logarithm, and the logarithm."""
        signs, logs = (
            np.zeros(1 << self.bits, dtype=np.int64),
            np.zeros(1 << self.bits, dtype=np.int64),
        )
        for sign, codes in ((1, self.codes), (-1, self._negative(self.codes))):
            signs[codes], logs[codes] = sign, self.logs
        return signs, logs

    def _negative(self, codes: np.ndarray) -> np.ndarray:
        return codes | 1 << self.bits - 1 if self.base else -codes & (1 << self.bits) - 1

    def encode(
        self,
        signs: np.ndarray,
        logs: np.ndarray,
        mode: str,
        coins: np.ndarray | bool = False,
        denominator: int = 1,
    ) -> np.ndarray:
        """Return the codes of signs * base^(logs / denominator / unit). coins: the top bits of
        random words."""
        logs = np.asarray(logs)
        steps, between = (x.astype(logs.dtype) * denominator for x in (self.logs, self.between))
        at, last = np.searchsorted(steps, logs, side="right") - 1, len(steps) - 1
        inner = np.clip(at, 0, last)
        exact = (at >= 0) & (steps[inner] == logs)
        boundaries = np.concatenate([between, steps[-1:] * 2 + 1])[inner]
        odd = self.codes[inner] % 2 == 1
        if self.base:  # below the smallest number, 0 is even and the boundary its half
            boundaries[at < 0], odd = steps[0] - self.unit * denominator, odd & (at >= 0)
        side = np.asarray(logs > boundaries, dtype=np.int64) - np.asarray(
            logs < boundaries, dtype=np.int64
        )
        at = at + (goes_out(mode, side, odd, np.asarray(signs) < 0, coins) & ~exact & (at < last))
        if not self.base:
            at = at.clip(0)
        if mode == "up_down":
            at = np.where(at < 0, at, at + np.where(coins, 1, -1)).clip(-1 if self.base else 0)
        at = at.clip(max=last)
        codes = self.codes[at.clip(0)]
        return np.where(
            at < 0, self.zero, np.where(np.asarray(signs) < 0, self._negative(codes), codes)
        )

    def power(self, log: int) -> mpmath.mpf:
        """Return base^(log / unit) in mpmath's current precision."""
        exponent = mpmath.mpf(int(log)) / self.unit
        return mpmath.power(self.base, exponent) if self.base else mpmath.exp(exponent)


@functools.cache
def of_name(name: str) -> Logarithms:
    if name.startswith("lns"):
        int_bits, frac_bits = (int(n) for n in name.removeprefix("lns").split("_"))
        half = 1 << int_bits + frac_bits
        numbers = np.arange(1 - half, half)
        between = 4 * numbers[:-1] + 2
        return Logarithms(
            2 + int_bits + frac_bits,
            2,
            4 << frac_bits,
            numbers & 2 * half - 1,
            4 * numbers,
            between,
            half,
            3 * half,
        )
    bits = int(name.removeprefix("takum").removesuffix("_log"))
    # Logarithms are half of c + fraction, and their halves serve for roots.
    unit = 4 << max(bits + 1, 12) - 5

    def log(width: int, code: int) -> int:
        c, fraction = fields(width, code)
        return int((c + fraction) * unit) // 2

    codes = np.arange(1, 1 << bits - 1)
    logs, between = (
        [log(bits, int(k)) for k in codes],
        [log(bits + 1, int(2 * k + 1)) for k in codes[:-1]],
    )
    return Logarithms(bits, None, unit, codes, np.array(logs), np.array(between), 0, 1 << bits - 1)
