"""microxcaling's normalisations, each step rounded to ``bfloat`` or ``fp``.

The formulas of both passes are microxcaling's (7bc4195, ``norm_utils.py``, ``layernorm.py``).
Without specs, a normalisation is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from .products import Layer
from .steps import Steps, find_specs, keep, run

# inject_pyt_ops replaces these.
_layer_norm, _group_norm, _batch_norm = F.layer_norm, F.group_norm, F.batch_norm


def _compute_mean(s: Steps, x, axes):
    """Return x less its mean, the mean and the variance."""
    mean = s.mean(x, axes)
    shift = s.sub(x, mean)
    return shift, mean, s.mean(s.mul(shift, shift), axes)


def _invert(s: Steps, variance, eps: float):
    """Return variance + eps, and the inverse of its root."""
    above = s.add(variance, eps)
    return above, s.recip(s.sqrt(above))


def _scale(s: Steps, x, weight, bias):
    x = x if weight is None else s.mul(weight, x)
    return x if bias is None else s.add(x, bias)


def _find_parameter_gradients(s: Steps, g, normal, axes, weight, bias):
    return (
        None if weight is None else s.sum(s.mul(g, normal), axes).view(weight.shape),
        None if bias is None else s.sum(g, axes).view(bias.shape),
    )


def _weigh(s: Steps, g, weight):
    return g if weight is None else s.mul(g, weight)


def _pass_back(s: Steps, g, shift, inverse, axes):
    """Return the gradient of the input of a normalisation over ``axes``."""
    direct = s.mul(g, inverse)
    from_mean = s.mean(-direct, axes)
    slope = s.mul(s.mean(s.mul(g, shift), axes), s.mul(inverse, inverse))
    slope = s.mul(slope, inverse)
    return s.add(s.add(direct, s.mul(-slope, shift)), from_mean)


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-12,
    mx_specs: Mapping | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Normalise over the last dimensions as ``torch.nn.functional.layer_norm``."""
    if (specs := find_specs(mx_specs)) is None:
        return _layer_norm(input, normalized_shape, weight, bias, eps)
    outer, axes = _split_axes(input, normalized_shape)

    def forward(s: Steps, x, w, b):
        qw, qb = s.round(w), s.round(b)
        shift, _, variance = _compute_mean(s, s.round(x), axes)
        above, inverse = _invert(s, variance, eps)
        normal = s.mul(shift, inverse)
        return _scale(s, normal, qw, qb), (normal, above, keep(specs, qw, w), b)

    def backward(s: Steps, g, normal, above, w, b):
        g = s.round(g)
        parameters = _find_parameter_gradients(s, g, normal, outer, w, b)
        g, deviation = _weigh(s, g, w), s.sqrt(above)
        direct = s.mul(g, s.recip(deviation))
        slope = s.mean(s.mul(s.mul(g, normal), deviation), axes)
        slope = s.mul(slope, s.recip(above))
        direct = s.add(direct, s.mul(-slope, normal))
        return s.add(direct, -s.mean(direct, axes)), *parameters

    return run(forward, backward, specs, input, weight, bias)


