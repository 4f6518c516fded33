"""A quantiser of a user as a target: every door, its name, its gradient, its errors."""

import copy
import gc
import json
import math
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import torch_dtypes
from torch_dtypes import chop, target
from torch_dtypes.cli import group


class Quarters:
    """Rounds to multiples of a fourth of the largest magnitude along the axis."""

    def __init__(self):
        self.calls = []

    def quantize(self, x, *, axis, generator, rounding):
        self.calls.append((x.dtype, axis, rounding))
        scale = x.abs().amax(axis, keepdim=True).clamp_min(1e-30) / 4
        return chop(x / scale, "fixed15_0", rounding, generator) * scale


class WithBits(Quarters):
    name, bits = "quarters with bits", 3.5


def expect(x, axis=-1):
    scale = x.abs().amax(axis, keepdim=True).clamp_min(1e-30) / 4
    return (x / scale).round() * scale


class Function:
    """A quantiser of a function of x alone."""

    def __init__(self, function):
        self.function = function

    def quantize(self, x, *, axis, generator, rounding):
        return self.function(x)


@pytest.fixture(autouse=True)
def no_names():
    """Forget the quantisers of other tests."""
    gc.collect()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user's module in the current folder."""
    (tmp_path / "own_quantisers.py").write_text(
        "class Halves:\n"
        "    def quantize(self, x, *, axis, generator, rounding):\n"
        "        return x.div(0.5).round() * 0.5\n"
        "halves = Halves()\n"
        "halves.bits = 7\n"
        "class Broken:\n"
        "    def quantize(self, x, *, axis, generator, rounding):\n"
        "        raise IndexError('no such block')\n"
        "class Needy:\n"
        "    def __init__(self, bits):\n"
        "        self.bits = bits\n"
        "    quantize = Halves.quantize\n"
        "constant = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_quantisers"
    sys.modules.pop("own_quantisers", None)


X = torch.tensor([[1.3, -0.7, 4.0, 0.2], [0.1, 0.0, -0.03, 0.05]])


# ---- names ----


def test_a_quantiser_is_a_target():
    q = Quarters()
    t = target(q)
    assert (t.name, t.rounding, t.dtype, t.needs_scale) == ("Quarters", "nearest_even", None, False)
    assert all(map(math.isnan, (t.bits, t.bits_per_value, t.largest, t.full_scale)))
    assert target(t) is t and target(q) == t == target(t.name) and hash(target(q)) == hash(t)
    assert (target(WithBits()).name, target(WithBits()).bits_per_value) == (WithBits.name, 3.5)


def test_names_tell_axis_and_mode():
    t = target(Quarters()).along(-2).with_rounding(5)
    assert t.name == "Quarters_axisminus2_stochastic" and target(t.name) == t
    assert t.along(-1).with_rounding("nearest_even") == target("Quarters")
    assert target("q43").along(0) is target("q43")
    with pytest.raises(ValueError, match="expected axis from -64 to 63, but got 64"):
        t.along(64)


def test_no_two_quantisers_have_one_name():
    first, second = Quarters(), Quarters()
    named = Function(torch.clone)
    named.name = "nvfp4"
    targets = [target(q) for q in (first, second, named)]
    assert [t.name for t in targets] == ["Quarters", "Quarters_2", "nvfp4_2"]
    assert [target(t.name) for t in targets] == targets
    assert target("nvfp4") != targets[2]
    del targets
    with pytest.raises(ValueError, match="expected the name of something to round to"):
        target("Quarters_2")


def test_a_copy_is_another_quantiser():
    t = target(Quarters())
    copies = [copy.deepcopy(t), pickle.loads(pickle.dumps(t))]
    assert [c.name for c in copies] == ["Quarters_2", "Quarters_3"] and t not in copies
    assert all(torch.equal(c.quantize(X), t.quantize(X)) for c in copies)


def test_a_name_in_a_module(module):
    t = target(f"{module}:Halves")
    kind = sys.modules[module].Halves
    assert t == target(kind) == target(t.name) == pickle.loads(pickle.dumps(t)) == copy.deepcopy(t)
    assert target(f"{module}:halves").bits == 7
    assert target(f"{module}:Halves_axis0_up") == t.along(0).with_rounding("up")
    assert chop(0.7, f"{module}:Halves") == 0.5
    for name, message in {
        f"{module}:Helves": "has no Helves; there are Halves, halves",
        f"{module}:Helves_up": "has no Helves",
        f"{module}:constant": "expected an object with a method quantize, but got .*: 3",
        f"{module}:Needy": "to make a quantiser without arguments, but it raised TypeError",
        "no_such_module:Halves": "there is no module no_such_module",
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            target(name)


def test_the_values_of_a_table_are_no_module():
    from torch_dtypes.formats.tables.making import written_name

    torch_dtypes.table_format([-1.0, 0.0, 0.5, 2.0], name="fourvalues")
    assert target(written_name("fourvalues")) == target("fourvalues")


# ---- rounding ----


def test_every_kind_of_array():
    q = Quarters()
    assert torch.equal(chop(X, q), expect(X))
    assert torch.equal(target(q).along(0).quantize(X), expect(X, 0))
    assert np.array_equal(chop(X.numpy(), q), expect(X).numpy())
    assert chop([[1.0, 4.0, 0.4]], Quarters) == [[1.0, 4.0, 0.0]]
    assert chop(1.3, q) == 1.3 and chop(7, q) == 7.0
    assert target(q).quantize(torch.tensor(1.3)).shape == ()
    assert chop(torch.empty(0, 3), q).shape == (0, 3)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        y = chop(X.to(dtype), q)
        given = X.to(dtype).to(torch.float64 if dtype == torch.float64 else torch.float32)
        assert y.dtype == dtype and torch.equal(y, expect(given).to(dtype))
    assert {dtype for dtype, *_ in q.calls} == {torch.float32, torch.float64}


def test_modes_and_generators_reach_it():
    q = Quarters()
    with torch_dtypes.rounding("up"):
        assert torch.equal(chop(X, q), chop(X, q, "up"))
        chop(X, q, "down")
    target(q).with_rounding("toward_zero").quantize(X)
    assert [mode for *_, mode in q.calls] == ["up", "up", "down", "toward_zero"]
    x = torch.linspace(-1, 1, 100)
    a, b = (chop(x, q, "stochastic", torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(a, b) and not torch.equal(a, expect(x))


def test_a_tensor_of_one_dimension_has_blocks_along_it():
    q = Quarters()
    assert torch.equal(target(q).along(-2).quantize(X[0]), expect(X[0]))


def test_the_result_never_aliases_the_argument():
    x = X.clone()
    for q in (Function(lambda x: x), Function(lambda x: x.view(-1).view(x.shape))):
        chop(x, q).zero_()
        assert torch.equal(x, X)


# ---- gradients ----


def test_the_gradient_passes_straight_through():
    x, weight = X.clone().requires_grad_(), torch.tensor(2.0, requires_grad=True)
    y = chop(x, Function(lambda x: (x * weight).round()))
    (y * X).sum().backward()
    assert torch.equal(x.grad, X) and weight.grad is None
    assert not chop(X, Function(lambda x: (x * weight).round())).requires_grad
    _, tangent = torch.func.jvp(lambda x: chop(x, Quarters()), (X,), (X + 1,))
    assert torch.equal(tangent, X + 1)


def test_its_own_gradient():
    weight = torch.tensor(2.0, requires_grad=True)
    q = Function(lambda x: x.square() * weight)
    q.own_gradient = True
    for dtype in (torch.float32, torch.bfloat16):
        x = X.clone().to(dtype).requires_grad_()
        chop(x, q).sum().backward()
        assert torch.equal(x.grad, (4 * X.to(dtype).float()).to(dtype))
    assert weight.grad is not None


# ---- the doors of layers ----


def test_cast_and_rules():
    q = Quarters()
    x = X.clone().requires_grad_()
    y = torch_dtypes.Cast(forward=q, backward=q)(x)
    y.backward(X + 1)
    assert torch.equal(y, expect(X)) and torch.equal(x.grad, expect(X + 1))

    model = nn.Linear(4, 3)
    gradient = dict(format=q, rounding="stochastic")
    rule = dict(weight=q, bias=q, activation=q, output=q, error=gradient, grad=q)
    torch_dtypes.quantize_(model, {nn.Linear: rule})
    row = torch_dtypes.summary(model, show=False)[""]
    assert (row.weight, row.bias, row.error) == ("Quarters", "Quarters", "Quarters stochastic")
    q.calls.clear()
    y = model(X)
    weight, bias = expect(model.weight.detach()), expect(model.bias.detach())
    assert torch.equal(y, expect(nn.functional.linear(expect(X), weight, bias)))
    y.sum().backward()
    assert torch.equal(model.weight.grad, expect(model.weight.grad))
    assert "stochastic" in {mode for *_, mode in q.calls}


def test_rules_from_a_file(module, tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(f"nn.Linear: {{weight: '{module}:Halves'}}")
    model = torch_dtypes.quantize_(nn.Linear(4, 3), path)
    assert torch_dtypes.summary(model, show=False)[""].weight == f"{module}:Halves"


def test_models_are_copied_pickled_and_loaded(module):
    kind = target(f"{module}:Halves")
    model = nn.Sequential(nn.Linear(4, 3), torch_dtypes.Cast(forward=kind))
    torch_dtypes.quantize_(model, {nn.Linear: dict(weight=Quarters(), activation=kind)})
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(X), model(X))
        copied.load_state_dict(model.state_dict())


def test_a_checkpoint_imports_no_module(module):
    rule = dict(weight=dict(format="q43", scale="free", when="delayed"))
    model = torch_dtypes.quantize_(nn.Linear(4, 3), {nn.Linear: rule})
    model(X)
    state = model.state_dict()
    state._metadata[""]["scales"]["weight"]["format"] = f"{module}:Halves"
    with pytest.raises(ValueError, match="but got a state dict's for own_quantisers:Halves"):
        model.load_state_dict(state)
    rebuild, parts = torch_dtypes.quantize(torch.ones(32), "mxfp4").__reduce_ex__(4)
    with pytest.raises(ValueError, match="expected the name of something to round to"):
        rebuild(f"{module}:Halves", *parts[1:])
    assert module not in sys.modules


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_graphs():
    q = Quarters()
    model = torch_dtypes.quantize_(nn.Linear(4, 3), {nn.Linear: dict(weight=q, error=q)})
    model(X).sum().backward()
    wanted, model.weight.grad = model.weight.grad, None
    compiled = torch.compile(model, backend="eager")
    compiled(X).sum().backward()
    assert torch.equal(compiled(X), model(X)) and torch.equal(model.weight.grad, wanted)
    function = torch.compile(lambda x: chop(x, q), backend="eager")
    for mode in ("nearest_even", "up"):
        with torch_dtypes.rounding(mode):
            assert torch.equal(function(X), chop(X, q, mode))
    with torch.no_grad():
        traced = torch.jit.trace(lambda x: target(q).quantize(x), X, check_trace=False)
    assert torch.equal(traced(X + 1), expect(X + 1))
    # Each row by itself
    assert torch.equal(torch.vmap(lambda x: chop(x, q))(X), expect(X))


@pytest.mark.parametrize("make", [lambda: Quarters, Quarters])
def test_states_of_optimizers(make):
    model, state = nn.Linear(4, 3), make()
    optimizer = torch_dtypes.optim.LowPrecision(torch.optim.Adam(model.parameters()), state=state)
    for _ in range(2):
        model(X).square().sum().backward()
        optimizer.step()
    kept = optimizer.state_dict()
    optimizer.load_state_dict(kept)
    average = next(iter(optimizer.state.values()))["exp_avg"]
    assert torch.allclose(average, expect(average), rtol=1e-6, atol=0)
    copied = copy.deepcopy(optimizer)
    assert repr(copied)


# ---- studies ----


def test_observe():
    q = WithBits()
    model = nn.Sequential(nn.Linear(4, 3, bias=False))
    with torch_dtypes.observe(model, formats=[q, "nvfp4", "q43"]) as stats:
        model(X).sum().backward()
    assert stats.formats() == ["nvfp4", "q43", WithBits.name]
    counts, w = stats["0", "weights", q], model[0].weight.detach()
    r = expect(w)
    assert counts == stats["0", "weights", WithBits.name]
    assert (counts.elements, counts.to_zero) == (12, int((r == 0).sum()))
    assert (counts.inexact, counts.nonzero) == (int((r != w).sum()), 12)
    wanted = 10 * math.log10(w.double().square().sum() / (r - w).double().square().sum())
    assert counts.snr == pytest.approx(wanted, rel=1e-6)
    assert sum(counts.exponents.values()) == 12
    assert stats.plot(WithBits.name) and copy.deepcopy(stats).rows()
    with torch_dtypes.observe(model, formats=Quarters) as stats:
        model(X)
    assert stats.formats() == [f"{__name__}:Quarters"]


@pytest.mark.whole
def test_sensitivity(tmp_path):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    data = [(torch.randn(20, 4), torch.randint(3, (20,)))]
    q = Quarters()
    name = target(q).name  # with a number, if another test's object is still there
    result = torch_dtypes.sensitivity(model, data, formats=[q, WithBits(), "mxfp4"])
    assert math.isnan(result.uniform[name].bits)
    assert result.uniform[WithBits.name].bits == 3.5
    assert result.rises["0"][name] == result.rises["0"][WithBits.name]
    with pytest.raises(ValueError, match=f"but got {name}; give the quantiser an attribute bits"):
        result.choose(bits=4)
    assert result.trade_off() == []
    result.write(tmp_path)
    written = (tmp_path / "sensitivity.json").read_text()
    json.loads(written, parse_constant=lambda name: pytest.fail(name))
    lines = (tmp_path / "sensitivity.html").read_text()
    assert f"{name} in all layers" in lines and ">nan<" not in lines
    result = torch_dtypes.sensitivity(model, data, formats=[WithBits(), "mxfp4"])
    assert result.choose(bits=4).bits <= 4


def test_a_sweep_needs_a_name_for_other_processes(module):
    with pytest.raises(ValueError, match="which only this process knows; give its class in a"):
        torch_dtypes.sweep(Function(torch.clone), recipe="ptq")
    arguments = ["sweep", "--recipe", "ptq", "--list", "--format"]
    result = CliRunner().invoke(group(), [*arguments, f"{module}:Halves"])
    assert result.exit_code == 0 and "1 cell" in result.output
    result = CliRunner().invoke(group(), [*arguments, f"{module}:Helves"])
    assert result.exit_code == 2 and "has no Helves" in " ".join(result.output.split())


@pytest.mark.whole
def test_a_sweep_by_names(module, tmp_path):
    result = CliRunner().invoke(
        group(),
        (
            "sweep --recipe ptq --recipe weights --epochs 1 --train-samples 100 --test-samples 50 "
            f"--out {tmp_path}/out --format {module}:Halves --format {module}:Broken"
        ).split(),
    )
    assert result.exit_code == 0, result.output
    outcomes = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("**/*.json")]
    states = {
        (o["cell"]["format"], o["state"]): o.get("reason")
        for o in outcomes
        if isinstance(o, dict) and "cell" in o
    }
    assert states[f"{module}:Halves", "done"] is None
    reason = states[f"{module}:Broken", "failed"]
    assert reason.startswith("IndexError: no such block; raised by the quantiser")


# ---- errors ----


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.flatten(), r"return a tensor of torch.float32 and shape \(2, 4\) on cpu"),
        (lambda x: x.double(), "but got a Tensor of torch.float64"),
        (lambda x: x.to("meta"), "on meta"),
        (lambda x: None, "but got None"),
        (lambda x: x.round_(), "it has written into its argument; use x.clone"),
    ],
)
def test_wrong_results(function, message):
    with pytest.raises(ValueError, match=f"expected the quantiser Function.*{message}"):
        chop(X.clone(), Function(function))


