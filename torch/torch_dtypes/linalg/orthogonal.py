"""QR factorisation by Householder's reflectors with every step in a format.

Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), chapter 19;
LAPACK's dlarfg for the signs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..policies.accumulation import Accumulation
from .steps import (
    as_matrices,
    first_failure,
    inner_products,
    ones,
    overwrite,
    permutation,
    product,
    refuse_gradient,
    subtract_product,
    take_operand,
    takes_arrays,
)

__all__ = ["QR", "qr"]


class QR(NamedTuple):
    """The factors of ``A = Q R``: ``Q`` [..., m, k] with nearly orthonormal columns and an upper
    triangle ``R`` [..., k, n], where k = min(m, n).

    ``info`` [...] is 0, or the number (from 1) of the first column that has no reflector, because
    its sum of squares is 0 or overflows, or that has a number that is not finite.
    """

    Q: torch.Tensor
    R: torch.Tensor
    info: torch.Tensor


@takes_arrays
def qr(
    a: torch.Tensor, *, format: object = None, accumulate: str | Accumulation | None = None
) -> QR:
    """Factorise ``A = Q R`` by Householder's reflectors, each step rounded to the format.

    For column k, x are the numbers from the diagonal on. The norm is the root of ``x . x``, and
    ``beta`` is the norm with the sign that x_0 has not. ``tau = (beta - x_0) / beta``, and
    ``v = x / (x_0 - beta)`` with ``v_0 = 1``. Where all but x_0 is 0, tau is 0 and beta is x_0. The
    reflector takes ``t_j = tau * (v . a_j)``, and ``a_ij - v_i t_j``, for the columns behind; ``Q``
    is made of the identity, from the last reflector to the first.

    Every step is rounded. Inner products go from the first number to the last by the policy, where
    ``"format"`` rounds each product and each sum. There is no gradient. NaN, infinities, overflow
    and a sum of squares that underflows show in ``info``.

    Args:
        a: ``[..., m, n]``, of a format dtype; or a stock floating dtype with ``format``.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`.
        ValueError: as :func:`lu`.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`; a matrix that requires a gradient.

    Example::

        >>> a = torch.tensor([[3.0, 1.0], [4.0, 2.0]], dtype=torch.posit16es2)
        >>> torch_dtypes.linalg.qr(a).R
        tensor([[-5.0000, -2.2002],
                [ 0.0000,  0.3999]], dtype=torch.posit16es2)
    """
    values, restore = take_operand("a", a, format)
    matrices = as_matrices("a", values)
    refuse_gradient("qr", values)
    batch = a.shape[:-2]
    with inner_products(matrices.dtype, accumulate):
        factors = _factorise(matrices.detach())
    q, r = (restore(t.reshape(*batch, *t.shape[-2:])) for t in factors[:2])
    return QR(q, r, factors.info.reshape(batch))


def _factorise(a: torch.Tensor) -> QR:
    r = a.clone(memory_format=torch.contiguous_format)
    count, m, n = r.shape
    k = min(m, n)
    reflectors, bad = [], torch.zeros(count, k, dtype=torch.bool)
    for i in range(k):
        beta, v, tau, bad[:, i] = _find_reflector(r[:, i:, i])
        reflectors.append((v, tau))
        overwrite(r[:, i, i : i + 1], beta)
        _reflect(r[:, i:, i + 1 :], v, tau)
    r = r[:, :k].triu()
    finite = r.isfinite().all(-2)
    bad |= finite[:, :k].logical_not()
    q = permutation(torch.arange(m), r.dtype)[:, :k].repeat(count, 1, 1)
    for i, (v, tau) in reversed(tuple(enumerate(reflectors))):
        _reflect(q[:, i:, i:], v, tau)
    info = first_failure(torch.cat([bad, finite[:, k:].logical_not()], -1))
    return QR(q, r, info)


def _find_reflector(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return beta, v and tau of columns [batch, l], and whether a column that needs a reflector has
    none."""
    first, rest = x[:, :1], x[:, 1:]
    norm = product(x[:, None], x[:, :, None])[:, 0].sqrt()
    needed = (rest != 0).any(-1, keepdim=True)
    usable = needed & norm.isfinite() & (norm != 0)
    one, zero = ones(x.dtype, *first.shape), torch.zeros_like(first)
    beta = torch.where(usable, torch.where(first < 0, norm, -norm), first)
    tau = torch.where(usable, (beta - first) / torch.where(usable, beta, one), zero)
    below = rest / torch.where(usable, first - beta, one)
    v = torch.cat([one, torch.where(usable, below, torch.zeros_like(below))], -1)
    return beta, v, tau, (needed & ~usable)[:, 0]


def _reflect(a: torch.Tensor, v: torch.Tensor, tau: torch.Tensor) -> None:
    """Reflect matrices [batch, l, n] in place."""
    if a.shape[-1]:
        inner = product(v[:, None], a) * tau[:, :, None]
        reflected = subtract_product(a, v[:, :, None], inner)
        overwrite(a, torch.where(tau[:, :, None] == 0, a, reflected))
