"""LowPrecision: states in narrow formats, of which no step divides by 0."""

from __future__ import annotations

import warnings

import pytest
import torch
from representatives import thin_out
from third_party_optimizers import AdaHessian, DAdaptation
from torch import nn

from torch_dtypes.optim import LowPrecision
from torch_dtypes.optim.storage import Storage


@pytest.mark.parametrize(
    "mode", ["nearest_even", "toward_zero", "down", "up_down", "stochastic", "up", None]
)
@pytest.mark.parametrize(
    ("name", "largest", "smallest"),
    [
        ("q52", 1.0, 2.0**-16),
        (torch.q43, 1.0, 2.0**-9),
        ("posit8es0", 1.0, 2.0**-6),
        ("mxfp4", 4.0, 0.5),  # blocks of 32: 4 needs a scale of 1, and elements begin with 0.5
        ("mxfp4", 2.0**-20, 2.0**-23),
        ("mxfp8_e4m3", 256.0, 2.0**-9),
        ("int8", 127.0, 1.0),
        ("int8", 127 * 2.0**-30, 2.0**-30),
        ("fixed2_6", 1.0, 2.0**-6),
    ],
    ids=str,
)
def test_a_value_above_0_is_kept_as_the_smallest_number_at_its_place(name, largest, smallest, mode):
    torch.manual_seed(0)
    values = torch.tensor(
        [largest, smallest / 1000, 0.0, smallest * 2.0**-40] + [smallest / 1000] * 28
    )
    kept = Storage("state", name).keep_positive(values, mode).float()
    # To the next number, in which the others would be 0.
    moved = 2 if mode == "up_down" and name == "posit8es0" else 1
    assert (
        kept[0] > largest / 2
        and kept[2] == 0
        and (kept[[1, 3, *range(4, 32)]] >= smallest).all()
        and (kept[4:] <= moved * smallest).all()
    )
    signed = Storage("state", name).keep(-values, "nearest_even").float()
    # Where a step does not divide, numbers still become 0.
    assert name == "posit8es0" or (signed[1:] == 0).all()


BOUNDED = {
    "Adagrad": 1,
    "Adam": 3,
    "AdamW": 3,
    "Adamax": 2,
    "NAdam": 3,
    "RAdam": 3,
    "RMSprop": 1.1,
    "Adafactor": 2,
    "Adadelta": 4,
}


