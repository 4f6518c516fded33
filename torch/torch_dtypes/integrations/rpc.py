"""torch.distributed.rpc refuses format tensors: C++ would send them in their storage dtype."""

from __future__ import annotations

import functools

import torch
from torch.utils import _pytree as pytree

from ..formats.dtypes import is_format_dtype


def _refuse(values) -> None:
    for x in pytree.tree_leaves(values):
        dtype = x.dtype if isinstance(x, torch.Tensor) else x
        if isinstance(dtype, torch.dtype) and is_format_dtype(dtype):
            raise NotImplementedError(
                f"torch.distributed.rpc: expected stock tensors and dtypes, but got {dtype}; send "
                "x.float(), or torch_dtypes.codes(x) with str(x.dtype), from which "
                "torch_dtypes.from_codes makes the tensor"
            )


def reduce(stock, self, tensor):
    """Refuse a format tensor that C++ would send."""
    _refuse(tensor)
    return stock(self, tensor)


def refuse_arguments(stock):
    """Refuse format tensors among arguments that C++ takes apart."""

    @functools.wraps(stock)
    def invoke(*args, **kwargs):
        _refuse((args, kwargs))
        return stock(*args, **kwargs)

    return invoke
