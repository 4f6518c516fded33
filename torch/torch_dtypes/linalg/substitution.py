"""Forward and back substitution, for solvers and for gradients."""

from __future__ import annotations

import torch

from .steps import BLOCK, overwrite, rounds_every_step, subtract_product


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
    x = b.detach().clone(memory_format=torch.contiguous_format)
    n = a.shape[-1]
    whole = not rounds_every_step(a.dtype)
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for k in range(first, last):
            row = x[:, k : k + 1]
            if whole:
                overwrite(row, subtract_product(row, a[:, k : k + 1, :k], x[:, :k]))
            if not unit:
                overwrite(row, row / a[:, k : k + 1, k : k + 1])
            if not whole:
                _subtract(x, a, slice(k + 1, last), slice(k, k + 1))
        if not whole:
            _subtract(x, a, slice(last, n), slice(first, last))
    return x


def _subtract(x: torch.Tensor, a: torch.Tensor, rows: slice, terms: slice) -> None:
    overwrite(x[:, rows], subtract_product(x[:, rows], a[:, rows, terms], x[:, terms]))
