"""Counts of an observation, number by number in exact rationals. The module shares no code with the
implementation."""

from __future__ import annotations

import math
from collections import Counter

from oracle import Spec
from oracle_fixed import Fixed
from rationals import Fraction


def bounds(spec: Spec | Fixed) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return the largest and lowest finite number, the smallest positive one, and the smallest of
    full precision."""
    if isinstance(spec, Fixed):
        unit = spec.unit
        return spec.highest * unit, spec.lowest * unit, unit, unit
    largest = spec.magnitude(spec.largest)
    normal = spec.magnitude(1) if spec.posit else spec.magnitude(1 << spec.man_bits)
    return largest, -largest, spec.magnitude(1) if spec.subnormals else normal, normal


def exponent(x: Fraction) -> int:
    e = abs(x).numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= abs(x) else e - 1


def counts(spec: Spec | Fixed, numbers, mode: str = "nearest_even") -> dict:
    """Count float64 numbers or Fractions that are rounded to the format, and return the exact sums
    of squares."""
    highest, lowest, smallest, normal = bounds(spec)
    found, exponents = Counter(), Counter()
    signal = noise = Fraction(0)
    for given in numbers:
        x = given if isinstance(given, Fraction) else float(given)
        code = spec.encode(float(x) if not math.isfinite(x) or x == 0 else Fraction(x), mode)
        r = spec.decode(code)
        finite_result = isinstance(r, Fraction) or math.isfinite(r)
        found["elements"] += 1
        found["zeros"] += finite_result and r == 0
        if math.isnan(x):
            found["nan_in"] += 1
            continue
        found["nan_made"] += not isinstance(r, Fraction) and math.isnan(r)
        found["inexact"] += not r == x
        if math.isinf(x):
            found["infinite_in"] += 1
            found["saturated"] += r == (highest if x > 0 else lowest)
            continue
        exact = Fraction(x)
        beyond = not lowest <= exact <= highest
        found["overflow"] += beyond or not finite_result
        found["saturated"] += (exact > highest and r == highest) or (exact < lowest and r == lowest)
        if exact != 0:
            exponents[exponent(exact)] += 1
            found["underflow"] += not beyond and (
                abs(exact) < smallest or (finite_result and r == 0)
            )
            found["to_zero"] += not beyond and finite_result and r == 0
            found["subnormal"] += not beyond and smallest <= abs(exact) < normal and r != 0
        if finite_result:
            signal += exact**2
            noise += (exact - Fraction(r)) ** 2
    return dict(found) | {"exponents": dict(exponents), "signal": signal, "noise": noise}


def assert_counts(got, expected: dict) -> None:
    """Check that counts are equal, and sums within 2^-21 of their size."""
    for name in (
        "elements",
        "overflow",
        "saturated",
        "underflow",
        "to_zero",
        "subnormal",
        "zeros",
        "nan_in",
        "infinite_in",
        "nan_made",
        "inexact",
    ):
        assert getattr(got, name) == expected.get(name, 0), (
            f"{name}: expected {expected.get(name, 0)}, but got {getattr(got, name)}"
        )
    assert got.exponents == expected["exponents"]
    for name in ("signal", "noise"):
        exact = expected[name]
        assert (
            exact * (1 - Fraction(1, 2**21)) - Fraction(1, 2**1000)
            <= Fraction(getattr(got, name))
            <= exact * (1 + Fraction(1, 2**21))
        ), name
