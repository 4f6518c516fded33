"""DistributedDataParallel of models in format dtypes, with processes over gloo."""

import copy
import datetime
import functools
import os
import time

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_dtypes
import torch_dtypes.distributed
from torch_dtypes.host import releases

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*is deprecated.*"),  # PyTorch's own
]
POSIT = torch.posit16es2
# The default is True, and PyTorch 2.11 does not have the name.
SYNCS = {"forward_sync_buffers": True} if releases.RUNNING >= (2, 13) else {}


def network(dtype=POSIT, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def batch(dtype=POSIT, seed=1, size=8):
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed)).to(dtype)


def half(x, rank):
    return x.chunk(2)[rank]


def gradients(model, x):
    model.zero_grad()
    model(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def mean_of_halves(model, x):
    """Compute each half's gradients in one process, and round their exact mean once."""
    alone = copy.deepcopy(model)
    pairs = zip(*(gradients(alone, half(x, rank)) for rank in range(2)), strict=True)
    return [((a.double() + b.double()) / 2).to(a.dtype) for a, b in pairs]


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b), (a, b)


def same_on_all_ranks(model):
    for t in (*model.parameters(), *model.buffers()):
        everyone = [torch.empty_like(t) for _ in range(2)]
        dist.all_gather(everyone, t.detach())
        assert torch.equal(*everyone)


def averages(rank):
    for dtype in (POSIT, torch.q43, torch.posit32es2):
        model, x = network(dtype, seed=rank), batch(dtype)
        # Many buckets, or one.
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001 if dtype is POSIT else None)
        same_on_all_ranks(model)  # rank 0's
        for policy in ("machine", "exact"):
            with torch_dtypes.accumulate(policy):
                expected = mean_of_halves(model, x)
                same(gradients(ddp, half(x, rank)), expected)
        whole = gradients(copy.deepcopy(model), x)
        near = dict(rtol=0.2, atol=0.1) if dtype is torch.q43 else dict(rtol=0.01, atol=2e-3)
        for mean, one in zip(expected, whole, strict=True):
            torch.testing.assert_close(mean.double(), one.double(), **near)

    # Gradients that are values of the format have the bits of one process with the whole batch.
    model = nn.Linear(4, 3, bias=True).to(POSIT)
    x, weights = (
        torch.arange(32.0).view(8, 4).to(POSIT) - 16,
        torch.tensor([1.0, -2.0, 4.0], dtype=POSIT),
    )
    alone = copy.deepcopy(model)
    with torch_dtypes.accumulate("exact"):
        (alone(x) * weights).sum(1).mean().backward()
        ddp = DistributedDataParallel(model)
        (ddp(half(x, rank)) * weights).sum(1).mean().backward()
    same([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()])


def test_averages(tmp_path):
    together(averages, tmp_path)


class Branches(nn.Module):
    """A module that uses one of its two layers."""

    def __init__(self, dtype=POSIT):
        super().__init__()
        self.a, self.b, self.never = (nn.Linear(4, 2).to(dtype) for _ in range(3))

    def forward(self, x, branch):
        return getattr(self, branch)(x)


