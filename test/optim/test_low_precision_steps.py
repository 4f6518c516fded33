"""LowPrecision: what goes on around a step, and what is refused before any."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from small_network import batch, bits, masters, network, steps
from torch import nn

from torch_dtypes.optim import DynamicScale, LowPrecision


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
    optimizer = LowPrecision(
        torch.optim.Adam([weight]), state={"exp_avg": "q52", "momentum_buffer": "q43"}
    )
    optimizer.step()  # without gradients there are no states
    weight.grad = torch.ones(3)
    with pytest.raises(
        ValueError, match="'momentum_buffer'; there are 'exp_avg', 'exp_avg_sq', 'step'"
    ):
        optimizer.step()
    with pytest.raises(TypeError, match="expected None or a closure"):
        LowPrecision(torch.optim.Adam([weight])).step(3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_format_of_states_that_there_are_none_of(momentum):
    p = nn.Parameter(torch.ones(2))
    optimizer = copy.deepcopy(
        LowPrecision(torch.optim.SGD([p], 0.1, momentum=momentum), state="q52")
    )
    (p,) = optimizer.param_groups[0]["params"]
    optimizer.step()  # without gradients: nothing is known yet
    p.grad = torch.ones(2)
    if momentum:
        optimizer.step()
    else:
        with pytest.warns(
            UserWarning,
            match=r"expected an optimizer with states for state=q52, but got SGD without "
            r"any; .*momentum=",
        ) as said:
            optimizer.step()
        assert said[0].filename == __file__
    optimizer.step()  # and once said is enough


@pytest.mark.parametrize(
    "state", ["posit16es2", torch.bfloat16, {"square_avg": "q52"}, {"grad_avg": "int8"}], ids=str
)
def test_a_centred_variance_that_rounding_makes_negative_is_refused(state):
    """avg(g^2) - avg(g)^2 of two rounded states is below 0 where gradients vary little."""
    p = nn.Parameter(torch.zeros(3))
    with pytest.raises(
        ValueError,
        match=r"expected (square|grad)_avg in float32 with centered=True, .* but got state=.*; use "
        r"centered=False, or",
    ):
        LowPrecision(torch.optim.RMSprop([p], centered=True), state=state)
    optimizer = LowPrecision(torch.optim.RMSprop([p]), state=state)
    with pytest.raises(ValueError, match="centered=True"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "centered": True})
    assert len(optimizer.param_groups) == 1
    LowPrecision(
        torch.optim.RMSprop([p], centered=True, momentum=0.9), state={"momentum_buffer": "q52"}
    )


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
    assert (
        len(calls) == 1 and loss.item() > 0 and all(map(torch.equal, bits(model), bits(reference)))
    )


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
    assert (
        list(optimizer.state) == list(model.parameters())
        and len(optimizer.state_dict()["state"]) == 4
    )


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
    with pytest.raises(
        ValueError,
        match=r"expected master=torch.float64 for parameters of torch.posit32es2, .* but got "
        r"master=torch.float32",
    ):
        LowPrecision(torch.optim.SGD([p], lr=1.0))


class _Own(torch.optim.Optimizer):
    """A user's optimizer: sign descent, which keeps a state of its own and needs nothing of
    torch's."""

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
        (
            torch.optim.SparseAdam(params),
            "expected an optimizer of dense gradients, but got SparseAdam",
        ),
        (model, "expected a torch.optim.Optimizer, but got Sequential"),
        (LowPrecision(torch.optim.SGD(params)), "without a wrapper"),
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
        (
            dict(weight=torch.int32),
            ValueError,
            "expected weight as a floating-point dtype or another number format, but got "
            "torch.int32",
        ),
        (dict(rounding="random"), ValueError, "expected a rounding mode"),
        (
            dict(grad_scale=0),
            ValueError,
            "expected grad_scale to be a finite number above 0, but got 0",
        ),
        (
            dict(grad_scale=math.inf),
            ValueError,
            "expected grad_scale to be a finite number above 0, but got inf",
        ),
        (
            dict(grad_scale="auto"),
            ValueError,
            "expected grad_scale as a number, 'dynamic', a DynamicScale or None, but got 'auto'",
        ),
        (dict(grad_scale=True), TypeError, "expected grad_scale as a number, but got True"),
        (
            dict(grad="fixed3_4_wrap", grad_scale="dynamic"),
            ValueError,
            "format without wrap-around .* but got fixed3_4_wrap",
        ),
    ],
)
def test_wrong_formats_and_scales(options, error, message):
    with pytest.raises(error, match=message):
        LowPrecision(torch.optim.SGD(network(torch.float32).parameters()), **options)


