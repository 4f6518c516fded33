"""Logarithmic number systems of at most 16 bits: a sign, and the logarithm to base 2 as a
fixed-point number.

Source: Swartzlander and Alexopoulos, "The sign/logarithm number system", IEEE Transactions on
Computers 24 (1975). The codes of 0 and NaN are those of the Universal library's ``lns``.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence

from .definition import Definition, End
from .making import named
from .tapered import CONTEXT, IRRATIONAL_BITS, round_boundary, round_irrational


@functools.lru_cache(maxsize=4)
def _roots(count: int) -> tuple[decimal.Decimal, ...]:
    """Compute 2^(i / count) for i below count."""
    log = decimal.Decimal(2).ln(CONTEXT)
    return tuple(
        (CONTEXT.divide(CONTEXT.multiply(log, decimal.Decimal(i)), decimal.Decimal(count))).exp(
            CONTEXT
        )
        for i in range(count)
    )


def _scale(roots: Sequence[float], numerator: int) -> float:
    """Scale a root by a power of two: 2^(numerator / count), its boundary or its rest."""
    return math.ldexp(roots[numerator % len(roots)], numerator // len(roots))


def check(int_bits: int, frac_bits: int) -> None:
    if not 3 <= 2 + int_bits + frac_bits <= 16 or int_bits > 9:
        raise ValueError(
            "expected int_bits from 0 to 9 and 3 to 16 bits in all (a sign, the logarithm's "
            f"sign, int_bits, frac_bits), but got int_bits={int_bits}, frac_bits={frac_bits}"
        )


@named(r"lns(\d+)_(\d+)")
def logarithmic(int_bits: int, frac_bits: int) -> Definition:
    check(int_bits, frac_bits)
    bits = 2 + int_bits + frac_bits
    # The logarithms go from -half + 1 to half - 1. The code -half means 0, or NaN.
    count, half = 1 << frac_bits, 1 << (bits - 2)
    roots = _roots(2 * count)
    whole, middles = (
        [round_irrational(x, IRRATIONAL_BITS) for x in roots[::2]],
        [round_boundary(x) for x in roots],
    )
    value = {n: _scale(whole, n) for n in range(1 - half, half)}
    # In the order of codes, which are two's complement.
    magnitudes = [0.0 if n == -half else value[n] for n in (*range(half), *range(-half, 0))]
    values = [*magnitudes, *(-v for v in magnitudes)]
    nan_code = 2 * half + half
    values[nan_code] = math.nan
    between, rests = (
        [_scale(part, 2 * n + 1) for n in range(1 - half, half - 1)]
        for part in zip(*middles, strict=True)
    )
    least = value[1 - half] / 2
    return Definition(
        tuple(values),
        nan_code,
        boundaries=(*(-b for b in reversed(between)), -least, least, *between),
        high=End(None, half - 1),
        low=End(None, 3 * half - 1),
        rests=(*(-rest for rest in reversed(rests)), 0.0, 0.0, *rests),
        logarithm="binary",
        log_bits=frac_bits + 1,
    )
