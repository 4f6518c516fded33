"""Cholesky and LDL^T factorisation with every step in a format.

Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), chapters 10
and 11.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..policies.accumulation import Accumulation
from .elimination import eliminate
from .steps import (
    as_matrices,
    first_failure,
    inner_products,
    overwrite,
    product,
    put_unit_diagonal,
    take_operand,
    takes_arrays,
)
from .substitution import substitute

__all__ = ["LDL", "Cholesky", "cholesky", "ldl"]


class Cholesky(NamedTuple):
    """The factor of ``A = L L^T``.

    ``info`` [...] is 0, or the number (from 1) of the first column whose pivot is not positive, as
    LAPACK's, or that has a number that is not finite. Columns of ``L`` [..., n, n] from that one on
    are 0.
    """

    L: torch.Tensor
    info: torch.Tensor


class LDL(NamedTuple):
    """The factors of ``A = L diag(D) L^T``, for ``L`` [..., n, n] and ``D`` [..., n].

    ``info`` [...] is 0, or the number (from 1) of the first pivot that is 0 or whose column has a
    number that is not finite.
    """

    L: torch.Tensor
    D: torch.Tensor
    info: torch.Tensor


@takes_arrays
def cholesky(
    a: torch.Tensor, *, format: object = None, accumulate: str | Accumulation | None = None
) -> Cholesky:
    """Factorise ``A = L L^T``, each step rounded to the format.

    ``l_jj`` is the rounded root of ``a_jj - l_j0 l_j0 - l_j1 l_j1 - ...``, and ``l_ij`` is
    ``a_ij - l_i0 l_j0 - l_i1 l_j1 - ...``, divided by ``l_jj``. Terms are taken in this order, and
    each product and each difference is rounded; other policies and random modes as in :func:`lu`.

    A pivot that is not positive, NaN, infinities and overflow show in ``info``. The gradient is
    symmetric, and computed in the format by the same policy.

    Args:
        a: ``[..., n, n]``, of a format dtype; or a stock floating dtype with ``format``. The upper
            triangle is not read.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`.
        ValueError: as :func:`lu`; matrices that are not square.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.

    Example::

        >>> a = torch.tensor([[4.0, 2.0], [2.0, 10.0]], dtype=torch.q43)
        >>> torch_dtypes.linalg.cholesky(a).L
        tensor([[2., 0.],
                [1., 3.]], dtype=torch.q43)
    """
    values, restore = take_operand("a", a, format)
    matrices = as_matrices("a", values, square=True)
    with inner_products(matrices.dtype, accumulate):
        lower, info = _Cholesky.apply(matrices, accumulate)
    return Cholesky(restore(lower.reshape(a.shape)), info.reshape(a.shape[:-2]))


@takes_arrays
def ldl(
    a: torch.Tensor, *, format: object = None, accumulate: str | Accumulation | None = None
) -> LDL:
    """Factorise ``A = L D L^T`` without pivots, each step rounded to the format.

    ``c_ij`` is ``a_ij - l_i0 c_j0 - l_i1 c_j1 - ...`` in this order. Each product and each
    difference is rounded; other policies and random modes as in :func:`lu`. ``d_j`` is ``c_jj``,
    and ``l_ij`` is ``c_ij / d_j``, rounded. A column with a pivot of 0 is not divided.

    The gradient is symmetric, and computed in the format by the same policy.

    Args:
        a: ``[..., n, n]``, of a format dtype; or a stock floating dtype with ``format``. The upper
            triangle is not read.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`.
        ValueError: as :func:`lu`; matrices that are not square.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.

    Example::

        >>> a = torch.tensor([[4.0, 2.0], [2.0, -2.0]], dtype=torch.q43)
        >>> torch_dtypes.linalg.ldl(a).D
        tensor([ 4., -3.], dtype=torch.q43)
    """
    values, restore = take_operand("a", a, format)
    matrices = as_matrices("a", values, square=True)
    with inner_products(matrices.dtype, accumulate):
        lower, diagonal, info = _Ldl.apply(matrices, accumulate)
    return LDL(
        restore(lower.reshape(a.shape)),
        restore(diagonal.reshape(a.shape[:-1])),
        info.reshape(a.shape[:-2]),
    )


def _eliminate(a: torch.Tensor, kind: str) -> torch.Tensor:
    columns = a.detach().mT.clone(memory_format=torch.contiguous_format)
    order = torch.arange(a.shape[-1]).repeat(len(a), 1)
    eliminate(columns, order, order.clone(), kind, "none")
    return columns


def factorise_symmetric(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the Cholesky factors and ``info`` of matrices [batch, n, n], by the policy of the
    surrounding block."""
    columns = _eliminate(a, "cholesky").triu()
    pivots = torch.diagonal(columns, dim1=-2, dim2=-1)
    positive = (pivots > 0) & columns.isfinite().all(-1)
    # Columns from the first failure on are made of a pivot that has no root.
    done = positive.cumprod(-1).bool()[..., None]
    lower = torch.where(done, columns, torch.zeros_like(columns)).mT.contiguous()
    return lower, first_failure(positive.logical_not())


class _Cholesky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, accumulate):
        lower, info = factorise_symmetric(a)
        ctx.mark_non_differentiable(info)
        ctx.save_for_backward(lower, info)
        ctx.accumulate = accumulate
        return lower, info

    @staticmethod
    def backward(ctx, to_lower, _info):
        lower, info = ctx.saved_tensors
        _expect_factors(info, "cholesky: expected positive definite matrices")
        with inner_products(lower.dtype, ctx.accumulate):
            inner = product(lower.mT, to_lower).tril()
            diagonal = torch.diagonal(inner, dim1=-2, dim2=-1)
            diagonal.mul_(0.5)
            return _divide_both_sides(inner, lower, unit=False), None


class _Ldl(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, accumulate):
        columns = _eliminate(a, "ldl")
        pivots = torch.diagonal(columns, dim1=-2, dim2=-1).clone()
        info = first_failure((pivots == 0) | columns.triu().isfinite().logical_not().any(-1))
        lower = columns.triu(1).mT.contiguous()
        put_unit_diagonal(lower)
        ctx.mark_non_differentiable(info)
        ctx.save_for_backward(lower, pivots, info)
        ctx.accumulate = accumulate
        return lower, pivots, info

    @staticmethod
    def backward(ctx, to_lower, to_pivots, _info):
        lower, pivots, info = ctx.saved_tensors
        _expect_factors(info, "ldl: expected pivots other than 0")
        with inner_products(lower.dtype, ctx.accumulate):
            inner = (product(lower.mT, to_lower) / pivots[:, None]).tril(-1)
            overwrite(torch.diagonal(inner, dim1=-2, dim2=-1), to_pivots)
            return _divide_both_sides(inner, lower, unit=True), None


def _expect_factors(info: torch.Tensor, expected: str) -> None:
    if info.any():
        raise torch.linalg.LinAlgError(f"{expected} for the gradient, but got info {info.tolist()}")


def _divide_both_sides(inner: torch.Tensor, lower: torch.Tensor, *, unit: bool) -> torch.Tensor:
    """Return the symmetric part of ``L^-T inner L^-1``."""
    left = substitute(lower.mT, inner, upper=True, unit=unit)
    both = substitute(lower.mT, left.mT, upper=True, unit=unit)
    return (both + both.mT) * 0.5