@pytest.mark.parametrize(
    "options",
    [dict(init=0), dict(growth=1), dict(backoff=1), dict(interval=0), dict(backoff=math.nan)],
    ids=str,
)
def test_wrong_dynamic_scales(options):
    with pytest.raises(ValueError, match="expected " + next(iter(options))):
        DynamicScale(**options)


def test_a_weight_format_beside_another_dtype():
    with pytest.raises(ValueError, match=r"for parameters of torch.q52, but got weight=posit8es1"):
        LowPrecision(torch.optim.SGD(network().parameters()), weight="posit8es1")
    with pytest.raises(
        ValueError, match=r"for parameters of torch.q52, but got weight=torch.float32"
    ):
        LowPrecision(torch.optim.SGD(network().parameters()), weight=torch.float32)


class _Closure:
    def __call__(self, scale):
        raise AssertionError("a closure that is refused was called")


@pytest.mark.parametrize(
    "closure",
    [5, "loss", lambda model: model, _Closure()],
    ids=["number", "text", "lambda", "object"],
)
def test_closures_that_cannot_be_called(closure):
    model = network()
    optimizer, before = LowPrecision(torch.optim.SGD(model.parameters())), bits(model)
    with pytest.raises(
        TypeError,
        match=r"expected None or a closure without arguments .*, but got",
    ):
        optimizer.step(closure)
    assert all(map(torch.equal, bits(model), before))


def test_steps_that_lack_something():
    model = network()
    optimizer = LowPrecision(torch.optim.SGD(model.parameters()), grad_scale=16)
    with pytest.raises(
        RuntimeError, match="expected gradients of a loss scaled by 16, but got a step without one"
    ):
        optimizer.step()
    with pytest.raises(TypeError, match="expected the loss as a tensor"):
        optimizer.scale(3.0)
    embedding = nn.Embedding(4, 3, sparse=True)
    optimizer = LowPrecision(torch.optim.SGD(embedding.parameters()))
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="expected dense gradients"):
        optimizer.step()


def test_parameters_of_no_elements_take_part():
    model = network()
    model.extra = nn.Parameter(torch.empty(0, 3, dtype=torch.q52))
    optimizer = LowPrecision(
        torch.optim.Adam(model.parameters()),
        state="e6m9",
        master="e6m9",
        grad_scale=DynamicScale(init=4.0),
    )
    model.extra.grad = torch.empty(0, 3, dtype=torch.q52)
    before = bits(model)
    x, t = batch(0)
    optimizer.scale(nn.functional.cross_entropy(model(x), t)).backward()
    optimizer.step()
    assert optimizer.loss_scale == 4 and not torch.equal(before[1], bits(model)[1])


def test_other_optimizers_state_is_refused():
    for given, error in (({}, ValueError), (5, TypeError)):
        with pytest.raises(error, match="expected a state_dict of LowPrecision"):
            LowPrecision(torch.optim.SGD(network().parameters())).load_state_dict(given)
    model = network()
    inner = torch.optim.Adam(model.parameters())
    plain = inner.state_dict()
    optimizer = LowPrecision(inner)
    with pytest.raises(
        ValueError,
        match="expected a state_dict of LowPrecision, but got one with 'state', 'param_groups'",
    ):
        optimizer.load_state_dict(plain)
    without = LowPrecision(torch.optim.Adam(network().parameters()), master=None)
    with pytest.raises(
        ValueError, match=r"expected masters of 0: torch.float32 of .*, but got none"
    ):
        optimizer.load_state_dict(without.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(optimizer.state_dict())
