"""torch.distributed refuses tensors of ours wherever they could come in, and moves their codes."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_dtypes

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*is deprecated:FutureWarning"),  # PyTorch's own, in its optimizers
]
NAMES = ("posit16es2", "q43", "posit32es2")


@pytest.fixture(autouse=True)
def group(tmp_path):
    """One process; gloo."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def refused(match, call, *args, **kwargs):
    with pytest.raises(NotImplementedError, match=match) as caught:
        call(*args, **kwargs)
    assert not any(word in str(caught.value) for word in ("BFloat16", "Float8", "captured")), caught.value


@pytest.mark.parametrize("init_sync", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_data_parallel_models(name, init_sync):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].to(torch_dtypes.dtype(name))
    refused(f"DistributedDataParallel: .* but got torch.{name} in 1.weight", DistributedDataParallel, model, init_sync=init_sync)
    buffers = nn.BatchNorm1d(2)
    buffers.running_mean = buffers.running_mean.to(torch_dtypes.dtype(name))
    refused(f"but got torch.{name} in running_mean", DistributedDataParallel, buffers, init_sync=init_sync)
    stock = DistributedDataParallel(nn.Linear(2, 2), init_sync=init_sync)
    stock(torch.ones(1, 2)).sum().backward()
    assert stock.module.weight.grad.tolist() == [[1.0, 1.0]] * 2


def test_ignored_parameters_are_the_users():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to(torch.posit16es2))
    ignored = ["1.weight", "1.bias"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    assert DistributedDataParallel(model).parameters_to_ignore.issuperset(ignored)


@pytest.mark.parametrize("name", NAMES)
def test_beneath_the_operators(name, group):
    x = torch.ones(4, dtype=torch_dtypes.dtype(name))
    backend = group._get_backend(torch.device("cpu"))
    refused(f"Reducer: .* torch.{name}", dist.Reducer, [nn.Parameter(x)], [[0]], [4], group)
    for method, arguments in {
        "allreduce": ([x],), "broadcast": ([x], dist.BroadcastOptions()), "allgather": ([[x]], [torch.ones(4)]),
        "reduce": ([x], dist.ReduceOptions()),
        "_allgather_base": (torch.ones(4), x), "alltoall_base": (x, x, [], []), "send": ([x], 0, 0), "recv": ([x], 0, 0),
    }.items():  # fmt: skip
        refused(f"Backend.{method}: .* torch.{name}", getattr(backend, method), *arguments)
    assert x.tolist() == [1.0] * 4
    y = torch.ones(4)
    backend.allreduce([y]).wait()
    assert y.tolist() == [1.0] * 4


@pytest.mark.parametrize("name", NAMES)
def test_collectives(name, group):
    import torch.distributed._functional_collectives as functional
    from torch.distributed.algorithms.model_averaging.utils import average_parameters
    from torch.distributed.optim import ZeroRedundancyOptimizer

    x = torch.ones(4, dtype=torch_dtypes.dtype(name))
    for call in [
        lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0), lambda: dist.all_gather([x], x), lambda: dist.all_gather_into_tensor(x, x),
        lambda: dist.reduce(x, 0), lambda: dist.gather(x, [x]), lambda: dist.scatter(x, [x]), lambda: dist.reduce_scatter(x, [x]),
        lambda: dist.all_to_all([x], [x]), lambda: dist.all_to_all_single(x, x), lambda: dist.isend(x, 0), lambda: dist.recv(x, 0),
        lambda: dist._broadcast_coalesced(group, [x], 1000, 0), lambda: functional.all_reduce(x, "sum", group),
        lambda: functional.all_gather_tensor(x, 0, group), lambda: functional.all_reduce_coalesced([x], "sum", group),
        lambda: functional.reduce_scatter_tensor(x, "sum", 0, group), lambda: functional.broadcast(x, 0, group),
        lambda: average_parameters(iter([nn.Parameter(x)]), group),
        ZeroRedundancyOptimizer([nn.Parameter(x)], torch.optim.SGD, lr=0.1).step,
    ]:  # fmt: skip
        refused(rf"c10d.*expected a stock dtype, but got {name}: .*codes\(x\)\.view\(torch\.uint8\)", call)


def test_sharded_models():
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh, x = init_device_mesh("cpu", (1,)), torch.ones(4, dtype=torch.posit16es2)
    refused(r"DTensor: .* torch.posit16es2: .*fully_shard", fully_shard, nn.Linear(2, 2).to(torch.posit16es2))
    refused("FullyShardedDataParallel: .* torch.posit16es2 in weight", FullyShardedDataParallel, nn.Linear(2, 2).to(torch.posit16es2))
    refused("DTensor: .* torch.posit16es2", DTensor.from_local, x, mesh, [Replicate()])
    refused("posit16es2", distribute_tensor, x, mesh, [Shard(0)])
    assert DTensor.from_local(x.float(), mesh, [Replicate()]).dtype is torch.float32


# ---- codes ----

OTHER = """
import sys, torch, torch.distributed as dist, torch_dtypes
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=1, world_size=2)
for name in sys.argv[2:]:
    x = torch.tensor([-1.5, 0.25], dtype=torch_dtypes.dtype(name))
    received = torch_dtypes.codes(torch.empty_like(x)).view(torch.uint8)
    dist.broadcast(received, src=0)
    assert torch_dtypes.from_codes(received.view(torch_dtypes.codes(x).dtype), x.dtype).tolist() == [1.0, -3.0]
    sent = torch_dtypes.codes(x).view(torch.uint8)
    dist.all_gather([torch.empty_like(sent) for _ in range(2)], sent)
dist.destroy_process_group()  # gloo's threads, running at exit, would end the process
"""


def test_codes_move_between_processes(tmp_path):
    dist.destroy_process_group()
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path / "two"), *NAMES])
    try:
        dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "two"), 2), rank=0, world_size=2)
        for name in NAMES:
            x = torch.tensor([1.0, -3.0], dtype=torch_dtypes.dtype(name))
            sent = torch_dtypes.codes(x).view(torch.uint8)
            dist.broadcast(sent, src=0)
            gathered = [torch.empty_like(sent) for _ in range(2)]
            dist.all_gather(gathered, sent)
            values = [torch_dtypes.from_codes(g.view(torch_dtypes.codes(x).dtype), x.dtype).tolist() for g in gathered]
            assert values == [[1.0, -3.0], [-1.5, 0.25]]
    finally:
        assert other.wait(60) == 0


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
    refused(f"expected a stock dtype, but got torch.{name}: a tensor without memory", Wrapper, x)
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(stock)
    for call in (lambda: stock.to(dtype), lambda: stock.type_as(x), lambda: x.copy_(stock), lambda: layer.to(dtype)):
        refused("expected a tensor with memory of its own beside a number format, but got a wrapper subclass of float32", call)
