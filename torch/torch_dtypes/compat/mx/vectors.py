"""microxcaling's operators without products: arguments and the result are rounded to ``bfloat`` or
``fp``, and so are the gradients. Between, PyTorch computes in float32.

microxcaling rounds each step within an operator as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from .inside import stock_within
from .products import Layer
from .quantize import round_both
from .specs import apply_mx_specs, mx_assert_test

_layer_norm, _rms_norm, _gelu, _softmax = F.layer_norm, F.rms_norm, F.gelu, F.softmax
_batch_norm = F.batch_norm


def _round(value: object, specs: Mapping) -> object:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return round_both(value, specs, specs["round"], specs["round"])
    return value


def define(name: str, stock: Callable) -> Callable:
    """Return a function that calls ``stock`` on rounded tensors, and rounds its result."""

    @stock_within
    def function(*args, mx_specs: Mapping | None = None, name: str | None = None, **kwargs):
        mx_assert_test(mx_specs)
        if mx_specs is None:
            return stock(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise TypeError(f"expected no out= with mx_specs, but got it in {stock.__name__}")
        specs = apply_mx_specs(mx_specs)
        args = [_round(value, specs) for value in args]
        kwargs = {key: _round(value, specs) for key, value in kwargs.items()}
        return _round(stock(*args, **kwargs), specs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Compute as PyTorch's function, by the bfloat or fp of mx_specs."
    return function


def _compute_gelu(input: torch.Tensor, approximate: str | None = "none", first_order_gelu=False):
    if first_order_gelu:
        return input * (1.702 * input).sigmoid()
    return _gelu(input, approximate=approximate or "none")


def _compute_softmax(input: torch.Tensor, dim: int = -1, **kwargs) -> torch.Tensor:
    return _softmax(input, dim, **kwargs)


def _normalise(input, normalized_shape, weight=None, bias=None, eps: float = 1e-12):
    return _layer_norm(input, normalized_shape, weight, bias, eps)


sigmoid = define("sigmoid", torch.sigmoid)
tanh = define("tanh", torch.tanh)
relu = define("relu", F.relu)
relu6 = define("relu6", F.relu6)
leaky_relu = define("leaky_relu", F.leaky_relu)
silu = define("silu", F.silu)
gelu = define("gelu", _compute_gelu)
softmax = define("softmax", _compute_softmax)
adaptive_avg_pool2d = define("adaptive_avg_pool2d", F.adaptive_avg_pool2d)
layer_norm = define("layer_norm", _normalise)
group_norm = define("group_norm", F.group_norm)
simd_add = define("simd_add", torch.add)
simd_sub = define("simd_sub", torch.sub)
simd_mul = define("simd_mul", torch.mul)
simd_div = define("simd_div", torch.div)
simd_sqrt = define("simd_sqrt", torch.sqrt)
simd_square = define("simd_square", torch.square)
simd_exp = define("simd_exp", torch.exp)
simd_log = define("simd_log", torch.log)
simd_reduce_sum = define("simd_reduce_sum", torch.sum)
simd_reduce_mean = define("simd_reduce_mean", torch.mean)
simd_norm = define("simd_norm", torch.linalg.norm)


def batch_norm(
    x: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    mx_specs: Mapping | None = None,
) -> torch.Tensor:
    """Normalise as ``torch.nn.functional.batch_norm``. The running statistics are not rounded."""

    def normalise(x, weight, bias):
        return _batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)

    return define("batch_norm", normalise)(x, weight, bias, mx_specs=mx_specs)


def simd_split(
    in1: torch.Tensor, mx_specs: Mapping | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor twice. Its gradient is the rounded sum of both rounded gradients."""
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return in1, in1
    specs = apply_mx_specs(mx_specs)
    both = round_both(in1.view_as(in1), specs, None, specs["round"])
    return tuple(round_both(both.view_as(both), specs, None, specs["round"]) for _ in range(2))


class _Vector(Layer):
    """A layer that PyTorch computes from rounded numbers and parameters."""

    @stock_within
    def forward(self, *args):
        if self.mx_none:
            return super().forward(*args)
        own = dict(self._parameters)
        self._parameters.update({name: _round(p, self.mx_specs) for name, p in own.items()})
        try:
            y = super().forward(*(_round(value, self.mx_specs) for value in args))
        finally:
            self._parameters.update(own)
        return _round(y, self.mx_specs)


def define_layer(stock: type) -> type:
    """Return a layer class of rounded numbers."""
    doc = f"``torch.nn.{stock.__name__}`` of rounded numbers."
    return type(stock.__name__, (_Vector, stock), {"__doc__": doc, "__module__": __name__})


Sigmoid = define_layer(nn.Sigmoid)
Tanh = define_layer(nn.Tanh)
ReLU = define_layer(nn.ReLU)
ReLU6 = define_layer(nn.ReLU6)
LeakyReLU = define_layer(nn.LeakyReLU)
SiLU = define_layer(nn.SiLU)
Softmax = define_layer(nn.Softmax)
AdaptiveAvgPool2d = define_layer(nn.AdaptiveAvgPool2d)
BatchNorm1d = define_layer(nn.BatchNorm1d)
BatchNorm2d = define_layer(nn.BatchNorm2d)
BatchNorm3d = define_layer(nn.BatchNorm3d)
GroupNorm = define_layer(nn.GroupNorm)


class GELU(_Vector, nn.GELU):
    """``torch.nn.GELU`` of rounded numbers; ``first_order_gelu`` is x * sigmoid(1.702 x)."""

    def __init__(self, mx_specs=None, first_order_gelu=False, name=None, **kwargs) -> None:
        super().__init__(mx_specs=mx_specs, name=name, **kwargs)
        self.first_order = first_order_gelu

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        specs = None if self.mx_none else self.mx_specs
        return gelu(input, self.approximate, self.first_order, mx_specs=specs)


class LayerNorm(_Vector, nn.LayerNorm):
    """``torch.nn.LayerNorm`` of rounded numbers, with microxcaling's ``eps``."""

    def __init__(self, hidden_size, eps: float = 1e-12, mx_specs=None, name=None, **kwargs) -> None:
        super().__init__(hidden_size, eps, mx_specs=mx_specs, name=name, **kwargs)


class _RootMeanSquare(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _rms_norm(x, self.normalized_shape, self.weight, self.eps) + self.bias


class RMSNorm(_Vector, _RootMeanSquare):
    """Root mean square normalisation of rounded numbers, with a bias as in microxcaling."""

    def __init__(self, hidden_size, eps: float = 1e-12, mx_specs=None, name=None) -> None:
        super().__init__(hidden_size, eps, mx_specs=mx_specs, name=name)


class LSTM(nn.Module):
    """Stands for microxcaling's recurrent layer, and raises NotImplementedError."""

    def __init__(self, *args, **kwargs) -> None:
        raise NotImplementedError(
            "expected layers of one product in torch_dtypes.compat.mx, but got an LSTM; use "
            "torch.nn.LSTM with torch_dtypes.quantize_(model, {torch.nn.LSTM: dict(weight=..., "
            "activation=..., axis=-1)})"
        )
