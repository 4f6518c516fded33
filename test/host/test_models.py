"""Whole networks and optimizers in a number format: every parameter, buffer, gradient and state
tensor has the dtype."""

import copy
import warnings

import pytest
import torch
import torch.nn.utils.prune
from representatives import thin_out
from torch import nn
from torch.nn import functional as F

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.workbench.training.models import build_model

NETWORKS = {"lenet5": 1, "cifarnet": 3, "alexnet": 3, "resnet18": 3}
DTYPES = [torch.posit16es2, torch.q52]
FORMATS = [
    torch.posit16es2,
    torch.q52,
    torch.q43,
    torch.tf32,
    torch_dtypes.dtype("posit12es1"),
    torch_dtypes.dtype("e11m30"),
]
OPTIMIZERS = {
    "SGD with momentum": lambda p, **o: torch.optim.SGD(
        p, 0.01, momentum=0.9, weight_decay=0.01, **o
    ),
    "Adam": lambda p, **o: torch.optim.Adam(p, **o),
}


pytestmark = pytest.mark.usefixtures("one_thread")


def expect_tensor(t, dtype):
    assert t.dtype is dtype and _C.is_format_tensor(t) == torch_dtypes.is_format_dtype(dtype)


def expect_model(model, dtype, *, grads=False):
    for t in model.parameters():
        expect_tensor(t, dtype)
        assert isinstance(t, nn.Parameter) and t.requires_grad and t.is_leaf
        if grads:
            assert t.grad is not None
            expect_tensor(t.grad, dtype)
    for t in model.buffers():
        expect_tensor(t, dtype if t.dtype.is_floating_point else torch.int64)


def expect_state(optimizer, dtype):
    """Check every state tensor, except the step counter and the numbers that Rprop, ASGD and
    similar keep in float32."""
    found = 0
    for parameter, state in optimizer.state.items():
        for t in state.values():
            if isinstance(t, torch.Tensor) and t.shape == parameter.shape and t.dim():
                expect_tensor(t, dtype)
                found += 1
    return found


def batch(channels, dtype, count=2):
    torch.manual_seed(3)
    return torch.rand(count, channels, 32, 32).to(dtype), torch.arange(count)


def codes(t):
    return t.detach().view(
        {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.dtype.itemsize]
    )


@pytest.fixture(scope="module")
def networks():
    made = {}
    for name, channels in NETWORKS.items():
        torch.manual_seed(0)
        made[name] = build_model(name, channels)
    return made


# Training steps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("optimizer", ["Adam", "SGD with momentum"])
@pytest.mark.parametrize("name", thin_out(NETWORKS, ("cifarnet",)))
def test_a_training_step_stays_in_the_dtype(networks, name, optimizer, dtype):
    if name == "alexnet" and (dtype is torch.q52 or optimizer == "Adam"):
        # It has all of the model's 29 million parameters, so that one is enough.
        model = copy.deepcopy(networks[name].classifier[-1])
        inputs, labels = torch.rand(2, 4096).to(dtype), torch.arange(2)
    else:
        model = copy.deepcopy(networks[name])
        inputs, labels = batch(NETWORKS[name], dtype)
    model = model.to(dtype)
    expect_model(model, dtype)
    before = [codes(p).clone() for p in model.parameters()]
    optim = OPTIMIZERS[optimizer](model.parameters())
    optim.zero_grad()
    out = model(inputs)
    expect_tensor(out, dtype)
    loss = F.cross_entropy(out, labels)
    expect_tensor(loss, dtype)
    assert loss.isfinite()
    loss.backward()
    expect_model(model, dtype, grads=True)
    optim.step()
    expect_model(model, dtype, grads=True)
    assert expect_state(optim, dtype) == len(before) * (2 if optimizer == "Adam" else 1)
    assert any(
        not torch.equal(a, codes(b)) for a, b in zip(before, model.parameters(), strict=True)
    )
    if dtype is torch.posit16es2 and optimizer != "Adam":
        assert all(p.double().isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["lenet5", "resnet18"])
