"""Operands of sums of several products at once, and their comparison with an adder's exact answers
(oracle_adders.py)."""

import math

import numpy as np
import torch
from oracle_adders import block_sum
from rationals import Fraction

import torch_dtypes
from torch_dtypes import format_of

FLOAT32, HALF = "e8m23", torch_dtypes.dtype("e5m10")


def operands(name, *sizes, seed=0, kind="near"):
    """Return values near 1, over all exponents, around the smallest normal number, and the largest
    beside the smallest, which cancel."""
    rng, fmt = np.random.default_rng([seed, *sizes]), format_of(torch_dtypes.dtype(name))
    low, high = max(fmt.min_exponent, -126), min(fmt.max_exponent, 126)
    if kind == "near":
        x = rng.standard_normal(sizes)
    elif kind == "far":
        x = np.ldexp(
            rng.uniform(1, 2, sizes), rng.integers(low - fmt.man_bits, high, sizes)
        ) * rng.choice([-1, 1], sizes)
    elif kind == "subnormal":
        x = np.ldexp(rng.uniform(0, 2, sizes), low - rng.integers(0, 3, sizes)) * rng.choice(
            [-1, 1], sizes
        )
    else:
        ends = [2.0**high, 2.0 ** (high - 1), 2.0 ** (low - fmt.man_bits), 2.0**low, 1.0]
        x = rng.choice([0.0, *ends, *(-e for e in ends)], sizes)
    return torch.from_numpy(x).to(torch_dtypes.dtype(name))


KINDS = ("near", "far", "subnormal", "ends")


def fractions(row):
    return [Fraction(x) if math.isfinite(x) else x for x in row.double().tolist()]


def same(got, want):
    want = float(want)
    return got == want or (math.isnan(got) and math.isnan(want))


def assert_same(got, want):
    torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=0, equal_nan=True)


def check(result, adder, a, b, start=None):
    """Check every element of a product with a float32 result."""
    columns = [fractions(column) for column in b.T]
    for i in range(a.shape[0]):
        x = fractions(a[i])
        begin = [Fraction(0)] * len(columns) if start is None else fractions(start[i])
        for j, y in enumerate(columns):
            want = block_sum(adder, list(zip(x, y, strict=True)), begin[j])
            assert same(result[i, j].item(), want), (i, j, result[i, j].item(), float(want))