def train(optimizer, state, steps=60, seed=0, **options):
    """The largest change of a weight in one step, and the losses before and after them: features of
    three sizes and one that is often 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 8, generator=generator)
    t = (x[:, 0] + x[:, 1] > 0).long()
    x[:, 2:4] *= 1e-3
    x[:, 4] *= (torch.rand(64, generator=generator) < 0.05).float()
    weight = nn.Parameter(torch.randn(2, 8, generator=generator) * 0.1)
    inner = getattr(torch.optim, optimizer)([weight], **options)
    outer = inner if state is None else LowPrecision(inner, state=state)
    losses, change = [], 0.0
    torch.manual_seed(seed)
    for i in range(steps + 1):
        part = slice(8 * (i % 8), 8 * (i % 8) + 8)
        losses.append(nn.functional.cross_entropy(x @ weight.t(), t).item())
        weight.grad = torch.autograd.grad(
            nn.functional.cross_entropy(x[part] @ weight.t(), t[part]), weight
        )[0]
        before = weight.detach().clone()
        outer.step()
        change = max(change, (weight.detach() - before).abs().max().item())
    return change, losses[0], losses[-1]


@pytest.mark.parametrize("optimizer", thin_out(BOUNDED, 3))
@pytest.mark.filterwarnings("ignore:expected states in the range of their format")
def test_steps_are_as_long_as_in_float32(optimizer):
    """Adam's of at most the learning rate in float32 moved a weight by 19 in a hundred steps, since
    second moments became 0."""
    reference, _, _ = train(optimizer, None)
    for state in ("q52", "e4m3fn", "mxfp4", "nvfp4", "int8", torch.bfloat16):
        change, first, last = train(optimizer, state)
        assert change <= BOUNDED[optimizer] * reference and last <= first, state


def train_by(make, dtype, steps=100, create_graph=False):
    """The losses of a network on noisy labels before each step, and its parameters."""
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    t = (x[:, 0] + x[:, 1] + 2 * torch.randn(64) > 0).long()
    x[:, 2:4] *= 1e-3
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)
    optimizer, losses = make(model.parameters()), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(dtype)).float(), t)
        getattr(optimizer, "scale", lambda loss: loss)(loss).backward(create_graph=create_graph)
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().float() for p in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.posit8es1, torch.posit8es2], ids=str)
def test_an_optimizer_that_finds_its_rate_where_small_sums_become_the_smallest_number(dtype):
    """D-Adaptation's sums of 1e-6 times gradients are a posit's smallest number, by which its rate
    grows."""
    losses, _ = train_by(DAdaptation, dtype)
    assert not losses[-1] < losses[0]
    inner = []
    losses, _ = train_by(
        lambda params: LowPrecision(inner.append(DAdaptation(params)) or inner[0]), dtype
    )
    assert losses[-1] < 0.8 * losses[0] and inner[0].param_groups[0]["d"] < 10


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("scale", [None, 8.0])
def test_an_optimizer_that_takes_second_derivatives(scale):
    """Of float32 parameters it has the plain one's bits; of others it takes them of the parameters'
    own gradients."""
    plain = train_by(AdaHessian, torch.float32, 20, create_graph=True)
    wrapped = train_by(
        lambda params: LowPrecision(AdaHessian(params), grad_scale=scale),
        torch.float32,
        20,
        create_graph=True,
    )
    assert plain[0] == wrapped[0] and all(map(torch.equal, plain[1], wrapped[1]))
    losses, _ = train_by(AdaHessian, torch.q52, 20, create_graph=True)
    assert losses[-1] != losses[-1]  # eps is 0 in q52
    for dtype in (torch.q52, torch.posit8es2):
        losses, _ = train_by(
            lambda params: LowPrecision(AdaHessian(params), grad_scale=scale),
            dtype,
            create_graph=True,
        )
        assert losses[-1] < 0.8 * losses[0]
    with pytest.raises(
        RuntimeError,
        match=r"does not have a grad_fn|not require grad|not to have been used in the graph",
    ):
        train_by(lambda params: LowPrecision(AdaHessian(params)), torch.float32, 1)


@pytest.mark.parametrize("state", ["posit8es0", "q43"])
def test_a_format_that_does_not_fit_the_states_is_said_once(state):
    """A second moment of 0.001 times the square of 0.02, in formats whose smallest numbers are 2^-6
    and 2^-9."""
    weight = nn.Parameter(torch.ones(8))
    weight.grad = torch.full((8,), 0.02)
    optimizer = LowPrecision(torch.optim.Adam([weight]), state=state)
    with pytest.warns(
        UserWarning,
        match=f"8 of 8 numbers in exp_avg_sq below 1/1000 of .* state={state}.*mxfp8_e4m3",
    ) as said:
        optimizer.step()
    assert len(said) == 1 and said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(11):
            optimizer.step()
        for fitting in ("q52", "mxfp4", "int8", "posit16es2", torch.bfloat16):
            LowPrecision(torch.optim.Adam([weight]), state=fitting).step()


def test_states_beyond_the_range_are_said():
    weight = nn.Parameter(torch.ones(4))
    optimizer = LowPrecision(torch.optim.Adam([weight]), state=torch.q43)
    with pytest.warns(
        UserWarning,
        match=r"1 of 4 numbers in exp_avg_sq beyond the largest number of "
        r"state=torch.q43, so that they became infinite; use",
    ):
        for _ in range(10):
            weight.grad = torch.tensor([1.0, 2.0, 3.0, 300.0])
            optimizer.step()


@pytest.mark.filterwarnings(
    "ignore:Using backward.. with create_graph=True", "ignore:expected states in the range"
)
@pytest.mark.parametrize("state", ["q52", "int8", "mxfp4"])
def test_a_divisor_of_another_library_is_known_by_its_values(state):
    _, reference = train_by(
        lambda params: AdaHessian(params, lr=0.01), torch.float32, create_graph=True
    )
    losses, params = train_by(
        lambda params: LowPrecision(AdaHessian(params, lr=0.01), state=state),
        torch.float32,
        create_graph=True,
    )
    assert losses[-1] < losses[0] and max(p.abs().max() for p in params) < 2 * max(
        p.abs().max() for p in reference
    )
