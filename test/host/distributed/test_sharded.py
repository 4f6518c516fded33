"""Sharded models and optimizers, over gloo: fully_shard that computes in format dtypes, tensor
parallel plans of quantised models, optimizer states by ZeroRedundancyOptimizer, checkpoints of
torch.distributed."""

import copy
import os

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together
from torch import nn

import torch_dtypes

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    # PyTorch's own.
    pytest.mark.filterwarnings("ignore:.*(is deprecated|torch.jit|pin_memory|FSDP|full_shard).*"),
]
POSIT = torch.posit16es2


def network(seed=0):
    """Build a network whose sizes are not divisible by two."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))


def batch(seed=1):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))


def gradients(model, x):
    model.zero_grad()
    model(x).square().mean().backward()
    return [p.grad for p in model.parameters()]


def expected_gradients(model, dtype, reduced, x):
    """Compute the gradients of float32 parameters that are rounded to a dtype: each half's
    gradients, reduced in a dtype, as float32."""
    halves = []
    for part in x.chunk(2):
        rounded = copy.deepcopy(model).to(dtype)
        halves.append([g.to(reduced).double() for g in gradients(rounded, part.to(dtype))])
    return [((a + b) / 2).to(reduced).float() for a, b in zip(*halves, strict=True)]


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b), (a - b, a, b)


def full(tensors):
    return [t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors]


# ---- fully_shard ----


def train_sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        FullyShardedDataParallel,
        MixedPrecision,
        MixedPrecisionPolicy,
        fully_shard,
    )

    mesh = init_device_mesh(DEVICE, (2,))
    policies = (
        (POSIT, None, None),
        (POSIT, torch.float32, torch.float32),
        (torch.q43, POSIT, None),
        (torch.posit32es2, None, torch.q52),
    )
    for dtype, reduced, given in policies:
        within, policy = (
            MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduced, output_dtype=out)
            for out in (None, given)
        )
        model = network()
        alone, x = copy.deepcopy(model), batch()
        for part in (model[0], model[2]):
            fully_shard(part, mesh=mesh, mp_policy=within)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        seen = []
        model[2].register_forward_pre_hook(
            lambda module, args, seen=seen: seen.append(module.weight.dtype)
        )
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (model, alone)]
        for _ in range(2):
            wanted = expected_gradients(alone, dtype, reduced or dtype, x)
            y = model(x.chunk(2)[rank])
            assert y.dtype is (given or dtype) and seen.pop() is dtype
            assert torch.equal(
                y, copy.deepcopy(alone).to(dtype)(x.chunk(2)[rank].to(dtype)).to(y.dtype)
            )
            model.zero_grad()
            y.to(dtype).square().mean().backward()
            found = full(p.grad for p in model.parameters())
            if given is not torch.q52:  # q52 rounds the gradient, too
                same(found, wanted)
            for p, g in zip(alone.parameters(), found, strict=True):
                p.grad = g
            for optimizer in optimizers:
                optimizer.step()
            assert all(p.dtype is torch.float32 for p in model.parameters())
            same(full(model.parameters()), [p.detach() for p in alone.parameters()])

    # Layers that round, with and without a policy.
    model = torch_dtypes.quantize_(
        network(), {nn.Linear: dict(weight="q43", activation="q43", error="q52", grad="q52")}
    )
    alone = copy.deepcopy(model)
    halves = [[g.clone() for g in gradients(alone, part)] for part in batch().chunk(2)]
    fully_shard(model, mesh=mesh)
    for g, a, b in zip(full(gradients(model, batch().chunk(2)[rank])), *halves, strict=True):
        torch.testing.assert_close(g, (a + b) / 2, rtol=1e-6, atol=1e-9)

    with pytest.raises(
        NotImplementedError,
        match=r"stock dtypes in mixed_precision, but got reduce_dtype=torch.q43; use fully_shard",
    ):
        FullyShardedDataParallel(
            network(),
            mixed_precision=MixedPrecision(reduce_dtype=torch.q43),
            device_id=torch.device("cpu"),
        )

    tensor_parallel(mesh)
    zero(rank)
    checkpoints(rank, mesh)


# ---- tensor parallelism ----


def tensor_parallel(mesh):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    rules = (
        dict(weight="q43", activation="q43", error="q52", grad="q52"),
        dict(weight="mxfp8_e4m3", activation="mxfp8_e4m3"),
        dict(weight="int8", activation={"format": "int8", "when": "call"}),
    )

    def make_model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32))

    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    for rule in rules:
        model = torch_dtypes.quantize_(make_model(), {nn.Linear: rule})
        alone = copy.deepcopy(model)
        parallelize_module(model, mesh, plan)
        torch.testing.assert_close(model(x), alone(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            full(gradients(model, x)), gradients(alone, x), rtol=1e-4, atol=1e-5
        )
        assert model[0].weight.to_local().shape == (32, 64)

    # chop alone rounds each shard by itself.
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    for places in ([Shard(0)], [Shard(1)], [Replicate()]):
        d = torch_dtypes.chop(distribute_tensor(x, mesh, places), "q43")
        assert d.placements == tuple(places) and torch.equal(
            d.full_tensor(), torch_dtypes.chop(x, "q43")
        )
    # The rounding of a pending sum differs from the sum of roundings.
    part = distribute_tensor(x, mesh, [Shard(0)]).sum(0)
    assert isinstance(part.placements[0], Partial)
    assert torch.equal(
        torch_dtypes.chop(part, "q43").full_tensor(), torch_dtypes.chop(part.full_tensor(), "q43")
    )


# ---- optimizer states ----


def zero(rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    for dtype in (POSIT, torch.q43):
        model = network().to(dtype)
        alone = copy.deepcopy(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        one = torch.optim.Adam(alone.parameters(), lr=0.01)
        for _ in range(3):
            for p, q in zip(model.parameters(), alone.parameters(), strict=True):
                p.grad = q.grad = torch.ones_like(p)
            optimizer.step(), one.step()
        same([p.detach() for p in model.parameters()], [p.detach() for p in alone.parameters()])
        kept = sum(len(s) for s in optimizer.optim.state.values())
        assert 0 < kept < sum(len(s) for s in one.state.values())
        optimizer.consolidate_state_dict(to=0)
        if rank == 0:
            for mine, theirs in zip(
                optimizer.state_dict()["state"].values(),
                one.state_dict()["state"].values(),
                strict=True,
            ):
                same(mine.values(), theirs.values())


# ---- checkpoints ----


def checkpoints(rank, mesh):
    """Save with two processes, then load with two and with one: replicas in format dtypes, and
    float32 shards that compute in them."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    folder = os.environ["TORCH_DTYPES_TEST_FOLDER"]
    model = network(seed=3).to(POSIT)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=f"{folder}/replicas")
    other = network(seed=4).to(POSIT)
    state = {"model": other.state_dict()}
    checkpoint.load(state, checkpoint_id=f"{folder}/replicas")
    same(state["model"].values(), model.state_dict().values())

    policy = MixedPrecisionPolicy(param_dtype=POSIT)
    model, other = (fully_shard(network(seed), mesh=mesh, mp_policy=policy) for seed in (3, 4))
    checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{folder}/shards")
    state = {"model": get_model_state_dict(other)}
    checkpoint.load(state, checkpoint_id=f"{folder}/shards")
    set_model_state_dict(other, state["model"])
    same(full(other.parameters()), full(model.parameters()))

    # An asynchronous save of shards in format dtypes: the saved copy is made first, so that steps
    # do not change it.
    model, other = (fully_shard(network(seed).to(POSIT), mesh=mesh) for seed in (3, 4))
    expected = full(model.parameters())
    saving = checkpoint.async_save(
        {"model": get_model_state_dict(model)}, checkpoint_id=f"{folder}/later"
    )
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    saving.result()
    state = {"model": get_model_state_dict(other)}
    checkpoint.load(state, checkpoint_id=f"{folder}/later")
    set_model_state_dict(other, state["model"])
    same(full(other.parameters()), expected)


@pytest.mark.filterwarnings("ignore:torch.distributed")  # PyTorch notes that there is one process
def test_shards(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_DTYPES_TEST_FOLDER", str(tmp_path))
    together(train_sharded, tmp_path)

    import torch.distributed.checkpoint as checkpoint

    for name, dtype in (("replicas", POSIT), ("shards", torch.float32), ("shards", POSIT)):
        state = {"model": network(seed=9).to(dtype).state_dict()}
        checkpoint.load(state, checkpoint_id=tmp_path / name, no_dist=True)
        same(state["model"].values(), network(seed=3).to(dtype).state_dict().values())
