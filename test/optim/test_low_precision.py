"""LowPrecision against steps written out by hand: the optimizers' formulas on float32, with chop
for every rounding."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import parametrize_dtypes
from small_network import masters, numbers
from torch import nn

import torch_dtypes
from torch_dtypes import chop
from torch_dtypes.optim import LowPrecision

STEPS = 6


# The oracle: formulas of SGD (Sutskever et al. 2013, as torch states it), Adam (Kingma and Ba 2015)
# and AdamW (Loshchilov and Hutter 2019).


def sgd(w, g, s, lr=0.125, momentum=0.9, weight_decay=0.01):
    g = g.add(w, alpha=weight_decay)
    s["momentum_buffer"] = (
        g.clone() if "momentum_buffer" not in s else s["momentum_buffer"] * momentum + g
    )
    return w.add(s["momentum_buffer"], alpha=-lr)


def adam(w, g, s, lr=0.01, decoupled=0.0, eps=1e-8):
    w = w * (1 - lr * decoupled)
    s.setdefault("exp_avg", torch.zeros_like(w))
    s.setdefault("exp_avg_sq", torch.zeros_like(w))
    t = s["step"] = s.get("step", 0) + 1
    s["exp_avg"] = s["exp_avg"].lerp(g, 1 - 0.9)
    s["exp_avg_sq"] = (s["exp_avg_sq"] * 0.999).addcmul(g, g, value=1 - 0.999)
    size = lr / (1 - 0.9**t)
    return w.addcdiv(
        s["exp_avg"], (s["exp_avg_sq"].sqrt() / (1 - 0.999**t) ** 0.5).add(eps), value=-size
    )


OPTIMIZERS = {
    "SGD": (sgd, dict(lr=0.125, momentum=0.9, weight_decay=0.01)),
    "Adam": (adam, dict(lr=0.01)),
    "AdamW": (lambda w, g, s: adam(w, g, s, decoupled=0.1), dict(lr=0.01, weight_decay=0.1)),
}


def by_hand(
    formula, starts, gradients, weight, grad=None, state=None, master="fp32", mode=None, scale=1.0
):
    """Weights after each step: gradients of all parameters first, then of each its states, master
    and weight. weight, grad, state and master are names; master None: the weights are updated."""

    def round_to(x, name, by=None):
        return x if name in (None, "fp32") else chop(x, name, by)

    weights = [round_to(w, weight) for w in starts]
    masters = [round_to(w, master) for w in (weights if master is None else starts)]
    states = [{} for _ in starts]
    history = []
    for at_step in gradients:
        given = [round_to(g, grad) * (1 / scale) for g in at_step]
        made = [formula(w, g, s) for w, g, s in zip(masters, given, states, strict=True)]
        for i, w in enumerate(made):
            for name in states[i]:
                if name != "step":
                    computed, states[i][name] = (
                        states[i][name],
                        round_to(states[i][name], state, mode),
                    )
                    # A state that a step divides by is never 0.
                    if name == "exp_avg_sq" and state not in (None, "fp32"):
                        smallest = torch_dtypes.format_of(state).smallest
                        states[i][name][(states[i][name] == 0) & (computed > 0)] = smallest
            if master is None:
                weights[i] = masters[i] = round_to(w, weight, mode)
            else:
                masters[i] = round_to(w, master, mode)
                weights[i] = round_to(masters[i], weight)
        history.append([w.clone() for w in weights])
    return history


def inputs(weight_format):
    starts = [chop(numbers(7, 5, seed=1), weight_format), chop(numbers(9, seed=2), weight_format)]
    gradients = [
        [numbers(*w.shape, seed=10 + 2 * i + j, scale=0.3) for j, w in enumerate(starts)]
        for i in range(STEPS)
    ]
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
    "everything in the format": (
        dict(weight="{}", grad="{}", state="{}", master=None),
        dict(weight="{}", grad="{}", state="{}", master=None),
    ),
    "accumulators": (
        dict(weight="{}", grad="{}", state="{}", master="e6m9"),
        dict(weight="{}", grad="{}", state="{}", master="e6m9"),
    ),
    "stochastic gradients": (
        dict(weight="{}", grad="{}_stochastic"),
        dict(weight="{}", grad="{}_stochastic"),
    ),
}


def named(options, name):
    return {
        key: value.format(name) if isinstance(value, str) else value
        for key, value in options.items()
    }


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
    expect_equal(
        by_wrapper(optimizer, settings, starts, gradients, rounding=mode, **ours)[0], expected
    )


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("master", [torch.float32, None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@parametrize_dtypes("q43 posit8es1 posit16es2 e5m5")
def test_parameters_of_a_dtype(dtype, optimizer, master, foreach):
    """The same values, kept in tensors of the dtype: weights, gradients, states, masters; foreach
    changes no bit of float32's formulas here."""
    formula, settings = OPTIMIZERS[optimizer]
    name = torch_dtypes.format_of(dtype) and str(dtype).removeprefix("torch.")
    starts, gradients = inputs(name)
    gradients = [[chop(g, name) for g in at_step] for at_step in gradients]
    torch.manual_seed(3)
    master_name = {torch.bfloat16: "bf16", torch.float32: "fp32", None: None}[master]
    expected = by_hand(
        formula, starts, gradients, weight=name, state=name, master=master_name, mode="stochastic"
    )
    found, wrapped = by_wrapper(
        optimizer,
        {**settings, "foreach": foreach},
        starts,
        gradients,
        dtype,
        state=dtype,
        master=master,
    )
    expect_equal(found, expected)
    for p in wrapped.param_groups[0]["params"]:
        assert p.dtype is dtype and p.grad.dtype is dtype
        assert {t.dtype for key, t in wrapped.state[p].items() if key != "step"} == {dtype}


