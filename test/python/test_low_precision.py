"""LowPrecision against steps written out by hand: the optimizers' formulas on float32, with chop for every rounding."""

from __future__ import annotations

import copy
import io
import math
import warnings

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import chop
from torch_dtypes.optim import DynamicScale, LowPrecision

pytestmark = pytest.mark.own_process

STEPS = 6


# The oracle: formulas of SGD (Sutskever et al. 2013, as torch states it), Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019).


def sgd(w, g, s, lr=0.125, momentum=0.9, weight_decay=0.01):
    g = g.add(w, alpha=weight_decay)
    s["momentum_buffer"] = g.clone() if "momentum_buffer" not in s else s["momentum_buffer"] * momentum + g
    return w.add(s["momentum_buffer"], alpha=-lr)


def adam(w, g, s, lr=0.01, decoupled=0.0, eps=1e-8):
    w = w * (1 - lr * decoupled)
    s.setdefault("exp_avg", torch.zeros_like(w))
    s.setdefault("exp_avg_sq", torch.zeros_like(w))
    t = s["step"] = s.get("step", 0) + 1
    s["exp_avg"] = s["exp_avg"].lerp(g, 1 - 0.9)
    s["exp_avg_sq"] = (s["exp_avg_sq"] * 0.999).addcmul(g, g, value=1 - 0.999)
    size = lr / (1 - 0.9**t)
    return w.addcdiv(s["exp_avg"], (s["exp_avg_sq"].sqrt() / (1 - 0.999**t) ** 0.5).add(eps), value=-size)


OPTIMIZERS = {
    "SGD": (sgd, dict(lr=0.125, momentum=0.9, weight_decay=0.01)),
    "Adam": (adam, dict(lr=0.01)),
    "AdamW": (lambda w, g, s: adam(w, g, s, decoupled=0.1), dict(lr=0.01, weight_decay=0.1)),
}


def by_hand(formula, starts, gradients, weight, grad=None, state=None, master="fp32", mode=None, scale=1.0):
    """Weights after each step: gradients of all parameters first, then of each its states, master and weight. weight, grad, state and
    master are names; master None: the weights are updated."""

    def rounded(x, name, by=None):
        return x if name in (None, "fp32") else chop(x, name, by)

    weights = [rounded(w, weight) for w in starts]
    masters = [rounded(w, master) for w in (weights if master is None else starts)]
    states = [{} for _ in starts]
    history = []
    for at_step in gradients:
        given = [rounded(g, grad) * (1 / scale) for g in at_step]
        made = [formula(w, g, s) for w, g, s in zip(masters, given, states, strict=True)]
        for i, w in enumerate(made):
            for name in states[i]:
                if name != "step":
                    states[i][name] = rounded(states[i][name], state, mode)
            if master is None:
                weights[i] = masters[i] = rounded(w, weight, mode)
            else:
                masters[i] = rounded(w, master, mode)
                weights[i] = rounded(masters[i], weight)
        history.append([w.clone() for w in weights])
    return history