def _split_axes(x: torch.Tensor, shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the dimensions before and within ``shape``."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    outer = x.dim() - len(shape)
    if outer < 0 or tuple(x.shape[outer:]) != shape:
        raise ValueError(f"expected an input that ends with {shape}, but got {tuple(x.shape)}")
    return list(range(outer)), list(range(outer, x.dim()))


def _normalise_root_mean_square(x, weight, bias, eps, specs):
    outer, axes = _split_axes(x, weight.shape)

    def forward(s: Steps, x, w, b):
        q, qw, qb = s.round(x), s.round(w), s.round(b)
        _, inverse = _invert(s, s.mean(s.mul(q, q), axes), eps)
        normal = s.mul(q, inverse)
        return _scale(s, normal, qw, qb), (normal, inverse, keep(specs, qw, w), b)

    def backward(s: Steps, g, normal, inverse, w, b):
        g = s.round(g)
        parameters = _find_parameter_gradients(s, g, normal, outer, w, b)
        direct = s.mul(s.mul(g, w), inverse)
        slope = s.mean(s.mul(direct, normal), axes)
        return s.sub(direct, s.mul(normal, slope)), *parameters

    return run(forward, backward, specs, x, weight, bias)


def group_norm(
    x: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    mx_specs: Mapping | None = None,
) -> torch.Tensor:
    """Normalise groups of channels as ``torch.nn.functional.group_norm``."""
    if (specs := find_specs(mx_specs)) is None:
        return _group_norm(x, num_groups, weight, bias, eps)
    shape = x.shape
    groups = shape[0], num_groups, shape[1] // num_groups, *shape[2:]
    axes, outer = list(range(2, len(groups))), [0, *range(2, len(shape))]
    channels = -1, *(1,) * (len(shape) - 2)

    def forward(s: Steps, x, w, b):
        qw, qb = (None if p is None else s.round(p).view(channels) for p in (w, b))
        shift, _, variance = _compute_mean(s, s.round(x).reshape(groups), axes)
        _, inverse = _invert(s, variance, eps)
        normal = s.mul(shift, inverse).view(shape)
        return _scale(s, normal, qw, qb), (shift, inverse, normal, keep(specs, qw, w), b)

    def backward(s: Steps, g, shift, inverse, normal, w, b):
        g = s.round(g)
        flat = None if w is None else w.flatten()
        parameters = _find_parameter_gradients(s, g, normal, outer, flat, b)
        g = _weigh(s, g, None if w is None else w.view(channels)).reshape(groups)
        return _pass_back(s, g, shift, inverse, axes).view(shape), *parameters

    return run(forward, backward, specs, x, weight, bias)


def batch_norm(
    x: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    is_training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    mx_specs: Mapping | None = None,
) -> torch.Tensor:
    """Normalise channels as ``torch.nn.functional.batch_norm``. The running statistics are rounded,
    too; the variance is PyTorch's, over n - 1 numbers.

    Raises:
        AssertionError: no running statistics outside training.
    """
    if (specs := find_specs(mx_specs)) is None:
        return _batch_norm(x, running_mean, running_var, weight, bias, is_training, momentum, eps)
    if not is_training and (running_mean is None or running_var is None):
        raise AssertionError("expected running_mean and running_var, but got None; give them")
    axes = [0, *range(2, x.dim())]
    channels = -1, *(1,) * (x.dim() - 2)

    def update(s: Steps, running, now):
        if running is not None:
            old, new = s.mul(1 - momentum, running), s.mul(momentum, now.flatten())
            running.copy_(s.add(old, new))

    def forward(s: Steps, x, w, b):
        q = s.round(x)
        qw, qb = (None if p is None else s.round(p).view(channels) for p in (w, b))
        if is_training:
            count = x.numel() // x.shape[1]
            shift, mean, variance = _compute_mean(s, q, axes)
            update(s, running_mean, mean)
            update(s, running_var, s.mul(variance, count / max(count - 1, 1)))
        else:
            shift = s.sub(q, s.round(running_mean).view(channels))
            variance = s.round(running_var).view(channels)
        _, inverse = _invert(s, variance, eps)
        normal = s.mul(shift, inverse)
        return _scale(s, normal, qw, qb), (shift, inverse, normal, keep(specs, qw, w), b)

    def backward(s: Steps, g, shift, inverse, normal, w, b):
        g = s.round(g)
        flat = None if w is None else w.flatten()
        parameters = _find_parameter_gradients(s, g, normal, axes, flat, b)
        g = _weigh(s, g, None if w is None else w.view(channels))
        if not is_training:  # the statistics do not depend on x
            return s.mul(g, inverse), *parameters
        return _pass_back(s, g, shift, inverse, axes), *parameters

    return run(forward, backward, specs, x, weight, bias)


class LayerNorm(Layer, nn.LayerNorm):
    """``torch.nn.LayerNorm`` by ``layer_norm``, with microxcaling's ``eps``."""

    def __init__(self, hidden_size, eps: float = 1e-12, mx_specs=None, name=None, **kwargs) -> None:
        super().__init__(hidden_size, eps, mx_specs=mx_specs, name=name, **kwargs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        specs = None if self.mx_none else self.mx_specs
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps, specs)


class RMSNorm(Layer, nn.LayerNorm):
    """Root mean square normalisation, with a bias as in microxcaling."""

    def __init__(self, hidden_size, eps: float = 1e-12, mx_specs=None, name=None) -> None:
        super().__init__(hidden_size, eps, mx_specs=mx_specs, name=name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _normalise_root_mean_square(x, self.weight, self.bias, self.eps, self.mx_specs)


class GroupNorm(Layer, nn.GroupNorm):
    """``torch.nn.GroupNorm`` by ``group_norm``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        specs = None if self.mx_none else self.mx_specs
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps, specs)


class _BatchNorm(Layer):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.mx_none:
            return super().forward(input)
        self._check_input_dim(input)
        tracked = self.training and self.track_running_stats
        if tracked and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:  # the mean over all batches
            momentum = 1.0 / float(self.num_batches_tracked) if tracked else 0.0
        used = tracked or not self.training
        return batch_norm(
            input,
            self.running_mean if used else None,
            self.running_var if used else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            momentum,
            self.eps,
            self.mx_specs,
        )


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` by ``batch_norm``."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """``torch.nn.BatchNorm2d`` by ``batch_norm``."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """``torch.nn.BatchNorm3d`` by ``batch_norm``."""
