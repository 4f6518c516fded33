"""Solutions of linear systems with every step in a format.

Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), chapters 8, 9
and 14.
"""

from __future__ import annotations

import torch

from ..policies.accumulation import Accumulation
from .factorisations import factorise, split
from .steps import (
    as_matrices,
    inner_products,
    permutation,
    product,
    take,
    take_operand,
    takes_arrays,
)
from .substitution import substitute

__all__ = ["inv", "solve", "solve_triangular"]


@takes_arrays
def solve_triangular(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    format: object = None,
    accumulate: str | Accumulation | None = None,
) -> torch.Tensor:
    """Solve ``A X = B`` (``X A = B`` with ``left=False``) for a triangular A, each step rounded to
    the format.

    Unknown i is ``b_i - a_ij x_j - a_ik x_k - ...``, in the order in which the unknowns are found
    (for an upper triangle the last is the first), with one rounded division by ``a_ii`` at the end.
    With another policy than ``"format"`` the sum is one inner product, as in :func:`lu`. The
    gradient is computed in the format, by the same policy.

    Args:
        a: ``[..., n, n]``, of a format dtype; or a stock floating dtype with ``format``. The other
            triangle is not read.
        b: ``[..., n, r]`` (``[..., r, n]`` with ``left=False``), of the same dtype; batches
            broadcast.
        upper: the triangle that A has.
        left: A's side.
        unitriangular: the diagonal is 1 and not read.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`; operands of two dtypes.
        ValueError: as :func:`lu`; matrices that are not square, sizes that do not fit.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.
        torch.linalg.LinAlgError: a zero on the diagonal, or a result that is not finite (overflow,
            or such operands).

    Example::

        >>> a = torch.tensor([[2.0, 0.0], [1.0, 4.0]], dtype=torch.q43)
        >>> b = torch.tensor([[2.0], [7.0]], dtype=torch.q43)
        >>> torch_dtypes.linalg.solve_triangular(a, b, upper=False)
        tensor([[1.0000],
                [1.5000]], dtype=torch.q43)
    """
    a, b, restore = _take_two(a, b, format)
    as_matrices("a", a, square=True)
    if not left:
        a, b, upper = a.mT, b.mT, not upper
    a, b, batch = _broadcast(a, b)
    with inner_products(a.dtype, accumulate):
        x = _Substitution.apply(a, b, upper, unitriangular, accumulate)
    _expect_finite(x, "solve_triangular")
    x = x.reshape(*batch, *x.shape[-2:])
    return restore(x if left else x.mT)


@takes_arrays
def solve(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    format: object = None,
    accumulate: str | Accumulation | None = None,
) -> torch.Tensor:
    """Solve ``A X = B`` by :func:`lu` with partial pivoting and two substitutions, each step
    rounded to the format.

    The gradient is computed in the format with the same factors and the same policy.

    Args:
        a: ``[..., n, n]``, of a format dtype; or a stock floating dtype with ``format``.
        b: ``[..., n, r]`` of the same dtype, or ``[..., n]`` with A's batch dimensions; batches
            broadcast.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`; operands of two dtypes.
        ValueError: as :func:`lu`; matrices that are not square, sizes that do not fit.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.
        torch.linalg.LinAlgError: a pivot that is 0, or numbers that are not finite (overflow, or
            such operands).

    Example::

        >>> a = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.posit16es2)
        >>> torch_dtypes.linalg.solve(a, torch.tensor([3.0, 5.0], dtype=torch.posit16es2))
        tensor([0.8000, 1.3999], dtype=torch.posit16es2)
    """
    a, b, restore = _take_two(a, b, format)
    as_matrices("a", a, square=True)
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    a, b, batch = _broadcast(a, b[..., None] if vector else b)
    with inner_products(a.dtype, accumulate):
        x = _Solution.apply(a, b, accumulate)
    _expect_finite(x, "solve")
    x = x.reshape(*batch, *x.shape[-2:])
    return restore(x[..., 0] if vector else x)


