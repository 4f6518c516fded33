"""LU factorisation with every step in a format.

Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), chapters 9 to
11.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..formats.arguments import choice
from ..policies.accumulation import Accumulation
from .elimination import eliminate
from .steps import (
    as_matrices,
    first_failure,
    inner_products,
    permutation,
    product,
    put_unit_diagonal,
    subtract_product,
    take,
    take_operand,
    takes_arrays,
)
from .substitution import substitute

__all__ = ["LU", "lu"]

PIVOTS = ("partial", "none", "complete")


class LU(NamedTuple):
    """The factors of ``A = P L U Q``.

    ``P`` [..., m, m] and ``Q`` [..., n, n] are permutations, ``L`` [..., m, k] is lower triangular
    with ones on its diagonal, ``U`` [..., k, n] upper triangular, with k = min(m, n). ``info``
    [...] is 0, or the number (from 1) of the first column whose pivot is 0 or that has a number
    that is not finite.
    """

    P: torch.Tensor
    L: torch.Tensor
    U: torch.Tensor
    Q: torch.Tensor
    info: torch.Tensor


class Factors(NamedTuple):
    """LU factors as the algorithms leave them: ``columns`` [batch, n, m] has L below and U above
    the diagonal, transposed; row i of L U is row ``rows[i]`` of A, and likewise for columns."""

    columns: torch.Tensor
    rows: torch.Tensor
    order: torch.Tensor
    info: torch.Tensor


@takes_arrays
def lu(
    a: torch.Tensor,
    *,
    pivot: str = "partial",
    format: object = None,
    accumulate: str | Accumulation | None = None,
) -> LU:
    """Factorise ``A = P L U Q`` by Gaussian elimination, each step rounded to the format.

    Element (i, j) is ``a_ij - l_i0 u_0j - l_i1 u_1j - ...`` in this order. Each product and each
    difference is rounded, and an element of L has one rounded division by the pivot behind. The
    pivot is the first of the largest magnitude. These bits do not depend on the size, on threads or
    on how the work is cut. A stochastic mode draws one number for each rounding; a seed gives the
    same bits on any number of threads.

    With another policy than ``"format"``, the sum above is one inner product by that policy: an
    accumulator begins at ``a_ij``, takes products of ``-l`` and ``u`` in this order, and is rounded
    to the format. ``"exact"`` rounds it once.

    NaN, infinities and overflow are the format's. They and zero pivots show in ``info``. A column
    with a zero pivot is not divided.

    The gradient (of ``L`` and ``U``) is computed in the format too, with products by the same
    policy.

    Args:
        a: ``[..., m, n]``, of a format dtype; or a stock floating dtype with ``format``.
        pivot: ``"partial"``, the largest number of the column; ``"none"``, the diagonal's;
            ``"complete"``, the largest of the rest of the matrix, row by row (with a policy other
            than ``"format"`` it takes n^4 / 4 products).
        format: for a stock tensor: a format that ``chop`` takes, but no blocks or integers with
            scales. ``a`` is rounded to it first. The results are float64 for such operands and for
            formats with values that float32 lacks, else float32.
        accumulate: a policy, as in ``torch_dtypes.accumulate``; by default that of the surrounding
            block or of the dtype, where ``"machine"`` stands for ``"format"``.

    Raises:
        TypeError: no real floating-point tensor, a stock tensor without format, blocks.
        ValueError: less than two dimensions, another pivot, a format that lacks the number 1.
        RuntimeError: a policy that the format cannot follow, as in ``torch_dtypes.accumulate``.
        NotImplementedError: a tensor that is not on the CPU.

    Example::

        >>> a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.posit8es1)
        >>> P, L, U, Q, info = torch_dtypes.linalg.lu(a)
        >>> L
        tensor([[1.0000, 0.0000],
                [0.3281, 1.0000]], dtype=torch.posit8es1)
    """
    choice("pivot", pivot, PIVOTS)
    values, restore = take_operand("a", a, format)
    matrices = as_matrices("a", values)
    with inner_products(matrices.dtype, accumulate):
        *factors, info = _Lu.apply(matrices, pivot, accumulate)
    batch = a.shape[:-2]
    return LU(
        *(restore(factor.reshape(*batch, *factor.shape[-2:])) for factor in factors),
        info.reshape(batch),
    )


class _Lu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, pivot, accumulate):
        factors = factorise(a, pivot)
        lower, upper = split(factors)
        left = permutation(factors.rows, a.dtype).transpose(-2, -1).contiguous()
        right = permutation(factors.order, a.dtype)
        ctx.mark_non_differentiable(left, right, factors.info)
        ctx.save_for_backward(lower, upper, factors.rows, factors.order)
        ctx.accumulate = accumulate
        return left, lower, upper, right, factors.info

    @staticmethod
    def backward(ctx, _left, to_lower, to_upper, _right, _info):
        lower, upper, rows, order = ctx.saved_tensors
        k = lower.shape[-1]
        top, below = lower[:, :k], lower[:, k:]
        left, behind = upper[:, :, :k], upper[:, :, k:]
        with inner_products(lower.dtype, ctx.accumulate):
            inner_lower = product(top.mT, to_lower[:, :k])
            inner_upper = product(to_upper[:, :, :k], left.mT)
            if behind.numel():
                inner_lower = subtract_product(inner_lower, to_upper[:, :, k:], behind.mT)
            if below.numel():
                inner_upper = subtract_product(inner_upper, below.mT, to_lower[:, k:])
            inner = inner_lower.tril(-1) + inner_upper.triu()
            half = substitute(top.mT, inner, upper=True, unit=True)
            both = substitute(left, half.mT, upper=True).mT
            if behind.numel():
                rest = substitute(top.mT, to_upper[:, :, k:], upper=True, unit=True)
                both = torch.cat([both, rest], -1)
            if below.numel():
                rest = substitute(left, to_lower[:, k:].mT, upper=True).mT
                both = torch.cat([both, rest], -2)
            # The rows and columns of L U, back in the places of A's.
            return take(take(both, 1, rows.argsort()), 2, order.argsort()), None, None


def factorise(a: torch.Tensor, pivot: str) -> Factors:
    """Factorise matrices [batch, m, n] by the policy of the surrounding block."""
    columns = a.detach().mT.contiguous().clone()
    batch, n, m = columns.shape
    rows, order = (torch.arange(size).repeat(batch, 1) for size in (m, n))
    eliminate(columns, rows, order, "lu", pivot)
    diagonal = torch.diagonal(columns, dim1=-2, dim2=-1)
    bad = columns.isfinite().logical_not().any(-1)
    bad[:, : diagonal.shape[-1]] |= diagonal == 0
    return Factors(columns, rows, order, first_failure(bad))


def split(factors: Factors) -> tuple[torch.Tensor, torch.Tensor]:
    """Return L and U."""
    both = factors.columns.transpose(-2, -1)
    k = min(both.shape[-2:])
    lower = both[..., :k].tril(-1)
    put_unit_diagonal(lower)
    return lower.contiguous(), both[..., :k, :].triu().contiguous()
