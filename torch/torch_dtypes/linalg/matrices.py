"""Test matrices of numerical analysis, in float64; ``.to(dtype)`` rounds one to a format.

Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition (2002), chapter 28.
"""

from __future__ import annotations

import torch

from ..formats.arguments import integer, outline

__all__ = ["hilbert", "laplacian", "randsvd", "toeplitz", "wilkinson"]

_MODES = ("one large", "one small", "geometric", "arithmetic", "logarithmic")
_LARGEST = 2**20


def randsvd(
    n: int,
    cond: float,
    mode: str | int = "geometric",
    *,
    m: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return a random matrix with singular values from 1 down to ``1 / cond``, to float64's
    accuracy. Its singular vectors are those of Gaussian matrices (Haar's distribution).

    Args:
        n: the number of columns, from 1.
        cond: the 2-norm condition number, finite and at least 1.
        mode: the singular values, by name or by the number (1 to 5) of MATLAB's
            ``gallery('randsvd')``: ``"one large"``, ``"one small"``, ``"geometric"``,
            ``"arithmetic"``, or ``"logarithmic"`` (random, with uniform logarithms).
        m: the number of rows, by default n.
        generator: a CPU generator; by default torch's.

    Raises:
        TypeError: a size that is no integer.
        ValueError: a size below 1, a condition number below 1, another mode.

    Source: Stewart, "The efficient generation of random orthogonal matrices", SIAM J. Numer. Anal.
    17 (1980).

    Example::

        >>> a = torch_dtypes.linalg.randsvd(50, 1e4)
        >>> f"{torch.linalg.cond(a):.4f}"
        '10000.0000'
    """
    n = integer("n", n, 1, _LARGEST)
    m = n if m is None else integer("m", m, 1, _LARGEST)
    if not isinstance(cond, (int, float)) or not 1 <= cond < float("inf"):
        raise ValueError(f"expected a finite cond from 1, but got {outline(cond)}")
    if mode not in (*_MODES, *range(1, 6)) or isinstance(mode, bool):
        raise ValueError(
            f"expected mode among {', '.join(map(repr, _MODES))}, or 1 to 5, but got "
            f"{outline(mode)}"
        )
    name = mode if isinstance(mode, str) else _MODES[mode - 1]
    k = min(m, n)
    place = torch.linspace(0, 1, k, dtype=torch.float64)
    if name == "one large":
        values = torch.where(place == 0, 1.0, 1 / cond).double()
    elif name == "one small":
        values = torch.where(place == 1, 1 / cond, 1.0).double()
    elif name == "geometric":
        values = torch.tensor(float(cond), dtype=torch.float64) ** -place
    elif name == "arithmetic":
        values = 1 - place * (1 - 1 / cond)
    else:
        draws = torch.rand(k, dtype=torch.float64, generator=generator)
        values = torch.tensor(float(cond), dtype=torch.float64) ** -draws
    left, right = (_draw_orthogonal(size, k, generator) for size in (m, n))
    return left * values @ right.mT


def _draw_orthogonal(m: int, k: int, generator: torch.Generator | None) -> torch.Tensor:
    q, r = torch.linalg.qr(torch.randn(m, k, dtype=torch.float64, generator=generator))
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0)  # else QR's own signs are not uniform


def hilbert(n: int) -> torch.Tensor:
    """Return the Hilbert matrix, ``1 / (i + j + 1)`` for i and j from 0: positive definite, with a
    condition number of some ``e^(3.5 n)``.

    Args:
        n: the number of rows, from 1.

    Raises:
        TypeError: no integer.
        ValueError: a size below 1.

    Example::

        >>> torch_dtypes.linalg.hilbert(2)
        tensor([[1.0000, 0.5000],
                [0.5000, 0.3333]], dtype=torch.float64)
    """
    place = torch.arange(integer("n", n, 1, _LARGEST), dtype=torch.float64)
    return 1 / (place[:, None] + place + 1)


def wilkinson(n: int) -> torch.Tensor:
    """Return Wilkinson's matrix whose pivots grow to ``2^(n - 1)`` under partial pivoting: 1 on the
    diagonal and in the last column, -1 below the diagonal. (MATLAB's ``wilkinson`` is another one,
    for eigenvalues.)

    Args:
        n: the number of rows, from 1.

    Raises:
        TypeError: no integer.
        ValueError: a size below 1.

    Source: Wilkinson, "Error analysis of direct methods of matrix inversion", J. ACM 8 (1961).

    Example::

        >>> torch_dtypes.linalg.wilkinson(3)
        tensor([[ 1.,  0.,  1.],
                [-1.,  1.,  1.],
                [-1., -1.,  1.]], dtype=torch.float64)
    """
    n = integer("n", n, 1, _LARGEST)
    a = torch.eye(n, dtype=torch.float64) - torch.ones(n, n, dtype=torch.float64).tril(-1)
    a[:, -1] = 1
    return a


def toeplitz(column: torch.Tensor, row: torch.Tensor | None = None) -> torch.Tensor:
    """Return the matrix with constant diagonals of this first column and first row.

    Args:
        column: [m], of any dtype, which the result has.
        row: [n], of the same dtype, whose first number is not read; by default the column.

    Raises:
        TypeError: no tensors of one dtype.
        ValueError: not one dimension.

    Example::

        >>> torch_dtypes.linalg.toeplitz(torch.tensor([2.0, -1.0, 0.0]))
        tensor([[ 2., -1.,  0.],
                [-1.,  2., -1.],
                [ 0., -1.,  2.]])
    """
    row = column if row is None else row
    for t in (column, row):
        if not isinstance(t, torch.Tensor) or t.dtype != column.dtype:
            raise TypeError(
                f"expected tensors of one dtype as column and row, but got {outline(column)} and "
                f"{outline(row)}"
            )
        if t.dim() != 1 or not len(t):
            raise ValueError(f"expected vectors as column and row, but got {tuple(t.shape)}")
    values = torch.cat([column.flip(0), row[1:]])
    i, j = torch.arange(len(column)), torch.arange(len(row))
    return values[len(column) - 1 - i[:, None] + j]


def laplacian(n: int, dimensions: int = 1) -> torch.Tensor:
    """Return the matrix of the discrete Laplace operator on a grid of n points in each dimension,
    with boundary values 0: 2 for each dimension on the diagonal, -1 for each neighbour.

    It is positive definite, with a condition number of some ``4 (n + 1)^2 / pi^2``.

    Args:
        n: points in each dimension, from 1; the matrix has ``n ** dimensions`` rows.
        dimensions: from 1 to 3.

    Raises:
        TypeError: no integers.
        ValueError: numbers out of range.

    Example::

        >>> torch_dtypes.linalg.laplacian(2, dimensions=2)
        tensor([[ 4., -1., -1.,  0.],
                [-1.,  4.,  0., -1.],
                [-1.,  0.,  4., -1.],
                [ 0., -1., -1.,  4.]], dtype=torch.float64)
    """
    n, dimensions = integer("n", n, 1, _LARGEST), integer("dimensions", dimensions, 1, 3)
    one = torch.eye(n, dtype=torch.float64)
    line = 2 * one - torch.diag_embed(torch.ones(n - 1, dtype=torch.float64), 1)
    line = line - torch.diag_embed(torch.ones(n - 1, dtype=torch.float64), -1)
    result = line
    for _ in range(dimensions - 1):
        identity = torch.eye(len(result), dtype=torch.float64)
        result = torch.kron(one, result) + torch.kron(line, identity)
    return result + 0.0  # kron gives zeros either sign
