"""Numbers of twice float64's digits, as sums of two float64 numbers: some 2^-104 of relative error.

Sources: Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18
(1971); Hida, Li and Bailey, "Algorithms for quad-double precision floating point arithmetic",
ARITH 15 (2001). Numbers beyond 2^996 overflow.
"""

from __future__ import annotations

import torch

Pair = tuple[torch.Tensor, torch.Tensor]  # the sum rounded to float64, and what it lacks


def multiply_pairs(a: torch.Tensor, v: torch.Tensor) -> Pair:
    """Return ``a v`` for float64 numbers [m, n] and [n, 1]."""
    high, low = _multiply(a, v.mT)
    while high.shape[-1] > 1:  # a tree of sums
        if high.shape[-1] % 2:
            high, low = (torch.nn.functional.pad(t, (0, 1)) for t in (high, low))
        high, low = _add(high[:, ::2], low[:, ::2], high[:, 1::2], low[:, 1::2])
    return high, low


def substitute_pairs(a: torch.Tensor, v: Pair, *, upper: bool) -> Pair:
    """Return x of ``a x = v`` for a triangular float64 matrix [n, n] and pairs [n, 1]."""
    high, low = (t.clone() for t in v)
    n = len(a)
    for k in reversed(range(n)) if upper else range(n):
        rest = slice(0, k) if upper else slice(k + 1, n)
        high[k], low[k] = _divide(high[k], low[k], a[k, k])
        terms, errors = _multiply(-a[rest, k : k + 1], high[k])
        errors = errors - a[rest, k : k + 1] * low[k]
        high[rest], low[rest] = _add(high[rest], low[rest], terms, errors)
    return high, low


def _add(x: torch.Tensor, x_low: torch.Tensor, y: torch.Tensor, y_low: torch.Tensor) -> Pair:
    total = x + y
    part = total - x
    return _normalise(total, (x - (total - part)) + (y - part) + (x_low + y_low))


def _multiply(x: torch.Tensor, y: torch.Tensor) -> Pair:
    """Return the exact products of float64 numbers."""
    product = x * y
    (x, x_low), (y, y_low) = _halve(x), _halve(y)
    return product, ((x * y - product) + x * y_low + x_low * y) + x_low * y_low


def _divide(x: torch.Tensor, x_low: torch.Tensor, y: torch.Tensor) -> Pair:
    quotient = x / y
    product, low = _multiply(quotient, y)
    return _normalise(quotient, ((x - product) - low + x_low) / y)


def _halve(x: torch.Tensor) -> Pair:
    """Return the upper 26 bits and the lower ones, whose products are exact."""
    shifted = x * (2.0**27 + 1)
    high = shifted - (shifted - x)
    return high, x - high


def _normalise(x: torch.Tensor, low: torch.Tensor) -> Pair:
    total = x + low
    return total, low - (total - x)