def kinds(rank):
    x = batch()
    # Gradients of several passes are kept under no_sync and averaged with the last.
    model = network()
    alone, ddp = copy.deepcopy(model), DistributedDataParallel(model)
    first, second = batch(seed=3), batch(seed=4)
    sums = []
    for r in range(2):
        alone.zero_grad()
        for part in (first, second):
            alone(half(part, r)).square().mean().backward()
        sums.append([p.grad.clone() for p in alone.parameters()])
    with ddp.no_sync():
        ddp(half(first, rank)).square().mean().backward()
    same([p.grad for p in model.parameters()], gradients(alone, half(first, rank)))
    ddp(half(second, rank)).square().mean().backward()
    same(
        [p.grad for p in model.parameters()],
        [((a.double() + b.double()) / 2).to(POSIT) for a, b in zip(*sums, strict=True)],
    )

    # Parameters that are not always used, nor on every rank.
    torch.manual_seed(0)
    model = Branches()
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    ddp(half(x, rank), "a" if rank == 0 else "b").sum().backward()
    alone = copy.deepcopy(model)
    alone.zero_grad(set_to_none=True)
    (alone(half(x, 0), "a").sum() / 2 + alone(half(x, 1), "b").sum() / 2).backward()
    same(
        [p.grad for p in (*model.a.parameters(), *model.b.parameters())],
        [p.grad for p in (*alone.a.parameters(), *alone.b.parameters())],
    )
    assert model.never.weight.grad is None
    model.zero_grad(set_to_none=True)
    ddp(half(x, rank), "a").sum().backward()
    assert model.a.weight.grad is not None and model.b.weight.grad is None

    ddp = DistributedDataParallel(Branches())
    ddp(half(x, rank), "a").sum().backward()
    with pytest.raises(
        RuntimeError,
        match=r"a gradient for every parameter.*b.weight "
        r"\(torch.posit16es2\).*find_unused_parameters=True",
    ):
        ddp(half(x, rank), "a")

    # A static graph, with checkpointed parts.
    model = network()
    expected = mean_of_halves(model, x)
    ddp = DistributedDataParallel(model, static_graph=True)
    for _ in range(3):
        model.zero_grad()
        ddp(half(x, rank)).square().mean().backward()
        same([p.grad for p in model.parameters()], expected)

    # A model with parameters of stock dtypes and of several format dtypes.
    torch.manual_seed(rank)
    model = nn.Sequential(
        nn.Linear(4, 8),
        Cast(POSIT),
        nn.Linear(8, 8).to(POSIT),
        Cast(torch.q43),
        nn.Linear(8, 2).to(torch.q43),
        Cast(torch.float32),
    )
    ddp = DistributedDataParallel(model)
    x = batch(torch.float32)
    for _ in range(3):
        expected = mean_of_halves(model, x)
        found = gradients(ddp, half(x, rank))
        same(found[2:], expected[2:])
        torch.testing.assert_close(found[:2], expected[:2])
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad)
        same_on_all_ranks(model)

    # Buffers come from rank 0 before each forward pass.
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(POSIT)
    model[1].running_mean.fill_(rank)
    ddp = DistributedDataParallel(model, **SYNCS)
    for _ in range(2):
        ddp(half(batch(seed=5), rank)).sum().backward()
    # After rank 0's buffers arrived, both ranks go on from the same ones.
    ddp(half(batch(seed=5), 0))
    same_on_all_ranks(model)

    with pytest.raises(
        NotImplementedError,
        match=r"expected parameters of stock dtypes with join.*, but got torch.posit16es2 in "
        r"0.weight",
    ):
        with ddp.join():
            pass
    with pytest.raises(
        RuntimeError,
        match=r"tensors of one dtype on all ranks, but got torch.posit16es2 on rank 0 and "
        r"torch.q43 on rank 1",
    ):
        DistributedDataParallel(network((POSIT, torch.q43)[rank]))


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


@pytest.mark.whole
def test_kinds_of_models(tmp_path):
    together(kinds, tmp_path)


def compile_model(rank):
    """Compile inside DDP and DDP inside compile; the gradients are those of both models' steps."""
    x, compile_ = batch(), functools.partial(torch.compile, backend="aot_eager")
    for wrap in (
        lambda m: DistributedDataParallel(compile_(m)),
        lambda m: compile_(DistributedDataParallel(m)),
    ):
        model = network()
        expected, ddp = mean_of_halves(model, x), wrap(model)
        for _ in range(2):
            ddp.zero_grad()
            ddp(half(x, rank)).square().mean().backward()
            same([p.grad for p in model.parameters()], expected)
        torch._dynamo.reset()


@pytest.mark.whole
@pytest.mark.filterwarnings(
    "ignore:torch.compile runs code that works on format tensors:UserWarning"
)
def test_compiled_models(tmp_path):
    together(compile_model, tmp_path)


def train(model, ddp, rank, ranks, optimizer, steps=4):
    for step in range(steps):
        x = batch(next(model.parameters()).dtype, seed=10 + step)
        optimizer.zero_grad()
        ddp(x.chunk(ranks)[rank]).square().mean().backward()
        optimizer.step()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "low": lambda p: torch_dtypes.optim.LowPrecision(
        torch.optim.Adam(p, lr=0.01), master=torch.float32
    ),
}


def training(rank):
    folder = os.environ["TORCH_DTYPES_TEST_FOLDER"]
    for name, make in OPTIMIZERS.items():
        model = network(seed=rank)
        ddp = DistributedDataParallel(model)
        optimizer = make(ddp.parameters())
        train(model, ddp, rank, 2, optimizer)
        same_on_all_ranks(model)
        if rank == 0:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                f"{folder}/{name}.pt",
            )


