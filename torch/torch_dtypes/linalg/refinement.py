"""Iterative refinement of linear systems in three precisions.

Sources: Carson and Higham, "A new analysis of iterative refinement and its application to accurate
solution of ill-conditioned sparse linear systems", SIAM J. Sci. Comput. 39 (2017), and
"Accelerating the solution of linear systems by iterative refinement in three precisions", 40
(2018); Higham and Pranesh, "Exploiting lower precision arithmetic in solving symmetric positive
definite linear systems and least squares problems", 43 (2021), for conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from .. import _C
from ..formats.arguments import choice, integer, outline
from ..policies.accumulation import Accumulation
from ..policies.rounding import rounding_block
from .applying import InFormat, InTwiceFloat64
from .iteration import Track, find_residual_function, find_solver, iterate
from .picture import draw
from .squeezing import factorise_scaled
from .steps import expect_cpu, find_format, refuse_gradient

__all__ = ["Refinement", "cg", "gmres", "refine"]

METHODS = ("lu", "gmres", "cg")


@dataclass(frozen=True, eq=False)
class Refinement:
    """The solution that :func:`refine` returns, and how it was found.

    Attributes:
        x: the last solution, [n] of ``working``; 0 if there was none.
        converged: the last backward error is at most ``tolerance``.
        reason: a sentence that says why the iteration ended.
        steps: the number of corrections of the first solution.
        backward_errors: of the first solution, and after each correction.
        forward_errors: likewise, ``max |x - x_true| / max |x_true|``; None without ``x_true``.
        inner_steps: steps of GMRES or CG for the first solution and for each correction; None for
            ``"lu"``.
        tolerance: the backward error that was asked for.
        title: the method, and the formats of factors, working precision and residuals.
    """

    x: torch.Tensor
    converged: bool
    reason: str
    steps: int
    backward_errors: tuple[float, ...]
    forward_errors: tuple[float, ...] | None
    inner_steps: tuple[int, ...] | None
    tolerance: float
    title: str

    def save(self, path: str | Path) -> None:
        """Write a picture of the errors after each step. The path's ending says the file's kind;
        it needs matplotlib."""
        draw(self, path)


def refine(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    factor: object,
    working: object = None,
    residual: object = "twice",
    method: str = "lu",
    apply: object = "twice",
    scale: str | None = "squeeze",
    accumulate: str | Accumulation | None = None,
    kind: str = "normwise",
    tolerance: float | None = None,
    inner_tolerance: float | None = None,
    max_steps: int = 50,
    max_inner_steps: int | None = None,
    x_true: torch.Tensor | None = None,
) -> Refinement:
    """Solve ``A x = b`` with factors of few digits, refined by residuals of many.

    1. Factorise A in ``factor``, after scaling. Set x = 0.
    2. ``r = b - A x`` in ``residual``. Multiply r by the power of two that brings its largest
       number into (1/2, 1], and round it to ``working``.
    3. Solve ``A d = r`` approximately. Divide d by that power, and round it to ``working``.
    4. ``x = x + d`` in ``working``. Go to 2 until the backward error is small.

    The first such x is the first solution. ``"lu"`` finds d by two substitutions in ``factor``,
    with the order and the rounding of :func:`lu`. Their right-hand side is scaled as the rows of
    A and by a power of two, which brings its largest number to at most 1 and that of the scaled A,
    and rounded to ``factor``.

    ``"gmres"`` runs GMRES on ``U^-1 L^-1 A d = U^-1 L^-1 r``, and ``"cg"`` the preconditioned
    conjugate gradient method, from d = 0. Each product, sum, quotient and root of theirs is rounded
    to ``working``, in the order of Saad and Schultz with modified Gram-Schmidt, and of Hestenes and
    Stiefel. Products with A and substitutions are in ``apply``, and their results are rounded to
    ``working``. CG ends at a direction p with ``p^T A p <= 0``.

    ``"twice"`` is float64 for a working format of at most 26 significant bits, whose products
    float64 has. For others, float64 too, it is twice float64's digits: residuals are exact and
    rounded once, and ``apply`` computes with sums of two float64 numbers (2^-104).

    ``scale="squeeze"`` factorises ``mu R A S``. R and S are powers of two that bring the largest
    number of each row, then of each column, into [1/2, 1). The largest power of two with
    ``mu max |R A S| <= 0.1 xmax`` is mu, for the largest number xmax of ``factor``. For tapered
    formats (posits, takums), whose digits are most near 1, it is 1 in the place of 0.1 xmax. For
    ``"cg"``, R = S brings the diagonal into [1/4, 1). So only rounding to ``factor`` changes
    digits.

    The iteration ends when the backward error is at most ``tolerance`` (converged); when a
    correction is more than half of the one before (stalled) or larger (diverged); when there are no
    factors, or NaN or infinities; and after ``max_steps``. ``reason`` says it, and no such end
    raises.

    Args:
        a: ``[n, n]``, real, of a stock floating or a format dtype whose values float64 has. The
            values are not rounded to ``working``: residuals are of this matrix. Symmetric for
            ``"cg"``.
        b: ``[n]``, likewise.
        factor: a format (dtype, name, name with a rounding mode) or stock dtype of the factors;
            ``"none"`` for ``"gmres"`` and ``"cg"`` without a preconditioner.
        working: a format, likewise; by default a's dtype. ``x`` has it, as a stock dtype if it
            names one.
        residual: a format, ``"working"`` or ``"twice"``. Sums begin at b_i and subtract products in
            the order of the columns.
        method: ``"lu"``, ``"gmres"`` or ``"cg"`` (Cholesky factors).
        apply: a format, ``"working"`` or ``"twice"``, as in Carson and Higham.
        scale: ``"squeeze"``, or ``"none"`` (also None) to round A as it is.
        accumulate: the policy of inner products in ``factor`` (without factors, in ``working``), as
            in :func:`lu`. Other precisions follow the surrounding block or their dtypes.
        kind: the backward error, as in :func:`backward_error`.
        tolerance: by default two unit roundoffs of ``working``, the distance from 1 to the next
            number. (A posit has this roundoff for numbers near 1 only.)
        inner_tolerance: the residual that GMRES (preconditioned) and CG stop at, relative to that
            of 0; by default the square root of the unit roundoff (1e-8 for float64), and
            ``tolerance`` for CG without factors. (The papers take 1e-2 to 1e-6.)
        max_steps: corrections of the first solution, from 0.
        max_inner_steps: steps of GMRES and CG for each, from 1; by default n.
        x_true: ``[n]``, the solution, for ``forward_errors``.

    Raises:
        TypeError: no real dense tensors; not a format.
        ValueError: a matrix that is not square, or not symmetric for ``"cg"``; sizes that do not
            fit; an unknown name or method; a format that lacks the number 1 or whose values float64
            lacks; a working format without fractions.
        RuntimeError: a policy that the format cannot follow, as in ``torch_dtypes.accumulate``.
        NotImplementedError: a tensor that is not on the CPU, or that requires a gradient.

    Example::

        >>> a = torch_dtypes.linalg.laplacian(4)
        >>> found = torch_dtypes.linalg.refine(a, a.sum(1), factor="fp16")
        >>> found.x
        tensor([1., 1., 1., 1.], dtype=torch.float64)
        >>> found.converged, found.steps
        (True, 1)
    """
    choice("method", method, METHODS)
    choice("scale", "none" if scale is None else scale, ("squeeze", "none"))
    a, b, x_true = _take_system(a, b, x_true)
    working = a.dtype if working is None else working
    work, own = find_format(working)
    apply = _find_precision(apply, working)[0]
    residual, residual_name = _find_precision(residual, working)
    factor_dtype, factor_name = (None, "no factors") if factor == "none" else find_format(factor)
    if method == "lu" and factor_dtype is None:
        raise ValueError("expected a format as factor for 'lu', but got 'none'; use 'gmres'")
    a, b = a.double(), b.double()
    if method == "cg" and a.isfinite().all() and not torch.equal(a, a.mT):
        raise ValueError(
            "expected a symmetric matrix for 'cg', but got another; take (a + a.mT) / 2 or 'gmres'"
        )
    eps = _find_epsilon(work)
    tolerance = eps if tolerance is None else _positive("tolerance", tolerance)
    if inner_tolerance is None:
        plain_cg = method == "cg" and factor_dtype is None  # restarts would cost many steps
        inner_tolerance = tolerance if plain_cg else (eps / 2) ** 0.5
    inner_tolerance = _positive("inner_tolerance", inner_tolerance)
    max_steps = integer("max_steps", max_steps, 0, 2**31)
    limit = len(a) if max_inner_steps is None else max_inner_steps
    limit = integer("max_inner_steps", limit, 1, 2**31)
    track = Track(a, b, x_true, choice("kind", kind, ("normwise", "componentwise")))

    x = torch.zeros(1, len(a), 1, dtype=work)
    problem, factors = None, None
    if not (a.isfinite().all() and b.isfinite().all()):
        problem = "no solution: a or b has NaN or infinities"
    elif factor_dtype is not None:
        symmetric, squeeze = method == "cg", scale == "squeeze"
        factors = factorise_scaled(
            a, factor_dtype, symmetric=symmetric, squeeze=squeeze, accumulate=accumulate
        )
        if factors.info:
            pivot = "a pivot that is not positive" if symmetric else "a zero pivot"
            name = str(factor_name).removeprefix("torch.")
            problem = f"no factors in {name}: {pivot} or overflow in column {factors.info}"
    if problem is None:
        policy = accumulate if factors is None else None
        if method == "lu":
            applied = InFormat(a, factors, factor_dtype, accumulate)
        elif apply is None:
            applied = InTwiceFloat64(a, factors)
        else:
            applied = InFormat(a, factors, apply)
        correct = find_solver(method, applied, work, policy, inner_tolerance, limit)
        find_residual = find_residual_function(a, b, residual)
        x, problem = iterate(x, find_residual, correct, track, tolerance, max_steps)
    if not track.backward:
        track.record(x)
    return Refinement(
        x=x.flatten().to(own),
        converged=track.backward[-1] <= tolerance,
        reason=problem,
        steps=len(track.backward) - 1,
        backward_errors=tuple(track.backward),
        forward_errors=None if x_true is None else tuple(track.forward),
        inner_steps=None if method == "lu" else tuple(track.inner),
        tolerance=tolerance,
        title=f"{method}: {factor_name}, {own}, {residual_name}".replace("torch.", ""),
    )


def _find_precision(value: object, working: object) -> tuple[torch.dtype | None, object]:
    """Return a format dtype and its name; None stands for twice float64's digits."""
    if value == "twice":
        bits = _C.format_of(find_format(working)[0]).significand_bits
        if bits > 26:  # float64 lacks their products
            return None, "twice float64"
        value = torch.float64
    return find_format(working if value == "working" else value)


