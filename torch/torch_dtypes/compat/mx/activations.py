"""microxcaling's activations and softmax, each step rounded to ``bfloat`` or ``fp``.

The formulas of both passes are microxcaling's (7bc4195, ``activations.py``, ``softmax.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

from .products import Layer
from .steps import Steps, find_specs, keep, run

# inject_pyt_ops replaces these.
_relu, _relu6, _leaky_relu, _silu, _gelu = F.relu, F.relu6, F.leaky_relu, F.silu, F.gelu

# Constants in bfloat16: 1.702, 0.044715, sqrt(8/pi), 3 * 0.044715 * sqrt(8/pi), ln(2)
_FIRST, _CUBE, _SCALE, _SLOPE, _LN_2 = 1.703125, 0.044677734, 1.59375, 0.21386719, 0.69140625


def _compute_logistic(s: Steps, x):
    return s.recip(s.add(s.exp(-x), 1.0))


def _store(y: torch.Tensor, input: torch.Tensor, inplace: bool) -> torch.Tensor:
    return input.copy_(y) if inplace else y


def sigmoid(input, mx_specs: Mapping | None = None, name: str | None = None) -> torch.Tensor:
    """Compute 1 / (1 + e^-x)."""
    if (specs := find_specs(mx_specs)) is None:
        return input.sigmoid()

    def forward(s: Steps, x):
        y = _compute_logistic(s, s.round(x))
        return y, (y,)

    def backward(s: Steps, g, y):
        return (s.mul(s.mul(y, s.sub(1, y)), s.round(g)),)

    return run(forward, backward, specs, input)


def tanh(input, mx_specs: Mapping | None = None, name: str | None = None) -> torch.Tensor:
    """Compute the hyperbolic tangent."""
    if (specs := find_specs(mx_specs)) is None:
        return input.tanh()

    def forward(s: Steps, x):
        y = s.round(s.round(x).tanh())
        return y, (y,)

    def backward(s: Steps, g, y):
        return (s.mul(s.sub(1, s.mul(y, y)), s.round(g)),)

    return run(forward, backward, specs, input)


def _clip(function, highest: float, input, specs, inplace) -> torch.Tensor:
    def forward(s: Steps, x):
        y = s.round(function(x))
        return y, ((y > 0) & (y < highest),)

    def backward(s: Steps, g, inner):
        return (torch.where(inner, s.round(g), g.new_zeros(())),)

    return _store(run(forward, backward, specs, input), input, inplace)


def relu(input, inplace: bool = False, mx_specs: Mapping | None = None, name: str | None = None):
    """Compute max(x, 0)."""
    if (specs := find_specs(mx_specs)) is None:
        return _relu(input, inplace)
    return _clip(_relu, torch.inf, input, specs, inplace)


def relu6(input, inplace: bool = False, mx_specs: Mapping | None = None, name: str | None = None):
    """Compute min(max(x, 0), 6)."""
    if (specs := find_specs(mx_specs)) is None:
        return _relu6(input, inplace)
    return _clip(_relu6, 6.0, input, specs, inplace)


def leaky_relu(
    input,
    negative_slope: float = 0.01,
    inplace: bool = False,
    mx_specs: Mapping | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Compute x, or ``negative_slope`` * x below 0."""
    if (specs := find_specs(mx_specs)) is None:
        return _leaky_relu(input, negative_slope, inplace)

    def forward(s: Steps, x):
        y = s.round(_leaky_relu(s.round(x), negative_slope))
        return y, (y > 0,)

    def backward(s: Steps, g, positive):
        g = s.round(g)
        return (torch.where(positive, g, s.mul(g, negative_slope)),)

    return _store(run(forward, backward, specs, input), input, inplace)


def silu(input, inplace: bool = False, mx_specs: Mapping | None = None, name: str | None = None):
    """Compute x / (1 + e^-x)."""
    if (specs := find_specs(mx_specs)) is None:
        return _silu(input, inplace)

    def forward(s: Steps, x):
        q = s.round(x)
        logistic = _compute_logistic(s, q)
        y = s.mul(q, logistic)
        return y, (y, logistic)

    def backward(s: Steps, g, y, logistic):
        slope = s.add(logistic, s.mul(y, s.sub(1.0, logistic)))
        return (s.mul(slope, s.round(g)),)

    return _store(run(forward, backward, specs, input), input, inplace)


