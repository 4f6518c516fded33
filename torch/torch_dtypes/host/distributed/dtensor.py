"""torch.distributed.tensor: what a DTensor of a number format is (format_dtensor.py), and how the
sharding rules may split what chop rounds: wherever they like, for each element is rounded by
itself; blocks stay whole."""

from __future__ import annotations

import functools

import torch

from ..table import Kind, wait_for


def know_formats(_module) -> None:
    """Loads format_dtensor.py, which says that files may name its class, and casts its tensors."""
    from . import format_dtensor  # noqa: F401


def ask_first(stock):
    """For releases whose C++ never asks a subclass of DTensor."""
    from . import format_dtensor

    @functools.wraps(stock)
    def _propagate_op_sharding_dispatch_slow_path(self, op_call, args, kwargs, *how):
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if any(isinstance(x, format_dtensor.FormatDTensor) for x in leaves):
            return format_dtensor.dispatch(op_call, args, kwargs)
        return stock(self, op_call, args, kwargs, *how)

    return _propagate_op_sharding_dispatch_slow_path


def split_chop(register_sharding) -> None:
    """The sharding rules may split what chop rounds wherever they like, but blocks stay whole."""
    from torch.distributed.tensor import Replicate, Shard

    def strategies(operator, dims):
        others = [None] * (len(operator._schema.arguments) - 1)

        def strategy(input, *args, **kwargs):
            places = [Replicate(), *(Shard(d) for d in range(dims(input.ndim)))]
            return [([place], [place, *others]) for place in places]

        register_sharding(operator)(strategy)

    strategies(torch.ops.torch_dtypes.chop.default, lambda ndim: ndim)
    # Blocks lie along the last dimension.
    strategies(torch.ops.torch_dtypes.chop_blocks.default, lambda ndim: ndim - 1)


_MODULE = "torch.distributed.tensor"
_SLOW_PATH = "_dispatch.OpDispatcher._propagate_op_sharding_dispatch_slow_path"

HOOKS = [
    wait_for(_MODULE, _SLOW_PATH, Kind.REPLACED, ask_first, last="2.11"),
    wait_for(_MODULE, "", Kind.TOLD, know_formats),
    wait_for(_MODULE, "experimental.register_sharding", Kind.TOLD, split_chop),
]
