"""Hooks of the parts of torch.distributed that bypass its operators or sort by storage dtype.

The operators know format tensors (Collectives.cpp). The hooks call once for each dtype, and use
another reducer (data_parallel.py). They raise before codes are added up as numbers, or a library
raises a misleading error.
"""

from __future__ import annotations

import functools

import torch

from ... import _C
from ..hooks.trampolines import When
from ..table import Hook, Kind
from .data_parallel import (
    expect_supported,
    join_hook,
    make_reducer,
    refuse_builtin_hook,
    refuse_in_backward,
    register_comm_hook,
)

# A backend's methods, called by hand on the result of ProcessGroup._get_backend. A process group's
# own methods call operators.
BACKEND_METHODS = (
    "broadcast allreduce allreduce_coalesced reduce allgather _allgather_base "
    "allgather_coalesced gather scatter reduce_scatter _reduce_scatter_base alltoall_base "
    "alltoall send recv recv_anysource"
).split()


def _find_format_tensor(values) -> torch.Tensor | None:
    for v in values:
        if isinstance(v, torch.Tensor):
            if _C.is_format_tensor(v):
                return v
        elif isinstance(v, (list, tuple)) and (tensor := _find_format_tensor(v)) is not None:
            return tensor
    return None


def refuse_parallel(what: str, module: torch.nn.Module, instead: str) -> None:
    """Raise for format parameters or buffers of a model to be sharded or cut into stages."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if _C.is_format_tensor(tensor):
            raise NotImplementedError(
                f"{what}: expected parameters and buffers of stock dtypes, but got {tensor.dtype} "
                f"in {name}; use {instead}"
            )


def split_by_dtype(stock):
    """Broadcast format tensors by one call for each dtype, where PyTorch joins by storage dtype."""

    @functools.wraps(stock)
    def _broadcast_coalesced(process_group, tensors, buffer_size, src=0):
        if not any(map(_C.is_format_tensor, tensors)):
            return stock(process_group, tensors, buffer_size, src)
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for t in tensors:
            by_dtype.setdefault(t.dtype, []).append(t)
        for alike in by_dtype.values():
            stock(process_group, alike, buffer_size, src)
        return None

    return _broadcast_coalesced


def refuse_format_tensors(what: str):
    """Raise for format tensors in a method of pybind11's class.

    A C function in front of such a method could not look into its arguments.
    """

    def extend(stock):
        @functools.wraps(stock)
        def method(*args, **kwargs):
            if (tensor := _find_format_tensor((*args, *kwargs.values()))) is not None:
                raise NotImplementedError(
                    f"{what}: expected tensors of stock dtypes, but got {tensor.dtype}, whose "
                    "codes a backend's own methods would take for numbers; call "
                    "torch.distributed's functions, or the process group's methods"
                )
            return stock(*args, **kwargs)

        return method

    return extend


def begin_coalescing(stock):
    """Begin a block of calls that NCCL starts together (batch_isend_irecv, _coalescing_manager).

    Such a call has no work of its own. The rest of a format tensor's call waits for the block's.
    """

    @functools.wraps(stock)
    def _start_coalescing(group, device):
        stock(group, device)
        torch.ops.torch_dtypes.begin_together(group.boxed())

    return _start_coalescing


def end_coalescing(stock):
    """Return the block's work, which also finishes the calls of format tensors when waited for."""

    @functools.wraps(stock)
    def _end_coalescing(group, device):
        work = stock(group, device)
        both = torch.ops.torch_dtypes.end_together(
            group.boxed(), None if work is None else work.boxed()
        )
        return work if both is None else torch.distributed.Work.unbox(both)

    return _end_coalescing


def new_dtensor(stock, cls, local_tensor, spec, requires_grad=False):
    """Make a DTensor of a local format tensor, which is of a subclass.

    distribute_tensor, tensor parallelism and FSDP2's fully_shard hold parameters as DTensors.
    """
    from . import format_dtensor

    return format_dtensor.new(cls, local_tensor, spec, requires_grad)


_C10D = "torch._C._distributed_c10d"
_DDP = "torch.nn.parallel.distributed.DistributedDataParallel"

HOOKS = [
    Hook("torch.distributed._broadcast_coalesced", Kind.REPLACED, split_by_dtype),
    Hook(f"{_DDP}._build_params_for_reducer", Kind.ASKED, expect_supported),
    Hook(f"{_DDP}._ddp_init_helper", Kind.ASKED, make_reducer),
    Hook(f"{_DDP}.register_comm_hook", Kind.ASKED, register_comm_hook),
    Hook(f"{_DDP}._register_builtin_comm_hook", Kind.ASKED, refuse_builtin_hook),
    Hook(f"{_DDP}._setup_in_backward_optimizers", Kind.ASKED, refuse_in_backward),
    Hook(f"{_DDP}.join_hook", Kind.ASKED, join_hook),
    Hook(f"{_C10D}.Reducer.__init__", Kind.REPLACED, refuse_format_tensors("Reducer")),
    *(
        Hook(f"{_C10D}.Backend.{name}", Kind.REPLACED, refuse_format_tensors(f"Backend.{name}"))
        for name in BACKEND_METHODS
    ),
    Hook(f"{_C10D}.ProcessGroup._start_coalescing", Kind.REPLACED, begin_coalescing),
    Hook(f"{_C10D}.ProcessGroup._end_coalescing", Kind.REPLACED, end_coalescing),
    Hook(
        "torch._C.TensorBase._dtensor__new__",
        Kind.BUILTIN,
        new_dtensor,
        When.OWN_SELF | When.OWN_ARGUMENT,
    ),
]
if not torch.distributed.is_available():  # a build of PyTorch without it has none of them
    HOOKS = []
