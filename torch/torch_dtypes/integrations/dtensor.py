"""torch.distributed.tensor: the sharding rules asked of tensors of ours (format_dtensor.py), and how it may split what chop rounds: wherever it
likes, for each element is rounded by itself; blocks stay whole."""

from __future__ import annotations

import functools

import torch

from .. import _C
from .._overlay import releases


def _refuse_unfinished_sums(propagator, format_dtensor) -> None:
    """An error where the ranks would round each its part of a sum."""
    stock = propagator.propagate_op_sharding_non_cached

    @functools.wraps(stock)
    def propagate_op_sharding_non_cached(self, op_schema):
        found = stock(self, op_schema)
        sums = map(format_dtensor._is_unfinished_sum, format_dtensor._specs(found.output_spec))
        if op_schema.op not in format_dtensor._MOVES and any(sums):
            raise NotImplementedError(
                f"{op_schema.op}: expected operands of which each rank has whole sums, but got parts that PyTorch {torch.__version__} would "
                "round one by one. Use x.redistribute() before it, a stock dtype, or PyTorch 2.13 or later."
            )
        return found

    propagator.propagate_op_sharding_non_cached = propagate_op_sharding_non_cached


def _cast_before_decomposing(format_dtensor) -> None:
    """What FormatDTensor.__torch_dispatch__ does of casts in inference mode, where that is not asked."""
    from torch.distributed.tensor._dispatch import OpDispatcher

    stock = OpDispatcher._propagate_op_sharding_dispatch_slow_path

    @functools.wraps(stock)
    def _propagate_op_sharding_dispatch_slow_path(self, op_call, args, kwargs, *how):
        found = format_dtensor.composite_cast(op_call, args, kwargs)
        return stock(self, op_call, args, kwargs, *how) if found is None else found

    OpDispatcher._propagate_op_sharding_dispatch_slow_path = _propagate_op_sharding_dispatch_slow_path


def install(module) -> None:
    """module: torch.distributed.tensor."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.distributed.tensor.experimental import register_sharding

    from . import format_dtensor

    def strategies(operator, dims):
        others = [None] * (len(operator._schema.arguments) - 1)

        def strategy(input, *args, **kwargs):
            places = [module.Replicate(), *(module.Shard(d) for d in range(dims(input.ndim)))]
            return [([place], [place, *others]) for place in places]

        register_sharding(operator)(strategy)

    propagator = ShardingPropagator
    stock = propagator._propagate_tensor_meta_non_cached

    @functools.wraps(stock)
    def _propagate_tensor_meta_non_cached(self, op_schema):
        return format_dtensor.meta_of(op_schema) if format_dtensor.has_ours(op_schema) else stock(self, op_schema)

    propagator._propagate_tensor_meta_non_cached = _propagate_tensor_meta_non_cached
    if not releases.SUBCLASSES_OF_DTENSOR_DISPATCH:
        _refuse_unfinished_sums(propagator, format_dtensor)
        _cast_before_decomposing(format_dtensor)
    torch.serialization.add_safe_globals([format_dtensor.FormatDTensor, format_dtensor._rebuild])
    _C.set_wrapper_cast(format_dtensor.cast)
    strategies(torch.ops.torch_dtypes.chop.default, lambda ndim: ndim)
    strategies(torch.ops.torch_dtypes.chop_blocks.default, lambda ndim: ndim - 1)  # blocks lie along the last dimension