def numbers(*shape, seed=0, scale=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def inputs(weight_format):
    starts = [chop(numbers(7, 5, seed=1), weight_format), chop(numbers(9, seed=2), weight_format)]
    gradients = [[numbers(*w.shape, seed=10 + 2 * i + j, scale=0.3) for j, w in enumerate(starts)] for i in range(STEPS)]
    return starts, gradients


def by_wrapper(optimizer, settings, starts, gradients, dtype=None, seed=3, each=None, **formats):
    params = [nn.Parameter(w.clone() if dtype is None else w.to(dtype)) for w in starts]
    wrapped = LowPrecision(getattr(torch.optim, optimizer)(params, **settings), **formats)
    torch.manual_seed(seed)
    history = []
    for at_step in gradients:
        wrapped.zero_grad()
        if wrapped.loss_scale != 1:
            wrapped.scale(torch.zeros(()))
        for p, g in zip(params, at_step, strict=True):
            p.grad = g.to(p.dtype)
        wrapped.step()
        history.append([p.detach().float().clone() for p in params])
    return history, wrapped


def expect_equal(found, expected):
    assert len(found) == len(expected) == STEPS
    for got, want in zip(found, expected, strict=True):
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(expected[0][0], expected[-1][0])  # something moved


FORMATS = {
    "float32 masters, weights in the format": (dict(weight="{}"), dict(weight="{}")),
    "everything in the format": (dict(weight="{}", grad="{}", state="{}", master=None), dict(weight="{}", grad="{}", state="{}", master=None)),
    "accumulators": (dict(weight="{}", grad="{}", state="{}", master="e6m9"), dict(weight="{}", grad="{}", state="{}", master="e6m9")),
    "stochastic gradients": (dict(weight="{}", grad="{}_stochastic"), dict(weight="{}", grad="{}_stochastic")),
}


def named(options, name):
    return {key: value.format(name) if isinstance(value, str) else value for key, value in options.items()}


@pytest.mark.parametrize("mode", ["stochastic", "nearest_even", "toward_zero", None])
@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["q52", "posit8es2", "posit16es1", "fixed3_12"])
def test_floats_rounded_to_formats(name, optimizer, formats, mode):
    formula, settings = OPTIMIZERS[optimizer]
    ours, theirs = (named(options, name) for options in FORMATS[formats])
    starts, gradients = inputs(name)
    torch.manual_seed(3)
    expected = by_hand(formula, starts, gradients, mode=mode, **theirs)
    expect_equal(by_wrapper(optimizer, settings, starts, gradients, rounding=mode, **ours)[0], expected)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("master", [torch.float32, None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.q43, torch.posit8es1, torch.posit16es2, torch.e5m5], ids=str)
def test_parameters_of_a_dtype(dtype, optimizer, master, foreach):
    """The same values, kept in tensors of the dtype: weights, gradients, states, masters; foreach changes no bit of float32's formulas here."""
    formula, settings = OPTIMIZERS[optimizer]
    name = torch_dtypes.format_of(dtype) and str(dtype).removeprefix("torch.")
    starts, gradients = inputs(name)
    gradients = [[chop(g, name) for g in at_step] for at_step in gradients]
    torch.manual_seed(3)
    master_name = {torch.bfloat16: "bf16", torch.float32: "fp32", None: None}[master]
    expected = by_hand(formula, starts, gradients, weight=name, state=name, master=master_name, mode="stochastic")
    found, wrapped = by_wrapper(optimizer, {**settings, "foreach": foreach}, starts, gradients, dtype, state=dtype, master=master)
    expect_equal(found, expected)
    for p in wrapped.param_groups[0]["params"]:
        assert p.dtype is dtype and p.grad.dtype is dtype
        assert {t.dtype for key, t in wrapped.state[p].items() if key != "step"} == {dtype}


@pytest.mark.parametrize("master", [torch.float32, None, "e6m9"], ids=str)
def test_integers_are_scaled_by_the_largest_magnitude(master):
    starts, gradients = inputs("e8m23")
    found, wrapped = by_wrapper("SGD", {"lr": 0.125}, starts, gradients, weight="int8", master=master, rounding=None)
    kept = masters(wrapped) if master is not None else [None, None]
    for w, m in zip(found[-1], kept, strict=True):
        scale = (w if m is None else m).abs().max() / 127
        assert torch.equal(w, (w / scale).round() * scale) and (w / scale).abs().max().round() == 127
        if m is not None:
            assert torch.equal(w, torch.fake_quantize_per_tensor_affine(m, scale.item(), 0, -128, 127))
    zeros, _ = by_wrapper("SGD", {}, [torch.zeros(3)], [[torch.ones(3)]] * STEPS, weight="int8")
    assert zeros[-1][0].lt(0).all()


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8_e4m3", "bfp8"])
def test_blocks(name):
    """Weights, gradients and states of blocks, by hand; stochastically without masters."""
    starts, gradients = inputs("e8m23")
    rounded = torch_dtypes.target(name).quantize
    torch.manual_seed(3)
    weights, buffers, expected = [rounded(w) for w in starts], [None, None], []
    for at_step in gradients:
        given = [rounded(g) for g in at_step]
        made = []
        for i, g in enumerate(given):
            buffers[i] = g if buffers[i] is None else buffers[i] * 0.9 + g
            made.append(weights[i].add(buffers[i], alpha=-0.125))
        for i, w in enumerate(made):
            buffers[i] = rounded(buffers[i], rounding="stochastic")
            weights[i] = rounded(w, rounding="stochastic")
        expected.append(list(weights))
    formats = dict.fromkeys(("weight", "grad", "state"), name)
    expect_equal(by_wrapper("SGD", {"lr": 0.125, "momentum": 0.9}, starts, gradients, master=None, **formats)[0], expected)


