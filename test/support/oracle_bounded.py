"""Bounded posits by their definition, in exact rationals. Shares no code with what it tests.

A regime is a run of equal bits that the other one ends, or regime_max equal bits; es exponent bits follow, and the fraction. Bits that are not there
are zeros.

Source: Jonnalagadda et al., "Closing the gap between float and posit hardware efficiency" (2025): b-posits.
"""

from __future__ import annotations

import functools
import itertools

import oracle_takum
from rationals import Fraction


@functools.cache
def value(bits: int, es: int, regime_max: int, code: int) -> Fraction | None:
    """None: NaR."""
    if code == 0:
        return Fraction(0)
    if code == 1 << bits - 1:
        return None
    if code >> bits - 1:
        return -value(bits, es, regime_max, (1 << bits) - code)
    text = format(code, f"0{bits}b")[1:]
    run = min(len(list(next(itertools.groupby(text))[1])), regime_max)
    k = run - 1 if text[0] == "1" else -run
    rest = text[run + 1 :] if run < regime_max else text[run:]
    exponent = int(rest[:es].ljust(es, "0") or "0", 2)
    fraction = rest[es:]
    return (1 + Fraction(int(fraction or "0", 2), 2 ** len(fraction))) * Fraction(2) ** (k * 2**es + exponent)


def encode(bits: int, es: int, regime_max: int, x: float | Fraction, mode: str = "nearest_even", word: int = 0) -> int:
    of = functools.partial(value, bits, es, regime_max)
    return oracle_takum.search(bits, of, lambda k: value(bits + 1, es, regime_max, 2 * k + 1), x, mode, word)
