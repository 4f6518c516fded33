"""LowPrecision: runs that stop and go on, copies, loaded masters."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from small_network import bits, masters, network, steps

import torch_dtypes
from torch_dtypes.optim import DynamicScale, LowPrecision

WAYS = {
    "masters": dict(state=torch.q52),
    "accumulators": dict(master=torch.bfloat16, state="e6m9", grad_scale=64),
    "none": dict(master=None, state=torch.posit8es2),
    "dynamic": dict(grad_scale=DynamicScale(init=2.0**20, interval=3)),
    "stochastic weights": dict(weight="q52_stochastic", grad="q52_stochastic"),
}


@pytest.mark.parametrize("first", ["model", "optimizer"])
@pytest.mark.parametrize("inner", ["Adam", "SGD"])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_resumes_bit_for_bit(way, inner, first, tmp_path):
    settings = {"Adam": {}, "SGD": dict(lr=0.1, momentum=0.9)}[inner]

    def build():
        model = network()
        optimizer = LowPrecision(
            getattr(torch.optim, inner)(model.parameters(), **settings), **WAYS[way]
        )
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    model, optimizer, scheduler = build()
    torch.manual_seed(5)
    steps(model, optimizer, range(7), scheduler)
    saved = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(),
    }
    torch.save(saved, tmp_path / "saved.pt")
    steps(model, optimizer, range(7, 12), scheduler)

    again, resumed, schedule = build()
    steps(again, resumed, range(2))  # what is loaded replaces all of it
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    parts = {"model": again, "optimizer": resumed}
    for name in (first, *(name for name in parts if name != first)):
        parts[name].load_state_dict(saved[name])
    schedule.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["rng"])
    steps(again, resumed, range(7, 12), schedule)
    assert all(map(torch.equal, bits(model), bits(again)))
    assert optimizer.loss_scale == resumed.loss_scale
    for a, b in zip(masters(optimizer), masters(resumed), strict=True):
        assert a.dtype is b.dtype and torch.equal(a.double(), b.double())


def test_loaded_masters_of_other_weights_are_not_taken():
    """The model's own checkpoint was not loaded: its weights are what there is."""
    model, other = network(seed=0), network(seed=1)
    optimizer = LowPrecision(torch.optim.SGD(model.parameters(), lr=0.0))
    optimizer.load_state_dict(
        LowPrecision(torch.optim.SGD(other.parameters(), lr=0.0)).state_dict()
    )
    before = bits(model)
    steps(model, optimizer, [0])
    assert all(map(torch.equal, before, bits(model)))


def test_copies_and_pickles_go_on_alike():
    model, optimizer = network(), None
    optimizer = LowPrecision(
        torch.optim.Adam(model.parameters()), state=torch.q52, rounding=None, grad_scale="dynamic"
    )
    steps(model, optimizer, range(3))
    other, copied = copy.deepcopy((model, optimizer))
    stream = io.BytesIO()
    torch.save((model, optimizer), stream)
    stream.seek(0)
    third, loaded = torch.load(stream, weights_only=False)
    for m, o in ((model, optimizer), (other, copied), (third, loaded)):
        steps(m, o, range(3, 8))
    assert all(map(torch.equal, bits(model), bits(other))) and all(
        map(torch.equal, bits(model), bits(third))
    )
    assert repr(copied) == repr(optimizer) and "state=torch.q52" in repr(optimizer)


def test_a_loaded_factor_is_one_that_was_found():
    """Not one that this optimizer was given, nor that of no scaling: clipping goes by
    loss_scale."""

    def build(scale):
        return LowPrecision(torch.optim.SGD(network().parameters(), lr=0.1), grad_scale=scale)

    dynamic = DynamicScale(init=2.0**10)
    for saved, loading, want in (
        (dynamic, None, 1.0),
        (dynamic, 64, 64.0),
        (128, 64, 64.0),
        (None, "dynamic", 2.0**16),
        (64, "dynamic", 2.0**16),
        (dynamic, "dynamic", 2.0**10),
    ):
        optimizer = build(loading)
        optimizer.load_state_dict(build(saved).state_dict())
        assert optimizer.loss_scale == want
    old = build(dynamic).state_dict()
    del old["low_precision"]["scale"]["is_dynamic"]
    optimizer = build("dynamic")
    optimizer.load_state_dict(old)
    assert optimizer.loss_scale == 2.0**10


@pytest.mark.parametrize(
    ("dtype", "weight"),
    [
        ("q52_stochastic", None),
        (torch.float32, "q43_stochastic"),
        (torch.float32, "mxfp4_stochastic"),
    ],
    ids=str,
)
def test_weights_without_masters_that_round_at_random_resume(weight, dtype):
    dtype = dtype if isinstance(dtype, torch.dtype) else torch_dtypes.dtype(dtype)

    def build():
        model = network().to(dtype)
        return model, LowPrecision(
            torch.optim.SGD(model.parameters(), 0.05), weight=weight, master=None
        )

    model, optimizer = build()
    steps(model, optimizer, range(3))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    state = torch.get_rng_state()
    steps(model, optimizer, range(3, 6))
    again, resumed = build()
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    torch.set_rng_state(state)
    steps(again, resumed, range(3, 6))
    assert all(map(torch.equal, bits(model), bits(again)))
