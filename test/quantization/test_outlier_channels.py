"""Channels of a linear layer's input that keep a format of their own (``outliers=``)."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_dtypes import chop, quantize_, summary


def per_row(x):
    """Integers of 4 bits with a scale of each row, in float32 as the formula says."""
    scale = (x.abs().amax(-1, keepdim=True).double() / 7).float()
    return torch.where(scale > 0, (x * (1 / scale)).round().clamp(-8, 7) * scale, 0.0)


def along(format, axis):
    return lambda x: chop(x.movedim(axis, -1).contiguous(), format).movedim(-1, axis)


INT4 = dict(format="int4", per="token")
WEIGHT = dict(format="int4", per="channel")
# Each rule with the roundings of: activation, weight; in the gradients weight, activation; error.
CASES = {
    "blocks": (
        dict(weight="mxfp4", activation=dict(format="mxfp4"), error="mxfp8_e5m2"),
        (along("mxfp4", -1),) * 2
        + (along("mxfp4", 0),) * 2
        + (along("mxfp8_e5m2", -1), along("mxfp8_e5m2", 0)),
    ),
    "formats": (
        dict(weight="q43", activation=dict(format="q52")),
        (along("q52", -1), along("q43", -1), along("q43", 0), along("q52", 0)),
    ),
    "integers": (dict(weight=WEIGHT, activation=INT4), (per_row,) * 4),
    "one operand": (
        dict(activation=dict(format="q43")),
        (along("q43", -1), None, None, along("q43", 0)),
    ),
}


def keep_channels(x, rounding, mask, format):
    """Round x but for its outliers, which the other numbers see as zeros."""
    if rounding is None:
        return x
    return torch.where(mask, chop(x, format), rounding(x * ~mask))


@pytest.mark.parametrize("which, format", [((3, 9), "bfloat16"), (0.04, "e5m7")])
@pytest.mark.parametrize("case", CASES)
def test_outliers_keep_their_format_with_the_weight_s_columns(case, which, format):
    torch.manual_seed(1)
    rule, roundings = copy.deepcopy(CASES[case])
    rule["activation"] |= dict(outliers=which, kept=format)
    layer, x, g = nn.Linear(40, 36), torch.randn(7, 40), torch.randn(7, 36)
    x[:, [3, 9]] *= 100  # the largest 2 of 40 channels: the share 0.04 is rounded up
    mask = torch.zeros(40, dtype=torch.bool).index_fill(0, torch.tensor([3, 9]), True)
    forward, weight, back_weight, back, *errors = roundings
    w = layer.weight.detach()
    y = F.linear(
        keep_channels(x, forward, mask, format), keep_channels(w, weight, mask, format), layer.bias
    )
    e, f = (r(g) for r in errors) if errors else (g, g)
    want = (
        e @ keep_channels(w, back_weight, mask, format),
        f.t() @ keep_channels(x, back, mask, format),
    )
    quantize_(layer, {"": rule})
    leaf = x.clone().requires_grad_()
    found = layer(leaf)
    found.backward(g)
    torch.testing.assert_close(found, y, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(leaf.grad, want[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.weight.grad, want[1], rtol=1e-5, atol=1e-4)


def test_outliers_make_the_rest_more_exact():
    torch.manual_seed(2)
    layer, x = nn.Linear(64, 16), torch.randn(9, 64)
    x[:, 5] *= 1000
    exact, errors = layer(x).detach(), []
    for more in ({}, dict(outliers=[5]), dict(outliers=0.01)):
        own = quantize_(copy.deepcopy(layer), {"": dict(activation=dict(INT4, **more))})
        errors.append((own(x) - exact).abs().max().item())
    assert errors[1] == errors[2] < errors[0] / 4


def test_of_equal_channels_the_first_is_an_outlier():
    layer, x = nn.Linear(4, 4, bias=False), torch.full((2, 4), 1 + 2.0**-5)
    nn.init.eye_(layer.weight)
    quantize_(layer, {"": dict(activation=dict(format="q43", outliers=0.25, kept="float32"))})
    assert layer(x)[0].tolist() == [1 + 2.0**-5, 1, 1, 1]
    assert layer(x[:0]).shape == (0, 4)


BLOCKS = dict(weight="mxfp4", activation=dict(format="mxfp4", outliers=[2], kept="float32"))


def test_the_projection_of_an_attention():
    torch.manual_seed(3)
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    inner = copy.deepcopy(attention)
    inner.out_proj.weight.data, inner.out_proj.bias.data = torch.eye(8), torch.zeros(8)
    linear = nn.Linear(8, 8)
    linear.load_state_dict(attention.out_proj.state_dict())
    quantize_(linear, {"": BLOCKS})
    quantize_(attention, {nn.Linear: BLOCKS})
    torch.testing.assert_close(attention(x, x, x)[0], linear(inner(x, x, x)[0]))
    assert "1 outliers in float32" in summary(linear, show=False)[""].activation


@pytest.mark.whole
def test_copies_and_graphs_keep_outliers():
    linear, x = quantize_(nn.Linear(8, 8), {"": BLOCKS}), torch.randn(10, 8)
    compiled = torch.compile(linear, backend="aot_eager")
    exported = torch.export.export(linear, (x,)).module()
    for other in (copy.deepcopy(linear), compiled, exported):
        assert torch.equal(other(x), linear(x))


@pytest.mark.parametrize(
    "module, rule, match",
    [
        (nn.Conv1d(4, 4, 1), dict(format="q43", outliers=[1]), "expected outliers= of nn.Linear"),
        (nn.Linear(4, 4), dict(format="q43", outliers=[4]), "expected outliers from 0 to 3"),
        (nn.Linear(4, 4), dict(format="q43", outliers=[-1]), "a channel of outliers"),
        (nn.Linear(4, 4), dict(format="q43", outliers=2.0), "a share between 0 and 1"),
        (nn.Linear(4, 4), dict(format="q43", outliers=[]), "or as a list of channels"),
        (nn.Linear(4, 4), dict(format="q43", kept="q52"), "expected kept= with outliers= only"),
        (
            nn.Linear(4, 4),
            dict(format="q43", outliers=[1], kept="int8"),
            "expected kept= as a format",
        ),
        (nn.Linear(4, 4), dict(format="int8", outliers=[1]), "expected when='call' for activation"),
    ],
)
def test_bad_outliers(module, rule, match):
    with pytest.raises((ValueError, TypeError), match=match):
        quantize_(module, {"": dict(activation=rule)}, calibrate=[torch.ones(1, 4)])


@pytest.mark.parametrize(
    "rule, match",
    [
        (dict(weight=dict(format="q43", outliers=[1])), "but got it of weight"),
        (
            dict(forward=dict(activation=dict(format="q43", outliers=[1]))),
            "without products beside outliers=",
        ),
        (
            dict(
                weight="int8",
                activation=dict(format="int8", when="call", outliers=[1]),
                arithmetic="integer",
            ),
            "expected arithmetic='float' with outliers=",
        ),
        (
            dict(weight="q43", activation=dict(format="q43", outliers=[1]), accumulate="format"),
            "q43 with outliers",
        ),
    ],
)
def test_rules_without_outliers(rule, match):
    with pytest.raises(ValueError, match=match):
        quantize_(nn.Linear(4, 4), {"": rule})
