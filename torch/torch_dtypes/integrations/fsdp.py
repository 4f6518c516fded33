"""FullyShardedDataParallel (the older of the two) refuses our dtypes when it is made, in parameters and in its policy; without this its first
backward pass would fail over sizes. fully_shard takes a policy that names them; what it divides gradients by goes by PyTorch's own dtypes."""

from __future__ import annotations

import functools

import torch

from .. import _C
from .._overlay.distributed import refuse_parallel
from .._overlay.releases import SHARDS_NAME_GRADIENTS
from ..formats import is_format_dtype


def install(module) -> None:
    """module: torch.distributed.fsdp.fully_sharded_data_parallel."""
    sharded = module.FullyShardedDataParallel
    stock = sharded.__init__

    @functools.wraps(stock)
    def __init__(self, module, *args, **kwargs):
        refuse_parallel("FullyShardedDataParallel", module, "fully_shard, which takes such parameters")
        for policy in (*args, *kwargs.values()):
            for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
                dtype = getattr(policy, name, None)
                if isinstance(dtype, torch.dtype) and is_format_dtype(dtype):
                    raise NotImplementedError(
                        f"FullyShardedDataParallel: expected stock dtypes in mixed_precision, but got {name}={dtype}. Use fully_shard, whose "
                        "MixedPrecisionPolicy takes number formats."
                    )
        stock(self, module, *args, **kwargs)

    sharded.__init__ = __init__


def install_stages(module) -> None:
    """module: torch.distributed.pipelining.stage, whose stages refuse models in our dtypes."""
    stage = module._PipelineStageBase
    stock = stage.__init__

    @functools.wraps(stock)
    def __init__(self, submodule, *args, **kwargs):
        refuse_parallel("torch.distributed.pipelining", submodule, "fully_shard, or a float32 model that quantize_ has converted")
        stock(self, submodule, *args, **kwargs)

    stage.__init__ = __init__


def install_collectives(module) -> None:
    """module: torch.distributed.fsdp._fully_shard._fsdp_collectives. Of every reduce_dtype but float32 and bfloat16 stock divides before and after
    the sum, for a float16 might overflow; in ours that would be two roundings more, and AVG divides before the one that there is. And stock's
    operator casts gradients to reduce_dtype as it joins them, which is an error where one of both is a format."""
    stock, join = module._get_gradient_divide_factors, module.foreach_reduce_scatter_copy_in

    @functools.wraps(join)
    def foreach_reduce_scatter_copy_in(unsharded_grads, reduce_scatter_input, world_size):
        reduced = reduce_scatter_input.dtype
        if is_format_dtype(reduced) or any(map(_C.is_format_tensor, unsharded_grads)):
            unsharded_grads = [grad.to(reduced) for grad in unsharded_grads]
        return join(unsharded_grads, reduce_scatter_input, world_size)

    @functools.wraps(stock)
    def _get_gradient_divide_factors(reduce_scatter_group, all_reduce_group, reduce_dtype, device_type="", factor=None, *args, **kwargs):
        if factor is None and is_format_dtype(reduce_dtype):
            reduce_dtype = torch.float32
        return stock(reduce_scatter_group, all_reduce_group, reduce_dtype, device_type, factor, *args, **kwargs)

    if SHARDS_NAME_GRADIENTS:
        param, dtype_of = module.FSDPParam, module.FSDPParam.unsharded_grad_dtype.fget

        # Stock's gradients are to be in reduce_dtype, or the shards' dtype, as soon as they are made. With a format they are in the parameter's
        # own, as in earlier releases, and what joins them casts.
        def unsharded_grad_dtype(self):
            dtypes = dtype_of(self), self.param_dtype or self.orig_dtype
            return dtypes[any(d is not None and is_format_dtype(d) for d in dtypes)]

        param.unsharded_grad_dtype = property(unsharded_grad_dtype)
    module._get_gradient_divide_factors = _get_gradient_divide_factors
    module.foreach_reduce_scatter_copy_in = foreach_reduce_scatter_copy_in