def test_states_by_name():
    starts, gradients = inputs("q52")
    _, wrapped = by_wrapper("Adam", {}, starts, gradients, state={"exp_avg": torch.q52})
    state = next(iter(wrapped.state.values()))
    assert state["exp_avg"].dtype is torch.q52 and state["exp_avg_sq"].dtype is torch.float32
    assert not torch.equal(state["exp_avg_sq"], chop(state["exp_avg_sq"], "e5m7"))


@pytest.mark.parametrize("master", [torch.float32, None, "e6m9"], ids=str)
@pytest.mark.parametrize(
    "optimizer", ["Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
)
def test_every_dense_optimizer(optimizer, master):
    """Weights that nothing rounds are those of the plain optimizer; rounded ones are in their format."""
    starts = [numbers(4, 3, seed=1), numbers(2, 5, seed=2)]
    gradients = [[numbers(*w.shape, seed=10 + 2 * i + j) for j, w in enumerate(starts)] for i in range(STEPS)]
    params = [nn.Parameter(w.clone()) for w in starts]
    plain = getattr(torch.optim, optimizer)(params, lr=0.01)
    for at_step in gradients:
        for p, g in zip(params, at_step, strict=True):
            p.grad = g.clone()
        plain.step()
    exact, _ = by_wrapper(optimizer, {"lr": 0.01}, starts, gradients)
    for p, found in zip(params, exact[-1], strict=True):
        assert torch.equal(p.detach(), found)
    rounded, wrapped = by_wrapper(optimizer, {"lr": 0.01}, starts, gradients, torch.posit8es2, state="posit8es2", master=master)
    for found in rounded[-1]:
        assert found.isfinite().all() and torch.equal(found, chop(found, "posit8es2"))
    for states in wrapped.state.values():
        tensors = [s for key, s in states.items() if isinstance(s, torch.Tensor) and s.dim() and s.is_floating_point()]
        assert all(torch.equal(s, chop(s, "posit8es2")) for s in tensors)


def test_stochastic_updates_do_not_stall():
    """Steps of an eighth of the distance between neighbours: to nearest the weights stay, stochastically they follow in the mean."""
    starts, gradients = [torch.ones(4000)], [[-torch.ones(4000)] for _ in range(STEPS)]
    ulp = 2.0**-2
    nearest, _ = by_wrapper("SGD", {"lr": ulp / 8}, starts, gradients, torch.q52, master=None, rounding="nearest_even")
    assert (nearest[-1][0] == 1).all()
    stochastic, _ = by_wrapper("SGD", {"lr": ulp / 8}, starts, gradients, torch.q52, master=None)
    assert stochastic[-1][0].mean().item() == pytest.approx(1 + STEPS * ulp / 8, abs=5 * ulp / math.sqrt(4000))


def network(dtype=torch.q52, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def batch(i, dtype=torch.q52):
    return numbers(16, 4, seed=100 + i).to(dtype), torch.arange(16) % 2


def steps(model, optimizer, numbers_of_steps, scheduler=None):
    for i in numbers_of_steps:
        x, t = batch(i, next(model.parameters()).dtype)
        optimizer.zero_grad()
        optimizer.scale(nn.functional.cross_entropy(model(x), t)).backward()
        optimizer.step()
        if scheduler:
            scheduler.step()


def masters(optimizer):
    return list(optimizer.state_dict()["low_precision"]["masters"].values())


def bits(model):
    return [p.detach().double().clone() for p in model.parameters()]


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

    def made():
        model = network()
        optimizer = LowPrecision(getattr(torch.optim, inner)(model.parameters(), **settings), **WAYS[way])
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    model, optimizer, scheduler = made()
    torch.manual_seed(5)
    steps(model, optimizer, range(7), scheduler)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}
    torch.save(saved, tmp_path / "saved.pt")
    steps(model, optimizer, range(7, 12), scheduler)

    again, resumed, schedule = made()
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
    optimizer.load_state_dict(LowPrecision(torch.optim.SGD(other.parameters(), lr=0.0)).state_dict())
    before = bits(model)
    steps(model, optimizer, [0])
    assert all(map(torch.equal, before, bits(model)))


def test_copies_and_pickles_go_on_alike():
    model, optimizer = network(), None
    optimizer = LowPrecision(torch.optim.Adam(model.parameters()), state=torch.q52, rounding=None, grad_scale="dynamic")
    steps(model, optimizer, range(3))
    other, copied = copy.deepcopy((model, optimizer))
    stream = io.BytesIO()
    torch.save((model, optimizer), stream)
    stream.seek(0)
    third, loaded = torch.load(stream, weights_only=False)
    for m, o in ((model, optimizer), (other, copied), (third, loaded)):
        steps(m, o, range(3, 8))
    assert all(map(torch.equal, bits(model), bits(other))) and all(map(torch.equal, bits(model), bits(third)))
    assert repr(copied) == repr(optimizer) and "state=torch.q52" in repr(optimizer)


# Loss scaling


def test_a_constant_scale_keeps_what_underflows():
    gradients = [[torch.full((4,), 2.0**-18)]] * STEPS
    plain, _ = by_wrapper("SGD", {"lr": 2.0**10}, [torch.ones(4)], gradients, torch.q52)
    assert (plain[-1][0] == 1).all()
    scaled = [[g * 256 for g in at_step] for at_step in gradients]  # as scale(loss).backward() makes them
    kept, wrapped = by_wrapper("SGD", {"lr": 2.0**10}, [torch.ones(4)], scaled, torch.q52, grad_scale=256)
    assert wrapped.state_dict()["low_precision"]["masters"][0].tolist() == [1 - STEPS * 2.0**-8] * 4
    assert kept[-1][0].tolist() == [1.0] * 4


@pytest.mark.parametrize("factors", [(2.0, 0.5), (4.0, 0.25), (3.0, 0.3)])
def test_a_dynamic_scale_moves_as_gradscaler_s(factors):
    growth, backoff = factors
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    ours = LowPrecision(torch.optim.SGD([p], lr=0.25), grad_scale=DynamicScale(1024.0, growth, backoff, 3))
    stock = torch.optim.SGD([q], lr=0.25)
    scaler = torch.amp.GradScaler("cpu", 1024.0, growth, backoff, 3)
    bad = {4, 5, 9, 13, 20}
    for i in range(28):
        for optimizer, parameter, scale in ((ours, p, ours.scale), (stock, q, scaler.scale)):
            optimizer.zero_grad()
            scale((parameter * parameter).sum() / 3).backward()
            if i in bad:
                parameter.grad[1] = math.inf if i % 2 else math.nan
        ours.step()
        scaler.step(stock)
        scaler.update()
        assert torch.tensor(ours.loss_scale) == scaler.get_scale() and torch.equal(p, q)


# format, a gradient that overflows there, one just below
OVERFLOWS = [
    ("q52", math.inf, 57344.0), ("e4m3fn", 1000.0, 448.0), ("e4m3fn_saturate", 448.0, 416.0), ("posit8es1", 5000.0, 1024.0),
    ("posit8es1", math.nan, 1024.0), ("fixed4_3", 20.0, 15.75), ("e2m1finite", 7.0, 4.0), ("fp16", 70000.0, 65504.0),
]  # fmt: skip


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("name", "bad", "good"), OVERFLOWS, ids=str)
def test_overflow_is_seen_in_every_format(name, bad, good, native):
    dtype = torch.float16 if name == "fp16" else torch_dtypes.dtype(name)
    p = nn.Parameter(torch.ones(3).to(dtype if native else torch.float32))
    optimizer = LowPrecision(torch.optim.SGD([p], lr=2.0**-12), grad=None if native else name, grad_scale=DynamicScale(init=4.0))
    for value, scale in ((good, 4.0), (bad, 2.0), (-bad, 1.0), (good, 1.0)):
        optimizer.scale(torch.ones(()))
        before = next(iter(masters(optimizer)), p.detach()).clone()
        p.grad = torch.tensor([0.5, value, -0.5]).to(p.dtype)
        optimizer.step()
        assert optimizer.loss_scale == scale
        after = next(iter(masters(optimizer)), p.detach())
        assert torch.equal(before, after) == (value is not good)