@takes_arrays
def inv(
    a: torch.Tensor, *, format: object = None, accumulate: str | Accumulation | None = None
) -> torch.Tensor:
    """Invert matrices: :func:`solve` with the identity, each step rounded to the format.

    Args:
        a: ``[..., n, n]``, of a format dtype; or a stock floating dtype with ``format``.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`.
        ValueError: as :func:`lu`; matrices that are not square.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.
        torch.linalg.LinAlgError: as :func:`solve`.

    Example::

        >>> torch_dtypes.linalg.inv(torch.tensor([[2.0, 0.0], [0.0, 0.5]], dtype=torch.q43))
        tensor([[0.5000, 0.0000],
                [0.0000, 2.0000]], dtype=torch.q43)
    """
    values, restore = take_operand("a", a, format)
    as_matrices("a", values, square=True)
    identity = permutation(torch.arange(a.shape[-1]), values.dtype)
    return restore(solve(values, identity, accumulate=accumulate))


def _take_two(a, b, format):
    a, restore = take_operand("a", a, format)
    b, _ = take_operand("b", b, format)
    if a.dtype != b.dtype:
        raise TypeError(
            f"expected operands of one dtype, but got {a.dtype} and {b.dtype}; convert one"
        )
    return a, b, restore


def _broadcast(a: torch.Tensor, b: torch.Tensor):
    """Return both with one batch dimension, and the sizes of the batch."""
    if b.dim() < 2 or b.shape[-2] != a.shape[-1]:
        raise ValueError(
            f"expected a right side of {a.shape[-1]} rows, but got sizes {tuple(b.shape)} for "
            f"matrices of {tuple(a.shape)}"
        )
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (t.expand(*batch, *t.shape[-2:]).reshape(batch.numel(), *t.shape[-2:]) for t in (a, b))
    return a, b, batch


def _expect_finite(x: torch.Tensor, name: str) -> None:
    if not x.isfinite().all():
        raise torch.linalg.LinAlgError(
            f"{name}: expected a finite result, but got NaN or infinities, by overflow in {x.dtype}"
            " or by such operands; scale the system, or choose a format of a wider range"
        )


class _Substitution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, upper, unit, accumulate):
        if not unit:
            diagonal = torch.diagonal(a, dim1=-2, dim2=-1)
            if (diagonal == 0).any():
                raise torch.linalg.LinAlgError(
                    "solve_triangular: expected a diagonal without zeros, but got 0 in "
                    f"{a.dtype}; the matrix is singular there"
                )
        x = substitute(a, b, upper=upper, unit=unit)
        ctx.save_for_backward(a, x)
        ctx.options = upper, unit, accumulate
        return x

    @staticmethod
    def backward(ctx, to_x):
        a, x = ctx.saved_tensors
        upper, unit, accumulate = ctx.options
        with inner_products(a.dtype, accumulate):
            to_b = substitute(a.mT, to_x, upper=not upper, unit=unit)
            to_a = product(-to_b, x.mT)
        diagonal = int(unit)
        to_a = to_a.triu(diagonal) if upper else to_a.tril(-diagonal)
        return to_a, to_b, None, None, None


class _Solution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, accumulate):
        factors = factorise(a, "partial")
        if (bad := factors.info.nonzero()).numel():
            first = int(factors.info[bad[0, 0]])
            raise torch.linalg.LinAlgError(
                f"solve: expected matrices with an LU factorisation in {a.dtype}, but got a zero "
                f"pivot or overflow in column {first} (from 1) of matrix {int(bad[0, 0])} (from 0)"
                "; scale the system, or choose a format with more digits"
            )
        lower, upper = split(factors)
        y = substitute(lower, take(b, 1, factors.rows), upper=False, unit=True)
        x = substitute(upper, y, upper=True)
        ctx.save_for_backward(lower, upper, factors.rows, x)
        ctx.accumulate = accumulate
        return x

    @staticmethod
    def backward(ctx, to_x):
        lower, upper, rows, x = ctx.saved_tensors
        with inner_products(lower.dtype, ctx.accumulate):
            y = substitute(upper.mT, to_x, upper=False)
            to_b = take(substitute(lower.mT, y, upper=True, unit=True), 1, rows.argsort())
            return product(-to_b, x.mT), to_b, None