def test_evaluation_and_training_modes(networks, name):
    dtype = torch.posit16es2
    model = copy.deepcopy(networks[name]).to(dtype).eval()
    inputs, _ = batch(NETWORKS[name], dtype)
    with torch.no_grad():
        out = model(inputs)
    expect_tensor(out, dtype)
    assert out.shape == (2, 10)
    reference = networks[name].eval()(inputs.float())
    torch.testing.assert_close(out.float(), reference.detach(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["q52", "q43", "e4m3fn", "posit8es1", "fixed3_4"])
def test_running_statistics_in_few_digits_are_said_once_a_conversion(name):
    """A tenth of a difference is below half a unit in the last place. Layers in float32 beside
    those in the format are the remedy."""
    dtype, conversions = (
        torch_dtypes.dtype(name),
        [lambda m, d: m.to(d), lambda m, d: m.to("cpu", d), lambda m, d: m.type(d)],
    )
    for convert in conversions:
        model = nn.Sequential(
            nn.Linear(4, 4),
            nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()),
            nn.BatchNorm1d(4),
            nn.LayerNorm(4),
        )
        with pytest.warns(
            UserWarning,
            match=rf"running statistics .* BatchNorm1d in torch.{name}: .*m.float\(\) for m in",
        ) as said:
            convert(model, dtype)
        assert len(said) == 1 and said[0].filename == __file__
    [m.float() for m in model.modules() if hasattr(m, "running_var")]
    x = torch.randn(64, 4).to(dtype)
    for _ in range(60):
        assert model(x).dtype is dtype
    inputs, norm = model[0](x).detach().double(), model[1][0]
    assert torch.allclose(norm.running_mean.double(), inputs.mean(0), atol=0.01)
    assert torch.allclose(norm.running_var.double(), inputs.var(0), rtol=0.02, atol=0.01)


def test_running_statistics_that_move_are_not_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("e8m4", "e5m5", "bf16", "posit16es2"):
            nn.BatchNorm1d(4).to(torch_dtypes.dtype(name))
        nn.BatchNorm1d(4, track_running_stats=False).to(torch.q52)
        nn.Sequential(nn.LayerNorm(4), nn.GroupNorm(2, 4)).to(torch.q52)
        norm = nn.BatchNorm1d(4).eval().to(torch.q52).train()  # built for evaluation
        norm.to("cpu").to(torch.q52)  # already in the dtype


def test_lenet5_in_posit16es2_learns_as_in_float32(networks):
    losses = {}
    for dtype in (torch.float32, torch.posit16es2):
        model = copy.deepcopy(networks["lenet5"]).to(dtype)
        inputs, labels = batch(1, dtype, 4)
        optim = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        losses[dtype] = []
        for _ in range(10):
            optim.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optim.step()
            losses[dtype].append(loss.item())
    assert losses[torch.posit16es2][-1] < 0.7 * losses[torch.posit16es2][0]
    assert losses[torch.posit16es2] == pytest.approx(losses[torch.float32], abs=0.01)


# Optimizers


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping_gradients(foreach, dtype):
    p = [nn.Parameter(torch.zeros(2, dtype=dtype)) for _ in range(2)]
    for x, g in zip(p, ([3.0, 0.0], [0.0, 4.0]), strict=True):
        x.grad = torch.tensor(g, dtype=dtype)
    total = nn.utils.clip_grad_norm_(p, 2.5, foreach=foreach)
    wide = torch.float64 if torch.finfo(dtype).bits > 40 else torch.float32
    assert total.dtype is wide and total.item() == 5.0
    for x in p:
        expect_tensor(x.grad, dtype)
    tolerance = torch.finfo(dtype).eps + 1e-6  # the stock coefficient adds 1e-6 to its divisor
    assert torch.cat([x.grad for x in p]).double().norm().item() == pytest.approx(
        2.5, rel=tolerance
    )
    nn.utils.clip_grad_value_(p, 1.0, foreach=foreach)
    assert p[0].grad.tolist() == [1.0, 0.0] and p[1].grad.tolist() == [0.0, 1.0]
    vector = nn.utils.parameters_to_vector(p)
    expect_tensor(vector, dtype)
    nn.utils.vector_to_parameters(vector + 1, p)
    assert p[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 1),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    ],
)
def test_learning_rates_change_outside_of_the_dtype(scheduler):
    optim = torch.optim.SGD([nn.Parameter(torch.ones(1, dtype=torch.q43))], 0.1)
    optim.param_groups[0]["params"][0].grad = torch.ones(1, dtype=torch.q43)
    rates = scheduler(optim)
    optim.step()
    rates.step()
    assert 0 < optim.param_groups[0]["lr"] < 0.1