def test_a_factor_that_the_loss_s_dtype_rounds_is_what_the_step_divides_by():
    """posit8es1 has no 2048, and 1000 is 1024 in q52."""
    for dtype, factor in ((torch.posit8es1, 2048.0), (torch.q52, 1000.0), (torch.float32, 1000.0)):
        p = nn.Parameter(torch.ones(1, dtype=dtype))
        optimizer = LowPrecision(torch.optim.SGD([p], lr=1.0), weight=None if dtype is not torch.float32 else "q43", grad_scale=factor)
        optimizer.scale((p * 2.0**-5).sum()).backward()
        optimizer.step()
        assert 1 - masters(optimizer)[0].item() == pytest.approx(2.0**-5, rel=1e-6)
    optimizer.scale(torch.ones((), dtype=torch.float32))
    with pytest.raises(RuntimeError, match=r"in which the factor of 1000 is one number, but got torch.q52"):
        optimizer.scale(torch.ones((), dtype=torch.q52))


@pytest.mark.parametrize(("dtype", "largest"), [(torch.posit8es1, 4096), (torch.posit8es0, 64), (torch.q52, 57344)], ids=str)
def test_a_factor_beyond_the_loss_s_dtype_is_overflow(dtype, largest):
    """It is the first gradient of the backward pass, and saturates in silence."""
    p = nn.Parameter(torch.tensor([1.0], dtype=dtype))
    optimizer = LowPrecision(torch.optim.SGD([p], lr=2.0**-4), grad_scale=DynamicScale(init=2.0**16))
    for _ in range(40):
        optimizer.zero_grad()
        before = masters(optimizer)[0].clone()
        factor = optimizer.loss_scale
        optimizer.scale((p * 2.0**-5).sum()).backward()
        optimizer.step()
        if not torch.equal(before, masters(optimizer)[0]):
            break
    assert factor < largest and before - masters(optimizer)[0] == 2.0**-9