@pytest.mark.parametrize("master", [torch.float32, None, "e6m9"], ids=str)
def test_integers_are_scaled_by_the_largest_magnitude(master):
    starts, gradients = inputs("e8m23")
    found, wrapped = by_wrapper(
        "SGD", {"lr": 0.125}, starts, gradients, weight="int8", master=master, rounding=None
    )
    kept = masters(wrapped) if master is not None else [None, None]
    for w, m in zip(found[-1], kept, strict=True):
        scale = (w if m is None else m).abs().max() / 127
        assert (
            torch.equal(w, (w / scale).round() * scale) and (w / scale).abs().max().round() == 127
        )
        if m is not None:
            assert torch.equal(
                w, torch.fake_quantize_per_tensor_affine(m, scale.item(), 0, -128, 127)
            )
    zeros, _ = by_wrapper("SGD", {}, [torch.zeros(3)], [[torch.ones(3)]] * STEPS, weight="int8")
    assert zeros[-1][0].lt(0).all()


ALONG_ONE_DIMENSION = {
    "mxfp8_e4m3_axis1": "mxfp8_e4m3",
    "bfp8_dim1": "bfp8",
    "block<e3m4,e8m0,2x4>": "block<e3m4,e8m0,4>",
}


@pytest.mark.parametrize(
    "name", ["mxfp4", "mxfp8_e4m3", "bfp8", "mxfp8_e4m3_axis1", "bfp8_dim1", "block<e3m4,e8m0,2x4>"]
)
def test_blocks(name):
    """Weights, gradients and states of blocks, by hand; stochastically without masters. A bias has
    one dimension to be cut along."""
    starts, gradients = inputs("e8m23")

    def round_to(x, **options):
        return torch_dtypes.target(
            name if x.dim() == 2 else ALONG_ONE_DIMENSION.get(name, name)
        ).quantize(x, **options)

    torch.manual_seed(3)
    weights, buffers, expected = [round_to(w) for w in starts], [None, None], []
    for at_step in gradients:
        given = [round_to(g) for g in at_step]
        made = []
        for i, g in enumerate(given):
            buffers[i] = g if buffers[i] is None else buffers[i] * 0.9 + g
            made.append(weights[i].add(buffers[i], alpha=-0.125))
        for i, w in enumerate(made):
            buffers[i] = round_to(buffers[i], rounding="stochastic")
            weights[i] = round_to(w, rounding="stochastic")
        expected.append(list(weights))
    formats = dict.fromkeys(("weight", "grad", "state"), name)
    expect_equal(
        by_wrapper(
            "SGD", {"lr": 0.125, "momentum": 0.9}, starts, gradients, master=None, **formats
        )[0],
        expected,
    )


