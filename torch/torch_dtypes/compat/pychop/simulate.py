"""Pychop's small number systems of any base, as lists of their numbers."""

from __future__ import annotations

import numpy as np

from ...formats.arguments import integer

__all__ = ["Simulate"]


class Simulate:
    """Rounds to the numbers m * base^(e - t), with m of t digits and e from ``emin`` to ``emax``,
    and to 0.

    Beyond the largest number a result goes to infinity where one more step of that number would be
    the nearer, or where the mode rounds that way. NaN stays NaN. Without signs, numbers below 0
    become 0.

    Args:
        base: from 2 on.
        t: digits of m, 1 to 20. There are at most 2^24 numbers, from 2^-1000 to 2^1000.
        emin: up to emax; default: 1 - emax.
        sign: whether there are negative numbers.
        subnormal: whether m may have leading zeros.
        rmode: 1 nearest even (m of the lower number even), 2 up, 3 down, 4 toward zero, 5
            stochastic, 6 up or down with equal probability. Random modes draw from
            ``numpy.random``.

    Raises:
        TypeError: another number than rmode is no integer.
        ValueError: another mode, no number at all, or too many or too large ones.
    """

    def __init__(
        self,
        base: int,
        t: int,
        emax: int,
        emin: int | None = None,
        sign: bool = False,
        subnormal: bool = False,
        rmode: int = 1,
    ) -> None:
        if rmode not in range(1, 7):
            raise ValueError(f"expected rmode from 1 to 6, but got {rmode!r}")
        base, t = integer("base", base, 2, 2**20), integer("t", t, 1, 20)
        emax = integer("emax", emax, -1000, 1000)
        emin = integer("emin", 1 - emax if emin is None else emin, -1000, emax)
        if (emax - emin + 1) * base**t > 2**24 or base ** max(emax, t - emin) > 2**1000:
            raise ValueError(
                "expected at most 2^24 numbers, from 2^-1000 to 2^1000, but got more from "
                f"base={base}, t={t}, emin={emin}, emax={emax}; use Chop"
            )
        self.base, self.t, self.emax, self.emin = base, t, emax, emin
        self.sign, self.subnormal, self.rmode = sign, subnormal, rmode
        self._magnitudes, self._even = self._list()
        positive = self._magnitudes[:-1]
        self.fp_numbers = np.concatenate([-positive[:0:-1], positive]) if sign else positive
        self.underflow_bound, self.overflow_bound = 0.0, float(positive[-1])

    def _list(self) -> tuple[np.ndarray, np.ndarray]:
        """Return 0 and the positive numbers in ascending order, and whether each one's m is even;
        the last is the number that would follow if exponents went on."""
        lowest = self.base ** (self.t - 1)
        digits = {0: True}
        for e in range(self.emin, self.emax + 1):
            start = 1 if self.subnormal and e == self.emin else lowest
            for m in range(start, lowest * self.base):
                digits[m * float(self.base) ** (e - self.t)] = m % 2 == 0
        digits[float(self.base) ** self.emax] = lowest % 2 == 0
        return np.array(list(digits), dtype=np.float64), np.array(list(digits.values()))

    def generate(self) -> np.ndarray:
        """Return the numbers in ascending order."""
        return self.fp_numbers

    def rounding(self, x: float | np.ndarray) -> float | np.ndarray:
        """Round a number or an array."""
        values = np.asarray(x, dtype=np.float64)
        magnitude = np.abs(values)
        steps, last = self._magnitudes, len(self._magnitudes) - 1
        low = np.clip(np.searchsorted(steps, magnitude, side="right") - 1, 0, last - 1)
        lower, upper = steps[low], steps[low + 1]
        with np.errstate(invalid="ignore"):
            share = np.where(np.isinf(magnitude), 1.0, (magnitude - lower) / (upper - lower))
        away = (share > 0) & self._goes_away(share, self._even[low], values < 0)
        result = np.where(away, np.where(low + 1 == last, np.inf, upper), lower)
        result = np.where(np.isinf(magnitude), np.inf, result)
        result = np.where(np.isnan(values), np.nan, np.copysign(result, values))
        if not self.sign:
            result = np.where(values < 0, 0.0, result)
        return result if np.ndim(x) else float(result)

    def _goes_away(self, share, even, negative) -> np.ndarray:
        """Return where the magnitude goes up. ``share`` is above 1 beyond the last step."""
        if self.rmode == 1:
            return (share > 0.5) | ((share == 0.5) & ~even)
        if self.rmode in (2, 3):
            return negative == (self.rmode == 3)
        if self.rmode == 4:
            return np.zeros_like(negative)
        drawn = np.random.uniform(size=share.shape)
        return drawn < (share if self.rmode == 5 else 0.5)