@pytest.mark.parametrize("dtype", [torch.q52, torch.posit8es2], ids=str)
def test_gradscaler_beside(dtype):
    model = network(dtype)
    optimizer, scaler = LowPrecision(torch.optim.SGD(model.parameters(), lr=0.1)), torch.amp.GradScaler("cpu", init_scale=4.0)
    reference = network(dtype)
    plain = LowPrecision(torch.optim.SGD(reference.parameters(), lr=0.1))
    for i in range(4):
        x, t = batch(i, dtype)
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), t)).backward()
        if i == 2:
            model[0].weight.grad[0, 0] = torch.tensor(math.nan)
        scaler.unscale_(optimizer)
        if i != 2:
            plain.zero_grad()
            for p, r in zip(model.parameters(), reference.parameters(), strict=True):
                r.grad = p.grad.clone()
            plain.step()
        scaler.step(optimizer)
        scaler.update()
        assert all(map(torch.equal, bits(model), bits(reference)))
    assert scaler.get_scale() == 2.0


# Around the step


def test_schedulers_groups_and_hooks():
    model = network()
    inner = torch.optim.SGD(model[0].parameters(), lr=0.5)
    optimizer = LowPrecision(inner)
    optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.25})
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(optimizer.param_groups[1]["lr"]))
    steps(model, optimizer, range(3), scheduler)
    assert seen == [0.25, 0.125, 0.25 / 3] and optimizer.param_groups is inner.param_groups
    assert len(optimizer.state_dict()["low_precision"]["masters"]) == 4
    with pytest.raises(ValueError, match="expected parameters of floating-point dtypes"):
        optimizer.add_param_group({"params": [torch.zeros(2, dtype=torch.complex64)]})
    assert len(optimizer.param_groups) == 2
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad.eq(0).all() and p.grad.dtype is torch.q52 for p in model.parameters())
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_names_that_no_state_has():
    weight = torch.zeros(3, requires_grad=True)
    optimizer = LowPrecision(torch.optim.Adam([weight]), state={"exp_avg": "q52", "momentum_buffer": "q43"})
    optimizer.step()  # without gradients there are no states
    weight.grad = torch.ones(3)
    with pytest.raises(ValueError, match="'momentum_buffer'; there are 'exp_avg', 'exp_avg_sq', 'step'"):
        optimizer.step()
    with pytest.raises(TypeError, match="expected a closure"):
        LowPrecision(torch.optim.Adam([weight])).step(3)


