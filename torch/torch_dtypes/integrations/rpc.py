"""torch.distributed.rpc refuses format tensors: C++ would send them as tensors of their storage
dtype."""

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
                f"torch.distributed.rpc: expected stock tensors and dtypes, but got {dtype}. Send "
                "x.float(), or torch_dtypes.codes(x) with str(x.dtype), of which "
                "torch_dtypes.from_codes makes the tensor."
            )


def reduce(stock, self, tensor):
    """Puts a tensor aside for C++ to send, where it is a stock one."""
    _refuse(tensor)
    return stock(self, tensor)


def refusing(stock):
    """An error for format tensors among arguments that C++ takes apart."""

    @functools.wraps(stock)
    def invoke(*args, **kwargs):
        _refuse((args, kwargs))
        return stock(*args, **kwargs)

    return invoke
