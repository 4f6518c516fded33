"""Elimination, which LU, Cholesky and LDL^T share, by the policy of the surrounding block.

Matrices are held transposed: a column, which pivots and multipliers go along, is one piece of
memory.
"""

from __future__ import annotations

import torch

from .. import _C
from ..formats.codes import codes
from .steps import has_kernels, ones, overwrite, rounds_every_step, subtract_product, swap


def eliminate(
    columns: torch.Tensor, rows: torch.Tensor, order: torch.Tensor, kind: str, pivot: str
) -> None:
    """Factorise transposed matrices [batch, n, m] in place, with ``rows`` [batch, m] and ``order``
    [batch, n] exchanged as their rows and columns are.

    ``kind`` is ``"lu"``, ``"cholesky"`` or ``"ldl"``. The latter two read and write the lower
    triangle. The terms of ``"ldl"`` are l_ik c_jk, where c_jk is l_jk before its division by d_k.
    A column with a pivot of 0 is not divided, nor is one of ``"cholesky"`` with a pivot that is not
    positive.
    """
    if has_kernels(columns.dtype):
        native = getattr(_C.Elimination, kind), getattr(_C.Pivot, pivot)
        _C.eliminate(columns, rows, order, *native)
    elif pivot == "complete":
        _eliminate_completely(columns, rows, order)
    elif kind == "lu":
        _eliminate_by_columns(columns, rows, pivot)
    else:
        _eliminate_triangles(columns, kind)


def _divide_column(columns: torch.Tensor, k: int) -> None:
    """Divide what is below the pivot of column k by it, where it is not 0."""
    pivot = columns[:, k, k : k + 1]
    below = columns[:, k, k + 1 :]
    overwrite(below, below / torch.where(pivot == 0, ones(pivot.dtype), pivot))


def _subtract(
    columns: torch.Tensor, j: slice, i: slice, t: slice, source: torch.Tensor | None = None
) -> None:
    """Subtract the terms t of elements (i, j) from them, or from those of ``source``."""
    start = (columns if source is None else source)[:, j, i]
    overwrite(columns[:, j, i], subtract_product(start, columns[:, j, t], columns[:, t, i]))


def _eliminate_by_columns(columns: torch.Tensor, rows: torch.Tensor, pivot: str) -> None:
    """Factorise with whole inner products: column k of L, then row k of U (Crout, Doolittle)."""
    n, m = columns.shape[-2:]
    for k in range(min(m, n)):
        _subtract(columns, slice(k, k + 1), slice(k, m), slice(0, k))
        if pivot == "partial":
            place = k + columns[:, k, k:].abs().argmax(-1)
            swap(codes(columns), 2, k, place)
            swap(rows, 1, k, place)
        _divide_column(columns, k)
        _subtract(columns, slice(k + 1, n), slice(k, k + 1), slice(0, k))


def _eliminate_completely(columns: torch.Tensor, rows: torch.Tensor, order: torch.Tensor) -> None:
    n, m = columns.shape[-2:]
    # Whole inner products begin anew at the matrix in each step.
    source = None if rounds_every_step(columns.dtype) else columns.clone()
    for k in range(min(m, n)):
        rest = columns[:, k:, k:].transpose(-2, -1)
        place = rest.abs().flatten(1).argmax(-1)
        row, column = k + place // (n - k), k + place % (n - k)
        for held in (columns, source):
            if held is not None:
                swap(codes(held), 2, k, row)
                swap(codes(held), 1, k, column)
        swap(rows, 1, k, row)
        swap(order, 1, k, column)
        _divide_column(columns, k)
        terms = slice(k, k + 1) if source is None else slice(0, k + 1)
        _subtract(columns, slice(k + 1, n), slice(k + 1, m), terms, source)


def _eliminate_triangles(columns: torch.Tensor, kind: str) -> None:
    """Factorise symmetric matrices with whole inner products, column by column."""
    undivided = columns.clone() if kind == "ldl" else columns
    for k in range(columns.shape[-1]):
        column = columns[:, k : k + 1, k:]
        terms = undivided[:, :k, k : k + 1].mT
        overwrite(column, subtract_product(column, terms, columns[:, :k, k:]))
        if kind == "ldl":
            overwrite(undivided[:, k], columns[:, k])
        else:
            pivot = columns[:, k, k]
            root = torch.where(pivot > 0, pivot, ones(pivot.dtype)).sqrt()
            overwrite(pivot, torch.where(pivot > 0, root, pivot))
        _divide_column(columns, k)
