"""Factors of a matrix in a narrow format, after scaling that uses the format's range.

Source: Higham, Pranesh and Zounon, "Squeezing a matrix into half precision, with an application to
solving linear systems", SIAM J. Sci. Comput. 41 (2019), algorithms 2.3 and 2.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .. import _C
from ..policies.accumulation import Accumulation
from .factorisations import factorise, split
from .steps import inner_products
from .symmetric import factorise_symmetric

THETA = 0.1  # the part of the format's range that a squeezed matrix fills; the rest is for growth
_MOST = 1000  # the largest power of two: below float64's largest number


@dataclass(frozen=True)
class Factors:
    """Triangular factors of a scaled matrix: ``(diag(left) A diag(right))[rows] = L U``.

    ``lower`` and ``upper`` are [1, n, n] of the format, ``rows``, ``left`` and ``right`` [n], the
    latter two float64 powers of two. ``unit_lower`` says that L has ones on its diagonal.
    ``largest`` is the largest magnitude of the scaled matrix. ``info`` is LAPACK's: 0, or the
    column (from 1) in which the factorisation fails.
    """

    lower: torch.Tensor
    upper: torch.Tensor
    unit_lower: bool
    rows: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    largest: float
    info: int


def factorise_scaled(
    a: torch.Tensor,
    dtype: torch.dtype,
    *,
    symmetric: bool,
    squeeze: bool,
    accumulate: str | Accumulation | None,
) -> Factors:
    """Return the factors of a float64 matrix [n, n], by Cholesky if it is symmetric, else by LU
    with partial pivoting."""
    left, right = _find_scales(a, dtype, symmetric) if squeeze else torch.ones(2, len(a)).double()
    scaled = left[:, None] * a * right
    rounded = scaled.to(dtype)[None]
    with inner_products(dtype, accumulate):
        if symmetric:
            lower, info = factorise_symmetric(rounded)
            upper, rows = lower.mT.contiguous(), torch.arange(len(a))
        else:
            factors = factorise(rounded, "partial")
            (lower, upper), rows, info = split(factors), factors.rows[0], factors.info
    largest = scaled.abs().max().item()
    return Factors(lower, upper, not symmetric, rows, left, right, largest, int(info))


def _find_scales(
    a: torch.Tensor, dtype: torch.dtype, symmetric: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return powers of two that bring the largest number of each row and column near to 1, and the
    largest of all near to the format's best place. Only rounding to the format is then inexact."""
    if symmetric:
        halves = (torch.frexp(a.diagonal())[1] + 1).div(2, rounding_mode="floor")
        left = right = torch.exp2(-halves.double())
    else:
        left = _bring_below_one(a.abs().amax(1))
        right = _bring_below_one((left[:, None] * a).abs().amax(0))
    largest = (left[:, None] * a * right).abs().max().item()
    fmt = _C.format_of(dtype)
    best = 1.0 if fmt.is_tapered else THETA * fmt.largest  # a tapered format has most digits at 1
    return left * find_power(best, largest), right


def _bring_below_one(sizes: torch.Tensor) -> torch.Tensor:
    """Return the powers of two that bring each size into [1/2, 1)."""
    return torch.exp2(-torch.frexp(sizes)[1].clamp(-_MOST, _MOST).double())


def find_power(goal: float, size: float) -> float:
    """Return the largest power of two whose product with ``size`` is at most ``goal``; 1 where one
    of them is 0."""
    if not (goal > 0 and size > 0):
        return 1.0
    (goal_part, goal_exponent), (part, exponent) = math.frexp(goal), math.frexp(size)
    power = goal_exponent - exponent - (part > goal_part)
    return 2.0 ** min(max(power, -_MOST), _MOST)
