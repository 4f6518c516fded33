"""transformers (seen with 5.23) and diffusers (0.42): code that tests for bfloat16 by name.

T5's norms, and those made after it, normalise in float32. They cast back if the weight has a dtype
in ``[torch.float16, torch.bfloat16]``; otherwise the next layer gets float32. Trainer's predictions
and some pipelines' results are NumPy arrays, made of bfloat16 through float32.
"""

from __future__ import annotations

import functools
import importlib
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
    """Replaces ``torch`` in functions that test for bfloat16: format dtypes equal it."""

    bfloat16 = _Bfloat16()

    def __getattr__(self, name):
        return getattr(torch, name)


def _accept_formats(function: types.FunctionType) -> types.CodeType:
    """Return the function's code with _Torch in the place of torch."""
    function.__globals__[_TORCH] = _Torch()
    return function.__code__.replace(
        co_names=tuple(_TORCH if name == "torch" else name for name in function.__code__.co_names)
    )


def _find_bfloat16_tests(module) -> list[types.FunctionType]:
    """Return the methods of the module's classes that test for bfloat16."""
    classes = [
        c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__
    ]
    methods = [f for c in classes for f in vars(c).values() if isinstance(f, types.FunctionType)]
    return [f for f in methods if {"torch", "bfloat16"} <= set(f.__code__.co_names)]


def _forward(self, hidden_states):
    # Dynamo traces the norms of stock models, whose graphs have no format tensor. For a format
    # tensor it ends its graph before the function below.
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
    """Treat format dtypes in the module's norm as bfloat16."""
    norms = [
        f
        for f in _find_bfloat16_tests(module)
        if f.__name__ == "forward" and "rsqrt" in f.__code__.co_names
    ]
    if len(norms) != 1:
        raise ImportError(
            f"expected one norm that tests for bfloat16, but got {len(norms)}; use a supported "
            "release"
        )
    (norm,) = norms
    parameters = norm.__code__.co_varnames[: norm.__code__.co_argcount]
    if parameters != ("self", "hidden_states"):
        raise ImportError(
            f"expected a norm of self and hidden_states, but got {parameters}; use a supported "
            "release"
        )
    own = _copy(norm, _accept_formats(norm))

    def forward(stock, self, hidden_states):
        return (own if self.weight is not None and is_format_dtype(self.weight.dtype) else stock)(
            self, hidden_states
        )

    stock = _copy(norm, norm.__code__)
    norm.__globals__.update(
        _torch_dtypes_stock=_STOCK,
        _torch_dtypes_stock_forward=stock,
        _torch_dtypes_forward=functools.partial(forward, stock),
    )
    # Dynamo traces no file of this package, and torch.jit.script compiles the lines of the code's
    # file. So the code keeps its file and line.
    kept = ("co_filename", "co_firstlineno", "co_name", "co_qualname")
    place = {name: getattr(norm.__code__, name) for name in kept}
    norm.__code__ = _forward.__code__.replace(**place)


def extend_pipeline(module) -> None:
    """Make format dtypes equal bfloat16 in the module's functions that test for it."""
    for function in _find_bfloat16_tests(module):
        function.__code__ = _accept_formats(function)


def register_rules(module) -> None:
    """Register ``TransformersConfig``, so that models saved with rules load.

    Its module registers it when it is imported, and may be what imports ``module``.
    """
    importlib.import_module(".transformers_config", __package__)


def split_experts(model) -> None:
    """Let fused experts multiply one by one, since rules do not reach a grouped product of all.
    Releases before 5 know no other way."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")


def nested_numpify(stock, tensors):
    """Return a format tensor as its exact values."""
    return (
        values_in_numpy(tensors.cpu())
        if isinstance(tensors, torch.Tensor) and is_format_dtype(tensors.dtype)
        else stock(tensors)
    )
