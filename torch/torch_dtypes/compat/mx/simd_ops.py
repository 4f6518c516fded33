"""microxcaling's arithmetic, rounded to ``bfloat`` or ``fp`` in both passes.

Operands, results, gradients and each step between are rounded by the mode ``round``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from .quantize import round_both
from .specs import MxSpecs
from .steps import Steps, find_specs, keep, run

__all__ = [
    "simd_add",
    "simd_div",
    "simd_exp",
    "simd_log",
    "simd_mul",
    "simd_norm",
    "simd_reduce_mean",
    "simd_reduce_sum",
    "simd_split",
    "simd_sqrt",
    "simd_square",
    "simd_sub",
]

_norm = torch.linalg.norm


def _run_binary(specs: MxSpecs, forward, backward, in1: torch.Tensor, in2):
    """Compute a function of a tensor and a tensor or number. ``backward`` returns both gradients
    before they are summed over what was broadcast."""
    if not isinstance(in2, torch.Tensor):

        def compute(s: Steps, x):
            q = s.round(x)
            return forward(s, q, in2), (keep(specs, q, x),)

        def find_gradient(s: Steps, g, x):
            return (backward(s, s.round(g), x, in2, None)[0],)

        return run(compute, find_gradient, specs, in1)

    shapes = in1.shape, in2.shape

    def compute_both(s: Steps, a, b):
        qa, qb = s.round(a), s.round(b)
        y = forward(s, qa, qb)
        return y, (keep(specs, qa, a), keep(specs, qb, b), y)

    def find_gradients(s: Steps, g, a, b, y):
        both = backward(s, s.round(g), a, b, y)
        return tuple(s.sum_to(x, shape) for x, shape in zip(both, shapes, strict=True))

    return run(compute_both, find_gradients, specs, in1, in2)


def simd_add(in1: torch.Tensor, in2, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Add a tensor and a tensor or number."""
    if (specs := find_specs(mx_specs)) is None:
        return in1 + in2
    return _run_binary(specs, Steps.add, lambda s, g, a, b, y: (g, g), in1, in2)


def simd_sub(in1: torch.Tensor, in2, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Subtract a tensor or number from a tensor."""
    if (specs := find_specs(mx_specs)) is None:
        return in1 - in2
    return _run_binary(specs, Steps.sub, lambda s, g, a, b, y: (g, -g), in1, in2)


def simd_mul(in1: torch.Tensor, in2, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Multiply a tensor by a tensor or number."""
    if (specs := find_specs(mx_specs)) is None:
        return in1 * in2

    def backward(s, g, a, b, y):
        return s.mul(g, b), None if y is None else s.mul(g, a)

    return _run_binary(specs, Steps.mul, backward, in1, in2)


def simd_div(in1: torch.Tensor, in2, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Divide a tensor by a tensor or number."""
    if (specs := find_specs(mx_specs)) is None:
        return in1 / in2

    def backward(s, g, a, b, y):
        return s.div(g, b), None if y is None else s.mul(g, s.div(-y, b))

    return _run_binary(specs, Steps.div, backward, in1, in2)


def simd_split(
    in1: torch.Tensor, mx_specs: Mapping | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor twice. Its gradient is the rounded sum of both rounded gradients."""
    if (specs := find_specs(mx_specs)) is None:
        return in1, in1
    both = round_both(in1.view_as(in1), specs, None, specs["round"])
    return tuple(round_both(both.view_as(both), specs, None, specs["round"]) for _ in range(2))


def simd_square(in1: torch.Tensor, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Compute x^2."""
    if (specs := find_specs(mx_specs)) is None:
        return in1.square()

    def forward(s: Steps, x):
        q = s.round(x)
        return s.round(q**2), (keep(specs, q, x),)

    def backward(s: Steps, g, x):
        return (s.mul(s.round(g), s.mul(x, 2)),)

    return run(forward, backward, specs, in1)


def simd_sqrt(in1: torch.Tensor, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Compute the square root."""
    if (specs := find_specs(mx_specs)) is None:
        return in1.sqrt()

    def forward(s: Steps, x):
        y = s.sqrt(s.round(x))
        return y, (y,)

    def backward(s: Steps, g, y):
        return (s.div(s.mul(s.round(g), 0.5), y),)

    return run(forward, backward, specs, in1)


def simd_exp(in1: torch.Tensor, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Compute e^x; with ``vec_use_exp2`` as 2^(1.4453125 x)."""
    if (specs := find_specs(mx_specs)) is None:
        return in1.exp()

    def forward(s: Steps, x):
        y = s.exp(s.round(x))
        return y, (y,)

    return run(forward, lambda s, g, y: (s.mul(s.round(g), y),), specs, in1)


def simd_log(in1: torch.Tensor, mx_specs: Mapping | None = None) -> torch.Tensor:
    """Compute the natural logarithm."""
    if (specs := find_specs(mx_specs)) is None:
        return in1.log()

    def forward(s: Steps, x):
        q = s.round(x)
        return s.round(q.log()), (keep(specs, q, x),)

    return run(forward, lambda s, g, x: (s.div(s.round(g), x),), specs, in1)


def _find_axes(x: torch.Tensor, dim: int | Sequence[int] | None) -> list[int]:
    given = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    return [axis % x.dim() for axis in given]


def simd_reduce_sum(
    in1: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    mx_specs: Mapping | None = None,
) -> torch.Tensor:
    """Sum over dimensions (None: all). The sum is rounded once."""
    axes = _find_axes(in1, dim)
    if (specs := find_specs(mx_specs)) is None:
        return in1.sum(axes, keepdim=keepdim)
    shape = in1.shape

    def backward(s: Steps, g):
        g = s.round(g)
        for axis in () if keepdim else sorted(axes):
            g = g.unsqueeze(axis)
        return (g.expand(shape),)

    return run(lambda s, x: (s.sum(s.round(x), axes, keepdim), ()), backward, specs, in1)


def simd_reduce_mean(
    in1: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    mx_specs: Mapping | None = None,
) -> torch.Tensor:
    """Compute the mean over dimensions (None: all): a rounded sum times 1/n."""
    axes = _find_axes(in1, dim)
    if (specs := find_specs(mx_specs)) is None:
        return in1.mean(axes, keepdim=keepdim)
    count = math.prod(in1.shape[axis] for axis in axes)
    return simd_mul(simd_reduce_sum(in1, axes, keepdim, specs), 1 / count, specs)


def simd_norm(
    in1: torch.Tensor, keepdim: bool = False, mx_specs: Mapping | None = None
) -> torch.Tensor:
    """Compute the square root of the sum of squares."""
    if (specs := find_specs(mx_specs)) is None:
        return _norm(in1, keepdim=keepdim)
    return simd_sqrt(simd_reduce_sum(simd_square(in1, specs), None, keepdim, specs), specs)
