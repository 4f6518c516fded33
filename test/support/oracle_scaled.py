"""Block-scaled products of NVIDIA's Blackwell on integers, from codes. The module shares no code
with the implementation.

Xie et al., "MMA-Sim" (arXiv 2511.10909, version 2.1.1): ST-FDPA for mxf8f6f4, GST-FDPA for mxf4 and
mxf4nvf4. A number is (m, u), of value m * 2^u, or a float if it is not finite.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

# Widths of exponent and fraction, and bias.
ELEMENTS = {
    "e4m3": (4, 3, 7),
    "e5m2": (5, 2, 15),
    "e3m2": (3, 2, 3),
    "e2m3": (2, 3, 1),
    "e2m1": (2, 1, 1),
}


@cache
def element(name: str, code: int) -> tuple[int, int, int] | float:
    """Return m, u and the exponent for alignment."""
    exp_bits, man_bits, bias = ELEMENTS[name]
    sign = -1 if code >> exp_bits + man_bits & 1 else 1
    field, fraction = code >> man_bits & (1 << exp_bits) - 1, code & (1 << man_bits) - 1
    if name == "e4m3" and code & 0x7F == 0x7F:
        return math.nan
    if name == "e5m2" and field == 31:
        return math.nan if fraction else sign * math.inf
    exponent = max(field, 1) - bias
    return sign * (fraction + ((field > 0) << man_bits)), exponent - man_bits, exponent


def scale(name: str, code: int) -> tuple[int, int, int] | float:
    if name == "e8m0":
        return math.nan if code == 255 else (1, code - 127, code - 127)
    return element("e4m3", code & 0x7F)


def float32(x: float) -> tuple[int, int, int] | float:
    if not math.isfinite(x):
        return x
    e = math.frexp(x)[1]
    e = max(e - 1, -126)
    return int(math.ldexp(x, 23 - e)), e - 23, e


def shifted(m: int, by: int) -> int:
    """Return m * 2^by, cut towards zero."""
    whole = abs(m) << by if by >= 0 else abs(m) >> -by
    return -whole if m < 0 else whole


def fused_sum(terms: list, bits: int, least: int) -> float:
    """Add terms (m, u, exponent): all are cut at the largest exponent less ``bits``, and the sum
    into float32."""
    last = max([least, *(e for _, _, e in terms)]) - bits
    total = sum(shifted(m, u - last) for m, u, _ in terms)
    place = max(abs(total).bit_length() + last - 24, -149)
    total = shifted(total, last - place)
    if total and abs(total).bit_length() + place > 128:
        return math.copysign(math.inf, total)
    return math.ldexp(total, place)


def special_sum(numbers: list) -> float | None:
    """Return the IEEE sum if one of the numbers is not finite."""
    special = [x for x in numbers if isinstance(x, float)]
    return sum(special) if special else None


def product(x, y) -> tuple[int, int, int] | float:
    if isinstance(x, float) or isinstance(y, float):
        a, b = (t if isinstance(t, float) else float(t[0]) for t in (x, y))
        return a * b
    return tuple(p + q if i else p * q for i, (p, q) in enumerate(zip(x, y, strict=True)))


def mxf8f6f4(pairs: list, factor, register: float) -> float:
    """Up to 32 products: a product's exponent is the sum of its factors' and scales' exponents."""
    products = [product(product(x, y), factor) for x, y in pairs]
    terms = [*products, float32(register)]
    special = special_sum([factor, *terms])
    if special is not None:
        return special
    return fused_sum([t for t in terms if t[0]], 25, -133)


def mxf4(pairs: list, factors: list, register: float) -> float:
    """Up to 64 products: each 16 are added exactly, and have the exponent of their scales. A group
    of products that are all 0 has none, unlike a sum that cancels."""
    special = special_sum([*factors, float32(register)])
    if special is not None:
        return special
    held = float32(register)
    terms = [held] if held[0] else []
    for group, factor in enumerate(factors):
        products = [product(x, y) for x, y in pairs[16 * group : 16 * group + 16]]
        quarters = sum(shifted(m, u + 2) for m, u, _ in products)
        if factor[0] and any(m for m, _, _ in products):
            terms.append((quarters * factor[0], factor[1] - 2, factor[2]))
    return fused_sum(terms, 35, -139)


def scaled_product(kinds, scale_name, size, a, a_scales, b, b_scales, chunk=None) -> float:
    """Return the register after all products of two rows of codes."""
    grouped = kinds == ("e2m1", "e2m1")
    pairs = [(element(kinds[0], x), element(kinds[1], y)) for x, y in zip(a, b, strict=True)]
    factors = [
        product(scale(scale_name, x), scale(scale_name, y))
        for x, y in zip(a_scales, b_scales, strict=True)
    ]
    register, total = 0.0, 0.0
    for first in range(0, len(pairs), 64 if grouped else 32):
        if chunk and first and first % chunk == 0:
            total, register = add_float32(total, register), 0.0
        if grouped:
            some = pairs[first : first + 64]
            groups = range(first, first + len(some), 16)
            register = mxf4(some, [factors[g // size] for g in groups], register)
        else:
            register = mxf8f6f4(pairs[first : first + 32], factors[first // 32], register)
    return register if chunk is None else add_float32(total, register)


def add_float32(x: float, y: float) -> float:
    """Add float32 numbers, rounded to nearest: float64 has more than twice the bits."""
    with np.errstate(over="ignore"):
        return float(np.float32(x + y))
