"""Sums of a tensor core's adder, in exact rationals, from the published descriptions. The module
shares no code with the implementation.

Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores" (2026); Xie et al., "MMA-Sim" (arXiv
2511.10909). A number is a Fraction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from rationals import Fraction


@cache
def power(e: int) -> Fraction:
    """Return 2^e."""
    return Fraction(2) ** e


@dataclass(frozen=True)
class Register:
    """A float with subnormal numbers: the bits after the point and the smallest and largest
    exponents."""

    man_bits: int = 23
    low: int = -126
    high: int = 127
    nearest: bool = False

    def round_value(self, x: Fraction) -> Fraction | float:
        last = max(exponent(x, self.low), self.low) - self.man_bits
        # round() goes to even
        result = round(x / power(last)) * power(last) if self.nearest else cut(x, last)
        return math.copysign(math.inf, x) if abs(result) >= power(self.high + 1) else result


@dataclass(frozen=True)
class Adder:
    terms: int
    bits: int  # after the point of the aligned terms
    register: Register
    low: tuple[int, int]  # the operands' smallest exponents
    min_exponent: int | None = None
    # Bits after the point of the finished sum, where the register is applied last.
    late: int | None = None
    groups: int = 1
    product_limit: bool = False


def exponent(x: Fraction, low: int | None) -> int:
    """Return the exponent that hardware uses: that of the leading digit, or the smallest one of a
    subnormal number."""
    if x == 0:
        return -(10**6) if low is None else low
    n, d = abs(x.numerator), x.denominator
    e = n.bit_length() - d.bit_length()
    e -= n << max(-e, 0) < d << max(e, 0)
    return e if low is None else max(e, low)


def product_exponent(adder: Adder, a: Fraction, b: Fraction) -> int:
    return exponent(a, adder.low[0]) + exponent(b, adder.low[1])


def cut(x: Fraction, last: int) -> Fraction:
    """Cut to a multiple of 2^last towards zero."""
    whole = (abs(x.numerator) << max(-last, 0)) // (x.denominator << max(last, 0))
    return (-whole if x < 0 else whole) * power(last)


def floor(x: Fraction, last: int) -> Fraction:
    return math.floor(x / power(last)) * power(last)


def one_block(adder: Adder, pairs: list, register: Fraction | float) -> Fraction | float:
    special = [a * b for a, b in pairs if isinstance(a, float) or isinstance(b, float)]
    special += [register] if isinstance(register, float) else []
    products = [
        (a * b, product_exponent(adder, a, b))
        for a, b in pairs
        if not isinstance(a, float) and not isinstance(b, float)
    ]
    if adder.product_limit:
        special += [
            math.copysign(math.inf, x)
            for x, _ in products
            if abs(x) >= power(adder.register.high + 1)
        ]
    if special:
        return sum(float(x) for x in special)
    own = [exponent(register, adder.register.low)] if register else []
    least = [] if adder.min_exponent is None else [adder.min_exponent]
    if adder.late is None and adder.groups == 1:
        top = max([e for x, e in products if x] + own + least, default=0)
        return adder.register.round_value(
            sum((cut(x, top - adder.bits) for x, _ in products), cut(register, top - adder.bits))
        )
    # Groups of places g, g + groups, ... are each aligned to their own largest exponent, then to
    # the largest of all.
    tops, sums = [], []
    for g in range(adder.groups):
        part = products[g :: adder.groups]
        top = max((e for x, e in part if x), default=None)
        if top is not None:
            tops.append(top)
            sums.append(sum(cut(x, top - adder.bits) for x, _ in part))
    together = (
        sum(floor(x, max(tops) - adder.bits) for x in sums)
        if adder.groups > 1 and tops
        else sum(sums)
    )
    top = max(tops + own + least, default=0)
    if adder.late is None:
        return adder.register.round_value(
            floor(Fraction(together), top - adder.bits) + cut(register, top - adder.bits)
        )
    left_out = adder.groups > 1 and register and own[0] < top - adder.bits - 1
    kept = 0 if left_out else floor(register, top - adder.bits)
    total = floor(Fraction(together), top - adder.late) + kept
    # The sum is normalised with the bits that it has.
    return adder.register.round_value(
        floor(total, exponent(total, adder.register.low) - adder.late)
    )


def block_sum(adder: Adder, pairs: list, start: Fraction | float = Fraction(0)) -> Fraction | float:
    register = start if isinstance(start, float) else adder.register.round_value(start)
    for i in range(0, len(pairs), adder.terms):
        register = one_block(adder, pairs[i : i + adder.terms], register)
    return register


def nvidia(
    terms: int, bits: int, low: int, man_bits: int = 23, min_exponent: int | None = -133
) -> Adder:
    return Adder(terms, bits, Register(man_bits), (low, low), min_exponent)


def cdna3(terms: int, low: int, groups: int = 1) -> Adder:
    return Adder(terms, 24, Register(nearest=True), (low, low), -126, 31, groups, True)


# (chip, operands' format as Python names it, adder), from the two papers' tables.
CHIPS = [
    ("nvidia-v100", "e5m10", nvidia(4, 23, -14, min_exponent=None)),
    *(
        ("nvidia-a100", name, nvidia(8, 24, low, min_exponent=-132))
        for name, low in (("e5m10", -14), ("e8m7", -126))
    ),
    ("nvidia-a100", "tf32", nvidia(4, 24, -126, min_exponent=-132)),
    *(
        (chip, name, nvidia(16, 25, low))
        for chip in ("nvidia-h100", "nvidia-b200")
        for name, low in (("e5m10", -14), ("e8m7", -126))
    ),
    *((chip, "tf32", nvidia(8, 25, -126)) for chip in ("nvidia-h100", "nvidia-b200")),
    *(
        ("nvidia-h100", name, nvidia(32, 13, low, 13))
        for name, low in (("e4m3fn", -6), ("q52", -14))
    ),
    *(
        ("nvidia-b200", name, nvidia(32, 25, low))
        for name, low in (("e4m3fn", -6), ("q52", -14), ("e3m2finite", -2), ("e2m1finite", 0))
    ),
    *(
        ("nvidia-rtx-blackwell", name, adder)
        for name, adder in (
            ("e5m10", nvidia(16, 25, -14)),
            ("tf32", nvidia(8, 25, -126)),
            ("e4m3fn", nvidia(32, 25, -6)),
            ("e2m3finite", nvidia(32, 25, 0)),
        )
    ),
    *(("amd-mi300x", name, cdna3(8, low)) for name, low in (("e5m10", -14), ("e8m7", -126))),
    ("amd-mi300x", "tf32", cdna3(4, -126)),
    *(
        ("amd-mi300x", name, cdna3(16, low, 2))
        for name, low in (("e4m3fnuz", -7), ("e5m2fnuz", -15))
    ),
]
