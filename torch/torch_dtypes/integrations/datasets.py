"""Hugging Face's datasets (seen with 5.2): tables are of plain numbers, and a tensor becomes them by ``x.numpy()``, bfloat16 by float32."""

from __future__ import annotations

import torch

from .._stock_values import exact_values
from ..formats import is_format_dtype
from ._exchange import exchange_code


def _cast_to_python_objects(obj, only_1d_for_numpy, optimize_list_casting):
    return _torch_dtypes_cast_to_python_objects(obj, only_1d_for_numpy, optimize_list_casting)  # noqa: F821


def cast_to_python_objects(stock, obj, only_1d_for_numpy, optimize_list_casting):
    """Tensors of ours go on as their exact values."""
    if isinstance(obj, torch.Tensor) and is_format_dtype(obj.dtype):
        return stock(exact_values(obj), only_1d_for_numpy, optimize_list_casting)
    return stock(obj, only_1d_for_numpy, optimize_list_casting)


def install(module) -> None:
    exchange_code(
        module._cast_to_python_objects, _cast_to_python_objects, "_torch_dtypes_cast_to_python_objects", cast_to_python_objects
    )  # fmt: skip
