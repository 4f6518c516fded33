"""Takums of at most 16 bits, and bounded posits: bit strings whose fields have variable lengths.

Longer linear takums have a codec (ExactCodec.h), bounded posits have none.

Both round on the bit string, like posits: the boundary between two codes is the value of the string
that is one bit longer. Only 0 becomes 0. Numbers beyond the largest one become the largest, and
infinities become NaR.

Sources: Hunhold, "Beating posits at their own game: takum arithmetic", CoNGA 2024, definitions 2
and 6. Jonnalagadda et al., "Closing the gap between float and posit hardware efficiency" (b-posits:
regimes of bounded length), 2025.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import math
from collections.abc import Callable

from .definition import Definition, End
from .making import named

# Significant bits of irrational values; their boundaries have one more, and a rest. Float64 then
# has two bits left to round arithmetic to odd (ValueTable.h).
IRRATIONAL_BITS = 51
MAX_BITS = 16

CONTEXT = decimal.Context(prec=60)


def round_irrational(x: decimal.Decimal, bits: int) -> float:
    """Round a positive irrational number to nearest, to that many significant bits."""
    exponent = math.frexp(float(x))[1]
    scaled = CONTEXT.multiply(x, CONTEXT.power(2, bits - exponent))
    return math.ldexp(int(scaled.to_integral_value(decimal.ROUND_HALF_EVEN)), exponent - bits)


def round_boundary(x: decimal.Decimal) -> tuple[float, float]:
    """Round a boundary, and return the rest too."""
    number = round_irrational(x, IRRATIONAL_BITS + 1)
    return number, float(CONTEXT.subtract(x, decimal.Decimal(number)))


def two_sided(
    bits: int, magnitude: Callable[[int], float], boundary: Callable[[int], float]
) -> Definition:
    """Define a table whose codes are two's complement integers, with 0 and NaR.

    Args:
        magnitude: the value of a positive code.
        boundary: the boundary between the codes k and k + 1.
    """
    half = 1 << (bits - 1)
    positive = [magnitude(k) for k in range(1, half)]
    between = [boundary(k) for k in range(1, half - 1)]
    values = (0.0, *positive, math.nan, *(-v for v in reversed(positive)))
    # The two boundaries next to 0 are not used, since no rounding gives 0.
    boundaries = (*(-b for b in reversed(between)), -positive[0] / 2, positive[0] / 2, *between)
    nar = End(None, half)
    return Definition(values, half, boundaries=boundaries, high=nar, low=nar, minpos=True)


def characteristic(bits: int, code: int) -> tuple[int, int, int]:
    """Return (c, M, p) of a positive takum, whose logarithm, or exponent plus fraction, is
    c + M / 2^p. Takums of less than 12 bits are extended by zeros."""
    code, bits = code << max(0, 12 - bits), max(bits, 12)
    direction, regime = code >> (bits - 2) & 1, code >> (bits - 5) & 7
    length = regime if direction else 7 - regime
    p = bits - 5 - length
    tail = code & ((1 << (bits - 5)) - 1)
    base = 2**length - 1 if direction else 1 - 2 ** (length + 1)
    return base + (tail >> p), tail & ((1 << p) - 1), p


def _linear(bits: int, code: int) -> float:
    c, mantissa, p = characteristic(bits, code)
    return math.ldexp((1 << p) + mantissa, c - p)


@functools.lru_cache(maxsize=1024)
def _exp(numerator: int, denominator: int) -> decimal.Decimal:
    return CONTEXT.divide(decimal.Decimal(numerator), decimal.Decimal(denominator)).exp(CONTEXT)


def _logarithmic(bits: int, code: int) -> decimal.Decimal:
    c, mantissa, p = characteristic(bits, code)
    return CONTEXT.multiply(_exp(c, 2), _exp(mantissa, 2 << p))


@named(r"takum([6-9]|1[0-6])_(linear|log)")
def takum(bits: int, kind: str) -> Definition:
    if kind == "linear":
        return two_sided(bits, lambda k: _linear(bits, k), lambda k: _linear(bits + 1, 2 * k + 1))
    between = [
        round_boundary(_logarithmic(bits + 1, 2 * k + 1)) for k in range(1, (1 << bits - 1) - 1)
    ]
    rests = [rest for _, rest in between]
    return dataclasses.replace(
        two_sided(
            bits,
            lambda k: round_irrational(_logarithmic(bits, k), IRRATIONAL_BITS),
            lambda k: between[k - 1][0],
        ),
        rests=(*(-rest for rest in reversed(rests)), 0.0, 0.0, *rests),
        logarithm="natural",
        log_bits=max(bits + 1, 12) - 4,
    )


def _decode_bounded(bits: int, es: int, regime_max: int, code: int) -> float:
    """Decode a positive bounded posit. A regime of regime_max equal bits has no end bit."""
    body = format(code, f"0{bits - 1}b")
    run = len(body) - len(body.lstrip(body[0]))
    run = min(run, regime_max)
    k = run - 1 if body[0] == "1" else -run
    tail = body[run + (run < regime_max) :]
    exponent, fraction = int(tail[:es].ljust(es, "0") or "0", 2), tail[es:]
    return math.ldexp(
        (1 << len(fraction)) + int(fraction or "0", 2), (k << es) + exponent - len(fraction)
    )


def check_bounded(bits: int, es: int, regime_max: int) -> None:
    if not 0 <= es <= 5:
        raise ValueError(f"expected es from 0 to 5, but got {es}")
    if not 2 <= regime_max < bits:
        raise ValueError(
            f"expected regime_max from 2 to {bits - 1} with nbits={bits}, but got {regime_max}"
        )


@named(r"posit([2-9]|1[0-6])es(\d+)_regime(\d+)")
def bounded_posit(bits: int, es: int, regime_max: int) -> Definition:
    check_bounded(bits, es, regime_max)
    return two_sided(
        bits,
        lambda k: _decode_bounded(bits, es, regime_max, k),
        lambda k: _decode_bounded(bits + 1, es, regime_max, 2 * k + 1),
    )
