"""Scales that are of other tensors, or of a share of the numbers: what is beyond them is clipped,
and layers of one dimension have them, too."""

import copy

import pytest
import torch
from torch import nn

from torch_dtypes import calibration, quantize_, target

# floats that overflow to infinity, or to NaN
FORMATS = ["q43", "e4m3fn", "e5m5", torch.float16, torch.float8_e5m2]
ORIGINS = {
    "calibration": dict(scale="free"),
    "percentile of calibration": dict(scale="power_of_two", by="percentile(90)"),
    "percentile of each": dict(scale="free", by="percentile(90)", when="call"),
    "calls before": dict(scale="free", when="delayed"),
    "less room": dict(scale="free", when="call", margin=-2),
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("name", FORMATS, ids=str)
def test_what_is_beyond_the_scale_s_tensors_is_clipped(name, origin):
    layer, place = nn.Identity(), {"format": name, **ORIGINS[origin]}
    small = torch.linspace(-1, 1, 65).reshape(5, 13)
    quantize_(layer, {nn.Identity: dict(activation=place)}, calibrate=[small])
    layer(small)
    x = (3 * small).requires_grad_()
    y = layer(x)
    assert y.isfinite().all()
    largest = y.abs().max().item()
    inside = x.detach().abs() <= largest
    # Clipped values become the largest number.
    assert not inside.all() and (y[~inside] == largest * x[~inside].sign()).all()
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    bad = x.detach().clone()
    bad[0, 0] = torch.nan
    assert layer(bad)[0, 0].isnan()


@pytest.mark.parametrize("name", FORMATS, ids=str)
def test_gradients_of_what_is_clipped(name):
    layer = quantize_(
        nn.Identity(),
        {nn.Identity: dict(activation=dict(format=name, scale="free", clamped="zero"))},
        calibrate=[torch.ones(3)],
    )
    x = torch.tensor([0.5, 1.0, 3.0, -30.0], requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 0, 0]


def test_a_scale_that_is_said_leaves_overflow_to_the_format():
    layer = quantize_(nn.Identity(), {nn.Identity: dict(activation=dict(format="q43", scale=0.5))})
    assert layer(torch.tensor([120.0, 200.0])).tolist() == [120, torch.inf]
    fixed = quantize_(
        nn.Identity(),
        {nn.Identity: dict(activation=dict(format="fixed2_2_wrap", scale="free"))},
        calibrate=[torch.ones(3)],
    )
    assert fixed(torch.tensor([1.5])).item() < 0  # what wraps around was asked to


def test_calibrations_by_hand_clip():
    seen = calibration("q43", by="percentile(50)")
    x = torch.linspace(-1, 1, 65)
    y = seen.quantize(seen.observe(x))
    assert (
        y.isfinite().all()
        and y.max() == target("q43").quantize(x.sort()[0][48:49], scale=seen.scale)
        and seen.target is target("q43")
    )


@pytest.mark.parametrize("place", ["weight", "grad"])
@pytest.mark.parametrize("by", ["absmax", "mse", "percentile(99)"])
def test_gradients_with_scales_by_channel(by, place):
    """A bias's have one scale together."""
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4), torch.randn(5, 6)
    hand = copy.deepcopy(layer)
    quantize_(layer, {nn.Linear: {place: dict(format="q43", scale="free", per="channel", by=by)}})
    layer(x).square().sum().backward()
    hand(x).square().sum().backward()
    assert torch.allclose(layer.bias.grad, hand.bias.grad, rtol=0.2)
    quantize_(
        nn.Identity(),
        {nn.Identity: dict(activation=dict(format="q43", scale="free", per="channel", by=by))},
        calibrate=[x[0]],
    )(x[1])
