"""Share of a model that its rules reach, and layers that store weights as inputs x outputs."""

import warnings

import pytest
import torch
import yaml
from torch import nn

import torch_dtypes


class Experts(nn.Module):
    """As in a mixture: 3-D parameters, multiplied by functions."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (
            nn.Parameter(torch.randn(4, 8, 16)),
            nn.Parameter(torch.randn(4, 16, 8)),
        )

    def forward(self, x):
        return torch.relu(x @ self.up).matmul(self.down).sum(0)


def _mixture():
    return nn.Sequential(nn.Linear(8, 8, bias=False), Experts(), nn.Conv1d(4, 4, 3))


def test_a_module_of_ones_own_that_no_rule_names_is_said():
    with pytest.warns(
        UserWarning,
        match=r"got 5\.6% of them, while '1', an Experts, has 89\.8% and no rule; .* by "
        r"{'1': None}",
    ):
        model = torch_dtypes.quantize_(_mixture(), {nn.Linear: dict(weight="q43")})
    found = torch_dtypes.summary(model, show=False)
    assert (found.reached, found.parameters) == (64, 64 + 1024 + 52)
    assert "rules reach 5.6% of 1,140 parameters" in str(found)


@pytest.mark.parametrize(
    ("rule", "reached"), [(None, 64), (dict(weight="q43"), 64 + 1024), (dict(activation="q43"), 64)]
)
def test_a_rule_or_none_says_what_is_meant_of_it(rule, reached):
    model = torch_dtypes.quantize_(_mixture(), {nn.Linear: dict(weight="q43"), "1": rule})
    assert torch_dtypes.summary(model, show=False).reached == reached


class Layers(nn.Module):
    """A linear layer, experts, an attention and a convolution."""

    def __init__(self):
        super().__init__()
        self.linear, self.experts, self.convolution = nn.Linear(8, 8), Experts(), nn.Conv1d(3, 6, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.experts(self.linear(x)).expand(2, 3, 8)
        return self.convolution(self.attention(y, y, y)[0])


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("rules", "reached"),
    [
        ({"linear": torch.posit16es2}, ["linear"]),
        ({"experts": dict(weight="q43")}, ["experts"]),
        ({"experts": dict(activation="q43"), "linear": dict(bias="q43")}, ["experts"]),
        (
            {
                nn.MultiheadAttention: dict(weight="q43", accumulate="format"),
                nn.Conv1d: dict(weight="q43"),
            },
            ["attention", "convolution"],
        ),
        ({"attention.out_proj": dict(weight="q43"), "experts": None}, []),
        ({"": dict(activation="q43"), "linear": dict(weight="q43", output="q43")}, ["linear"]),
        ({"experts": dict(output="q43")}, []),
    ],
)
def test_multiply_adds_of_a_batch_are_reached_where_a_rule_rounds_an_operand(rules, reached, fast):
    each = {
        "linear": 3 * 8 * 8,
        "experts": 4 * 3 * (8 * 16 + 16 * 8),
        # Its projections, and scores and values of two heads.
        "attention": 2 * (3 * 8 * 32 + 2 * 2 * 3 * 3 * 4),
        "convolution": 2 * 6 * 3 * 3 * 6,
    }
    model = Layers().requires_grad_(not fast)  # without gradients attention has a fused kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of experts without a rule
        torch_dtypes.quantize_(model, rules)
    x, modes = torch.randn(3, 8), [model.linear.train().training, model.convolution.eval().training]
    want = model(x)
    for batch in (x, (x, None), dict(x=x)):
        found = torch_dtypes.summary(model, batch, show=False)
        assert (found.reached_multiply_adds, found.multiply_adds) == (
            sum(each[name] for name in reached),
            sum(each.values()),
        )
    assert "parameters and" in str(found) and f"% of {sum(each.values()):,} multiply-adds" in str(
        found
    )
    assert (
        torch.equal(model(x), want) and [model.linear.training, model.convolution.training] == modes
    )


def test_multiply_adds_of_recurrent_layers_and_grouped_products_are_counted():
    lstm = torch_dtypes.summary(nn.LSTM(8, 4), torch.randn(3, 2, 8), show=False)
    assert lstm.multiply_adds == 3 * 2 * (16 * 8 + 16 * 4) and lstm.reached_multiply_adds == 0
    a, b, ends = (
        torch.ones(8, 16).bfloat16(),
        torch.ones(2, 16, 24).bfloat16(),
        torch.tensor([4, 8], dtype=torch.int32),
    )
    grouped = torch_dtypes.summary(
        nn.Identity(),
        (a, b),
        forward=lambda _, batch: torch._grouped_mm(*batch, offs=ends),
        show=False,
    )
    assert grouped.multiply_adds == 8 * 16 * 24
    assert (
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        torch.backends.mha.get_fastpath_enabled(),
    ) == (True, True, True)


def test_what_is_no_batch_is_an_error_and_the_model_stays_quantised():
    model = torch_dtypes.quantize_(nn.Linear(2, 1), {nn.Linear: dict(weight="q43")})
    with pytest.raises(TypeError, match="expected batches of inputs= as tensors"):
        torch_dtypes.summary(model, 3)
    with pytest.raises(ValueError, match="expected batches of inputs= that the model takes"):
        torch_dtypes.summary(model, torch.ones(3))
    with pytest.raises(ValueError, match="expected inputs= with the batch that forward= runs"):
        torch_dtypes.summary(model, forward=lambda model, batch: model(batch))
    assert (
        torch_dtypes.summary(model, show=False)[""].runs == "casts"
        and torch_dtypes.summary(model, show=False).multiply_adds is None
    )


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
        self.weight, self.bias = (
            nn.Parameter(torch.randn(inputs, outputs)),
            nn.Parameter(torch.randn(outputs)),
        )

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


Conv1D.__module__ = "transformers.pytorch_utils"


@pytest.mark.parametrize(
    "rule",
    [
        dict(weight="mxfp4", grad="mxfp8_e5m2"),
        dict(weight=dict(format="int8", scale="free", per="channel", when="call")),
        dict(weight="mxfp4_axis1"),
        dict(forward=dict(weight="mxfp4_axis1")),
        dict(forward=dict(weight=dict(format="mxfp4", axis=-1))),
        dict(forward=dict(weight=dict(format="int8", per="channel", when="call"))),
    ],
    ids=["blocks", "channels", "axis", "axis of a product", "last", "channels of a product"],
)
def test_inputs_x_outputs_are_rounded_as_a_linear_layer_of_the_same_weight(rule):
    torch.manual_seed(3)
    theirs, linear = Conv1D(6, 64), nn.Linear(64, 6)
    with torch.no_grad():
        linear.weight.copy_(theirs.weight.t()), linear.bias.copy_(theirs.bias)
        theirs.weight[3] *= 100
        linear.weight[:, 3] *= 100
    as_said = rule
    if "mxfp4_axis1" in str(rule):
        as_said = yaml.safe_load(str(rule).replace("axis1", "axis0"))
    torch_dtypes.quantize_(nn.Sequential(theirs), {"0": rule})
    torch_dtypes.quantize_(nn.Sequential(linear), {"0": as_said})
    x = torch.randn(2, 64)
    # The rounded weights themselves: products with unit vectors add nothing up.
    assert torch.equal(theirs(torch.eye(64)) - theirs.bias, linear(torch.eye(64)) - linear.bias)
    theirs(x).sum().backward(), linear(x).sum().backward()
    assert torch.equal(theirs.weight.grad.t(), linear.weight.grad)
