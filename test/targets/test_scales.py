"""Scales by calibration: from the largest number, a share of the numbers, or the least error;
scales that follow recent tensors."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from oracle import posit_value

from torch_dtypes import block_format, calibration, target


def tensors():
    g = torch.Generator().manual_seed(0)
    return [torch.randn(4, 50, generator=g) * k for k in (1.0, 3.0, 0.5)]


def float32(x):
    return torch.tensor(np.float32(float(x)))


POSITS = [(2, 0), (3, 0), (3, 1), (4, 2), (5, 3), (6, 1), (8, 0), (8, 1), (8, 2), (16, 1), (16, 2)]


@pytest.mark.parametrize(("bits", "es"), POSITS)
def test_a_scale_brings_posits_to_the_end_of_their_finest_range(bits, es):
    useed = 2**2**es
    codes = range(1, 1 << bits - 1)
    expected = max(v for code in codes if (v := posit_value(bits, es, code)) < useed)
    made = target(f"posit{bits}es{es}")
    assert made.full_scale == expected
    x = torch.tensor([[0.3, -7.0, 0.001]])
    assert calibration(made.name).observe(x) is x
    seen = calibration(made.name)
    seen.observe(x)
    assert torch.equal(seen.scale, float32(7.0 / float(expected)))
    seen = calibration(made.name, scale="power_of_two")
    seen.observe(x)
    assert 7.0 <= seen.scale * float(expected) < 14.0 and math.frexp(seen.scale.item())[0] == 0.5


POSIT_NAMES = [f"posit{n}" for n in ("6es1", "8es0", "8es1", "8es2", "16es1", "16es2")]
TAPERED = [*POSIT_NAMES, "takum8_linear", "takum8_log", "takum16_linear", "takum24_linear"]


def test_full_scales_of_other_formats():
    """Takums scale to the end of their most precise range; logarithmic formats to sqrt(e). Tables
    without such a range scale to the largest number, as floats."""
    for name in ("takum6_linear", "takum12_linear", "takum32_linear"):
        assert target(name).full_scale == 2
    assert target("takum8_log").full_scale == pytest.approx(math.exp(0.5), rel=1e-12)
    assert target("hif8").full_scale == 16 and target("posit8es2_regime3").full_scale == 16
    for name in ("nf4", "lns4_3", "ue5m3", "q43", "fixed4_3"):
        assert target(name).full_scale == target(name).largest


@pytest.mark.parametrize("name", TAPERED)
def test_tapered_formats_have_most_digits_there(name):
    """For normally distributed numbers the squared error is near the least of any power of two, and
    far below that at maxpos."""
    x = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).double() * 0.03
    made, top = target(name), x.abs().max()

    def error(largest):
        return (made.quantize(x, scale=top / largest) - x).square().sum().item()

    at_full_scale = error(made.full_scale)
    assert at_full_scale < 2 * min(
        error(2.0**k) for k in range(-8, 60, 1)
    ) and 20 * at_full_scale < error(made.largest)
    if "takum" in name:
        return  # the scales of blocks have float32's exponents
    blocks = block_format(name, "e8m0", 32)
    assert (blocks.quantize(x) - x).square().sum() < 1.1 * at_full_scale


def test_absmax():
    data = tensors()
    top = torch.cat(data).abs().max().double()
    for name, largest in (
        ("int8", 127),
        ("uint4_symmetric", 15),
        ("q43", 240),
        ("mxfp4", target("mxfp4").largest),
    ):
        seen = calibration(name)
        for x in data:
            assert seen.observe(x) is x
        assert torch.equal(seen.scale, float32(top / largest)) and seen.zero_point is None
    seen = calibration("q43", margin=3)
    seen.observe(data[0])
    assert torch.equal(seen.scale, float32(8 * data[0].abs().max().double() / 240))
    assert torch.equal(seen.quantize(data[0]), target("q43").quantize(data[0], scale=seen.scale))


@pytest.mark.parametrize("low", [-3.0, -0.2, 0.5])
def test_affine_is_jacobs(low):
    x = torch.tensor([low, 1.7])
    seen = calibration("uint8")
    seen.observe(x)
    least = min(float(x[0]), 0.0)
    scale = np.float32((float(x[1]) - least) / 255)
    assert seen.scale == float(scale) and seen.zero_point == round(-least / float(scale))
    assert abs(seen.quantize(x) - x).max() <= scale / 2 * 1.0001
    assert seen.quantize(torch.zeros(1)) == 0


def test_powers_of_two():
    for top, want in ((127.0, 1.0), (128.0, 2.0), (127 * 0.25, 0.25), (1e-3, 2.0**-16)):
        seen = calibration("int8", scale="power_of_two")
        seen.observe(torch.tensor([top]))
        assert seen.scale == want and math.frexp(seen.scale.item())[0] == 0.5


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_channels(axis):
    data = tensors()
    seen = calibration("int8", axis=axis)
    for x in data:
        seen.observe(x)
    top = torch.stack(data).abs().amax(0).amax(1 - axis % 2, keepdim=True).double()
    assert seen.scale.shape == top.shape and torch.equal(seen.scale, (top / 127).float())
    own = calibration(f"int8_axis{axis % 2}")
    for x in data:
        own.observe(x)
    assert torch.equal(own.scale, seen.scale)


def test_percentile():
    x = torch.arange(1, 1001).float()[
        torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    ]
    seen = calibration("int8", by="percentile(99)")
    seen.observe(x[:500])
    seen.observe(-x[500:])
    assert torch.equal(seen.scale, float32(990 / 127))
    rows = calibration("int8", by="percentile(90)", axis=0)
    rows.observe(torch.stack([x, 2 * x]))
    assert torch.equal(rows.scale, torch.tensor([[900.0], [1800.0]]).double().div(127).float())


def error(x, scale):
    return ((target("int4").quantize(x, scale=scale) - x).double() ** 2).mean().item()


def test_least_error():
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    x[0] = 8.0  # an outlier, for which absmax would pay
    seen = calibration("int4", by="mse")
    seen.observe(x)
    best = min(error(x, k / 64 * 8.0 / 7) for k in range(1, 65))
    assert error(x, seen.scale) == pytest.approx(best, rel=1e-6) and best < 0.5 * error(x, 8.0 / 7)
    power = calibration("int4", by="mse", scale="power_of_two")
    power.observe(x)
    assert math.frexp(power.scale.item())[0] == 0.5
    assert error(x, power.scale) == pytest.approx(
        min(error(x, 2.0**k) for k in range(-6, 2)), rel=1e-6
    )


def test_history():
    tops = [1.0, 5.0, 2.0, 3.0, 0.5, 0.25]
    for length in (1, 3, 100):
        seen = calibration("int8", history=length)
        for i, top in enumerate(tops):
            seen.observe(torch.tensor([top, -top / 2]))
            assert seen.scale == float32(max(tops[max(0, i + 1 - length) : i + 1]) / 127)


def test_what_is_not_finite_is_passed_over():
    for options in ({}, {"history": 2}, {"by": "mse"}):
        seen = calibration("int8", **options)
        seen.observe(torch.tensor([2.0, 1.0]))
        before = seen.scale
        for bad in (math.inf, -math.inf, math.nan):
            seen.observe(torch.tensor([bad, 100.0]))
        seen.observe(torch.empty(0))
        assert torch.equal(seen.scale, before)
    big = calibration("int8")
    big.observe(torch.full((100,), 3e38))  # whose sum is infinite
    assert torch.equal(big.scale, float32(torch.tensor(3e38).double() / 127))


def test_zeros():
    seen = calibration("int8")
    seen.observe(torch.zeros(3))
    assert seen.scale == 1
    seen.observe(torch.tensor([127.0]))
    assert seen.scale == 1


def test_copies():
    for options in ({}, {"by": "mse"}, {"history": 4}):
        seen = calibration("int8", **options)
        seen.observe(tensors()[0])
        for other in (copy.deepcopy(seen), pickle.loads(pickle.dumps(seen))):
            assert torch.equal(other.scale, seen.scale)
            other.observe(tensors()[1] * 10)
            assert other.scale > seen.scale
    assert repr(calibration("int8", axis=0)).startswith(
        "<Calibration of int8: free scale per index of dimension 0"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibration("int8", scale="log"), "expected scale to be 'free'"),
        (lambda: calibration("int8", by="max"), "expected by to be 'absmax'"),
        (lambda: calibration("int8", by="percentile(20)"), "expected by to be 'absmax'"),
        (
            lambda: calibration("int8", by="mse", history=3),
            "expected by='absmax' with when='delayed'",
        ),
        (lambda: calibration("int8", history=0), "expected history as an integer from 1"),
        (lambda: calibration("int8", margin=0.5), "expected margin as an integer"),
        (lambda: calibration("q99"), "expected the name of something to round to"),
        (
            lambda: calibration("int8").scale,
            "has seen a tensor of finite numbers, but got one that has not",
        ),
        (
            lambda: calibration("int8").observe([1.0]),
            "expected a tensor of a stock floating dtype to calibrate by, but got list",
        ),
        (
            lambda: calibration("int8").observe(torch.ones(2, dtype=torch.q43)),
            r"calibrate by, but got torch\.q43",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        call()
