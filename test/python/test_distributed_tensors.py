"""Distributed tensors (DTensor) of our dtypes, over gloo: shards are codes, and what two processes compute of a tensor has one process's bits."""

import contextlib
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
from torch_dtypes._overlay import releases

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*(is deprecated|torch.jit|FSDP2-wrapped module).*"),  # PyTorch's own
]
POSIT = torch.posit16es2


def numbers(*shape, dtype=POSIT, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same(found, expected):
    assert found.dtype is expected.dtype  # as the sharding rules have it
    found = found.full_tensor() if hasattr(found, "full_tensor") else found
    assert found.dtype is expected.dtype and found.shape == expected.shape
    assert torch.equal(found, expected), (found, expected)


def network(seed=0, dtype=POSIT):
    """Sizes that two do not divide."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


# ---- DTensor ----


def tensors(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, full

    mesh = init_device_mesh(DEVICE, (2,))
    for dtype in (POSIT, torch.q43):
        x, w = numbers(7, 4, dtype=dtype), numbers(7, 5, dtype=dtype, seed=1)
        d, dw = (distribute_tensor(t, mesh, [Shard(0)]) for t in (x, w))
        assert isinstance(d, DTensor) and d.dtype is dtype and d.to_local().dtype is dtype and d.to_local().shape == ((4, 4), (3, 4))[rank]
        assert torch.equal(d.to_local(), x.chunk(2)[rank])
        for places in ([Shard(1)], [Replicate()]):
            moved = d.redistribute(mesh, places)
            assert moved.placements == tuple(places)
            same(moved, x)
        y = torch.zeros_like(d)
        y[:, 1:3] = 1.25
        expected = torch.zeros_like(x)
        expected[:, 1:3] = 1.25
        same(y, expected)
        for f in (
            lambda t, w: t + t * 1.3,
            lambda t, w: t.clone().mul_(0.7).add_(t, alpha=0.3),
            lambda t, w: torch.where(t > 0.1, t, t * 0.5),
            lambda t, w: t.softmax(1),
            lambda t, w: t.softmax(0),
            lambda t, w: t.sum(1),
            lambda t, w: torch.cat([t, t])[3:9],
            lambda t, w: t.float(),
            lambda t, w: torch.where(t > 0.1, t, t.float()),
            lambda t, w: t.to(torch.bfloat16),
            lambda t, w: t.float().to(torch.q52),
            lambda t, w: t.view(torch.int8 if t.element_size() == 1 else torch.int16).int(),  # gloo moves no int16
            lambda t, w: t.view(torch.int8 if t.element_size() == 1 else torch.int16).view(t.dtype),
            lambda t, w: torch_dtypes.from_codes(torch_dtypes.codes(t), t.dtype),
            lambda t, w: torch.view_copy(t, dtype=torch.posit8es1 if t.element_size() == 1 else torch.posit16es1),
            lambda t, w: t.max(),
            lambda t, w: torch.zeros_like(t).copy_(t.float()),
            lambda t, w: t + t.float(),
            lambda t, w: torch.nn.functional.layer_norm(t, (4,)),
            lambda t, w: t.detach().requires_grad_().square().float().exp().to(t.dtype),
        ):
            same(f(d, dw), f(x, w))

        # Sums over the ranks are rounded once: under exact and the policies that round at every step by each rank for itself.
        for policy in ("exact", "format"):
            with torch_dtypes.accumulate(policy):
                for f in (lambda t, w: t.t() @ w, lambda t, w: t.sum(0), lambda t, w: t.mean(0), lambda t, w: torch.linalg.vector_norm(t)):
                    made = f(d, dw)
                    assert not any(p.is_partial() for p in made.placements)
                    same(made, f(x, w))
        halves = [h.t().float() @ v.float() for h, v in zip(x.chunk(2), w.chunk(2), strict=True)]
        same(d.t() @ dw, (halves[0] + halves[1]).to(dtype))  # in float32

        with pytest.raises(NotImplementedError, match=f"expected a DTensor of {dtype.itemsize} bytes an element to view as {dtype}, but got"):
            d.float().view(dtype)
        part = DTensor.from_local(x, mesh, [Partial()])
        same(part, x + x)
        same(part * 1.3, (x + x) * 1.3)  # of the sum, not a sum of products
        same(DTensor.from_local(x.float() / 3, mesh, [Partial()]).to(dtype), (x.float() / 3 + x.float() / 3).to(dtype))
        same(full((5, 3), 1.3, dtype=dtype, device_mesh=mesh, placements=[Shard(0)]), torch.full((5, 3), 1.3, dtype=dtype))

        # Gradients, optimizers, clipping.
        for name in ("SGD", "Adam", "Adafactor"):
            p, q = nn.Parameter(distribute_tensor(x, mesh, [Shard(0)])), nn.Parameter(x.clone())
            assert isinstance(p, nn.Parameter) and isinstance(p, DTensor) and p.dtype is dtype
            steps = [getattr(torch.optim, name)([t], lr=0.1, **({"eps": (0.125, 0.125)} if name == "Adafactor" else {})) for t in (p, q)]
            for _ in range(2):
                for t in (p, q):
                    t.grad = None
                    with torch_dtypes.accumulate("exact"):
                        (t * t + t.to(torch.float64).exp().to(dtype)).sum().backward()
                same(p.grad, q.grad)
                with torch_dtypes.accumulate("exact"):
                    norms = [torch.nn.utils.clip_grad_norm_([t], 0.5) for t in (p, q)]
                    torch.testing.assert_close(norms[0].full_tensor(), norms[1], rtol=1e-6, atol=0)  # parts of float32, in the ranks' order
                    for step in steps:
                        step.step()
                same(p.grad, q.grad)
                same(p.detach(), q.detach())

        p, q = (t.detach().requires_grad_() for t in (d, x))
        labels = torch.arange(7) % 4
        for t, to in ((p, distribute_tensor(labels, mesh, [Shard(0)])), (q, labels)):
            torch.nn.functional.cross_entropy(t, to, reduction="sum").backward()
        same(p.grad, q.grad)

        # Of which stock's C++ asks for zeros, or a softmax's gradient, in the container's dtype.
        for place in (Shard(0), Shard(1), Replicate()):
            for f in (
                lambda t, w: (t.t() * w.t()).sum(),
                lambda t, w: ((t * 1).softmax(1) * w).sum(),
                lambda t, w: (t.log_softmax(0) * w).sum(),
                lambda t, w: (t + w).square().sum(),
                lambda t, w: torch.cat([t, w * 2], 1).square().sum(),
                lambda t, w: torch.stack([t, w]).square().sum(),
            ):
                p, q = nn.Parameter(d.redistribute(mesh, [place])), dw[:, :4].redistribute(mesh, [place])
                own, other = nn.Parameter(x.clone()), w[:, :4]
                with torch_dtypes.accumulate("exact"):
                    f(p, q).backward(), f(own, other).backward()
                same(p.grad, own.grad)

        table, row = nn.Parameter(distribute_tensor(w, mesh, [Shard(0)])), nn.Parameter(w.clone())
        index = torch.tensor([[0, 6], [3, 3]])
        for t, i in ((table, distribute_tensor(index, mesh, [Replicate()])), (row, index)):
            nn.functional.embedding(i, t).square().sum().backward()
        same(table.grad, row.grad)

        file = io.BytesIO()
        torch.save({"x": d}, file)
        file.seek(0)
        for again in (copy.deepcopy(d), torch.load(file, weights_only=True)["x"]):
            assert again.dtype is dtype and again.placements == d.placements
            same(again, x)
        assert torch.equal(d, d) and not torch.equal(d, d + 1)

    images, kernels = numbers(4, 3, 6, 6), numbers(2, 3, 3, 3, seed=1)
    a, b = (nn.Parameter(distribute_tensor(t, mesh, [place])) for t, place in ((images, Shard(0)), (kernels, Replicate())))
    for t, k in ((a, b), (images.requires_grad_(), kernels.requires_grad_())):
        nn.functional.conv2d(t, k).square().sum().backward()
    same(a.grad, images.grad)
    parts = []
    for half in images.detach().chunk(2):
        k = kernels.detach().float().requires_grad_()
        y = nn.functional.conv2d(half, kernels.detach())
        nn.functional.conv2d(half.float(), k).backward((y + y).float())
        parts.append(k.grad)
    same(b.grad, (parts[0] + parts[1]).to(POSIT))

    # In stochastic modes all ranks have one sum, whatever their generators have drawn, and which go on by themselves.
    torch.manual_seed(rank)
    d = distribute_tensor(numbers(64, 32), mesh, [Shard(0)])
    for policy in ("machine", "exact"):
        with torch_dtypes.rounding("stochastic"), torch_dtypes.accumulate(policy):
            made = d.sum(0).to_local().float()
        got = [torch.empty_like(made) for _ in range(2)]
        dist.all_gather(got, made)
        assert torch.equal(*got) and (made - numbers(64, 32).double().sum(0)).abs().max() < 0.05
    own = torch.Generator().manual_seed(rank)
    torch.randint(2**32, (2,), generator=own)  # a seed for each sum, whose words all take
    assert torch.rand(()) == torch.rand((), generator=own)
    torch.manual_seed(0)  # ranks that are alike stay so, within a block of words that are alike too
    for block in (contextlib.nullcontext, torch_dtypes.distributed.same_random):
        with block(), torch_dtypes.rounding("stochastic"):
            d.sum(0)
            made = numbers(64) * 0.3
        got = [torch.empty_like(made) for _ in range(2)]
        dist.all_gather(got, made)
        assert torch.equal(*got)

    for dtype in (POSIT, torch.q43, torch.q52, torch.posit8es1, torch.posit32es2):  # where nothing is recorded, too
        x, weight = numbers(6, 4, dtype=dtype), numbers(4, dtype=dtype, seed=1)
        d, dw = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(weight, mesh, [Replicate()])
        with torch.no_grad():
            same(nn.functional.rms_norm(d, (4,), dw), nn.functional.rms_norm(x, (4,), weight))
            same(nn.functional.rms_norm(d, (4,), eps=0.5), nn.functional.rms_norm(x, (4,), eps=0.5))

    f = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    for made, number in ((torch.zeros_like(f, dtype=POSIT), 0), (f.new_full((4, 2), 1.3, dtype=POSIT), 1.3)):
        same(made, torch.full((4, 2), number, dtype=POSIT))

    errors(mesh)
    same(functional(mesh, rank), numbers(4, 3) + numbers(4, 3, seed=1))


def errors(mesh):
    """Our dtypes' names, and no process ends."""
    from torch.distributed.tensor import Shard, distribute_tensor

    d, other = (distribute_tensor(numbers(6, 4, dtype=dtype), mesh, [Shard(0)]) for dtype in (POSIT, torch.q43))
    for call, match in (
        (lambda: d + other, "expected tensors of one number format, but got posit16es2 and q43"),
        (lambda: d @ distribute_tensor(numbers(4, 2, dtype=torch.float32), mesh, [Shard(0)]), "operands of one dtype, but got .* torch.posit16es2"),
        (lambda: dist.all_reduce(d), "c10d::allreduce_: expected tensors that are a rank's own, but got a DTensor of torch.posit16es2"),
        (lambda: d.numpy(), "torch.posit16es2"),
        (lambda: d.tolist(), "not supported for tensor subclasses"),
        (lambda: d + d.to_local(), "got mixed torch.Tensor and DTensor"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=match) as caught:
            call()
        assert not any(word in str(caught.value) for word in ("BFloat16", "Float8", "bfloat16")), caught.value
    with pytest.raises(RuntimeError, match=r"to exchange torch.posit16es2 for torch.float32, but got a FormatDTensor. Use torch.utils"):
        d.data = d.float()
    assert d.data_ptr() == 0 and d.share_memory_() is d


def functional(mesh, rank):
    import torch.distributed._functional_collectives as collectives

    return collectives.all_reduce(numbers(4, 3, seed=rank), "sum", mesh)


# ---- what holds parameters so ----


def models(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(DEVICE, (2,))
    plain, wide = MixedPrecisionPolicy(), MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for dtype, policy, sums in ((POSIT, plain, "machine"), (torch.q43, plain, "exact"), (torch.posit32es2, plain, "machine"), (POSIT, wide, "exact")):
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

    # Masters, and what rounds stochastically, on each rank's part.
    model = network()
    alone = copy.deepcopy(model)
    fully_shard(model, mesh=mesh)
    for m in (model, alone):
        optimizer = torch_dtypes.optim.LowPrecision(torch.optim.Adam(m.parameters(), lr=0.01), master=torch.float32, rounding="nearest_even")
        for _ in range(2):
            optimizer.zero_grad()
            m(numbers(8, 4, seed=1)).square().mean().backward()
            optimizer.step()
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        same(p.detach(), q.detach())

    model = fully_shard(network(dtype=torch.float32), mesh=mesh)
    model.to(POSIT)  # as a stock model is halved
    for p, q in zip(model.parameters(), network().parameters(), strict=True):
        same(p.detach(), q.detach())

    for dtype, sums in ((POSIT, "exact"), (torch.q43, "exact"), (POSIT, "machine")):
        model, x = network(dtype=dtype), numbers(5, 4, dtype=dtype, seed=1)
        model[0], model[2] = nn.Linear(4, 6).to(dtype), nn.Linear(6, 3).to(dtype)
        for p in model.parameters():
            dist.broadcast(p.detach(), 0)
        alone = copy.deepcopy(model)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, alone)]
        with torch_dtypes.accumulate(sums):
            for _ in range(2):
                y, expected = model(x), alone(x)
                if sums == "exact":
                    same(y.detach(), expected.detach())
                else:  # as many roundings, of sums in another order
                    torch.testing.assert_close(y.float(), expected.float(), rtol=2e-3, atol=2e-3)
                y.square().sum().backward(), expected.square().sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
        for p, q in zip(model.parameters(), alone.parameters(), strict=True):
            assert p.dtype is p.grad.dtype is dtype
            if sums == "exact":
                same(p.grad, q.grad)
                same(p.detach(), q.detach())
    checkpoints(mesh)


def trained(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer)
    return optimizer


def step(model, optimizer):
    model.zero_grad()
    with torch_dtypes.accumulate("exact"):
        model(numbers(8, 4, seed=1)).square().mean().backward()
    optimizer.step()


def checkpoints(mesh):
    """Saved by two; loaded by two here and, in the test, by one."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    folder = os.environ["TORCH_DTYPES_TEST_FOLDER"]
    model, other = (fully_shard(network(seed), mesh=mesh) for seed in (3, 4))
    optimizer, again = trained(model), torch.optim.Adam(other.parameters(), lr=0.01)
    parts = get_state_dict(model, optimizer)
    checkpoint.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder + "/shards")
    into = get_state_dict(other, again)
    checkpoint.load({"model": into[0], "optimizer": into[1]}, checkpoint_id=folder + "/shards")
    set_state_dict(other, again, model_state_dict=into[0], optim_state_dict=into[1])
    for _ in range(2):
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            same(p.detach(), q.detach().full_tensor())
        step(model, optimizer), step(other, again)


def killed(rank):
    """A rank that ends in the middle of training is an error on the others, here as soon as its connections close."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network(), mesh=init_device_mesh(DEVICE, (2,)))
    model(numbers(8, 4)).square().mean().backward()
    if rank == 1:
        os._exit(0)
    with pytest.raises(RuntimeError, match=r"onnection|imed out"):
        for _ in range(2):
            model(numbers(8, 4)).square().mean().backward()


@pytest.mark.skipif(DEVICE == "cuda", reason="NCCL's watchdog ends the process")
def test_a_rank_that_ends(tmp_path):
    together(killed, tmp_path, seconds=20)


whole_sums = pytest.mark.skipif(not releases.SUBCLASSES_OF_DTENSOR_DISPATCH, reason="sums over ranks are refused before PyTorch 2.12")


def unfinished_sums(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh, x = init_device_mesh(DEVICE, (dist.get_world_size(),)), numbers(4, 4)
    rows, columns = (distribute_tensor(x, mesh, [Shard(d)]) for d in (0, 1))
    same(rows * 0.7, x * 0.7)
    if releases.SUBCLASSES_OF_DTENSOR_DISPATCH:
        same(columns @ rows, x @ x)
    else:
        with pytest.raises(NotImplementedError, match=r"each rank has whole sums.*redistribute"):
            columns @ rows


def test_unfinished_sums(tmp_path):
    together(unfinished_sums, tmp_path)


@whole_sums
@pytest.mark.filterwarnings("ignore:expected a sum of a number format")  # steps of SGD have none
def test_distributed_tensors(tmp_path):
    together(tensors, tmp_path)


@whole_sums
@pytest.mark.filterwarnings("ignore:torch.distributed")  # that there is one process
def test_models(tmp_path, monkeypatch):
    import torch.distributed.checkpoint as checkpoint

    monkeypatch.setenv("TORCH_DTYPES_TEST_FOLDER", str(tmp_path))
    together(models, tmp_path)
    alone = network(3)
    trained(alone)
    state = {"model": network(9).state_dict()}
    checkpoint.load(state, checkpoint_id=tmp_path / "shards", no_dist=True)
    for found, expected in zip(state["model"].values(), alone.state_dict().values(), strict=True):
        same(found, expected)
