"""microxcaling's injection: PyTorch's functions and layers become those that round."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from . import products, vectors
from .inside import is_inside

__all__ = ["FUNCTION_MAPPING", "MODULE_MAPPING", "inject_pyt_ops"]

# Functions with arguments of their own. The others are PyTorch's, with rounded tensors.
_OWN = {
    "linear": products.linear,
    "conv1d": products.conv1d,
    "conv2d": products.conv2d,
    "conv3d": products.conv3d,
    "matmul": products.matmul,
    "mm": products.matmul,
    "bmm": products.bmm,
    "addmm": products.addmm,
    "batch_norm": vectors.batch_norm,
}
_VECTORS = (
    "adaptive_avg_pool2d gelu group_norm layer_norm leaky_relu relu relu6 sigmoid silu softmax "
    "tanh add sub mul div exp log sum mean norm square"
).split()
# PyTorch's own, with their place and name.
_STOCK = [
    (place, name, getattr(place, name))
    for name in (*_OWN, *_VECTORS)
    for place in (torch, F)
    if hasattr(place, name)
]


def _find_function(name: str, stock: Callable) -> Callable:
    return _OWN.get(name) or vectors.define(name, stock)


FUNCTION_MAPPING: dict[str, Callable] = {
    name: _find_function(name, stock) for _, name, stock in _STOCK
}
MODULE_MAPPING: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        products.Conv1d,
        products.Conv2d,
        products.Conv3d,
        products.ConvTranspose2d,
        products.Linear,
        vectors.AdaptiveAvgPool2d,
        vectors.BatchNorm1d,
        vectors.BatchNorm2d,
        vectors.BatchNorm3d,
        vectors.GroupNorm,
        vectors.LeakyReLU,
        vectors.LSTM,
        vectors.ReLU,
        vectors.ReLU6,
        vectors.Sigmoid,
        vectors.SiLU,
        vectors.Softmax,
        vectors.Tanh,
    )
} | {
    # With PyTorch's defaults, since the script's calls are PyTorch's.
    kind.__name__: vectors.define_layer(kind)
    for kind in (nn.GELU, nn.LayerNorm)
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
