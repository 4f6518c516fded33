"""transformers (seen with 5.23) and diffusers (0.42): what they do for bfloat16 by its name.

T5's norms, and those made after it, normalise in float32 and come back where the weight is of a
dtype in ``[torch.float16, torch.bfloat16]``: without that a layer behind them gets float32.
Trainer's predictions and what some pipelines return are NumPy arrays, of bfloat16 by float32.
"""

from __future__ import annotations

import functools
import types

import torch

from ..formats.dtypes import is_format_dtype
from ..storage.stock_values import values_in_numpy

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
    return function.__code__.replace(
        co_names=tuple(_TORCH if name == "torch" else name for name in function.__code__.co_names)
    )


def _asking(module) -> list[types.FunctionType]:
    """The methods of the module's classes that ask for bfloat16."""
    classes = [
        c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__
    ]
    methods = [f for c in classes for f in vars(c).values() if isinstance(f, types.FunctionType)]
    return [f for f in methods if {"torch", "bfloat16"} <= set(f.__code__.co_names)]


def _forward(self, hidden_states):
    # Dynamo traces the norms of stock models, in whose graphs nothing of ours is. Of ours it ends
    # its graph before the function below.
    if torch.compiler.is_dynamo_compiling() and (
        self.weight is None or self.weight.dtype in _torch_dtypes_stock  # noqa: F821
    ):
        return _torch_dtypes_stock_forward(self, hidden_states)  # noqa: F821
    return _torch_dtypes_forward(self, hidden_states)  # noqa: F821


def _copy(function: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def extend_norm(module) -> None:
    """The module's norm, which treats format dtypes as bfloat16."""
    norms = [
        f for f in _asking(module) if f.__name__ == "forward" and "rsqrt" in f.__code__.co_names
    ]
    if len(norms) != 1:
        raise ImportError(f"expected one norm that asks for bfloat16, but got {len(norms)}")
    (norm,) = norms
    parameters = norm.__code__.co_varnames[: norm.__code__.co_argcount]
    if parameters != ("self", "hidden_states"):
        raise ImportError(f"expected a norm of self and hidden_states, but got {parameters}")
    of_ours = _copy(norm, _asks_of_ours(norm))

    def forward(stock, self, hidden_states):
        return (
            of_ours if self.weight is not None and is_format_dtype(self.weight.dtype) else stock
        )(self, hidden_states)

    stock = _copy(norm, norm.__code__)
    norm.__globals__.update(
        _torch_dtypes_stock=_STOCK,
        _torch_dtypes_stock_forward=stock,
        _torch_dtypes_forward=functools.partial(forward, stock),
    )
    # Dynamo traces no file of this package, and torch.jit.script compiles the lines of the code's
    # file. So the code stays where it was.
    kept = ("co_filename", "co_firstlineno", "co_name", "co_qualname")
    place = {name: getattr(norm.__code__, name) for name in kept}
    norm.__code__ = _forward.__code__.replace(**place)


def extend_pipeline(module) -> None:
    """The module's functions that ask for bfloat16, which find format dtypes equal to it."""
    for function in _asking(module):
        function.__code__ = _asks_of_ours(function)


def nested_numpify(stock, tensors):
    """Tensors of ours as their exact values."""
    return (
        values_in_numpy(tensors.cpu())
        if isinstance(tensors, torch.Tensor) and is_format_dtype(tensors.dtype)
        else stock(tensors)
    )