def _find_epsilon(dtype: torch.dtype) -> float:
    with rounding_block("up"):
        above = torch.tensor(1 + 2.0**-52, dtype=torch.float64).to(dtype).item()
    if not 1 < above < 2:
        raise ValueError(
            f"expected a working format with numbers between 1 and 2, but got {dtype}; choose one "
            "with more digits"
        )
    return above - 1


def _positive(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"expected a positive number for {name}, but got {outline(value)}")
    return float(value)


def _take_system(
    a: object, b: object, x_true: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    given = {"a": a, "b": b} if x_true is None else {"a": a, "b": b, "x_true": x_true}
    for name, t in given.items():
        expect_cpu(name, t)
        if not t.dtype.is_floating_point:
            raise TypeError(f"expected real floating-point numbers as {name}, but got {t.dtype}")
        if t.layout != torch.strided:
            raise TypeError(
                f"expected a dense tensor as {name}, but got {t.layout}; take {name}.to_dense()"
            )
        refuse_gradient("refine", t)
    if a.dim() != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise ValueError(f"expected a square matrix as a, but got sizes {tuple(a.shape)}")
    for name, t in given.items():
        if name != "a" and t.shape != a.shape[:1]:
            raise ValueError(
                f"expected a vector of {len(a)} numbers as {name}, but got sizes {tuple(t.shape)}"
                "; solve for one right-hand side at a time"
            )
    return a.detach(), b.detach(), None if x_true is None else x_true.detach().double()


def gmres(
    a: torch.Tensor, b: torch.Tensor, *, working: object = None, **kwargs: object
) -> Refinement:
    """Solve ``A x = b`` by GMRES with every operation rounded to a format: :func:`refine` without
    factors and with one precision. A correction is a restart from the computed residual.

    Args:
        a: ``[n, n]``, as in :func:`refine`, and rounded to ``working``.
        b: ``[n]``, likewise.
        working: a format or stock dtype; by default a's dtype.
        kwargs: ``accumulate``, ``kind``, ``tolerance``, ``inner_tolerance``, ``max_steps``,
            ``max_inner_steps`` (steps before a restart) and ``x_true`` of :func:`refine`.

    Raises:
        TypeError: as :func:`refine`.
        ValueError: as :func:`refine`.
        RuntimeError: as :func:`refine`.
        NotImplementedError: as :func:`refine`.

    Example::

        >>> a = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        >>> found = torch_dtypes.linalg.gmres(a, torch.tensor([3.0, 4.0]), working="posit16es2")
        >>> found.x, found.inner_steps
        (tensor([1.0000, 0.9995], dtype=torch.posit16es2), (2,))
    """
    return refine(a, b, working=working, method="gmres", **_ONE_PRECISION, **kwargs)


def cg(a: torch.Tensor, b: torch.Tensor, *, working: object = None, **kwargs: object) -> Refinement:
    """Solve ``A x = b`` for a positive definite A by the conjugate gradient method with every
    operation rounded to a format: :func:`refine` without factors and with one precision.

    Args:
        a: ``[n, n]``, as in :func:`refine`, and rounded to ``working``.
        b: ``[n]``, likewise.
        working: a format or stock dtype; by default a's dtype.
        kwargs: as in :func:`gmres`.

    Raises:
        TypeError: as :func:`refine`.
        ValueError: as :func:`refine`.
        RuntimeError: as :func:`refine`.
        NotImplementedError: as :func:`refine`.

    Example::

        >>> a, b = torch_dtypes.linalg.laplacian(4), torch.ones(4)
        >>> found = torch_dtypes.linalg.cg(a, b, working="bf16")
        >>> found.x, found.inner_steps
        (tensor([2., 3., 3., 2.], dtype=torch.bfloat16), (2,))
    """
    return refine(a, b, working=working, method="cg", **_ONE_PRECISION, **kwargs)


_ONE_PRECISION = {"factor": "none", "residual": "working", "apply": "working", "scale": None}
