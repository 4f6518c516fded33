"""The loop of iterative refinement, and its two steps: the residual and the correction."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..policies.accumulation import Accumulation
from .applying import InFormat, InTwiceFloat64
from .errors import backward_error, residual
from .krylov import solve_by_cg, solve_by_gmres
from .squeezing import find_power
from .steps import inner_products, subtract_product


class Track:
    """The errors after each step."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor, x_true: torch.Tensor | None, kind: str):
        self.a, self.b, self.x_true, self.kind = a, b, x_true, kind
        self.backward: list[float] = []
        self.forward: list[float] = []
        self.inner: list[int] = []

    def record(self, x: torch.Tensor) -> None:
        values = x.flatten().double()
        self.backward.append(backward_error(self.a, values, self.b, kind=self.kind).item())
        if self.x_true is not None:
            error = (values - self.x_true).abs().max() / self.x_true.abs().max()
            self.forward.append(error.item())


def iterate(
    x: torch.Tensor,
    find_residual: Callable[[torch.Tensor], torch.Tensor],
    correct: Callable[[torch.Tensor], tuple[torch.Tensor, int]],
    track: Track,
    tolerance: float,
    max_steps: int,
) -> tuple[torch.Tensor, str]:
    """Return the last solution and why the iteration ended."""
    before = float("inf")
    for step in range(max_steps + 1):
        name = f"correction {step}" if step else "the first solution"
        r = find_residual(x)
        power = find_power(1.0, r.abs().max().item())
        d, inner = correct((r * power).to(x.dtype)[None])
        d = (d / power).to(x.dtype)[None]
        after = x + d
        if not after.isfinite().all():
            return x, f"{name} has NaN or infinities, by overflow or a singular matrix"
        x = after
        track.inner.append(inner)
        track.record(x)
        error = track.backward[-1]
        if error <= tolerance:
            return x, f"converged: backward error {error:.1e} is at most {tolerance:.1e}"
        size = d.double().abs().max().item()
        if size > before:
            return x, f"diverged: {name} is larger than the one before"
        if size > before / 2:
            return x, f"stalled: {name} is more than half of the one before"
        if size == 0:
            return x, f"stalled: {name} is 0"
        before = size if step else before  # the first solution is no correction
    return x, f"stopped: max_steps={max_steps} reached at a backward error of {error:.1e}"


def find_solver(
    method: str,
    applied: InFormat | InTwiceFloat64,
    work: torch.dtype,
    policy: str | Accumulation | None,
    tolerance: float,
    limit: int,
) -> Callable[[torch.Tensor], tuple[torch.Tensor, int]]:
    """Return the function that solves ``A d = r`` approximately. It takes [1, n, 1] of ``work`` and
    returns float64 numbers [n, 1] and the number of inner steps."""

    def multiply(v: torch.Tensor) -> torch.Tensor:
        return applied.multiply(v[0].double())[0].to(work)[None]

    def divide(v: torch.Tensor) -> torch.Tensor:
        exact = v[0].double()
        return applied.solve((exact, torch.zeros_like(exact)))

    def correct(r: torch.Tensor) -> tuple[torch.Tensor, int]:
        if method == "lu":
            return divide(r), 0
        with inner_products(work, policy):
            if method == "cg":
                x, count = solve_by_cg(
                    multiply, lambda v: divide(v).to(work)[None], r, tolerance, limit
                )
                return x[0].double(), count
            right = divide(r)
            power = find_power(1.0, right.abs().max().item())
            x, count = solve_by_gmres(
                lambda v: applied.solve(applied.multiply(v[0].double())).to(work)[None],
                (right * power).to(work)[None],
                tolerance,
                limit,
            )
            return x[0].double() / power, count

    return correct


def find_residual_function(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function of b - A x, as float64 numbers [n, 1]; without dtype it rounds once."""
    if dtype is None:
        return lambda x: residual(b[:, None], (a, x[0].double()))
    left, right = a.to(dtype)[None], b.to(dtype)[None, :, None]

    def find(x: torch.Tensor) -> torch.Tensor:
        with inner_products(dtype, None):
            return subtract_product(right, left, x.double().to(dtype))[0].double()

    return find
