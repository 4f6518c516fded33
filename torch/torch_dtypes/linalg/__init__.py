"""Linear algebra in a format: every step of a factorisation is rounded, in a stated order.

``torch.linalg`` computes in a machine type and rounds its result once. Here each product, each
difference, each quotient and each square root is rounded.
"""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .factorisations import LU, lu
    from .solving import inv, solve, solve_triangular

__all__ = ["LU", "inv", "lu", "solve", "solve_triangular"]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".factorisations": "LU lu",
        ".solving": "inv solve solve_triangular",
    },
)
