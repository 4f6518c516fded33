"""The door for QPyTorch: the results of the original, and where they differ the right ones."""

import copy
import importlib.util
import json
import math
import pickle
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from door_cases import collect, differing, qtorch_cases, unpack
from torch import nn

import torch_dtypes
from torch_dtypes.compat import qtorch

RECORDED = json.loads((Path(__file__).parents[1] / "data/qtorch.json").read_text())["door"]
NEAREST = ("nearest", "nearest")


def round_one(x, function, *args):
    return function(torch.tensor([x]), *args, rounding="nearest").item()


def test_results_are_qpytorchs():
    ours = collect(qtorch_cases, qtorch)
    assert (
        differing(ours, {name: unpack(text, ours[name]) for name, text in RECORDED.items()}) == []
    )


@pytest.mark.whole
@pytest.mark.skipif(not importlib.util.find_spec("qtorch"), reason="pip install qtorch==0.3.0")
def test_results_are_those_of_qpytorch_beside_it():
    import qtorch as original
    import qtorch.auto_low
    import qtorch.optim
    import qtorch.quant

    for seed in range(1, 20):
        ours, theirs = (collect(qtorch_cases, q, seed) for q in (qtorch, original))
        assert differing(ours, theirs) == []


# The original's results are in the table of docs/tutorials/coming_from.py.
@pytest.mark.parametrize(
    ("function", "arguments", "x", "right"),
    [
        (qtorch.float_quantize, (8, 23), 3.0, 3.0),
        (qtorch.float_quantize, (5, 2), -0.0, -0.0),
        (qtorch.float_quantize, (5, 10), 2**-25 - 2**-49, 0.0),
        (qtorch.fixed_point_quantize, (8, 4), 2**-5 + 2**-28, 2**-4),
    ],
)
def test_errors_of_the_original_are_not_repeated(function, arguments, x, right):
    y = round_one(x, function, *arguments)
    assert y == right and math.copysign(1, y) == math.copysign(1, right)


def test_a_block_rounds_once():
    x = torch.tensor([1.75, 2**-7 - 2**-30])
    assert qtorch.block_quantize(x, 8, rounding="nearest").tolist() == [1.75, 0.0]


def test_fixed_point_keeps_large_numbers_if_it_does_not_clamp():
    x = torch.tensor([3.4e38, math.nan])
    y = qtorch.fixed_point_quantize(x, 8, 4, clamp=False, rounding="nearest")
    assert y[0] == x[0] and y[1].isnan()
    assert qtorch.fixed_point_quantize(x, 8, 4, rounding="nearest").tolist() == [7.9375, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fl", [0, 4, -9, -101, 23, 24, 60])
def test_numbers_without_end_are_exact(dtype, fl):
    bits = torch.int32 if dtype is torch.float32 else torch.int64
    info, some = torch.iinfo(bits), torch.Generator().manual_seed(fl + 9)
    any_bits = torch.randint(info.min, info.max, (300,), generator=some, dtype=bits).view(dtype)
    ties = torch.randint(-99, 99, (99,), generator=some).to(dtype) * 2.0 ** (-fl - 1)
    x = torch.cat([any_bits[any_bits.isfinite()], ties])
    y = qtorch.fixed_point_quantize(x, 8, fl, clamp=False, rounding="nearest")
    steps = [Fraction(v) * Fraction(2) ** fl for v in x.tolist()]
    assert list(map(Fraction, y.tolist())) == [round(s) / Fraction(2) ** fl for s in steps]
    y = qtorch.fixed_point_quantize(x, 8, fl, clamp=False)
    for v, s in zip(y.tolist(), steps, strict=True):
        assert Fraction(v) * Fraction(2) ** fl in (math.floor(s), math.ceil(s))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_every_floating_dtype_is_rounded(dtype):
    x = torch.tensor([0.3, -9.0, 8.03125], dtype=dtype)
    for clamp, right in ((True, [0.3125, -8.0, 7.9375]), (False, [0.3125, -9.0, 8.0])):
        y = qtorch.fixed_point_quantize(x, 8, 4, clamp, rounding="nearest")
        assert y.dtype == dtype and y.tolist() == right
    huge = torch.tensor([2.0**60 + 2**8, math.inf, math.nan], dtype=torch.float64)
    y = qtorch.fixed_point_quantize(huge, 8, -9, False, rounding="nearest")
    assert y[:2].tolist() == [2.0**60, math.inf] and y[2].isnan()


def test_numbers_of_bits_may_be_numpys():
    x, eight = torch.randn(20), torch.arange(9).numpy()[-1]
    number = qtorch.FixedPoint(eight, eight // 2)
    y = qtorch.quantizer(number, forward_rounding="nearest")(x)
    assert torch.equal(y, qtorch.fixed_point_quantize(x, eight, 4, rounding="nearest"))


def test_posits_are_scaled_before_rounding():
    x = torch.randn(100)
    assert torch.equal(
        qtorch.posit_quantize(x, 8, 1, 4.0), torch_dtypes.chop(x * 4, "posit8es1") / 4
    )
    y = qtorch.quantizer(qtorch.Posit(8, 1, 4.0), None, *NEAREST)(x)
    assert torch.equal(y, qtorch.posit_quantize(x, 8, 1, 4.0))
    assert qtorch.posit_quantize(torch.tensor([math.inf, math.nan]), 8, 1).isnan().all()


@pytest.mark.parametrize("clamp", [True, False])
def test_stochastic_roundings_follow_the_seed_and_have_the_mean(clamp):
    x = torch.full((100000,), 0.3)

    def draw():
        torch.manual_seed(3)
        return qtorch.fixed_point_quantize(x, 8, 4, clamp)

    y = draw()
    assert torch.equal(y, draw()) and set(y.tolist()) == {0.25, 0.3125}
    # at most 5 standard deviations of the mean
    assert abs(y.double().mean() - x[0].double()) < 5 * 0.0625 / 2 / 100000**0.5


def test_hooks_run_without_clamping_too():
    x = torch.ones(2, requires_grad=True)
    q = qtorch.quantizer(None, qtorch.FixedPoint(8, 1), *NEAREST, backward_hooks=[lambda g: g * 3])
    q(x).backward(torch.tensor([0.25, 0.4]))
    assert x.grad.tolist() == [1.0, 1.0]


def test_functions_have_no_gradient():
    assert not qtorch.float_quantize(torch.ones(2, requires_grad=True), 5, 2).requires_grad


def test_quantizers_and_lowered_models_are_copied_and_pickled():
    for lower in (qtorch.lower, qtorch.sequential_lower):
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        lowered = lower(model, ["linear"], qtorch.FloatingPoint(5, 2), None, *NEAREST) or model
        x = torch.randn(5, 4)
        for other in (copy.deepcopy(lowered), pickle.loads(pickle.dumps(lowered))):
            assert torch.equal(other(x), lowered(x))
            with torch.no_grad():
                next(other.parameters()).zero_()
            assert not torch.equal(other(x), lowered(x))  # the copy has its own weights


def test_sequential_lower_leaves_the_model_alone():
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU()))
    lowered = qtorch.sequential_lower(model, ["activation"], qtorch.FloatingPoint(5, 2))
    assert isinstance(lowered[1][0][1], qtorch.Quantizer) and isinstance(model[1][0], nn.ReLU)
    assert list(lowered.state_dict()) == list(model.state_dict())


