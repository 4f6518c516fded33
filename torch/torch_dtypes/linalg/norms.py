"""Norms and condition numbers with every step in a format."""

from __future__ import annotations

import torch

from ..formats.arguments import outline
from ..policies.accumulation import Accumulation
from .solving import inv
from .steps import as_matrices, inner_products, ones, product, take_operand, takes_arrays

__all__ = ["cond", "norm"]


@takes_arrays
def norm(
    a: torch.Tensor,
    ord: str | float = "fro",
    *,
    format: object = None,
    accumulate: str | Accumulation | None = None,
) -> torch.Tensor:
    """Return the norms of matrices, each step rounded to the format.

    ``"fro"`` is the rounded root of the sum of squares, row by row. ``1`` is the largest sum of the
    magnitudes of a column, and ``inf`` that of a row, from the first to the last. Sums follow the
    policy, where ``"format"`` rounds each square and each sum. Overflow and NaN are the format's.

    Args:
        a: ``[..., m, n]``, of a format dtype; or a stock floating dtype with ``format``. A vector
            counts as a column.
        ord: ``"fro"``, ``1`` or ``inf``. The 2-norm needs singular values, whose algorithms iterate
            to a tolerance: use ``torch.linalg.norm``.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`.
        ValueError: as :func:`lu`; another norm.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.

    Example::

        >>> torch_dtypes.linalg.norm(torch.tensor([3.0, 4.0], dtype=torch.q43))
        tensor(5., dtype=torch.q43)
    """
    values, restore = take_operand("a", a, format)
    if ord not in ("fro", 1, float("inf")):
        raise ValueError(f"expected ord of 'fro', 1 or inf, but got {outline(ord)}")
    values = values[:, None] if values.dim() == 1 else values
    batch = values.shape[:-2]
    values = as_matrices("a", values)
    count, m, n = values.shape
    with inner_products(values.dtype, accumulate):
        if ord == "fro":
            row = values.reshape(count, 1, m * n)
            result = product(row, row.mT).sqrt().reshape(count)
        else:
            sizes = (count, 1, m) if ord == 1 else (count, n, 1)
            one = ones(values.dtype, *sizes)
            sums = product(one, values.abs()) if ord == 1 else product(values.abs(), one)
            result = sums.flatten(1).amax(-1)
    return restore(result.reshape(batch))


@takes_arrays
def cond(
    a: torch.Tensor,
    ord: str | float = 1,
    *,
    format: object = None,
    accumulate: str | Accumulation | None = None,
) -> torch.Tensor:
    """Return the condition numbers ``norm(A) norm(inv(A))``, each step rounded to the format.

    Args:
        a: ``[..., n, n]``, of a format dtype; or a stock floating dtype with ``format``.
        ord: as in :func:`norm`.
        format, accumulate: as in :func:`lu`.

    Raises:
        TypeError: as :func:`lu`.
        ValueError: as :func:`lu`; matrices that are not square; another norm.
        RuntimeError: as :func:`lu`.
        NotImplementedError: as :func:`lu`.
        torch.linalg.LinAlgError: as :func:`inv`.

    Example::

        >>> torch_dtypes.linalg.cond(torch.tensor([[2.0, 0.0], [0.0, 0.5]], dtype=torch.q43))
        tensor(4., dtype=torch.q43)
    """
    values, restore = take_operand("a", a, format)
    own = norm(values, ord, accumulate=accumulate)
    return restore(own * norm(inv(values, accumulate=accumulate), ord, accumulate=accumulate))
