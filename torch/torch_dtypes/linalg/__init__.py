"""Linear algebra in a format: every step of a factorisation is rounded, in a stated order.

``torch.linalg`` computes in a machine type and rounds its result once. Here each product, each
difference, each quotient and each square root is rounded.
"""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .errors import backward_error, forward_error, rounding_bound
    from .factorisations import LU, lu
    from .matrices import hilbert, laplacian, randsvd, toeplitz, wilkinson
    from .norms import cond, norm
    from .orthogonal import QR, qr
    from .refinement import Refinement, cg, gmres, refine
    from .solving import inv, solve, solve_triangular
    from .symmetric import LDL, Cholesky, cholesky, ldl

__all__ = [
    "LDL",
    "LU",
    "QR",
    "Cholesky",
    "Refinement",
    "backward_error",
    "cg",
    "cholesky",
    "cond",
    "forward_error",
    "gmres",
    "hilbert",
    "inv",
    "laplacian",
    "ldl",
    "lu",
    "norm",
    "qr",
    "randsvd",
    "refine",
    "rounding_bound",
    "solve",
    "solve_triangular",
    "toeplitz",
    "wilkinson",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".errors": "backward_error forward_error rounding_bound",
        ".factorisations": "LU lu",
        ".matrices": "hilbert laplacian randsvd toeplitz wilkinson",
        ".norms": "cond norm",
        ".orthogonal": "QR qr",
        ".refinement": "Refinement cg gmres refine",
        ".solving": "inv solve solve_triangular",
        ".symmetric": "LDL Cholesky cholesky ldl",
    },
)
