"""Exact results of operations, as float64 numbers rounded to odd.

A result that is no float64 number becomes the odd one of its two neighbours. A second rounding, to
a format with at least two bits fewer, then gives the result of a single rounding in every mode. The
format's number equals the odd one only if the result is exact. Source: Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.

There are two ways, which agree bit for bit. Rational numbers serve every format, one vector at a
time. Tensors serve operands with significands of at most 26 bits: there, float64 holds products,
and the error of a sum, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch

# In the second way float64 must hold exactly a product, and the error of a sum with it.
FAST_BITS = 26
_FAST_EXPONENT = 400


def is_fast(significand_bits: int, magnitudes: tuple[float, float]) -> bool:
    """Whether tensors can compute with operands of so many bits and magnitudes from ``low`` to
    ``high``."""
    low, high = magnitudes
    return (
        significand_bits <= FAST_BITS
        and low >= 2.0**-_FAST_EXPONENT
        and high <= 2.0**_FAST_EXPONENT
    )


# ---- rational numbers ----


def odd_float(x: Fraction) -> float:
    """Round a rational number to odd; to infinity beyond float64's range."""
    n, d = abs(x.numerator), x.denominator
    if n == 0:
        return 0.0
    exponent = max(n.bit_length() - d.bit_length() - 53, -1074)
    quotient, rest = divmod(n << max(-exponent, 0), d << max(exponent, 0))
    if quotient.bit_length() > 53:
        quotient, rest, exponent = quotient >> 1, rest | quotient & 1, exponent + 1
    quotient |= rest != 0
    if quotient.bit_length() + exponent > 1024:
        return math.inf if x > 0 else -math.inf
    value = math.ldexp(quotient, exponent)
    return value if x > 0 else -value


def odd_root(x: Fraction) -> float:
    """Return the square root of a rational number of at least 0, with a power of two as
    denominator, rounded to odd."""
    n, bits = x.numerator, x.denominator.bit_length() - 1
    shift = max(0, 128 - n.bit_length())
    shift += (bits + shift) % 2
    root = math.isqrt(n << shift)
    return odd_float(Fraction(2 * root + (root * root != n << shift), 1 << (bits + shift) // 2 + 1))


_RATIONAL = {
    "add": lambda a, b: odd_float(a + b),
    "sub": lambda a, b: odd_float(a - b),
    "mul": lambda a, b: odd_float(a * b),
    "div": lambda a, b: odd_float(a / b),
    "fma": lambda a, b, c: odd_float(a * b + c),
    "sqrt": odd_root,
    "cast": odd_float,
}


def by_rationals(operation: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Compute results one vector at a time, for finite operands with a defined result."""
    function = _RATIONAL[operation]
    rows = zip(*(map(Fraction, x.tolist()) for x in operands), strict=True)
    return torch.tensor([function(*row) for row in rows], dtype=torch.float64)


def odd_dots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the exact dot products of the rows of two tensors of finite numbers, rounded to
    odd."""
    rows = zip(a.tolist(), b.tolist(), strict=True)
    sums = (
        sum((Fraction(x) * Fraction(y) for x, y in zip(*row, strict=True)), Fraction(0))
        for row in rows
    )
    return torch.tensor([odd_float(s) for s in sums], dtype=torch.float64)


# ---- tensors ----


def _odd_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b rounded to odd: the nearest number and its error (Knuth's TwoSum), by which an
    even number moves to its odd neighbour."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = total.view(torch.int64) & 1 == 0
    return torch.where(
        (error != 0) & even,
        torch.nextafter(total, torch.copysign(torch.full_like(error, math.inf), error)),
        total,
    )


def _integers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split magnitudes into integers n of FAST_BITS bits and exponents e: n * 2^e."""
    fraction, exponent = torch.frexp(x.abs())
    return torch.ldexp(fraction, torch.tensor(FAST_BITS)).to(torch.int64), exponent.to(
        torch.int64
    ) - FAST_BITS


def _odd_quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (n, n_exponent), (d, d_exponent) = _integers(a), _integers(b)
    d = d.clamp(min=1)  # b is 0 only where the caller drops the result
    n = n << 36
    quotient = n // d
    quotient |= (quotient * d != n).to(torch.int64)
    magnitude = torch.ldexp(quotient.to(torch.float64), n_exponent - d_exponent - 36)
    return torch.where((a < 0) != (b < 0), -magnitude, magnitude)


def _odd_square_root(x: torch.Tensor) -> torch.Tensor:
    n, exponent = _integers(x)
    odd = exponent & 1
    n, exponent = n << (34 + odd), exponent - 34 - odd
    root = n.to(torch.float64).sqrt().to(torch.int64)  # at most one off the floor
    root = torch.where(root * root > n, root - 1, root)
    root = torch.where((root + 1) * (root + 1) <= n, root + 1, root)
    root = 2 * root + (root * root != n).to(torch.int64)
    return torch.ldexp(root.to(torch.float64), exponent // 2 - 1)


_TENSORS = {
    "add": _odd_sum,
    "sub": lambda a, b: _odd_sum(a, -b),
    "mul": lambda a, b: a * b,
    "div": _odd_quotient,
    "fma": lambda a, b, c: _odd_sum(a * b, c),
    "sqrt": _odd_square_root,
}


def by_tensors(operation: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Compute as :func:`by_rationals`, all vectors at once; only if :func:`is_fast` allows it."""
    return _TENSORS[operation](*operands)