def test_averaged_models():
    model = nn.Linear(2, 2).to(torch.posit16es2)
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(2):
        average.update_parameters(model)
    expect_model(average.module, torch.posit16es2)


# Modules


CONVERSIONS = [
    lambda m, d: m.to(d),
    lambda m, d: m.to(dtype=d),
    lambda m, d: m.to("cpu", d),
    lambda m, d: m.to(device="cpu", dtype=d),
    lambda m, d: m.type(d),
    lambda m, d: m.to(torch.zeros(1, dtype=d)),
    lambda m, d: m.half().to(d),
    lambda m, d: m.double().type(d),
    lambda m, d: m.to(d, non_blocking=True),
]


@pytest.mark.parametrize("name", ["lenet5", "resnet18"])
def test_every_way_of_converting_a_module(networks, name):
    for dtype in FORMATS[:4]:
        for convert in CONVERSIONS:
            small = copy.deepcopy(networks[name].features[:2])
            assert convert(small, dtype) is small
            if not isinstance(small[1], nn.BatchNorm2d) or not any(
                b.dtype is dtype and not b.dim() for b in small.buffers()
            ):
                expect_model(small, dtype)
            for back in (torch.float32, torch.bfloat16, torch.float64, torch.float16):
                for p in copy.deepcopy(small).to(back).parameters():
                    expect_tensor(p, back)
        for shorthand, stock in (
            ("float", torch.float32),
            ("half", torch.float16),
            ("bfloat16", torch.bfloat16),
            ("double", torch.float64),
        ):
            for p in getattr(copy.deepcopy(small), shorthand)().parameters():
                expect_tensor(p, stock)


def test_module_to_changes_device_and_memory_format():
    conv = nn.Conv2d(3, 4, 3).to(torch.posit16es2)
    conv.to(memory_format=torch.channels_last)
    assert (
        conv.weight.is_contiguous(memory_format=torch.channels_last)
        and conv.weight.dtype is torch.posit16es2
    )
    here = conv.weight.device
    assert conv.to("cpu").weight.dtype is conv.cpu().weight.dtype is torch.posit16es2
    expect_tensor(conv.to(here)(torch.rand(1, 3, 5, 5).to(torch.posit16es2)), torch.posit16es2)
    expect_tensor(
        nn.Conv2d(3, 4, 3).to("cpu", torch.q43, memory_format=torch.channels_last).weight, torch.q43
    )
    with pytest.raises(TypeError, match="floating point or complex"):
        nn.Linear(1, 1).to(torch.posit16es2).to(torch.int32)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_gradients_convert_with_the_module(dtype):
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.to(dtype)
    expect_model(model, dtype, grads=True)
    model.zero_grad(set_to_none=False)
    model(torch.ones(1, 2, dtype=dtype)).sum().backward()
    expect_model(model, dtype, grads=True)
    model.float()
    for p in model.parameters():
        assert p.dtype is p.grad.dtype is torch.float32


def test_tied_and_lazy_parameters():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    model.to(torch.posit16es2)
    assert model[1].weight is model[0].weight and len(list(model.parameters())) == 1
    lazy = nn.LazyLinear(2, dtype=torch.posit16es2)
    expect_tensor(lazy(torch.ones(1, 5, dtype=torch.posit16es2)), torch.posit16es2)
    expect_model(lazy, torch.posit16es2)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_data_parallel_style_utilities(dtype):
    model = nn.Linear(2, 2).to(dtype)
    out = torch.func.functional_call(
        model, dict(model.named_parameters()), torch.ones(1, 2, dtype=dtype)
    )
    expect_tensor(out, dtype)
    pruned = torch.nn.utils.prune.l1_unstructured(nn.Linear(4, 4).to(dtype), "weight", amount=0.5)
    expect_tensor(pruned(torch.ones(1, 4, dtype=dtype)), dtype)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4).to(dtype))
    expect_tensor(normed(torch.ones(1, 4, dtype=dtype)), dtype)
