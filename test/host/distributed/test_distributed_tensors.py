"""Distributed tensors (DTensor) of format dtypes, over gloo: shards are codes, and results on two
processes have the bits of one process."""

import copy
import io
import os

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together
from torch import nn

import torch_dtypes
import torch_dtypes.optim

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    # PyTorch's own.
    pytest.mark.filterwarnings("ignore:.*(is deprecated|torch.jit|FSDP2-wrapped module).*"),
]
POSIT = torch.posit16es2


def numbers(*shape, dtype=POSIT, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same(found, expected):
    assert found.dtype is expected.dtype  # as the sharding rules decide
    found = found.full_tensor() if hasattr(found, "full_tensor") else found
    assert found.dtype is expected.dtype and found.shape == expected.shape
    assert torch.equal(found, expected), (found, expected)


def network(seed=0, dtype=POSIT):
    """Build a network whose sizes are not divisible by two."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


# ---- DTensor ----


def on_elements(t, c):
    """Yield results that each rank computes on its own part. `c` is a stock number, the same on all
    ranks."""
    zeros, other = torch.zeros_like(t), t * 0.5
    yield from (
        t + t * 1.3,
        t.clone().mul_(0.7).add_(t, alpha=0.3),
        torch.where(t > 0.1, t, other),
        t.abs().sqrt().lerp(other, 0.3),
        t * c,
        t.clone().mul_(c),
    )
    yield from (
        t.float(),
        t.to(torch.bfloat16),
        t.float().to(torch.q52),
        torch.where(t > 0.1, t, t.float()),
        zeros.copy_(t.float()),
        t + t.float(),
    )
    yield from (
        torch.full_like(t, 1.3),
        torch.ones_like(t),
        t.clone().masked_fill_(t > 0, 0.3),
        t.clone().zero_(),
        t.clone().fill_(0.3),
    )
    yield from (
        *torch._foreach_mul([t, other], 0.3),
        *torch._foreach_add([t, other], [other, t]),
        torch.addcdiv(t, other, other, out=torch.empty_like(t)),
    )
    lists = [t.clone(), other]
    torch._foreach_mul_(lists, c), torch._foreach_lerp_(lists, [other, t], 0.25)
    yield from (*lists, t.detach().requires_grad_().float().exp().to(t.dtype))


def of_wholes(t):
    """Yield norms and the other parts of Adafactor, which each rank computes once for the whole
    tensor."""
    yield from (
        torch.linalg.vector_norm(t),
        t.norm(dim=-1, keepdim=True),
        t.norm(1, dim=0),
        torch.linalg.vector_norm(t, torch.inf),
    )
    yield from (
        t.norm(dim=-1, keepdim=True) @ t.norm(dim=0, keepdim=True),
        t.mean(0),
        t.mean((0, 1)),
        t.new_zeros(3) + 1.3,
    )


def tensors(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, full

    mesh = init_device_mesh(DEVICE, (2,))
    number = torch.tensor(0.3)
    for dtype in (POSIT, torch.q43):
        x = numbers(7, 4, dtype=dtype)
        d, c = (
            distribute_tensor(x, mesh, [Shard(0)]),
            distribute_tensor(number, mesh, [Replicate()]),
        )
        assert (
            isinstance(d, DTensor)
            and d.dtype is dtype
            and d.to_local().dtype is dtype
            and d.to_local().shape == ((4, 4), (3, 4))[rank]
        )
        assert torch.equal(d.to_local(), x.chunk(2)[rank])
        for places in ([Shard(1)], [Replicate()]):
            moved = d.redistribute(mesh, places)
            assert moved.placements == tuple(places)
            same(moved, x)
        for places in ([Shard(0)], [Shard(1)], [Replicate()]):
            there = d.redistribute(mesh, places)
            for found, expected in zip(on_elements(there, c), on_elements(x, number), strict=True):
                assert found.placements == tuple(places)
                same(found, expected)
            for policy in ("machine", "exact", "format"):
                with torch_dtypes.accumulate(policy):
                    for found, expected in zip(of_wholes(there), of_wholes(x), strict=True):
                        assert found.placements == (Replicate(),)
                        same(found, expected)
            assert there.norm().item() == x.norm().item()
            same(there.clone().add_(d), x + x)  # in place: on the device of the first
            same(there.to(torch.float32).copy_(d), x.float())
        same(DTensor.from_local(x, mesh, [Partial()]).redistribute(mesh, [Replicate()]), x + x)
        same(
            full((5, 3), 1.3, dtype=dtype, device_mesh=mesh, placements=[Shard(0)]),
            torch.full((5, 3), 1.3, dtype=dtype),
        )

        p, q = (nn.Parameter(t) for t in (d, x))
        for t in (p, q):
            t.float().square().sum().backward()  # by PyTorch's rules for float32
        assert p.grad.placements == d.placements
        same(p.grad, q.grad)

        # Optimizers, clipping.
        for name in ("SGD", "Adam", "Adafactor", "NAdam", "Adamax", "RMSprop", "ASGD"):
            p, q = nn.Parameter(distribute_tensor(x, mesh, [Shard(0)])), nn.Parameter(x.clone())
            assert isinstance(p, nn.Parameter) and isinstance(p, DTensor) and p.dtype is dtype
            eps = {"Adafactor": {"eps": (0.125, 0.125)}, "SGD": {}, "ASGD": {}}.get(
                name, {"eps": 0.125}
            )
            steps = [
                getattr(torch.optim, name)([t], lr=0.1, foreach=foreach, **eps)
                for t, foreach in ((p, name == "RMSprop"), (q, False))
            ]
            for k in range(2):
                p.grad, q.grad = distribute_tensor(x * (k + 0.7), mesh, [Shard(0)]), x * (k + 0.7)
                norms = [
                    torch.nn.utils.clip_grad_norm_([t], 0.5, foreach=bool(k) or None)
                    for t in (p, q)
                ]
                # float32 partial sums, added in the order of ranks.
                torch.testing.assert_close(norms[0].full_tensor(), norms[1], rtol=1e-6, atol=0)
                with torch_dtypes.accumulate("exact"):
                    for step in steps:
                        step.step()
                same(p.grad, q.grad)
                same(p.detach(), q.detach())

        file = io.BytesIO()
        torch.save({"x": d}, file)
        file.seek(0)
        for again in (copy.deepcopy(d), torch.load(file, weights_only=True)["x"]):
            assert again.dtype is dtype and again.placements == d.placements
            same(again, x)

    f = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    for made, filled in (
        (torch.zeros_like(f, dtype=POSIT), 0),
        (f.new_full((4, 2), 1.3, dtype=POSIT), 1.3),
    ):
        same(made, torch.full((4, 2), filled, dtype=POSIT))

    errors(mesh)
    same(functional(mesh, rank), numbers(4, 3) + numbers(4, 3, seed=1))


def expect_refusals(mesh):
    """Make calls for which PyTorch's rules, or a rank's own part, would give results other than one
    process."""
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    x, F = numbers(6, 4).abs(), nn.functional
    d, turned = (distribute_tensor(x, mesh, [Shard(dim)]) for dim in (0, 1))
    row, part, recorded = (
        distribute_tensor(x[0], mesh, [Shard(0)]),
        DTensor.from_local(x, mesh, [Partial()]),
        d.detach().requires_grad_(),
    )
    halves = DTensor.from_local(x.float(), mesh, [Partial()])
    yield from (
        lambda: d.sum(),
        lambda: d.sum(1),
        lambda: d.cumsum(0),
        lambda: d.softmax(1),
        lambda: d.max(),
        lambda: d.var(),
        lambda: d.mean(dtype=POSIT),
    )
    yield from (
        lambda: d @ d.t(),
        lambda: F.linear(d, d),
        lambda: F.layer_norm(d, (4,)),
        lambda: F.rms_norm(d, (4,)),
        lambda: F.dropout(d, 0.5),
    )
    yield from (
        lambda: F.mse_loss(d, d * 0.5),
        lambda: F.binary_cross_entropy(d, d),
        lambda: F.cross_entropy(d, d),
    )
    yield from (
        lambda: F.mse_loss(recorded, d),
        lambda: recorded.sum(),
        lambda: F.softmax(recorded, 1),
        lambda: F.layer_norm(recorded, (4,)),
    )
    yield from (
        lambda: d + turned,
        lambda: d + row,
        lambda: d.lerp(turned, 0.5),
        lambda: d.clone().add_(row),
        lambda: torch._foreach_add([d], [turned]),
    )
    yield from (
        lambda: d + d.to_local(),
        lambda: d.mul(x.float()),
        lambda: torch.where(d > 0, x, d),
        lambda: torch.equal(d, d),
    )
    yield from (
        lambda: part * 2,
        lambda: part.float(),
        lambda: part.norm(),
        lambda: halves.to(POSIT),
        lambda: d.clone().copy_(halves),
    )
    yield from (
        lambda: d.uniform_(),
        lambda: torch.rand_like(d),
        lambda: d.t(),
        lambda: d[1:3],
        lambda: d.view(-1),
        lambda: torch.cat([d, d]),
    )
    yield from (
        lambda: dist.all_reduce(d),
        lambda: d.__setitem__(0, 1.0),
        lambda: d.view(torch.int16),
        lambda: torch._foreach_max([d]),
    )


def errors(mesh):
    """Expect one error that names the formats and says what to do. No process ends."""
    from torch.distributed.tensor import Shard, distribute_tensor

    for call in expect_refusals(mesh):
        with pytest.raises(
            NotImplementedError,
            match=r"expected .* but got .*(torch.posit16es2|Partial).*[.;] [Uu]se "
            r"x\.(to_local|float)\(\), .*x.full_tensor\(\).*",
        ) as caught:
            call()
        assert not any(word in str(caught.value) for word in ("BFloat16", "Float8", "bfloat16")), (
            caught.value
        )
    d, other = (
        distribute_tensor(numbers(6, 4, dtype=dtype), mesh, [Shard(0)])
        for dtype in (POSIT, torch.q43)
    )
    for call, match in (
        (lambda: d + other, "expected tensors of one number format, but got posit16es2 and q43"),
        (lambda: d.numpy(), "torch.posit16es2"),
        (lambda: d.tolist(), "not supported for tensor subclasses"),
        (
            lambda: d.float().view(torch.q43),
            "a tensor with its own memory to view in another dtype, but got a DTensor",
        ),
        (
            lambda: torch.view_copy(d, dtype=torch.posit16es1),
            "a tensor with its own memory to view in another dtype, but got a FormatDTensor",
        ),
    ):
        with pytest.raises((RuntimeError, TypeError), match=match):
            call()
    with pytest.raises(
        RuntimeError,
        match=r"to exchange torch.posit16es2 for torch.float32, but got a FormatDTensor; use "
        r"torch.utils",
    ):
        d.data = d.float()
    assert d.data_ptr() == 0 and d.share_memory_() is d


def functional(mesh, rank):
    import torch.distributed._functional_collectives as collectives

    return collectives.all_reduce(numbers(4, 3, seed=rank), "sum", mesh)


# ---- modules that hold such parameters ----


def models(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh(DEVICE, (2,))
    plain, wide = MixedPrecisionPolicy(), MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for dtype, policy, sums in (
        (POSIT, plain, "machine"),
        (torch.q43, plain, "exact"),
        (torch.posit32es2, plain, "machine"),
        (POSIT, wide, "exact"),
    ):
        model, x = network(dtype=dtype), numbers(8, 4, dtype=dtype, seed=1)
        alone = copy.deepcopy(model)
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
        assert all(p.dtype is dtype and p.placements == (Shard(0),) for p in model.parameters())
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.1, eps=0.125) for m in (model, alone)]
        for _ in range(2):
            with torch_dtypes.accumulate(sums):
                halves = []
                for part in x.chunk(2):
                    alone.zero_grad()
                    alone(part).square().mean().backward()
                    halves.append([p.grad.double() for p in alone.parameters()])
                for p, g, h in zip(alone.parameters(), *halves, strict=True):
                    p.grad = ((g + h) / 2).to(dtype)
                model.zero_grad()
                y = model(x.chunk(2)[rank])
                same(y.detach(), alone(x.chunk(2)[rank]).detach())
                y.square().mean().backward()
                for p, q in zip(model.parameters(), alone.parameters(), strict=True):
                    same(p.grad, q.grad)
            for optimizer in optimizers:
                optimizer.step()
            for p, q in zip(model.parameters(), alone.parameters(), strict=True):
                assert p.dtype is dtype
                same(p.detach(), q.detach())

    # Masters, and parameters that round stochastically, on each rank's part.
    model = network()
    alone = copy.deepcopy(model)
    fully_shard(model, mesh=mesh)
    for m in (model, alone):
        optimizer = torch_dtypes.optim.LowPrecision(
            torch.optim.Adam(m.parameters(), lr=0.01), master=torch.float32, rounding="nearest_even"
        )
        for _ in range(2):
            optimizer.zero_grad()
            m(numbers(8, 4, seed=1)).square().mean().backward()
            optimizer.step()
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        same(p.detach(), q.detach())

    model = fully_shard(network(dtype=torch.float32), mesh=mesh)
    model.to(POSIT)  # as model.half() does to a stock model
    for p, q in zip(model.parameters(), network().parameters(), strict=True):
        same(p.detach(), q.detach())

    # A parallel plan expects a float32 model.
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel()})
    with pytest.raises(NotImplementedError, match="quantize_ has converted"):
        model(numbers(8, 4))
    checkpoints(mesh)


def train(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer)
    return optimizer


def step(model, optimizer):
    model.zero_grad()
    with torch_dtypes.accumulate("exact"):
        model(numbers(8, 4, seed=1)).square().mean().backward()
    optimizer.step()


def checkpoints(mesh):
    """Save with two processes, load with two here and with one in the test."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    folder = os.environ["TORCH_DTYPES_TEST_FOLDER"]
    model, other = (fully_shard(network(seed), mesh=mesh) for seed in (3, 4))
    optimizer, again = train(model), torch.optim.Adam(other.parameters(), lr=0.01)
    parts = get_state_dict(model, optimizer)
    checkpoint.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder + "/shards")
    into = get_state_dict(other, again)
    checkpoint.load({"model": into[0], "optimizer": into[1]}, checkpoint_id=folder + "/shards")
    set_state_dict(other, again, model_state_dict=into[0], optim_state_dict=into[1])
    for _ in range(2):
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            same(p.detach(), q.detach().full_tensor())
        step(model, optimizer), step(other, again)


