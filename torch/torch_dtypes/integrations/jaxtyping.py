"""jaxtyping (seen with 0.3): its annotations of any floating numbers (Float, Inexact, Real, Num) list the names of stock dtypes."""

from __future__ import annotations

import functools

import torch

from ..formats import is_format_dtype

_STOCK = {"float16", "bfloat16", "float32", "float64"}  # an annotation that takes all of these means any floating number


def checking(stock):
    """What isinstance(x, Float[torch.Tensor, "a b"]) asks: the dtype of a tensor of ours joins those that such an annotation lists."""

    @functools.wraps(stock)
    def check(cls, obj):
        dtypes = getattr(cls, "dtypes", None)
        if isinstance(obj, torch.Tensor) and is_format_dtype(obj.dtype) and isinstance(dtypes, list | tuple) and _STOCK.issubset(dtypes):
            name = repr(obj.dtype).rsplit(".", 1)[-1]  # as jaxtyping reads it
            if name not in dtypes:
                cls.dtypes = type(dtypes)((*dtypes, name))
        return stock(cls, obj)

    return check


def install(module) -> None:
    module._MetaAbstractArray.__instancecheck_str__ = checking(module._MetaAbstractArray.__instancecheck_str__)
