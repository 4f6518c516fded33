"""Layers that round in one node of autograd's graph, and in the memory that is there: the bits of
hooks, and nobody else's tensor changes."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_dtypes
from torch_dtypes.quantization import rounders

RULES = {
    "output and error": dict(weight="q43", output="q43", error="q52"),
    "error alone": dict(error="q52"),
    "output alone": dict(output="posit8es1"),
    "all places": dict(weight="q43", activation="e5m5", output="q43", error="q52", grad="e5m5"),
    "stochastic": dict(
        weight="q43_stochastic",
        output={"format": "q43", "rounding": "stochastic"},
        error="q52_stochastic",
        grad="q52_stochastic",
    ),
}


class Net(nn.Module):
    """Outputs that are used twice, saved by their own backward (tanh), written in place (relu), or
    handed on as they are (dropout)."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.tanh, self.relu, self.drop = nn.Tanh(), nn.ReLU(inplace=True), nn.Dropout(0.0)
        self.pool, self.flat = nn.AvgPool2d(2), nn.Flatten()
        self.first, self.second, self.last = (
            nn.Linear(48, 48),
            nn.Linear(48, 48, bias=False),
            nn.Linear(48, 4),
        )

    def forward(self, x):
        x = self.flat(self.pool(self.drop(self.tanh(self.norm(self.conv(x))))))
        x = self.relu(self.first(x)) + x
        return self.last(x + self.second(x) * x)


def network(rule):
    torch.manual_seed(0)
    without_parameters = {
        name: value for name, value in rule.items() if name in ("output", "error", "activation")
    }
    others = (nn.BatchNorm2d, nn.Tanh, nn.ReLU, nn.Dropout, nn.AvgPool2d, nn.Flatten)
    rules = {nn.Conv2d: rule, nn.Linear: rule, **dict.fromkeys(others, without_parameters)}
    return torch_dtypes.quantize_(Net(), rules)


def gradients(model, steps=2):
    torch.manual_seed(1)
    x = torch.randn(5, 1, 8, 8, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        y = model(x)
        loss = nn.functional.cross_entropy(y, torch.tensor([0, 1, 2, 3, 0]))
        loss.backward()
        optimizer.step()
        found += [y.detach().clone(), loss.detach(), *(p.grad.clone() for p in model.parameters())]
    return [*found, x.grad]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_bits_are_those_of_hooks(rule, monkeypatch):
    in_nodes = gradients(network(rule))
    calls = []
    monkeypatch.setattr(rounders, "_is_one_node", lambda *_: calls.append(1))
    by_hooks = gradients(network(rule))
    assert calls
    for a, b in zip(in_nodes, by_hooks, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def linear():
    torch.manual_seed(0)
    return torch_dtypes.quantize_(nn.Linear(6, 6), {"": dict(output="q43", error="q52")})


def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def test_hooks_and_retained_gradients_see_rounded_errors():
    y = linear()(values(3, 6))
    seen = []
    y.register_hook(lambda g: seen.append(g.clone()))
    y.retain_grad()
    y.backward(values(3, 6))
    rounded = torch_dtypes.chop(values(3, 6), "q52")
    assert (
        torch.equal(seen[0], rounded)
        and torch.equal(y.grad, rounded)
        and not torch.equal(rounded, values(3, 6))
    )


KEPT = []


class Keeps(torch.autograd.Function):
    """Keeps the gradient that it hands on."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        KEPT.append(g)
        return g


def test_gradients_that_others_hold_stay():
    given = values(3, 6)
    linear()(values(3, 6)).backward(given)
    assert torch.equal(given, values(3, 6))
    array = values(3, 6).numpy()
    linear()(values(3, 6)).backward(torch.from_numpy(array))
    assert np.array_equal(array, values(3, 6).numpy())

    KEPT.clear()
    (Keeps.apply(linear()(values(3, 6))) * values(3, 6)).sum().backward()
    assert torch.equal(KEPT[0], values(3, 6))

    other = torch.zeros(3, 6, requires_grad=True)  # the same gradient goes to both operands of +
    y = linear()(values(3, 6))
    ((other + y) * values(3, 6)).sum().backward()
    assert torch.equal(other.grad, values(3, 6))
    ((y.detach() + other + linear()(values(3, 6)).view(3, 6)) * values(3, 6)).sum().backward()
    assert torch.equal(other.grad, 2 * values(3, 6))

    t = linear()(values(3, 6)) + other
    t.retain_grad()
    (t * values(3, 6)).sum().backward()
    assert torch.equal(t.grad, values(3, 6))


def test_second_derivatives_checkpoints_and_inference():
    layer = linear()
    x = values(3, 6).requires_grad_()
    (first,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.shape == x.shape and second.isfinite().all()
    plain = torch.autograd.grad(layer(x).sum(), x)[0]
    assert torch.equal(
        torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).sum(), x)[0], plain
    )
    with torch.no_grad():
        y = layer(x)
    with torch.inference_mode():
        assert torch.equal(layer(values(3, 6)), y)
    assert torch.equal(copy.deepcopy(layer)(x), y) and torch.equal(torch_dtypes.chop(y, "q43"), y)


def test_modes_of_blocks_are_those_that_hold_when_it_rounds():
    layer, x = linear(), values(3, 6).requires_grad_()
    with torch_dtypes.rounding("toward_zero"):
        y = layer(x)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(y, torch_dtypes.chop(expected, "q43", "toward_zero"))
    with torch_dtypes.rounding("up"):
        y.backward(values(3, 6))
    assert torch.equal(x.grad, torch_dtypes.chop(values(3, 6), "q52", "up") @ layer.weight)


# PyTorch's own look at the tensors that were saved.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_autograd_takes_the_hook():
    layer, x = linear(), values(3, 6).requires_grad_()
    layer(x).backward(values(3, 6))
    expected, x.grad = x.grad, None
    with torch._dynamo.compiled_autograd._enable(lambda graph: graph):
        layer(x).backward(values(3, 6))
    assert torch.equal(x.grad, expected)


KINDS = [nn.Identity(), nn.Dropout().eval(), nn.Flatten(), nn.ReLU(), nn.BatchNorm1d(6).eval()]


@pytest.mark.parametrize("module", KINDS, ids=lambda m: type(m).__name__)
def test_inputs_are_not_overwritten(module):
    made = torch_dtypes.quantize_(
        copy.deepcopy(module), {"": dict(output="q43", error="q52")}
    ).train(module.training)
    for x in (values(3, 6), values(3, 6).requires_grad_(), values(3, 6).requires_grad_() * 1):
        with torch.set_grad_enabled(x.requires_grad):
            y = made(x)
        assert torch.equal(x, values(3, 6)) and torch.equal(y, torch_dtypes.chop(module(x), "q43"))