def test_closures_are_called_once():
    model, reference, calls = network(), network(), []
    optimizer = LowPrecision(torch.optim.SGD(model.parameters(), lr=0.1), grad_scale=8)
    plain = LowPrecision(torch.optim.SGD(reference.parameters(), lr=0.1), grad_scale=8)
    x, t = batch(0)

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), t)
        optimizer.scale(loss).backward()
        return loss

    loss = optimizer.step(closure)
    steps(reference, plain, [0])
    assert len(calls) == 1 and loss.item() > 0 and all(map(torch.equal, bits(model), bits(reference)))


def test_parameters_without_gradients_stay():
    model = network()
    optimizer = LowPrecision(torch.optim.Adam(model.parameters()), master=None, state="q52")
    x, t = batch(0)
    nn.functional.cross_entropy(model(x), t).backward()
    before = bits(model)
    model[0].weight.grad = None
    optimizer.step()
    stays = [torch.equal(a, b) for a, b in zip(before, bits(model), strict=True)]
    assert stays[0] and not all(stays) and model[0].weight not in optimizer.state


def test_a_step_that_fails_leaves_groups_and_states():
    model = network()
    inner = torch.optim.Adam(model.parameters())
    optimizer = LowPrecision(inner, state=torch.q52)
    steps(model, optimizer, range(2))
    inner.register_step_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        steps(model, optimizer, range(1))
    assert all(map(lambda a, b: a is b, optimizer.param_groups[0]["params"], model.parameters()))
    assert list(optimizer.state) == list(model.parameters()) and len(optimizer.state_dict()["state"]) == 4


def test_weights_changed_by_hand_become_masters():
    """A checkpoint that is loaded after the optimizer was made; a weight that is clipped."""
    model, pretrained = network(seed=0), network(seed=1)
    optimizer = LowPrecision(torch.optim.SGD(model.parameters(), lr=2.0**-6))
    model.load_state_dict(pretrained.state_dict())
    steps(model, optimizer, [0])
    fresh = LowPrecision(torch.optim.SGD(pretrained.parameters(), lr=2.0**-6))
    steps(pretrained, fresh, [0])
    assert all(map(torch.equal, bits(model), bits(pretrained)))
    before = optimizer.state_dict()["low_precision"]["masters"][0].clone()
    with torch.no_grad():
        model[0].weight[0, 0] = 3.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    after = optimizer.state_dict()["low_precision"]["masters"][0]
    assert after[0, 0] == 3.0 and torch.equal(after.flatten()[1:], before.flatten()[1:])


def test_a_model_moved_after_its_optimizer_was_made_has_unrounded_masters():
    model = network(torch.float32)
    exact = bits(model)
    optimizer = LowPrecision(torch.optim.SGD(model.parameters(), lr=0.0), weight="q52")
    for m, w in zip(masters(optimizer), exact, strict=True):
        assert torch.equal(m.double(), w)
    model.to(torch.q52)
    steps(model, optimizer, range(2))
    for m, w in zip(masters(optimizer), exact, strict=True):
        assert torch.equal(m.double(), w)


def test_wide_formats_compute_in_float64():
    p = nn.Parameter(torch.tensor([1 / 3], dtype=torch.float64).to(torch.posit32es2))
    optimizer = LowPrecision(torch.optim.SGD([p], lr=1.0), master=torch.float64)
    start = p.detach().double()
    p.grad = torch.full((1,), 2.0**-30, dtype=torch.posit32es2)
    optimizer.step()
    assert optimizer.state_dict()["low_precision"]["masters"][0].item() == start.item() - 2.0**-30
    with pytest.raises(ValueError, match=r"expected masters that hold all values of torch.posit32es2, but got master=torch.float32"):
        LowPrecision(torch.optim.SGD([p], lr=1.0))


class _Own(torch.optim.Optimizer):
    """A user's optimizer: sign descent, which keeps a state of its own and needs nothing of torch's."""

    def __init__(self, params):
        super().__init__(params, {"lr": 2.0**-4})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    assert p.dtype is p.grad.dtype is torch.float32
                    self.state[p]["last"] = p.grad.sign()
                    with torch.no_grad():
                        p.sub_(self.state[p]["last"] * group["lr"])


