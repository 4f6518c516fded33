"""torch.distributed.tensor: what a DTensor of a number format is (format_dtensor.py), and how the sharding rules may split what chop rounds: wherever
they like, for each element is rounded by itself; blocks stay whole."""

from __future__ import annotations

import functools

import torch

from .. import _C
from .._overlay import releases


def _ask_first(format_dtensor) -> None:
    """For releases whose C++ never asks a subclass of DTensor."""
    from torch.distributed.tensor._dispatch import OpDispatcher

    stock = OpDispatcher._propagate_op_sharding_dispatch_slow_path

    @functools.wraps(stock)
    def _propagate_op_sharding_dispatch_slow_path(self, op_call, args, kwargs, *how):
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if any(isinstance(x, format_dtensor.FormatDTensor) for x in leaves):
            return format_dtensor.dispatch(op_call, args, kwargs)
        return stock(self, op_call, args, kwargs, *how)

    OpDispatcher._propagate_op_sharding_dispatch_slow_path = _propagate_op_sharding_dispatch_slow_path


def install(module) -> None:
    """module: torch.distributed.tensor."""
    from torch.distributed.tensor.experimental import register_sharding

    from . import format_dtensor

    def strategies(operator, dims):
        others = [None] * (len(operator._schema.arguments) - 1)

        def strategy(input, *args, **kwargs):
            places = [module.Replicate(), *(module.Shard(d) for d in range(dims(input.ndim)))]
            return [([place], [place, *others]) for place in places]

        register_sharding(operator)(strategy)

    if not releases.SUBCLASSES_OF_DTENSOR_DISPATCH:
        _ask_first(format_dtensor)
    torch.serialization.add_safe_globals([format_dtensor.FormatDTensor, format_dtensor._rebuild])
    _C.set_wrapper_cast(format_dtensor.cast)
    strategies(torch.ops.torch_dtypes.chop.default, lambda ndim: ndim)
    strategies(torch.ops.torch_dtypes.chop_blocks.default, lambda ndim: ndim - 1)  # blocks lie along the last dimension
