"""Errors of solutions and factors, measured with exact residuals, and the bounds of theory.

Sources: Rigal and Gaches, "On the compatibility of a given solution with the data of a linear
system", J. ACM 14 (1967); Oettli and Prager, Numer. Math. 6 (1964); Higham and Mary, "A new
approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41 (2019).
"""

from __future__ import annotations

import math

import torch

from ..formats.arguments import choice, integer, outline
from ..formats.dtypes import dtype as dtype_of_name
from ..policies.accumulation import accumulation_block
from ..policies.matmul import matmul
from .steps import takes_arrays

__all__ = ["backward_error", "forward_error", "rounding_bound"]


def residual(b: torch.Tensor, *products: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return ``b - a x - c y - ...`` of float64 matrices, rounded once."""
    wide = dtype_of_name("e11m52")
    left = torch.cat([-a for a, _ in products], -1).to(wide)
    right = torch.cat([x for _, x in products], -2).to(wide)
    with accumulation_block("exact"):
        return matmul(left, right, out=wide, start=b.to(wide)).double()


@takes_arrays
def backward_error(
    a: torch.Tensor, x: torch.Tensor, b: torch.Tensor, *, kind: str = "normwise"
) -> torch.Tensor:
    """Return the smallest relative change of A and B for which X solves ``A X = B``.

    ``"normwise"`` is ``|r| / (|A| |x| + |b|)`` in the infinity norm; ``"componentwise"`` is the
    largest ``|r_i| / (|A| |x| + |b|)_i``. The residual ``r = B - A X`` is exact, rounded once to
    float64; the rest is float64. Of several columns, the largest error counts. Factors of A have
    ``backward_error(L, U, A)``.

    Args:
        a: ``[..., m, n]``, of a stock or a format dtype whose values float64 has.
        x: ``[..., n]`` or ``[..., n, r]``, likewise.
        b: ``[..., m]`` or ``[..., m, r]``, likewise.
        kind: ``"normwise"`` or ``"componentwise"``.

    Returns:
        float64, [...]. It is 0 for a residual of 0, and infinite or NaN for such operands.

    Raises:
        TypeError: no real tensors.
        ValueError: sizes that do not fit; another kind.

    Example::

        >>> a, x, b = torch.eye(2), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0])
        >>> torch_dtypes.linalg.backward_error(a, x, b)
        tensor(0.3333, dtype=torch.float64)
    """
    choice("kind", kind, ("normwise", "componentwise"))
    a, x, b = _as_float64(a, x, b)
    r = residual(b, (a, x)).abs()
    if kind == "componentwise":
        scale = a.abs() @ x.abs() + b.abs()
        ratio = torch.where(r == 0, r, r / scale)
        return ratio.amax((-2, -1))
    sizes = a.abs().sum(-1).amax(-1)[..., None] * x.abs().amax(-2) + b.abs().amax(-2)
    largest = r.amax(-2)
    return torch.where(largest == 0, largest, largest / sizes).amax(-1)


@takes_arrays
def forward_error(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``max |x - s| / max |s|`` for the solution s of ``A s = B``, which is computed with
    twice float64's digits.

    Args:
        a: ``[..., n, n]``, of a stock or a format dtype whose values float64 has.
        x: ``[..., n]`` or ``[..., n, r]``, likewise.
        b: as x.

    Returns:
        float64, [...]: the largest error of the columns.

    Raises:
        TypeError: no real tensors.
        ValueError: sizes that do not fit.
        torch.linalg.LinAlgError: a matrix so near to a singular one that float64's factors do not
            lead to the solution.

    Example::

        >>> a, x, b = torch.eye(2), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0])
        >>> torch_dtypes.linalg.forward_error(a, x, b)
        tensor(0.5000, dtype=torch.float64)
    """
    a, x, b = _as_float64(a, x, b)
    high, low = solve_twice(a, b)
    error = ((x - high) - low).abs().amax(-2)
    return (error / high.abs().amax(-2)).amax(-1)