class _Searching(_Own):
    def step(self, closure):
        return closure()


def test_a_user_s_optimizer():
    model = network()
    optimizer = LowPrecision(_Own(model.parameters()), state=torch.posit8es2)
    steps(model, optimizer, range(2))
    assert optimizer.state[model[0].weight]["last"].dtype is torch.posit8es2


# Errors


def test_what_cannot_be_wrapped():
    model = network(torch.float32)
    params = list(model.parameters())
    for given, message in [
        (torch.optim.LBFGS(params), "expected an optimizer whose step needs one gradient, but got LBFGS"),
        (_Searching(params), "whose step needs one gradient, but got _Searching"),
        (torch.optim.SparseAdam(params), "expected an optimizer of dense gradients, but got SparseAdam"),
        (model, "expected a torch.optim.Optimizer, but got Sequential"),
        (LowPrecision(torch.optim.SGD(params)), "not wrapped yet"),
    ]:
        with pytest.raises(TypeError, match=message):
            LowPrecision(given)
    with pytest.raises(ValueError, match="expected differentiable=False"):
        LowPrecision(torch.optim.SGD(params, differentiable=True))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(weight="q99x"), ValueError, "weight: expected the name of something to round to"),
        (dict(state={"exp_avg": 3}), TypeError, r"state\['exp_avg'\]: expected"),
        (dict(weight=torch.int32), ValueError, "expected weight in a floating-point dtype or another number format, but got torch.int32"),
        (dict(rounding="random"), ValueError, "expected a rounding mode"),
        (dict(grad_scale=0), ValueError, "expected grad_scale to be a finite number above 0, but got 0"),
        (dict(grad_scale=math.inf), ValueError, "expected grad_scale to be a finite number above 0, but got inf"),
        (dict(grad_scale="auto"), ValueError, "expected grad_scale as a number, 'dynamic', a DynamicScale or None, but got 'auto'"),
        (dict(grad_scale=True), TypeError, "expected grad_scale as a number, but got True"),
        (dict(grad="fixed3_4_wrap", grad_scale="dynamic"), ValueError, "but got fixed3_4_wrap, which wraps"),
    ],
)
def test_wrong_formats_and_scales(options, error, message):
    with pytest.raises(error, match=message):
        LowPrecision(torch.optim.SGD(network(torch.float32).parameters()), **options)


@pytest.mark.parametrize("options", [dict(init=0), dict(growth=1), dict(backoff=1), dict(interval=0), dict(backoff=math.nan)], ids=str)
def test_wrong_dynamic_scales(options):
    with pytest.raises(ValueError, match="expected " + next(iter(options))):
        DynamicScale(**options)


def test_a_weight_format_beside_another_dtype():
    with pytest.raises(ValueError, match=r"got weight=posit8es1 beside parameters of torch.q52"):
        LowPrecision(torch.optim.SGD(network().parameters()), weight="posit8es1")
    with pytest.raises(ValueError, match=r"got weight=torch.float32 beside parameters of torch.q52"):
        LowPrecision(torch.optim.SGD(network().parameters()), weight=torch.float32)


def test_steps_that_lack_something():
    model = network()
    optimizer = LowPrecision(torch.optim.SGD(model.parameters()), grad_scale=16)
    with pytest.raises(RuntimeError, match="expected gradients of a loss scaled by 16, but got a step without one"):
        optimizer.step()
    with pytest.raises(TypeError, match="expected the loss as a tensor"):
        optimizer.scale(3.0)
    embedding = nn.Embedding(4, 3, sparse=True)
    optimizer = LowPrecision(torch.optim.SGD(embedding.parameters()))
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="expected dense gradients"):
        optimizer.step()


def test_other_optimizers_state_is_refused():
    model = network()
    inner = torch.optim.Adam(model.parameters())
    plain = inner.state_dict()
    optimizer = LowPrecision(inner)
    with pytest.raises(ValueError, match="expected a state_dict of LowPrecision, but got one with 'state', 'param_groups'"):
        optimizer.load_state_dict(plain)
    without = LowPrecision(torch.optim.Adam(network().parameters()), master=None)
    with pytest.raises(ValueError, match=r"expected masters as 0: torch.float32 of .*, but got none"):
        optimizer.load_state_dict(without.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(optimizer.state_dict())
