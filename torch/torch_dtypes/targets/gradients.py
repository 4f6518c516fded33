"""The gradient of rounding: straight through, or 0 where numbers were clamped."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from .. import _C
from .base import is_eager, is_recorded


class _StraightThrough(torch.autograd.Function):
    """Returns its second argument. The gradient goes to its first one, only where the third is
    true."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, values, passes):
        # No copy; and no view, since a view could not be written in place.
        return torch.ops.aten._unsafe_view(values, values.shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        passes = inputs[2]
        ctx.has_mask = passes is not None
        if ctx.has_mask:
            ctx.save_for_backward(passes)
            ctx.save_for_forward(passes)

    @staticmethod
    def backward(ctx, gradient):
        return (gradient.where(ctx.saved_tensors[0], 0.0) if ctx.has_mask else gradient), None, None


class _WithTangent(_StraightThrough):
    """The same with forward mode, which torch.compile would refuse to trace."""

    @staticmethod
    def jvp(ctx, tangent, *_others):
        return tangent.where(ctx.saved_tensors[0], 0.0) if ctx.has_mask else tangent.clone()


def straight_through(
    x: torch.Tensor, values: torch.Tensor, passes: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``values`` (which have no gradient history) in x's dtype, with the identity's gradient
    to x; 0 where ``passes`` is false.

    Source: Bengio, Leonard, Courville, "Estimating or propagating gradients through stochastic
    neurons" (2013).
    """
    values = values.to(x.dtype)
    if is_recorded():
        return torch.ops.torch_dtypes.straight_through(x, values, passes)
    if torch.compiler.is_dynamo_compiling():
        return _StraightThrough.apply(x, values, passes)
    if not is_eager():
        return _WithTangent.apply(x, values, passes)
    if x.requires_grad or forward_ad._current_level >= 0:
        return _C.straight_through(x, values, passes)
    return values
