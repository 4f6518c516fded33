"""Linear algebra in a format: every step of a factorisation is rounded, in a stated order.

``torch.linalg`` computes in a machine type and rounds its result once. Here each product, each
difference, each quotient and each square root is rounded.
"""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .factorisations import LU, lu
    from .norms import cond, norm
    from .orthogonal import QR, qr
    from .solving import inv, solve, solve_triangular
    from .symmetric import LDL, Cholesky, cholesky, ldl

__all__ = [
    "LDL",
    "LU",
    "QR",
    "Cholesky",
    "cholesky",
    "cond",
    "inv",
    "ldl",
    "lu",
    "norm",
    "qr",
    "solve",
    "solve_triangular",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".factorisations": "LU lu",
        ".norms": "cond norm",
        ".orthogonal": "QR qr",
        ".solving": "inv solve solve_triangular",
        ".symmetric": "LDL Cholesky cholesky ldl",
    },
)
