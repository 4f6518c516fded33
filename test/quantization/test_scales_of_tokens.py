"""Scales per token in quantize_'s rules, and rules of blocks' scales by ``by``."""

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import quantize_, target
from torch_dtypes.quantization.scale_rules import choose_block_rule
from torch_dtypes.quantization.scalers import scale_of


def by_rows(name, x):
    """Round each token by itself, with the scale of a tensor."""
    rows = x.reshape(-1, x.shape[-1])
    out = []
    for row in rows:
        scale, point = scale_of(target(name), row.min(), row.max(), False)
        out.append(target(name).quantize(row, scale=scale, zero_point=point))
    return torch.stack(out).view(x.shape)


@pytest.mark.parametrize("name", ["int8", "uint8_affine", "q43"])
@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (2, 2, 3, 6), (6,)])
def test_each_token_has_its_scale(name, shape):
    layer = nn.Linear(6, 4)
    x = torch.randn(shape) * torch.exp2(torch.arange(float(torch.Size(shape[:-1]).numel()))).view(
        *shape[:-1], 1
    )
    quantize_(layer, {nn.Linear: dict(activation=dict(format=name, scale="free", per="token"))})
    weight, bias = layer.weight.detach(), layer.bias.detach()
    assert torch.equal(layer(x), nn.functional.linear(by_rows(name, x), weight, bias))
    assert layer(torch.empty(0, 6)).shape == (0, 4)


def test_gradients():
    layer = nn.Linear(4, 6, bias=False)
    place = dict(format="int4", per="token")
    quantize_(layer, {nn.Linear: dict(activation=place, error=place)})
    x, g = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, 6)
    layer(x).backward(g)
    torch.testing.assert_close(x.grad, by_rows("int4", g) @ layer.weight.detach())


def test_the_least_squared_error_of_each_token():
    layer = nn.Linear(64, 4, bias=False)
    x = torch.randn(2, 3, 64)
    rule = dict(format="int4", per="token", by="mse")
    quantize_(layer, {nn.Linear: dict(activation=rule)})
    y = layer(x)
    for i in range(2):
        for j in range(3):
            quantize_(
                layer, {nn.Linear: dict(activation={**rule, "per": "tensor", "when": "call"})}
            )
            torch.testing.assert_close(y[i, j], layer(x[i, j]))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (dict(weight=dict(format="int8", per="token")), "expected per='token' of activation"),
        (
            dict(activation=dict(format="int8", per="token", when="calibration")),
            "expected when='call' with per='token'",
        ),
        (dict(activation=dict(format="int8", per="tokens")), "'token' or a dimension from -64"),
        (dict(activation=dict(format="nvfp4", per="token")), "one scale per tensor for nvfp4"),
    ],
)
def test_what_is_wrong(rule, message):
    with pytest.raises(ValueError, match=message):
        quantize_(nn.Linear(4, 4), {nn.Linear: rule})


def test_inputs_of_a_call_have_the_same_tokens():
    layer = nn.MultiheadAttention(4, 1, batch_first=True)
    quantize_(layer, {nn.MultiheadAttention: dict(activation=dict(format="int8", per="token"))})
    x = torch.randn(2, 3, 4)
    assert layer(x, x, x)[0].shape == x.shape
    with pytest.raises(ValueError, match="expected tensors with the same tokens"):
        layer(x, torch.randn(2, 5, 4), torch.randn(2, 5, 4))


def test_by_names_a_rule_of_blocks():
    options = dict(by="four_over_six", rounding="stochastic")
    chosen = choose_block_rule(target("nvfp4_axis0_nopad"), options)
    assert chosen == target("nvfp4_axis0_four_over_six_nopad") and "by" not in options
    for name, by in (("mxfp4_emax0", "ceil"), ("bfp8_dim0_stochastic", "rceil"), ("bfp8", "ceil")):
        chosen = choose_block_rule(target(name), dict(by=by))
        assert chosen.scale_rule == by and chosen.shape == target(name).shape
        assert chosen.emax == target(name).emax and chosen.rounding == target(name).rounding
    for name, by in (("nvfp4", "mse"), ("int8", "four_over_six"), ("nvfp4", None)):
        options = dict(by=by)
        assert choose_block_rule(target(name), options) == target(name) and options == dict(by=by)
    with pytest.raises(ValueError, match="expected scale_rule to be one of 'floor'"):
        choose_block_rule(target("mxfp4"), dict(by="four_over_six"))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled():
    layer = nn.Linear(8, 4)
    quantize_(layer, {nn.Linear: dict(activation=dict(format="int8", per="token"))})
    x = torch.randn(2, 3, 8)
    assert torch.equal(torch.compile(layer, backend="eager")(x), layer(x))
    exported = torch.export.export(layer, (x,)).module()
    assert torch.equal(exported(x), layer(x))
    assert "free scale per token" in str(torch_dtypes.summary(layer))
