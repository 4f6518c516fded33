"""Blocks of ``accumulate`` around layers that quantize_ rounds by casts: as though their rules had
the block's policy."""

import copy

import pytest
import torch
from torch import nn

from torch_dtypes import Accumulation, accumulate, quantize_

RULE = dict(weight="q43", activation="q43", error="q52")
LAYERS = {
    "linear": (lambda: nn.Linear(40, 3), (2, 40)),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 6, 6)),
    "transposed": (lambda: nn.ConvTranspose1d(5, 4, 3), (2, 5, 6)),
    "attention": (lambda: nn.MultiheadAttention(8, 2), (3, 2, 8)),
    "recurrent": (lambda: nn.LSTM(8, 4), (3, 2, 8)),
}
POLICIES = {
    "steps": Accumulation("format", product="e5m3", accumulator="e5m2"),
    "exact": Accumulation("exact"),
    "block": Accumulation("block", terms=4, extra_bits=1),
    "float64": Accumulation("float64"),
    "float32": Accumulation("float32"),
}


def results(model, x, block):
    x = x.clone().requires_grad_()
    with accumulate(block) if block else torch.enable_grad():
        given = {nn.MultiheadAttention: 3, nn.Bilinear: 2}.get(
            next((k for k in (nn.MultiheadAttention, nn.Bilinear) if isinstance(model, k)), None), 1
        )
        y = model(*[x] * given)
    y = y[0] if isinstance(y, tuple) else y
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_block_s_policy_is_obeyed(name, policy):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make(), torch.randn(shape)
    kind, own = type(layer), copy.deepcopy(layer)
    quantize_(nn.ModuleList([layer]), {kind: RULE})
    quantize_(nn.ModuleList([own]), {kind: RULE | {"accumulate": POLICIES[policy]}})
    found, expected, without = (
        results(layer, x, POLICIES[policy]),
        results(own, x, None),
        results(copy.deepcopy(layer), x, None),
    )
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    if policy in ("steps", "block", "float32"):  # of the others few results need differ
        assert torch.equal(found[0], without[0]) == (policy == "float32")


@pytest.mark.filterwarnings("ignore:expected a sum")
def test_a_rule_s_own_policy_stays():
    torch.manual_seed(0)
    layer, x = nn.Linear(40, 3), torch.randn(2, 40)
    quantize_(nn.ModuleList([layer]), {nn.Linear: RULE | {"accumulate": "machine"}})
    with accumulate("format", product="e5m3", accumulator="e5m2"):
        inside = layer(x)
    assert torch.equal(inside, layer(x))


@pytest.mark.parametrize(
    ("rule", "policy", "said"),
    [
        (
            dict(
                weight=dict(format="int8", when="call"), activation=dict(format="int8", when="call")
            ),
            "format",
            "int8 with a scale, which have no common format",
        ),
        (RULE, "nvidia-h100", "expected one dtype for weight, activation, error and grad"),
    ],
)
def test_what_cannot_be_obeyed_is_an_error(rule, policy, said):
    layer = nn.Linear(6, 3)
    quantize_(nn.ModuleList([layer]), {nn.Linear: rule})
    with (
        accumulate(policy),
        pytest.raises(
            ValueError,
            match=f"accumulate of the block around a layer that is rounded by casts.*{said}",
        ),
    ):
        layer(torch.randn(2, 6))
    layer(torch.randn(2, 6))
