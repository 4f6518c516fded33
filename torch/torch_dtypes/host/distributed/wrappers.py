"""What of torch.distributed goes past its operators, which know tensors of ours (Collectives.cpp),
or sorts tensors by container before: calls for each dtype, DistributedDataParallel's reducer
(data_parallel.py), and errors before codes are added up as the container's numbers, or a library's
own error speaks of something else."""

from __future__ import annotations

import functools

import torch

from ... import _C
from ..hooks.trampolines import When
from ..table import Hook, Kind
from .data_parallel import (
    expect_possible,
    join_hook,
    make_reducer,
    refuse_builtin_hook,
    refuse_in_backward,
    register_comm_hook,
)

# A backend's methods, called by hand on what ProcessGroup._get_backend gives. A process group's own
# go by operators.
BACKEND_METHODS = (
    "broadcast allreduce allreduce_coalesced reduce allgather _allgather_base "
    "allgather_coalesced gather scatter reduce_scatter _reduce_scatter_base alltoall_base "
    "alltoall send recv recv_anysource"
).split()


def _first_own(values) -> torch.Tensor | None:
    for v in values:
        if isinstance(v, torch.Tensor):
            if _C.is_format_tensor(v):
                return v
        elif isinstance(v, (list, tuple)) and (found := _first_own(v)) is not None:
            return found
    return None


def refuse_parallel(what: str, module: torch.nn.Module, instead: str) -> None:
    """For what shards a model or cuts it into stages: the error that names a parameter or buffer of
    ours, if there is one."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if _C.is_format_tensor(tensor):
            raise NotImplementedError(
                f"{what}: expected parameters and buffers of stock dtypes, but got {tensor.dtype} "
                f"in {name}. Use {instead}."
            )


def parted(stock):
    """Stock joins what it broadcasts by container: a call for each dtype where there are tensors of
    ours."""

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


def refusing(what: str):
    """An error for tensors of ours in a method of pybind11's class, which a C function in front of
    it could not look into."""

    def made(stock):
        @functools.wraps(stock)
        def method(*args, **kwargs):
            if (found := _first_own((*args, *kwargs.values()))) is not None:
                raise NotImplementedError(
                    f"{what}: expected tensors of stock dtypes, but got {found.dtype}: a "
                    "backend's own methods would take codes for numbers. Call "
                    "torch.distributed's functions, or the process group's methods."
                )
            return stock(*args, **kwargs)

        return method

    return made


def beginning(stock):
    """A block of calls that NCCL begins together (batch_isend_irecv, _coalescing_manager), of which
    none has work of its own: what is left to do of calls of ours waits for the block's."""

    @functools.wraps(stock)
    def _start_coalescing(group, device):
        stock(group, device)
        torch.ops.torch_dtypes.begin_together(group.boxed())

    return _start_coalescing


def ending(stock):
    """The block's work, which does so once it is waited for."""

    @functools.wraps(stock)
    def _end_coalescing(group, device):
        work = stock(group, device)
        both = torch.ops.torch_dtypes.end_together(
            group.boxed(), None if work is None else work.boxed()
        )
        return work if both is None else torch.distributed.Work.unbox(both)

    return _end_coalescing


def new_dtensor(stock, cls, local_tensor, spec, requires_grad=False):
    """DTensor's constructor, by which distribute_tensor, tensor parallelism and FSDP2's fully_shard
    hold parameters: one of ours is of a subclass."""
    from . import format_dtensor

    return format_dtensor.new(cls, local_tensor, spec, requires_grad)


_C10D = "torch._C._distributed_c10d"
_DDP = "torch.nn.parallel.distributed.DistributedDataParallel"

HOOKS = [
    Hook("torch.distributed._broadcast_coalesced", Kind.REPLACED, parted),
    Hook(f"{_DDP}._build_params_for_reducer", Kind.ASKED, expect_possible),
    Hook(f"{_DDP}._ddp_init_helper", Kind.ASKED, make_reducer),
    Hook(f"{_DDP}.register_comm_hook", Kind.ASKED, register_comm_hook),
    Hook(f"{_DDP}._register_builtin_comm_hook", Kind.ASKED, refuse_builtin_hook),
    Hook(f"{_DDP}._setup_in_backward_optimizers", Kind.ASKED, refuse_in_backward),
    Hook(f"{_DDP}.join_hook", Kind.ASKED, join_hook),
    Hook(f"{_C10D}.Reducer.__init__", Kind.REPLACED, refusing("Reducer")),
    *(
        Hook(f"{_C10D}.Backend.{name}", Kind.REPLACED, refusing(f"Backend.{name}"))
        for name in BACKEND_METHODS
    ),
    Hook(f"{_C10D}.ProcessGroup._start_coalescing", Kind.REPLACED, beginning),
    Hook(f"{_C10D}.ProcessGroup._end_coalescing", Kind.REPLACED, ending),
    Hook(
        "torch._C.TensorBase._dtensor__new__",
        Kind.BUILTIN,
        new_dtensor,
        When.OWN_SELF | When.OWN_ARGUMENT,
    ),
]
if not torch.distributed.is_available():  # a build of PyTorch without it has none of them
    HOOKS = []