def gelu(
    input: torch.Tensor,
    mx_specs: Mapping | None = None,
    first_order_gelu: bool = False,
    approximate: str | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Compute x * sigmoid(1.59375 (x + 0.044677734 x^3)), the approximation by tanh with constants
    in bfloat16; or x * sigmoid(1.703125 x) with ``first_order_gelu``.

    ``approximate`` changes nothing.
    """
    specs = find_specs(mx_specs)
    if specs is None and not first_order_gelu:
        return _gelu(input, approximate="tanh")
    specs = find_specs({}) if specs is None else specs

    def forward(s: Steps, x):
        q = s.round(x)
        if first_order_gelu:
            inner = s.mul(_FIRST, q)
        else:
            inner = s.mul(_CUBE, s.mul(s.mul(q, q), q))
            inner = s.mul(_SCALE, s.add(inner, q))
        logistic = _compute_logistic(s, inner)
        return s.mul(q, logistic), (keep(specs, q, x), logistic)

    def backward(s: Steps, g, x, logistic):
        g, slope = s.round(g), s.mul(logistic, s.sub(1, logistic))
        inner = _FIRST if first_order_gelu else s.add(_SCALE, s.mul(_SLOPE, s.mul(x, x)))
        slope = s.mul(x, s.mul(inner, slope))
        return (s.mul(s.add(logistic, slope), g),)

    return run(forward, backward, specs, input)


def softmax(
    input: torch.Tensor,
    dim: int = -1,
    mx_specs: Mapping | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Compute e^x over its sum along ``dim``, or 2^x with ``softmax_exp2``; x less its maximum.

    Raises:
        TypeError: no ``dim``.
    """
    if (specs := find_specs(mx_specs)) is None:
        return input.softmax(dim)
    if dim is None:
        raise TypeError("expected dim as a number, but got None; give the dimension to softmax")

    def forward(s: Steps, x):
        q = s.round(x)
        q = s.sub(q, q.amax(dim, keepdim=True))
        powers = s.exp2(q) if s.softmax_exp2 else s.exp(q)
        y = s.div(powers, s.sum(powers, [dim], True))
        return y, (y,)

    def backward(s: Steps, g, y):
        g = s.round(g)
        g = s.mul(y, s.sub(g, s.sum(s.mul(g, y), [dim], True)))
        return (s.mul(g, _LN_2) if s.softmax_exp2 else g,)

    return run(forward, backward, specs, input)


class _Activation(Layer):
    """A layer that is one of these functions."""

    def _apply_function(self, function, input, *args, **kwargs):
        return function(input, *args, mx_specs=None if self.mx_none else self.mx_specs, **kwargs)


class Sigmoid(_Activation, nn.Sigmoid):
    """``torch.nn.Sigmoid`` by ``sigmoid``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(sigmoid, input)


class Tanh(_Activation, nn.Tanh):
    """``torch.nn.Tanh`` by ``tanh``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(tanh, input)


class ReLU(_Activation, nn.ReLU):
    """``torch.nn.ReLU`` by ``relu``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(relu, input, self.inplace)


class ReLU6(_Activation, nn.ReLU6):
    """``torch.nn.ReLU6`` by ``relu6``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(relu6, input, self.inplace)


class LeakyReLU(_Activation, nn.LeakyReLU):
    """``torch.nn.LeakyReLU`` by ``leaky_relu``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(leaky_relu, input, self.negative_slope, self.inplace)


class SiLU(_Activation, nn.SiLU):
    """``torch.nn.SiLU`` by ``silu``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(silu, input, self.inplace)


class Softmax(_Activation, nn.Softmax):
    """``torch.nn.Softmax`` by ``softmax``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(softmax, input, self.dim)


class GELU(_Activation, nn.GELU):
    """``torch.nn.GELU`` by ``gelu``."""

    def __init__(self, mx_specs=None, first_order_gelu=False, approximate=None, name=None) -> None:
        super().__init__("tanh", mx_specs=mx_specs, name=name)
        self.first_order_gelu = first_order_gelu

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._apply_function(gelu, input, first_order_gelu=self.first_order_gelu)
