"""Products with a matrix and solutions with its factors, each in a stated precision."""

from __future__ import annotations

import torch

from ..policies.accumulation import Accumulation
from .errors import residual, solve_twice
from .squeezing import Factors, find_power
from .steps import inner_products, product
from .substitution import substitute

# A vector of more digits than a format has: float64 vectors [n, 1] whose sum it is, largest first.
Terms = tuple[torch.Tensor, ...]


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

    def multiply(self, v: torch.Tensor) -> Terms:
        """Return ``A v`` of a float64 vector [n, 1]."""
        with inner_products(self.dtype, self.accumulate):
            return (product(self.a, v.to(self.dtype)[None])[0].double(),)

    def solve(self, terms: Terms) -> torch.Tensor:
        """Return ``A^-1 v`` by the factors, as a float64 vector [n, 1] of the format's numbers
        times powers of two."""
        (v,) = terms
        if self.factors is None:
            return v
        f = self.factors
        right = (f.left[:, None] * v)[f.rows]
        power = find_power(min(1.0, f.largest), right.abs().max().item())
        with inner_products(self.dtype, self.accumulate):
            right = (right * power).to(self.dtype)[None]
            y = substitute(self.lower, right, upper=False, unit=f.unit_lower)
            x = substitute(self.upper, y, upper=True)
        return f.right[:, None] * x[0].double() / power


class InTwiceFloat64:
    """Twice float64's digits, by exact residuals."""

    def __init__(self, a: torch.Tensor, factors: Factors | None):
        self.a, self.factors = a, factors
        if factors is not None:
            n = len(a)
            lower, upper = factors.lower[0].double(), factors.upper[0].double()
            both = torch.zeros(2 * n, 2 * n, dtype=torch.float64)
            both[:n, :n], both[n:, n:] = lower, upper
            both[n:, :n] = -torch.eye(n)
            self.both, self.lower, self.upper = both, lower, upper  # L y = v and U x - y = 0

    def multiply(self, v: torch.Tensor) -> Terms:
        """Return ``A v`` of a float64 vector [n, 1]."""
        high = residual(torch.zeros_like(v), (-self.a, v))
        return high, residual(-high, (-self.a, v))

    def solve(self, terms: Terms) -> torch.Tensor:
        """Return ``A^-1 v`` by the factors, rounded to float64.

        Raises:
            torch.linalg.LinAlgError: factors too near to singular ones.
        """
        if self.factors is None:
            return terms[0]
        f = self.factors
        high, *rest = (
            torch.cat([(f.left[:, None] * v)[f.rows], torch.zeros_like(v)]) for v in terms
        )
        known = [(-low, torch.ones(1, 1, dtype=torch.float64)) for low in rest]
        x, _ = solve_twice(self.both, high, self._solve_once, *known, small=2.0**-60)
        return f.right[:, None] * x[len(x) // 2 :]

    def _solve_once(self, r: torch.Tensor) -> torch.Tensor:
        n = len(self.a)
        y = torch.linalg.solve_triangular(self.lower, r[:n], upper=False)
        x = torch.linalg.solve_triangular(self.upper, r[n:] + y, upper=True)
        return torch.cat([y, x])
