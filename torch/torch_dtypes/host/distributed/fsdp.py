"""Hooks of FSDP and pipelines.

FullyShardedDataParallel (the older of the two) refuses format dtypes in parameters and in its
policy when it is made. Otherwise its first backward pass would fail over sizes. fully_shard takes a
policy with format dtypes. Its divisors of gradients depend on the dtype.
"""

from __future__ import annotations

import functools

import torch

from ... import _C
from ...formats.dtypes import is_format_dtype
from ..table import Kind, wait_for
from .wrappers import refuse_parallel


def refuse_sharded(stock):
    """Raise where FullyShardedDataParallel gets format tensors or a policy with format dtypes."""

    @functools.wraps(stock)
    def __init__(self, module, *args, **kwargs):
        refuse_parallel(
            "FullyShardedDataParallel", module, "fully_shard, which takes such parameters"
        )
        for policy in (*args, *kwargs.values()):
            for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
                dtype = getattr(policy, name, None)
                if isinstance(dtype, torch.dtype) and is_format_dtype(dtype):
                    raise NotImplementedError(
                        "FullyShardedDataParallel: expected stock dtypes in mixed_precision, but "
                        f"got {name}={dtype}; use fully_shard, whose MixedPrecisionPolicy takes "
                        "number formats"
                    )
        stock(self, module, *args, **kwargs)

    return __init__


def refuse_stages(stock):
    """Raise where a stage of a pipeline is made of a model with format tensors."""

    @functools.wraps(stock)
    def __init__(self, submodule, *args, **kwargs):
        refuse_parallel(
            "torch.distributed.pipelining",
            submodule,
            "fully_shard, or a float32 model that quantize_ has converted",
        )
        stock(self, submodule, *args, **kwargs)

    return __init__


def cast_before_joining(stock):
    """Cast gradients to reduce_dtype before they are joined.

    The stock operator casts them as it joins them, and raises where one of the two dtypes is a
    format dtype.
    """

    @functools.wraps(stock)
    def foreach_reduce_scatter_copy_in(unsharded_grads, reduce_scatter_input, world_size):
        reduced = reduce_scatter_input.dtype
        if is_format_dtype(reduced) or any(map(_C.is_format_tensor, unsharded_grads)):
            unsharded_grads = [grad.to(reduced) for grad in unsharded_grads]
        return stock(unsharded_grads, reduce_scatter_input, world_size)

    return foreach_reduce_scatter_copy_in


def divide_once(stock):
    """Divide gradients in a format once, as float32 gradients are.

    With every reduce_dtype but float32 and bfloat16, PyTorch divides before and after the sum,
    since float16 might overflow. In a format that would add two roundings, while AVG divides before
    the only one.
    """

    @functools.wraps(stock)
    def _get_gradient_divide_factors(
        reduce_scatter_group,
        all_reduce_group,
        reduce_dtype,
        device_type="",
        factor=None,
        *args,
        **kwargs,
    ):
        if factor is None and is_format_dtype(reduce_dtype):
            reduce_dtype = torch.float32
        return stock(
            reduce_scatter_group,
            all_reduce_group,
            reduce_dtype,
            device_type,
            factor,
            *args,
            **kwargs,
        )

    return _get_gradient_divide_factors


def keep_gradient_dtype(stock):
    """Make gradients in the parameter's own dtype where one of the dtypes is a format dtype.

    Earlier releases do so too. PyTorch makes them in reduce_dtype or in the shards' dtype; joining
    them casts.
    """

    def unsharded_grad_dtype(self):
        dtypes = stock(self), self.param_dtype or self.orig_dtype
        return dtypes[any(d is not None and is_format_dtype(d) for d in dtypes)]

    return unsharded_grad_dtype


_FSDP = "torch.distributed.fsdp"
_COLLECTIVES = f"{_FSDP}._fully_shard._fsdp_collectives"
_PIPELINES = "torch.distributed.pipelining.stage"
_SHARDED = "FullyShardedDataParallel.__init__"
_JOIN, _GRAD_DTYPE = "foreach_reduce_scatter_copy_in", "FSDPParam.unsharded_grad_dtype"

HOOKS = [
    wait_for(f"{_FSDP}.fully_sharded_data_parallel", _SHARDED, Kind.REPLACED, refuse_sharded),
    wait_for(_PIPELINES, "_PipelineStageBase.__init__", Kind.REPLACED, refuse_stages),
    wait_for(_COLLECTIVES, _JOIN, Kind.REPLACED, cast_before_joining),
    wait_for(_COLLECTIVES, "_get_gradient_divide_factors", Kind.REPLACED, divide_once),
    wait_for(_COLLECTIVES, _GRAD_DTYPE, Kind.REPLACED, keep_gradient_dtype, first="2.15"),
]
