"""What share of a model its rules reach, and layers that store weights as inputs x outputs."""

import pytest
import torch
from torch import nn

import torch_dtypes


class Experts(nn.Module):
    """As in a mixture: 3-D parameters, multiplied by functions."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 16)), nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x):
        return torch.relu(x @ self.up).matmul(self.down).sum(0)


def _mixture():
    return nn.Sequential(nn.Linear(8, 8, bias=False), Experts(), nn.Conv1d(4, 4, 3))


def test_a_module_of_ones_own_that_no_rule_names_is_said():
    with pytest.warns(UserWarning, match=r"they reach 5\.6% of them, and '1', a Experts, holds 89\.8% and has no rule; .* by {'1': None}"):
        model = torch_dtypes.quantize_(_mixture(), {nn.Linear: dict(weight="q43")})
    found = torch_dtypes.summary(model, show=False)
    assert (found.reached, found.parameters) == (64, 64 + 1024 + 52)
    assert "rules reach 5.6% of 1,140 parameters" in str(found)


@pytest.mark.parametrize(("rule", "reached"), [(None, 64), (dict(weight="q43"), 64 + 1024), (dict(activation="q43"), 64)])
def test_a_rule_or_none_says_what_is_meant_of_it(rule, reached):
    model = torch_dtypes.quantize_(_mixture(), {nn.Linear: dict(weight="q43"), "1": rule})
    assert torch_dtypes.summary(model, show=False).reached == reached


def test_a_weight_that_two_layers_share_counts_once():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    found = torch_dtypes.summary(torch_dtypes.quantize_(model, {"0": torch.q43}), show=False)
    assert (found.reached, found.parameters) == (64, 64 + 72)


class Conv1D(nn.Module):
    """transformers', whose weight is inputs x outputs."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.nf = outputs
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


Conv1D.__module__ = "transformers.pytorch_utils"


@pytest.mark.parametrize(
    "rule",
    [dict(weight="mxfp4", grad="mxfp8_e5m2"), dict(weight=dict(format="int8", scale="free", per="channel", when="call")), dict(weight="mxfp4_axis1")],
    ids=["blocks", "channels", "axis"],
)
def test_inputs_x_outputs_are_rounded_as_a_linear_layer_of_the_same_weight(rule):
    torch.manual_seed(3)
    theirs, linear = Conv1D(6, 64), nn.Linear(64, 6)
    with torch.no_grad():
        linear.weight.copy_(theirs.weight.t()), linear.bias.copy_(theirs.bias)
        theirs.weight[3] *= 100
        linear.weight[:, 3] *= 100
    as_said = {**rule, "weight": "mxfp4_axis0"} if rule["weight"] == "mxfp4_axis1" else rule
    torch_dtypes.quantize_(nn.Sequential(theirs), {"0": rule})
    torch_dtypes.quantize_(nn.Sequential(linear), {"0": as_said})
    x = torch.randn(2, 64)
    # The rounded weights themselves: products with unit vectors add nothing up.
    assert torch.equal(theirs(torch.eye(64)) - theirs.bias, linear(torch.eye(64)) - linear.bias)
    theirs(x).sum().backward(), linear(x).sum().backward()
    assert torch.equal(theirs.weight.grad.t(), linear.weight.grad)
