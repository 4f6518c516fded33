"""microxcaling's injection: PyTorch's functions and layers become those that round."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from . import activations, norms, pooling, products, rnn, simd_ops
from .inside import is_inside
from .vectors import adapt, define

__all__ = ["FUNCTION_MAPPING", "MODULE_MAPPING", "inject_pyt_ops"]

_gelu = define("gelu", F.gelu)


# These have PyTorch's arguments and defaults, since the script's calls are PyTorch's.
def _compute_gelu(input, *, approximate="none", mx_specs=None):
    """Compute ``gelu`` if the call asks for tanh, or else PyTorch's function between roundings."""
    if approximate == "tanh":
        return activations.gelu(input, mx_specs)
    return _gelu(input, approximate=approximate, mx_specs=mx_specs)


def _normalise_layer(
    input, normalized_shape, weight=None, bias=None, eps=1e-5, *, mx_specs=None
) -> torch.Tensor:
    """Normalise by ``layer_norm``."""
    return norms.layer_norm(input, normalized_shape, weight, bias, eps, mx_specs)


def _normalise_batch(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
    *,
    mx_specs=None,
) -> torch.Tensor:
    """Normalise by ``batch_norm``."""
    return norms.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps, mx_specs
    )


def _compute_norm(input, *, keepdim=False, mx_specs=None) -> torch.Tensor:
    """Compute ``simd_norm``."""
    return simd_ops.simd_norm(input, keepdim, mx_specs)


_PRODUCTS = {
    "linear": products.linear,
    "conv1d": products.conv1d,
    "conv2d": products.conv2d,
    "conv3d": products.conv3d,
    "matmul": products.matmul,
    "mm": products.matmul,
    "bmm": products.bmm,
    "addmm": products.addmm,
}
_VECTORS = {
    "adaptive_avg_pool2d": pooling.adaptive_avg_pool2d,
    "batch_norm": _normalise_batch,
    "gelu": _compute_gelu,
    "group_norm": norms.group_norm,
    "layer_norm": _normalise_layer,
    "leaky_relu": activations.leaky_relu,
    "relu": activations.relu,
    "relu6": activations.relu6,
    "sigmoid": activations.sigmoid,
    "silu": activations.silu,
    "softmax": activations.softmax,
    "tanh": activations.tanh,
    "add": simd_ops.simd_add,
    "sub": simd_ops.simd_sub,
    "mul": simd_ops.simd_mul,
    "div": simd_ops.simd_div,
    "exp": simd_ops.simd_exp,
    "log": simd_ops.simd_log,
    "sum": simd_ops.simd_reduce_sum,
    "mean": simd_ops.simd_reduce_mean,
    "norm": _compute_norm,
    "square": simd_ops.simd_square,
}
# PyTorch's own, with their place and name.
_STOCK = [
    (place, name, getattr(place, name))
    for name in (*_PRODUCTS, *_VECTORS)
    for place in (torch, F)
    if hasattr(place, name)
]


def _find_function(name: str, stock: Callable) -> Callable:
    return _PRODUCTS[name] if name in _PRODUCTS else adapt(name, _VECTORS[name], stock)


FUNCTION_MAPPING: dict[str, Callable] = {
    name: _find_function(name, stock) for _, name, stock in _STOCK
}


class _GELU(activations.GELU):
    """``torch.nn.GELU``: by ``gelu`` if asked for tanh, or else PyTorch's between roundings."""

    def __init__(self, approximate: str = "none", mx_specs=None) -> None:
        super().__init__(mx_specs)
        self.approximate = approximate

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _compute_gelu(input, approximate=self.approximate, mx_specs=self.mx_specs)


class _LayerNorm(norms.LayerNorm):
    """``torch.nn.LayerNorm`` by ``layer_norm``, with PyTorch's ``eps``."""

    def __init__(self, normalized_shape, eps: float = 1e-5, *args, mx_specs=None, **kwargs) -> None:
        products.Layer.__init__(self, normalized_shape, eps, *args, mx_specs=mx_specs, **kwargs)


MODULE_MAPPING: dict[str, type] = {
    kind.__name__.removeprefix("_"): kind
    for kind in (
        _GELU,
        _LayerNorm,
        activations.LeakyReLU,
        activations.ReLU,
        activations.ReLU6,
        activations.Sigmoid,
        activations.SiLU,
        activations.Softmax,
        activations.Tanh,
        norms.BatchNorm1d,
        norms.BatchNorm2d,
        norms.BatchNorm3d,
        norms.GroupNorm,
        pooling.AdaptiveAvgPool2d,
        products.Conv1d,
        products.Conv2d,
        products.Conv3d,
        products.ConvTranspose2d,
        products.Linear,
        rnn.LSTM,
    )
}
_STOCK_LAYERS = {name: getattr(nn, name) for name in MODULE_MAPPING}


def inject_pyt_ops(mx_specs: Mapping | None) -> None:
    """Replace functions of ``torch`` and ``torch.nn.functional``, and layers of ``torch.nn``, by
    those that round by ``mx_specs``. None brings PyTorch's own back.

    Layers made before do not change, nor do operators (``x + y``) and methods (``x.sum()``).
    """
    for place, name, stock in _STOCK:
        setattr(place, name, stock if mx_specs is None else _replace(name, stock, mx_specs))
    for name, stock in _STOCK_LAYERS.items():
        setattr(nn, name, stock if mx_specs is None else _derive(name, mx_specs))


def _replace(name: str, stock: Callable, mx_specs: Mapping) -> Callable:
    function = _find_function(name, stock)

    def call(*args, **kwargs):
        if is_inside():
            return stock(*args, **kwargs)
        return function(*args, mx_specs=mx_specs, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def _derive(name: str, mx_specs: Mapping) -> type:
    base = MODULE_MAPPING[name]

    def __init__(self, *args, **kwargs):
        base.__init__(self, *args, mx_specs=mx_specs, **kwargs)

    return type(f"{name}_inj", (base,), {"__init__": __init__})
