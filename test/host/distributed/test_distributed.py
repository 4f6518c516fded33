"""Parts of torch.distributed that refuse format tensors: methods of a backend, sharded models,
tensors without memory."""

import new_process
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

import torch_dtypes

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    # PyTorch's optimizers cause these.
    pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*is deprecated:FutureWarning"),
]
NAMES = ("posit16es2", "q43", "posit32es2")


@pytest.fixture(autouse=True)
def group(tmp_path):
    """Start one process with gloo."""
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_it_is_there_with_the_package():
    new_process.run(
        "-c",
        "import torch, torch_dtypes; torch_dtypes.distributed.same_random",
        check=True,
        timeout=120,
    )


def expect_refusal(match, call, *args, **kwargs):
    with pytest.raises(NotImplementedError, match=match) as caught:
        call(*args, **kwargs)
    assert not any(word in str(caught.value) for word in ("BFloat16", "Float8", "captured")), (
        caught.value
    )


@pytest.mark.parametrize("init_sync", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_data_parallel_models(name, init_sync):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].to(torch_dtypes.dtype(name))
    expect_refusal(
        f"mixed_precision=, but got torch.{name} in 1.weight",
        DistributedDataParallel,
        model,
        init_sync=init_sync,
        mixed_precision=_MixedPrecision(),
    )
    expect_refusal(
        f"skip_all_reduce.*, but got torch.{name} in 1",
        DistributedDataParallel,
        model,
        init_sync=init_sync,
        skip_all_reduce_unused_params=True,
    )
    named = [("1.weight", model[1].weight)]
    expect_refusal(
        f"delay_all_reduce_named_params, but got torch.{name}",
        DistributedDataParallel,
        model,
        init_sync=init_sync,
        delay_all_reduce_named_params=named,
        param_to_hook_all_reduce=model[0].weight,
    )
    ddp = DistributedDataParallel(model, init_sync=init_sync)
    expect_refusal(f"join.*, but got torch.{name} in 1.weight", ddp.join)
    expect_refusal(
        f"builtin hook.*torch.{name} in 1.weight",
        ddp._register_builtin_comm_hook,
        dist.BuiltinCommHookType.ALLREDUCE,
    )
    stock = DistributedDataParallel(nn.Linear(2, 2), init_sync=init_sync)
    stock(torch.ones(1, 2)).sum().backward()
    assert (
        type(stock.reducer) is dist.Reducer
        and stock.module.weight.grad.tolist() == [[1.0, 1.0]] * 2
    )


def test_ignored_parameters_are_the_users():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to(torch.posit16es2))
    ignored = ["1.weight", "1.bias"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    assert DistributedDataParallel(model).parameters_to_ignore.issuperset(ignored)


@pytest.mark.parametrize("name", NAMES)
def test_beneath_the_operators(name, group):
    x = torch.ones(4, dtype=torch_dtypes.dtype(name))
    backend = group._get_backend(torch.device("cpu"))
    expect_refusal(f"Reducer: .* torch.{name}", dist.Reducer, [nn.Parameter(x)], [[0]], [4], group)
    for method, arguments in {
        "allreduce": ([x],),
        "broadcast": ([x], dist.BroadcastOptions()),
        "allgather": ([[x]], [torch.ones(4)]),
        "reduce": ([x], dist.ReduceOptions()),
        "_allgather_base": (torch.ones(4), x),
        "alltoall_base": (x, x, [], []),
        "send": ([x], 0, 0),
        "recv": ([x], 0, 0),
    }.items():
        expect_refusal(f"Backend.{method}: .* torch.{name}", getattr(backend, method), *arguments)
    assert x.tolist() == [1.0] * 4
    y = torch.ones(4)
    backend.allreduce([y]).wait()
    assert y.tolist() == [1.0] * 4


@pytest.mark.parametrize("name", NAMES)
def test_what_calls_collectives(name, group):
    from torch.distributed.algorithms.model_averaging.utils import average_parameters
    from torch.distributed.optim import ZeroRedundancyOptimizer

    x = nn.Parameter(torch.ones(4, dtype=torch_dtypes.dtype(name)))
    average_parameters(iter([x]), group)
    x.grad = torch.ones_like(x)
    ZeroRedundancyOptimizer([x], torch.optim.SGD, lr=0.5).step()
    assert x.dtype is torch_dtypes.dtype(name) and x.tolist() == [0.5] * 4


def test_sharded_models():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

    class Own(DTensor):
        pass

    mesh, x = init_device_mesh("cpu", (1,)), torch.ones(4, dtype=torch.posit16es2)
    expect_refusal(
        "FullyShardedDataParallel: .* torch.posit16es2 in weight",
        FullyShardedDataParallel,
        nn.Linear(2, 2).to(torch.posit16es2),
    )
    of_ours, stock = (DTensor.from_local(t, mesh, [Replicate()]) for t in (x, x.float()))
    expect_refusal(
        "Own: expected a local tensor of a stock dtype, but got torch.posit16es2",
        Own,
        x,
        of_ours._spec,
        requires_grad=False,
    )
    assert (
        of_ours.dtype is x.dtype
        and stock.dtype is torch.float32
        and type(stock) is type(stock * 2) is DTensor
    )


# ---- wrapper subclasses, which quantising libraries make ----


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, wrapped, dtype=None):
        return torch.Tensor._make_wrapper_subclass(cls, wrapped.shape, dtype=dtype or wrapped.dtype)

    def __init__(self, wrapped, dtype=None):
        self.wrapped = wrapped

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].wrapped)
        return function(*(a.wrapped if isinstance(a, cls) else a for a in args), **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_tensors_without_memory(name):
    dtype = torch_dtypes.dtype(name)
    x, stock = torch.ones(2, 2, dtype=dtype), Wrapper(torch.ones(2, 2))
    expect_refusal(
        f"expected a stock dtype, but got torch.{name}, which needs a tensor with memory",
        Wrapper,
        x,
    )
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(stock)
    for call in (
        lambda: stock.to(dtype),
        lambda: stock.type_as(x),
        lambda: x.copy_(stock),
        lambda: layer.to(dtype),
    ):
        expect_refusal(
            "expected a tensor with its own memory to convert to or from a number format, but got "
            "a wrapper subclass of float32",
            call,
        )
