"""The instructions of operators that are more than one: normalisation, softmax, losses, norms.

At the level ``"instruction"`` such an operator runs as a sequence of elementwise operators, sums
and products, which the block then sees one by one. The sequences are PyTorch's own decompositions
(torch._decomp), which compilers use, and those below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch._decomp import decomposition_table

aten = torch.ops.aten

# Operators whose decompositions consist of ATen operators.
_DECOMPOSED = set(
    """_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _safe_softmax
    logsumexp native_layer_norm native_layer_norm_backward native_batch_norm
    native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_no_training
    _batch_norm_with_update batch_norm_backward native_group_norm native_group_norm_backward
    _fused_rms_norm _weight_norm_interface nll_loss_forward nll_loss_backward nll_loss2d_forward
    nll_loss2d_backward mse_loss mse_loss_backward smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits soft_margin_loss linalg_vector_norm norm nansum dist""".split()
)


def find_instructions(op: torch._ops.OpOverload) -> Callable | None:
    """Return a function that computes the operator by others; None for operators that are one
    instruction for each result, or sums of products."""
    if op in _OWN:
        return _OWN[op]
    return decomposition_table.get(op) if op._opname in _DECOMPOSED else None


def _mean_and_variance(x, dim, correction, keepdim):
    """Compute by two passes: the mean, then the sum of the squared distances from it."""
    dims = range(x.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    dims = list(dims)
    count = math.prod(x.shape[d] for d in dims)
    mean = x.mean(dims, keepdim=True)
    distance = x - mean
    sum_of_squares = (distance * distance).sum(dims, keepdim=keepdim)
    freedom = max(count - (1 if correction is None else correction), 0)
    return mean if keepdim else mean.squeeze(dims), sum_of_squares / freedom


def _variance(x, dim=None, *, correction=None, keepdim=False):
    return _mean_and_variance(x, dim, correction, keepdim)[1]


def _variance_and_mean(x, dim=None, *, correction=None, keepdim=False):
    mean, variance = _mean_and_variance(x, dim, correction, keepdim)
    return variance, mean


def _deviation(x, dim=None, *, correction=None, keepdim=False):
    return _variance(x, dim, correction=correction, keepdim=keepdim).sqrt()


def _deviation_and_mean(x, dim=None, *, correction=None, keepdim=False):
    mean, variance = _mean_and_variance(x, dim, correction, keepdim)
    return variance.sqrt(), mean


_OWN = {
    aten.var.correction: _variance,
    aten.var_mean.correction: _variance_and_mean,
    aten.std.correction: _deviation,
    aten.std_mean.correction: _deviation_and_mean,
}
