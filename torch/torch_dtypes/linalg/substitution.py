"""Forward and back substitution, for solvers and for gradients."""

from __future__ import annotations

import torch

from .. import _C
from .steps import has_kernels, overwrite, rounds_every_step, subtract_product


def substitute(
    a: torch.Tensor, b: torch.Tensor, *, upper: bool, unit: bool = False
) -> torch.Tensor:
    """Return x of ``a x = b``, for triangular a [batch, n, n] and b [batch, n, r], by the policy of
    the surrounding block.

    Unknown i is ``b_i - a_ij x_j - a_ik x_k - ...``, in the order in which j, k, ... are found, and
    divided by ``a_ii``, unless ``unit`` says that it is 1.
    """
    if upper:  # the last unknown is found first
        return substitute(a.flip(-2, -1), b.flip(-2), upper=False, unit=unit).flip(-2)
    if has_kernels(a.dtype):
        x = b.detach().mT.clone(memory_format=torch.contiguous_format)
        _C.substitute(a.detach().mT.contiguous(), x, unit)
        return x.mT.contiguous()
    x = b.detach().clone(memory_format=torch.contiguous_format)
    by_columns = rounds_every_step(a.dtype)  # the same terms in the same order, n times faster
    for k in range(a.shape[-1]):
        row = x[:, k : k + 1]
        if not by_columns:
            overwrite(row, subtract_product(row, a[:, k : k + 1, :k], x[:, :k]))
        if not unit:
            overwrite(row, row / a[:, k : k + 1, k : k + 1])
        if by_columns:
            below = x[:, k + 1 :]
            overwrite(below, below - a[:, k + 1 :, k : k + 1] * row)
    return x
