"""Hooks of torch.distributed.tensor: format DTensors (format_dtensor.py), and sharding of chop."""

from __future__ import annotations

import functools

import torch

from ..table import Kind, wait_for


def load_format_dtensor(_module) -> None:
    """Load format_dtensor.py, which registers its class for files and casts its tensors."""
    from . import format_dtensor  # noqa: F401


def dispatch_format_dtensors(stock):
    """Call the subclass's dispatch, in releases whose C++ never calls that of a DTensor."""
    from . import format_dtensor

    @functools.wraps(stock)
    def _propagate_op_sharding_dispatch_slow_path(self, op_call, args, kwargs, *how):
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if any(isinstance(x, format_dtensor.FormatDTensor) for x in leaves):
            return format_dtensor.dispatch(op_call, args, kwargs)
        return stock(self, op_call, args, kwargs, *how)

    return _propagate_op_sharding_dispatch_slow_path


def split_chop(register_sharding) -> None:
    """Let sharding rules split chop's operand anywhere, but keep blocks whole.

    chop rounds each element by itself.
    """
    from torch.distributed.tensor import Replicate, Shard

    def strategies(operator, dims):
        others = [None] * (len(operator._schema.arguments) - 1)

        def strategy(input, *args, **kwargs):
            places = [Replicate(), *map(Shard, dims(input.ndim, *args))]
            return [([place], [place, *others]) for place in places]

        register_sharding(operator)(strategy)

    def dims_without_blocks(ndim, element, rounding, size, axis, scale, rule, *rest):
        has_tensor_scale = len(rule) == 4 and rule[2] != 0  # which follows from all numbers
        return [] if has_tensor_scale else sorted(set(range(ndim)) - {a % ndim for a in axis})

    strategies(torch.ops.torch_dtypes.chop.default, lambda ndim, *_: range(ndim))
    strategies(torch.ops.torch_dtypes.chop_blocks.default, dims_without_blocks)


_MODULE = "torch.distributed.tensor"
_SLOW_PATH = "_dispatch.OpDispatcher._propagate_op_sharding_dispatch_slow_path"

HOOKS = [
    wait_for(_MODULE, _SLOW_PATH, Kind.REPLACED, dispatch_format_dtensors, last="2.11"),
    wait_for(_MODULE, "", Kind.TOLD, load_format_dtensor),
    wait_for(_MODULE, "experimental.register_sharding", Kind.TOLD, split_chop),
]