def test_an_error_keeps_its_type():
    with pytest.raises(ZeroDivisionError) as error:
        chop(X, Function(lambda x: 1 / 0))
    assert error.value.__notes__ == [
        "raised by the quantiser Function, for a tensor of shape (2, 4), axis=-1 and "
        "rounding='nearest_even'"
    ]


class _Short:
    def quantize(self, x):
        return x


def _with(**attributes):
    q = Function(torch.clone)
    vars(q).update(attributes)
    return q


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (_Short, r"_Short.quantize to take \(x, \*, axis, .*but got quantize\(x\)"),
        (_Short(), r"_Short.quantize to take \(x, \*, axis, .*but got quantize\(x\)"),
        (_with(name=3), "expected the name of a quantiser as a text, but got 3"),
        (_with(bits=-1), "expected bits of Function as a number above 0, but got -1"),
        (_with(bits="4"), "expected bits of Function as a number above 0, but got '4'"),
        (types.SimpleNamespace(quantize=3), "but got namespace"),
        (Function, "to make a quantiser without arguments, but it raised TypeError"),
    ],
)
def test_what_is_no_quantiser(value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        target(value)


def test_options_of_other_targets():
    q, model = Quarters(), nn.Linear(4, 3)
    for options, message in (
        (dict(scale=2.0), "expected no scale with Quarters"),
        (dict(clamped="zero"), "expected clamped='pass' with Quarters"),
        (dict(zero_point=1), "expected no zero_point with Quarters"),
        (dict(generator=3), "expected a torch.Generator"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            target(q).quantize(X, **options)
    for options in (dict(scale="free"), dict(by="mse"), dict(clamped="zero")):
        with pytest.raises(ValueError, match=r"weight of Linear: expected .* with Quarters"):
            torch_dtypes.quantize_(model, {nn.Linear: dict(weight=dict(format=q, **options))})
    assert not q.calls and torch_dtypes.summary(model, show=False)[""].weight == ""
    for x, message in ((X.to(torch.q43), "it is rounded already"), (X.int(), "torch.int32")):
        with pytest.raises(TypeError, match=message):
            target(q).quantize(x)
    with pytest.raises(ValueError, match="expected flip_prob=0 with Quarters"):
        chop(X, q, flip_prob=0.5)
    with pytest.raises(ValueError, match=r"expected a dtype .* for everything of Linear"):
        torch_dtypes.quantize_(model, {nn.Linear: q})
