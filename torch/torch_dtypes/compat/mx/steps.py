"""Operations that round each result to the ``bfloat`` or ``fp`` of mx specs, and functions made of
them. Between two roundings PyTorch computes in the tensors' own dtype.

The steps and their order are those of microxcaling (7bc4195, ``vector_ops.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from ...targets.chop import chop
from .formats import find_mode, find_vector_format
from .inside import stock_within
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test

# log2(e) in bfloat16
_LOG2_E = 1.4453125


def find_specs(mx_specs: Mapping | None) -> MxSpecs | None:
    """Return all options, or None without specs."""
    mx_assert_test(mx_specs)
    return None if mx_specs is None else apply_mx_specs(mx_specs)


class Steps:
    """Operations that round their results."""

    def __init__(self, specs: Mapping) -> None:
        self._exp2, self._recip = specs["vec_use_exp2"], specs["vec_use_recip"]
        self.softmax_exp2 = specs["softmax_exp2"]
        self._format = find_vector_format(specs["bfloat"], specs["fp"], specs["bfloat_subnorms"])
        self._mode = find_mode(specs["round"])

    def round(self, x):
        """Round a tensor. Numbers and tensors of integers stay as they are."""
        if self._format is None or not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return chop(x, self._format, self._mode)

    def add(self, a, b):
        return self.round(a + b)

    def sub(self, a, b):
        return self.round(a - b)

    def mul(self, a, b):
        return self.round(a * b)

    def div(self, a, b):
        if not self._recip:
            return self.round(a / b)
        if not isinstance(b, torch.Tensor):
            b = torch.tensor(b, dtype=a.dtype, device=a.device)
        return self.mul(a, self.recip(b))

    def recip(self, x):
        return self.round(1.0 / x)

    def sqrt(self, x):
        return self.round(x.sqrt())

    def exp(self, x):
        return self.exp2(self.mul(_LOG2_E, x)) if self._exp2 else self.round(x.exp())

    def exp2(self, x):
        return self.round(x.exp2())

    def sum(self, x, axes: Sequence[int], keepdim: bool = False):
        return self.round(x.sum(axes, keepdim=keepdim) if axes else x)

    def mean(self, x, axes: Sequence[int]):
        """Return the mean, with the dimensions that it is over."""
        return self.div(self.sum(x, axes, True), math.prod(x.shape[i] for i in axes))

    def sum_to(self, g, shape: Sequence[int]):
        """Return the sum over what was broadcast."""
        return g if g.shape == shape else self.round(self.round(g).sum_to_size(shape))


class _Function(torch.autograd.Function):
    @staticmethod
    @stock_within
    def forward(ctx, forward, backward, specs, *tensors):
        y, kept = forward(Steps(specs), *tensors)
        ctx.specs, ctx.compute = get_backwards_mx_specs(specs), backward
        ctx.save_for_backward(*kept)
        return y

    @staticmethod
    @stock_within
    def backward(ctx, g):
        return None, None, None, *ctx.compute(Steps(ctx.specs), g, *ctx.saved_tensors)


def run(forward: Callable, backward: Callable, specs: Mapping, *tensors) -> torch.Tensor:
    """Compute a function with a gradient of its own.

    Args:
        forward: takes Steps and the tensors; returns the result, and the tensors that the gradient
            needs.
        backward: takes the Steps of the backward pass, the result's gradient and those tensors;
            returns a gradient for each of ``tensors``.
    """
    return _Function.apply(forward, backward, specs, *tensors)


def keep(specs: Mapping, rounded, given):
    """Return the operand that the backward pass takes: the unrounded one without
    quantize_backprop."""
    return rounded if specs["quantize_backprop"] else given
