"""Sums of products under each accumulation policy, in exact rationals. The module shares no code
with the implementation.

A value is a Fraction; or -0.0, an infinity or NaN as a float, as Spec.decode returns it. Zeros have
the signs of IEEE 754 in rounding to nearest."""

from __future__ import annotations

import math
from functools import cache

from rationals import Fraction


@cache
def value_of(spec, code):
    return spec.decode(code)


def finite(x):
    return isinstance(x, Fraction) or math.isfinite(x)


def negative(x):
    return x < 0 if isinstance(x, Fraction) else math.copysign(1, x) < 0


def sign(x):
    """Return a number of the same sign, for the arithmetic of infinities."""
    return x if isinstance(x, float) else float((x > 0) - (x < 0))


def times(x, y):
    if finite(x) and finite(y):
        product = Fraction(x) * Fraction(y)
        return product if product else math.copysign(0.0, -1 if negative(x) != negative(y) else 1)
    return sign(x) * sign(y)


def plus(x, y):
    if finite(x) and finite(y):
        total = Fraction(x) + Fraction(y)
        return total if total or not (x == y == 0 and negative(x) and negative(y)) else -0.0
    return (x if not finite(x) else 0.0) + (y if not finite(y) else 0.0)


def over(x, n):
    return x / n if isinstance(x, Fraction) else x


def exact_sum(terms, start=None):
    """Return the sum of some values without rounding, plus zero where it is empty. Infinities and
    NaN are added as in IEEE 754."""
    terms = [*terms, *([] if start is None else [start])]
    special = sum(x for x in terms if not finite(x))
    if special != 0:
        return special
    ratios = [x.as_integer_ratio() for x in terms if finite(x)]
    common = max((d for _, d in ratios), default=1)  # all are powers of two
    return Fraction(sum(n * (common // d) for n, d in ratios), common)


def round_value(spec, x, mode="nearest_even"):
    return value_of(spec, spec.encode(x, mode))


def step_sum(pairs, product, total, mode="nearest_even", start=None, fused=False, kahan=False):
    """Return one dot product with every step rounded. A pair of None and a value is a term that no
    product rounds."""

    def step(x):
        return round_value(total, x, mode)

    def minus(x, y):
        return plus(x, -y)

    acc, error = step(start) if start is not None else Fraction(0), Fraction(0)
    for x, y in pairs:
        if fused:
            acc = step(plus(times(x, y), acc))
            continue
        term = y if x is None else round_value(product, times(x, y), mode)
        if kahan:
            term = step(minus(term, error))
            next_acc = step(plus(acc, term))
            error = step(minus(step(minus(next_acc, acc)), term))
            acc = next_acc
        else:
            acc = step(plus(acc, term))
    return acc


def chunk_sum(pairs, spec, k, machine, start=None, **options):
    """Sum k terms at a time by steps, and add these sums in a machine type."""
    pairs, wide = list(pairs), machine(0 if start is None else float(start))
    for i in range(0, len(pairs), k):
        wide = machine(wide + machine(float(step_sum(pairs[i : i + k], spec, spec, **options))))
    return float(wide)