def make_optimizer():
    def eight(x):
        return qtorch.float_quantize(x, 5, 2, "nearest")

    p = torch.linspace(-1, 1, 6).requires_grad_()
    inner = torch.optim.Adam([p], 0.1)
    return p, qtorch.OptimLP(inner, eight, momentum_quant=eight, acc_quant=eight)


def test_an_optimizer_resumes():
    p, optimizer = make_optimizer()
    other, resumed = make_optimizer()
    for step in range(6):
        if step == 3:
            resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            other.data.copy_(p.data)
        p.grad = other.grad = torch.linspace(step, 1, 6)
        optimizer.step()
        if step >= 3:
            resumed.step()
    assert torch.equal(p, other)


def test_an_optimizer_calls_its_closure_and_follows_a_scheduler():
    p, optimizer = make_optimizer()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == torch.linspace(-1, 1, 6).square().sum()
    scheduler.step()
    assert optimizer.optim.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (AssertionError, lambda: qtorch.float_quantize([1.0], 5, 2)),
        (AssertionError, lambda: qtorch.float_quantize(torch.ones(1), 5, 2, "up")),
        (ValueError, lambda: qtorch.float_quantize(torch.ones(1), 9, 2)),
        (RuntimeError, lambda: qtorch.float_quantize(torch.ones(1, dtype=torch.int64), 5, 2)),
        (IndexError, lambda: qtorch.block_quantize(torch.ones(1), 8, 1)),
        (ValueError, lambda: qtorch.block_quantize(torch.ones(1), 1)),
        (AssertionError, lambda: qtorch.FixedPoint(0, 4)),
        (AssertionError, lambda: qtorch.FixedPoint(8, 4, clamp=1)),
        (AssertionError, lambda: qtorch.FloatingPoint(9, 2)),
        (AssertionError, lambda: qtorch.BlockFloatingPoint(8, -2)),
        (AssertionError, lambda: qtorch.quantizer("q43")),
        (AssertionError, lambda: qtorch.quantizer(forward_rounding="up")),
        (
            AssertionError,
            lambda: qtorch.quantizer(qtorch.FixedPoint(8, 4, clamp=False), clamping_grad_zero=True),
        ),
        (
            ValueError,
            lambda: qtorch.quantizer(qtorch.FloatingPoint(5, 2), clamping_grad_zero=True),
        ),
        (AssertionError, lambda: qtorch.OptimLP(nn.Linear(1, 1))),
        (
            AssertionError,
            lambda: qtorch.OptimLP(torch.optim.SGD([torch.ones(1)], 1), grad_scaling=0),
        ),
        (AssertionError, lambda: qtorch.lower(nn.Linear(1, 1), ["recurrent"])),
    ],
)
def test_bad_arguments_raise_the_originals_errors(error, call):
    with pytest.raises(error, match=r"expected .* but got"):
        call()
