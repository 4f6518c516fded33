"""transformers (seen with 5.23) and diffusers (0.42): what they do for bfloat16 by its name.

T5's norms, and those made after it, normalise in float32 and come back where the weight is of a dtype in ``[torch.float16, torch.bfloat16]``:
without that a layer behind them gets float32. Trainer's predictions and what some pipelines return are NumPy arrays, of bfloat16 by float32.
"""

from __future__ import annotations

import types

import torch

from .._exchange import exchange_code
from .._stock_values import values_in_numpy
from ..formats import is_format_dtype

_TORCH = "_torch_dtypes_torch"
_STOCK = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class _Bfloat16:
    def __eq__(self, other):
        return other is torch.bfloat16 or is_format_dtype(other)

    __hash__ = None


class _Torch:
    """What functions that ask for bfloat16 see as ``torch``: they find our dtypes equal to it."""

    bfloat16 = _Bfloat16()

    def __getattr__(self, name):
        return getattr(torch, name)


def _asks_of_ours(function: types.FunctionType) -> types.CodeType:
    """The function's code, which finds _Torch in torch's place."""
    function.__globals__[_TORCH] = _Torch()
    return function.__code__.replace(co_names=tuple(_TORCH if name == "torch" else name for name in function.__code__.co_names))


def _asking(module) -> list[types.FunctionType]:
    """The methods of the module's classes that ask for bfloat16."""
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    methods = [f for c in classes for f in vars(c).values() if isinstance(f, types.FunctionType)]
    return [f for f in methods if {"torch", "bfloat16"} <= set(f.__code__.co_names)]


def _forward(self, hidden_states):
    # Dynamo traces the norms of stock models, in whose graphs nothing of ours is. Of ours it ends its graph before the function below.
    if torch.compiler.is_dynamo_compiling() and (self.weight is None or self.weight.dtype in _torch_dtypes_stock):  # noqa: F821
        return _torch_dtypes_stock_forward(self, hidden_states)  # noqa: F821
    return _torch_dtypes_forward(self, hidden_states)  # noqa: F821


def _copy(function: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    return types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def install_norms(module) -> None:
    norms = [f for f in _asking(module) if f.__name__ == "forward" and "rsqrt" in f.__code__.co_names]
    if len(norms) != 1:
        raise ImportError(f"expected one norm that asks for bfloat16, but got {len(norms)}")
    (norm,) = norms
    of_ours = _copy(norm, _asks_of_ours(norm))

    def forward(stock, self, hidden_states):
        return (of_ours if self.weight is not None and is_format_dtype(self.weight.dtype) else stock)(self, hidden_states)

    norm.__globals__.update(_torch_dtypes_stock=_STOCK, _torch_dtypes_stock_forward=_copy(norm, norm.__code__))
    # Dynamo traces no file of ours, and torch.jit.script compiles the lines of the code's file.
    place = {name: getattr(norm.__code__, name) for name in ("co_filename", "co_firstlineno")}
    exchange_code(norm, _copy(_forward, _forward.__code__.replace(**place)), "_torch_dtypes_forward", forward)


def install_pipeline(module) -> None:
    for function in _asking(module):
        function.__code__ = _asks_of_ours(function)


def _nested_numpify(tensors):
    return _torch_dtypes_nested_numpify(tensors)  # noqa: F821


def nested_numpify(stock, tensors):
    """Tensors of ours as their exact values."""
    return values_in_numpy(tensors.cpu()) if isinstance(tensors, torch.Tensor) and is_format_dtype(tensors.dtype) else stock(tensors)


def install_trainer(module) -> None:
    exchange_code(module.nested_numpify, _nested_numpify, "_torch_dtypes_nested_numpify", nested_numpify)