def test_states_by_name():
    starts, gradients = inputs("q52")
    _, wrapped = by_wrapper("Adam", {}, starts, gradients, state={"exp_avg": torch.q52})
    state = next(iter(wrapped.state.values()))
    assert state["exp_avg"].dtype is torch.q52 and state["exp_avg_sq"].dtype is torch.float32
    assert not torch.equal(state["exp_avg_sq"], chop(state["exp_avg_sq"], "e5m7"))


@pytest.mark.parametrize("master", [torch.float32, None, "e6m9"], ids=str)
@pytest.mark.parametrize(
    "optimizer",
    [
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "ASGD",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    ],
)
# SGD without momentum has none.
@pytest.mark.filterwarnings("ignore:expected an optimizer with states")
def test_every_dense_optimizer(optimizer, master):
    """Weights that nothing rounds are those of the plain optimizer; rounded ones are in their
    format."""
    starts = [numbers(4, 3, seed=1), numbers(2, 5, seed=2)]
    gradients = [
        [numbers(*w.shape, seed=10 + 2 * i + j) for j, w in enumerate(starts)] for i in range(STEPS)
    ]
    params = [nn.Parameter(w.clone()) for w in starts]
    plain = getattr(torch.optim, optimizer)(params, lr=0.01)
    for at_step in gradients:
        for p, g in zip(params, at_step, strict=True):
            p.grad = g.clone()
        plain.step()
    exact, _ = by_wrapper(optimizer, {"lr": 0.01}, starts, gradients)
    for p, found in zip(params, exact[-1], strict=True):
        assert torch.equal(p.detach(), found)
    rounded, wrapped = by_wrapper(
        optimizer,
        {"lr": 0.01},
        starts,
        gradients,
        torch.posit8es2,
        state="posit8es2",
        master=master,
    )
    for found in rounded[-1]:
        assert found.isfinite().all() and torch.equal(found, chop(found, "posit8es2"))
    for states in wrapped.state.values():
        tensors = [
            s
            for key, s in states.items()
            if isinstance(s, torch.Tensor) and s.dim() and s.is_floating_point()
        ]
        assert all(torch.equal(s, chop(s, "posit8es2")) for s in tensors)


def test_stochastic_updates_do_not_stall():
    """Steps of an eighth of the distance between neighbours: to nearest the weights stay,
    stochastically they follow in the mean."""
    starts, gradients = [torch.ones(4000)], [[-torch.ones(4000)] for _ in range(STEPS)]
    ulp = 2.0**-2
    nearest, _ = by_wrapper(
        "SGD", {"lr": ulp / 8}, starts, gradients, torch.q52, master=None, rounding="nearest_even"
    )
    assert (nearest[-1][0] == 1).all()
    stochastic, _ = by_wrapper("SGD", {"lr": ulp / 8}, starts, gradients, torch.q52, master=None)
    assert stochastic[-1][0].mean().item() == pytest.approx(
        1 + STEPS * ulp / 8, abs=5 * ulp / math.sqrt(4000)
    )


def test_a_constant_scale_keeps_what_underflows():
    gradients = [[torch.full((4,), 2.0**-18)]] * STEPS
    plain, _ = by_wrapper("SGD", {"lr": 2.0**10}, [torch.ones(4)], gradients, torch.q52)
    assert (plain[-1][0] == 1).all()
    # As scale(loss).backward() makes them.
    scaled = [[g * 256 for g in at_step] for at_step in gradients]
    kept, wrapped = by_wrapper(
        "SGD", {"lr": 2.0**10}, [torch.ones(4)], scaled, torch.q52, grad_scale=256
    )
    assert wrapped.state_dict()["low_precision"]["masters"][0].tolist() == [1 - STEPS * 2.0**-8] * 4
    assert kept[-1][0].tolist() == [1.0] * 4
