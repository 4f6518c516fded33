"""Linear systems of a study: matrices by expressions such as ``randsvd(n=100, cond=1e4)``, from
Matrix Market files, and from the user's tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ... import linalg
from ...formats.arguments import outline
from ...linalg.errors import solve_twice
from ...targets.chop import chop

FUNCTIONS = ("randsvd", "hilbert", "wilkinson", "laplacian", "toeplitz")
_ENDINGS = (".mtx", ".mtx.gz")


@dataclass(frozen=True)
class System:
    """A system ``matrix x = right``, in float64.

    Attributes:
        matrix: [n, n]. right: [n].
        condition: the matrix' condition number in the 2-norm.
        solution: x, [n], to float64's accuracy; None for a matrix too near to a singular one.
    """

    name: str
    matrix: torch.Tensor
    right: torch.Tensor
    condition: float
    solution: torch.Tensor | None


def find_systems(
    matrices: Iterable[str] | Mapping[str, torch.Tensor], working: str, seed: int
) -> list[System]:
    """Return the system of each matrix, rounded to ``working``. Its right side is a vector of
    normal numbers, which the seed decides.

    Raises:
        ValueError, TypeError, OSError: an expression, a file or a tensor that is no real, square
            and finite matrix.
        ModuleNotFoundError: a file without SciPy.
    """
    if not isinstance(matrices, Mapping):
        matrices = {_name(text): _find_matrix(text, seed) for text in matrices}
    return [_system(name, matrix, working, seed) for name, matrix in matrices.items()]


def _system(name: str, matrix: object, working: str, seed: int) -> System:
    if not isinstance(matrix, torch.Tensor) or matrix.is_complex():
        raise TypeError(f"expected a real tensor as {name}, but got {outline(matrix)}")
    matrix = chop(matrix.detach().cpu().double(), working)
    if matrix.dim() != 2 or len(matrix) != matrix.shape[1] or not len(matrix):
        raise ValueError(f"expected a square matrix as {name}, but got {tuple(matrix.shape)}")
    if not matrix.isfinite().all():
        raise ValueError(
            f"expected finite numbers in {name} of {working}, but got NaN or infinities"
        )
    draws = torch.Generator().manual_seed(seed)
    right = torch.randn(len(matrix), dtype=torch.float64, generator=draws)
    right = chop(right, working)
    condition = torch.linalg.cond(matrix).item()
    return System(name, matrix, right, condition, _solve(matrix, right))


def _solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    try:
        return solve_twice(a, b[:, None])[0][:, 0]
    except torch.linalg.LinAlgError:
        return None


def _name(text: str) -> str:
    return Path(text).name if text.endswith(_ENDINGS) else text.strip()


def _find_matrix(text: str, seed: int) -> torch.Tensor:
    return _read(text) if text.endswith(_ENDINGS) else _call(text, seed)


def _read(path: str) -> torch.Tensor:
    try:
        from scipy.io import mmread
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"expected SciPy, which reads {path}, but it is not installed; pip install scipy"
        ) from error
    try:
        found = mmread(path)
    except ValueError as error:
        raise ValueError(f"expected a Matrix Market file, but got {path}: {error}") from error
    return torch.as_tensor(found.toarray() if hasattr(found, "toarray") else found)


def _call(text: str, seed: int) -> torch.Tensor:
    """Return the matrix of an expression, whose arguments are literals."""
    expected = (
        f"expected a file (.mtx) or an expression such as randsvd(n=100, cond=1e4), with "
        f"{', '.join(FUNCTIONS)}, but got {text!r}"
    )
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(expected) from error
    if not isinstance(call, ast.Call) or getattr(call.func, "id", None) not in FUNCTIONS:
        raise ValueError(expected)
    try:
        operands = [_literal(x) for x in call.args]
        options = {k.arg: _literal(k.value) for k in call.keywords}
        if call.func.id == "randsvd":
            options["generator"] = torch.Generator().manual_seed(seed)
        return getattr(linalg, call.func.id)(*operands, **options)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{text}: {error}") from error


def _literal(node: ast.expr) -> object:
    """Return a literal; a list is a vector."""
    value = ast.literal_eval(node)
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else value
