"""GMRES and the conjugate gradient method, every vector operation rounded to a format.

Vectors are [1, n, 1] and numbers [1, 1, 1] of one dtype. Inner products follow the policy of the
surrounding block; every other product and sum is rounded by itself.

Sources: Saad and Schultz, "GMRES", SIAM J. Sci. Stat. Comput. 7 (1986), with modified Gram-Schmidt;
Hestenes and Stiefel, J. Res. Nat. Bur. Standards 49 (1952).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .steps import ones, product
from .substitution import substitute

Operator = Callable[[torch.Tensor], torch.Tensor]


def _dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return product(x.mT, y)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return _dot(x, x).sqrt()


def solve_by_gmres(
    operator: Operator, b: torch.Tensor, tolerance: float, limit: int
) -> tuple[torch.Tensor, int]:
    """Return x with ``|b - operator(x)| <= tolerance |b|`` in the 2-norm, as far as the recursion
    knows, and the number of steps; x begins at 0.

    A step orthogonalises ``operator(v_k)`` against v_1, ..., v_k in this order, one after the other
    (modified Gram-Schmidt), and updates the QR factors of Hessenberg's matrix by a rotation.
    """
    first = _norm(b)
    if first == 0:
        return torch.zeros_like(b), 0
    basis, columns, rotations, rest = [b / first], [], [], [first]
    for _ in range(limit):
        w = operator(basis[-1])
        column = []
        for v in basis:
            column.append(_dot(v, w))
            w = w - column[-1] * v
        below = _norm(w)
        for i, (c, s) in enumerate(rotations):
            x, y = column[i], column[i + 1]
            column[i], column[i + 1] = c * x + s * y, c * y - s * x
        c, s = _find_rotation(column[-1], below)
        column[-1] = c * column[-1] + s * below
        rest[-1:] = [c * rest[-1], -s * rest[-1]]
        rotations.append((c, s))
        columns.append(column)
        size = rest[-1].abs().item()
        if not size > tolerance * first.item() or below == 0:  # or NaN, which the solution shows
            break
        basis.append(w / below)
    count = len(columns)
    zero = torch.zeros_like(first)
    upper = torch.cat(
        [torch.cat(column + [zero] * (count - len(column)), 1) for column in columns], 2
    )
    y = substitute(upper, torch.cat(rest[:count], 1), upper=True)
    return product(torch.cat(basis[:count], 2), y), count


def _find_rotation(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return c and s with ``c y - s x = 0``, by a quotient of at most 1."""
    one = ones(x.dtype, 1, 1, 1)
    if y == 0:
        return one, torch.zeros_like(x)
    if y.abs() > x.abs():
        ratio = x / y
        s = one / (one + ratio * ratio).sqrt()
        return s * ratio, s
    ratio = y / x
    c = one / (one + ratio * ratio).sqrt()
    return c, c * ratio


def solve_by_cg(
    multiply: Operator, solve: Operator, b: torch.Tensor, tolerance: float, limit: int
) -> tuple[torch.Tensor, int]:
    """Return x with ``|b - multiply(x)| <= tolerance |b|`` in the 2-norm, as far as the recursion
    knows, and the number of steps; x begins at 0, and ``solve`` preconditions.

    A direction p with ``p^T multiply(p) <= 0`` ends the iteration, without a step along it.
    """
    x, r, first = torch.zeros_like(b), b, _norm(b).item()
    z = solve(r)
    direction, old = z, _dot(r, z)
    for count in range(limit):
        if not _norm(r).item() > tolerance * first:
            return x, count
        image = multiply(direction)
        curvature = _dot(direction, image)
        if curvature <= 0:
            return x, count
        step = old / curvature
        x = x + step * direction
        r = r - step * image
        z = solve(r)
        new = _dot(r, z)
        direction = z + new / old * direction
        old = new
    return x, limit