def kill_rank(rank):
    """Kill a rank in the middle of training. The others get an error as soon as its connections
    close."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network(), mesh=init_device_mesh(DEVICE, (2,)))
    model(numbers(8, 4)).square().mean().backward()
    if rank == 1:
        os._exit(0)
    with pytest.raises(RuntimeError, match=r"onnection|imed out"):
        for _ in range(2):
            model(numbers(8, 4)).square().mean().backward()


@pytest.mark.whole
@pytest.mark.skipif(DEVICE == "cuda", reason="NCCL's watchdog ends the process")
def test_a_rank_that_ends(tmp_path):
    together(kill_rank, tmp_path, seconds=20)


# SGD's steps have no such sum
@pytest.mark.filterwarnings("ignore:expected a sum of a number format")
def test_distributed_tensors(tmp_path):
    together(tensors, tmp_path)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:torch.distributed")  # PyTorch notes that there is one process
def test_models(tmp_path, monkeypatch):
    import torch.distributed.checkpoint as checkpoint

    monkeypatch.setenv("TORCH_DTYPES_TEST_FOLDER", str(tmp_path))
    together(models, tmp_path)
    alone = network(3)
    train(alone)
    state = {"model": network(9).state_dict()}
    checkpoint.load(state, checkpoint_id=tmp_path / "shards", no_dist=True)
    for found, expected in zip(state["model"].values(), alone.state_dict().values(), strict=True):
        same(found, expected)