def solve_twice(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the solution as a sum of two float64 numbers, by refinement with exact residuals."""
    *factors, _ = torch.linalg.lu_factor_ex(a)
    high = torch.linalg.lu_solve(*factors, b)
    low = torch.zeros_like(high)
    size = high.abs().amax(-2, keepdim=True)
    for _ in range(100):
        step = torch.linalg.lu_solve(*factors, residual(b, (a, high), (a, low)))
        low = low + step
        total = high + low
        high, low = total, low - (total - high)  # |high| >= |low|: the sum's error is exact
        if not high.isfinite().all():
            break
        if (step.abs() <= 2.0**-100 * size).all():
            return high, low
    raise torch.linalg.LinAlgError(
        "forward_error: expected a matrix of condition number below some 1e15, but float64's "
        "factors do not lead to the solution; give the solution instead"
    )


def _as_float64(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    for t in (a, x, b):
        if not isinstance(t, torch.Tensor) or t.is_complex():
            raise TypeError(f"expected real tensors as a, x and b, but got {outline(t)}")
    a, x, b = (t.detach().double() for t in (a, x, b))
    if x.dim() == a.dim() - 1:
        x, b = x[..., None], b[..., None]
    if (
        a.dim() < 2
        or x.dim() != a.dim()
        or b.shape[-2:] != (a.shape[-2], x.shape[-1])
        or (x.shape[-2] != a.shape[-1])
    ):
        raise ValueError(
            "expected a [..., m, n], x [..., n, r] and b [..., m, r], but got "
            f"{tuple(a.shape)}, {tuple(x.shape)} and {tuple(b.shape)}"
        )
    return a, x, b


def rounding_bound(n: int, unit: float, *, certainty: float | None = None) -> float:
    """Return the bound of the relative error of n roundings in a row: gamma_n.

    In the worst case it is ``n u / (1 - n u)``, and infinite from ``n u = 1`` on. With a certainty
    it is ``exp(l sqrt(n) u + n u^2 / (1 - u)) - 1``, which holds with that probability for
    independent errors of mean 0; ``l = sqrt(2 log(2 / (1 - certainty))) / (1 - u)``.

    The factors of LU satisfy ``|P^T A - L U| <= gamma_n |L| |U|``. A substitution solves
    ``(T + E) x = b`` with ``|E| <= gamma_n |T|``, and both together solve ``(A + E) x = b`` with
    ``|E| <= gamma_3n P |L| |U|`` (Higham 2002, theorems 8.5, 9.3 and 9.4), without underflow. A
    certainty is that of one bound, not of all elements.

    Args:
        n: the number of roundings, from 0.
        unit: the unit roundoff u, 0 to 1: ``card(D).epsilon / 2`` for roundings to nearest,
            ``epsilon`` for other modes. A posit's u holds for numbers near 1 only.
        certainty: a probability from 0 to 1, both excluded.

    Raises:
        TypeError: no integer.
        ValueError: a number out of range.

    Example::

        >>> f"{torch_dtypes.linalg.rounding_bound(1000, 2.0**-11):.3f}"
        '0.954'
        >>> f"{torch_dtypes.linalg.rounding_bound(1000, 2.0**-11, certainty=0.99):.3f}"
        '0.052'
    """
    n = integer("n", n, 0, 2**62)
    if not isinstance(unit, (int, float)) or not 0 <= unit < 1:
        raise ValueError(f"expected unit from 0 to 1, but got {outline(unit)}")
    if certainty is None:
        return n * unit / (1 - n * unit) if n * unit < 1 else math.inf
    if not isinstance(certainty, (int, float)) or not 0 < certainty < 1:
        raise ValueError(f"expected certainty between 0 and 1, but got {outline(certainty)}")
    spread = math.sqrt(2 * math.log(2 / (1 - certainty))) / (1 - unit)
    return math.expm1(spread * math.sqrt(n) * unit + n * unit**2 / (1 - unit))