@pytest.mark.whole
def test_training_goes_on_in_one_process(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_DTYPES_TEST_FOLDER", str(tmp_path))
    together(training, tmp_path)
    for name, make in OPTIMIZERS.items():
        model = network(seed=0)
        optimizer = make(model.parameters())
        saved = torch.load(tmp_path / f"{name}.pt")
        train(model, model, 0, 1, optimizer)
        for key, value in model.state_dict().items():  # close to one process
            torch.testing.assert_close(
                value.double(), saved["model"][key].double(), rtol=0.05, atol=0.02
            )
        model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"])
        train(model, model, 0, 1, optimizer, steps=1)


def train_quantised(rank):
    """Train float32 layers that round, with optimizers that round stochastically."""
    x = batch(torch.float32)
    for rule in (
        dict(weight="q43", activation="q43", error="q52", grad="q52"),
        dict(weight="mxfp8_e4m3", activation="mxfp8_e4m3"),
    ):
        model = torch_dtypes.quantize_(network(torch.float32, seed=rank), {nn.Linear: rule})
        ddp = DistributedDataParallel(model)
        same_on_all_ranks(model)
        torch.testing.assert_close(
            gradients(ddp, half(x, rank)), mean_of_halves(model, x), rtol=1e-6, atol=1e-9
        )

    for dtype, together_drawn in ((torch.float32, True), (POSIT, True), (POSIT, False)):
        model = network(dtype)
        if dtype is torch.float32:
            torch_dtypes.quantize_(model, {nn.Linear: rule})
        ddp = DistributedDataParallel(model)
        formats = (
            dict(weight="q43", master="e6m9", state="e6m9")
            if dtype is torch.float32
            else dict(master=None, grad_scale="dynamic")
        )
        optimizer = torch_dtypes.optim.LowPrecision(
            torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9), **formats
        )
        torch.manual_seed(rank)  # each rank draws other words
        for step in range(3):
            optimizer.zero_grad()
            optimizer.scale(ddp(half(batch(dtype, seed=step), rank)).square().mean()).backward()
            own = torch.default_generator.clone_state()
            if together_drawn:
                with torch_dtypes.distributed.same_random():
                    optimizer.step()
                torch.randint(2**32, (), generator=own)  # the seed, on rank 0
                assert torch.equal(own.get_state(), torch.default_generator.get_state())
            else:
                optimizer.step()
        if together_drawn:
            same_on_all_ranks(model)
            continue
        everyone = [torch.empty_like(model[0].weight) for _ in range(2)]
        dist.all_gather(everyone, model[0].weight.detach())
        assert not torch.equal(*everyone)  # the case that same_random prevents


@pytest.mark.whole
def test_quantised_models_and_low_precision(tmp_path):
    together(train_quantised, tmp_path)


def lost(rank):
    """Lose a rank that hangs, then one that is gone: the other rank gets an error."""
    x = batch()
    patient = DistributedDataParallel(network())
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    impatient = DistributedDataParallel(network(), process_group=group)
    for ddp in (patient, impatient):
        gradients(ddp, half(x, rank))
    if rank == 1:
        dist.recv(torch.empty(1))  # until the other rank has noticed the silence
        os._exit(0)  # like a killed process: its connections close
    before = time.monotonic()
    with pytest.raises(RuntimeError, match=r"(?i)timed out|timeout"):
        gradients(impatient, half(x, rank))
    assert time.monotonic() - before < 30
    dist.send(torch.ones(1), 1)
    before = time.monotonic()
    with pytest.raises(RuntimeError, match=r"(?i)closed|reset|broken"):
        for _ in range(1000):
            gradients(patient, half(x, rank))
    assert time.monotonic() - before < 60  # well below the group's timeout of 300


@pytest.mark.whole
@pytest.mark.skipif(DEVICE == "cuda", reason="NCCL's watchdog ends the process")
def test_a_rank_that_is_gone(tmp_path):
    together(lost, tmp_path)


def compression(rank):
    hook, kept = torch_dtypes.distributed.compress_hook, {}
    for dtype, sent, feedback in (
        (torch.float32, torch.q43, True),
        (POSIT, torch.q43, True),
        (torch.float32, POSIT, False),
    ):
        model = network(dtype)
        alone, ddp = copy.deepcopy(model), DistributedDataParallel(model)
        ddp.register_comm_hook(
            torch_dtypes.distributed.CompressionState(sent, error_feedback=feedback), hook
        )
        largest = 0.0
        total = exact = 0.0
        for step in range(6):
            x = batch(dtype, seed=20 + step)
            whole = torch.cat(
                [
                    ((a.double() + b.double()) / 2).flatten()
                    for a, b in zip(*(gradients(alone, half(x, r)) for r in range(2)), strict=True)
                ]
            )
            found = torch.cat([g.double().flatten() for g in gradients(ddp, half(x, rank))])
            everyone = [torch.empty_like(found) for _ in range(2)]
            dist.all_gather(everyone, found)
            assert torch.equal(*everyone)
            total, exact, largest = (
                total + found,
                exact + whole,
                max(largest, whole.abs().max().item()),
            )
            unit = 2.0**-4 if sent is torch.q43 else 2.0**-9
            torch.testing.assert_close(found, whole, rtol=0, atol=4 * unit * largest)
        kept[dtype, sent] = (total - exact).abs().max().item() / largest
    # Error feedback: the part that was rounded away is sent later, so that over six steps the error
    # is that of one step.
    assert kept[torch.float32, torch.q43] < 0.15
    with pytest.raises(TypeError):
        torch_dtypes.distributed.CompressionState(torch.float32)
    for unsigned in ("binary8p3ue", torch_dtypes.table_format([0.0, 1.0, 2.0, 4.0])):
        with pytest.raises(
            ValueError, match=r"expected a signed format for gradients, but got .*such as torch.q43"
        ):
            torch_dtypes.distributed.CompressionState(unsigned)


def test_compression(tmp_path):
    together(compression, tmp_path)
