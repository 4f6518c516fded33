"""Products with a matrix and solutions with its factors, each in a stated precision."""

from __future__ import annotations

import torch

from ..policies.accumulation import Accumulation
from .pairs import Pair, multiply_pairs, substitute_pairs
from .squeezing import Factors, find_power
from .steps import inner_products, product
from .substitution import substitute


class InFormat:
    """Every product, sum and quotient is rounded to a format."""

    def __init__(
        self,
        a: torch.Tensor,
        factors: Factors | None,
        dtype: torch.dtype,
        accumulate: str | Accumulation | None = None,
    ):
        self.dtype, self.accumulate, self.factors = dtype, accumulate, factors
        self.a = a.to(dtype)[None]
        if factors is not None:
            self.lower, self.upper = (t.double().to(dtype) for t in (factors.lower, factors.upper))

    def multiply(self, v: torch.Tensor) -> Pair:
        """Return ``A v`` of a float64 vector [n, 1]."""
        with inner_products(self.dtype, self.accumulate):
            image = product(self.a, v.to(self.dtype)[None])[0].double()
        return image, torch.zeros_like(image)

    def solve(self, v: Pair) -> torch.Tensor:
        """Return ``A^-1 v`` by the factors, as a float64 vector [n, 1] of the format's numbers
        times powers of two."""
        if self.factors is None:
            return v[0]
        f = self.factors
        right = (f.left[:, None] * v[0])[f.rows]
        power = find_power(min(1.0, f.largest), right.abs().max().item())
        with inner_products(self.dtype, self.accumulate):
            right = (right * power).to(self.dtype)[None]
            y = substitute(self.lower, right, upper=False, unit=f.unit_lower)
            x = substitute(self.upper, y, upper=True)
        return f.right[:, None] * x[0].double() / power


class InTwiceFloat64:
    """Pairs of float64 numbers."""

    def __init__(self, a: torch.Tensor, factors: Factors | None):
        self.a, self.factors = a, factors
        if factors is not None:
            self.lower, self.upper = (t[0].double() for t in (factors.lower, factors.upper))

    def multiply(self, v: torch.Tensor) -> Pair:
        """Return ``A v`` of a float64 vector [n, 1]."""
        return multiply_pairs(self.a, v)

    def solve(self, v: Pair) -> torch.Tensor:
        """Return ``A^-1 v`` by the factors, rounded to float64."""
        if self.factors is None:
            return v[0]
        f = self.factors
        high, low = ((f.left[:, None] * part)[f.rows] for part in v)
        y = substitute_pairs(self.lower, (high, low), upper=False)
        return f.right[:, None] * substitute_pairs(self.upper, y, upper=True)[0]
