"""Shared by the tests of captured graphs: formats, a network, a few training steps, comparison of
bits."""

import pytest
import torch
import torch.nn.functional as F
from conftest import bits_dtype
from torch import nn

import torch_dtypes

FORMATS = [
    torch.posit16es2,
    torch.q43,
    torch.posit32es2,
    torch_dtypes.float_format(exp_bits=5, man_bits=6),
]
formats = pytest.mark.parametrize("dtype", FORMATS, ids=str)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.bn = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.c2 = nn.Conv2d(4, 8, 3)
        self.f1, self.f2 = nn.Linear(72, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.c1(x))), 2)
        x = F.avg_pool2d(torch.tanh(self.c2(x)), 1)
        x = torch.sigmoid(self.f1(x.reshape(x.size(0), -1))) * 0.5 + 1.0
        return F.log_softmax(self.f2(x), 1)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return LeNet(), torch.randn(2, 1, 10, 10)


@pytest.fixture
def clean():
    """Reset Dynamo, so that each test compiles its own code."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_same(a: torch.Tensor, b: torch.Tensor):
    assert a.dtype is b.dtype
    assert a.shape == b.shape
    a, b = a.detach(), b.detach()
    if torch_dtypes.is_format_dtype(a.dtype):
        a, b = a.view(bits_dtype(a.dtype)), b.view(bits_dtype(b.dtype))
    assert torch.equal(a, b)


def train(model, x, steps=3, optimizer=torch.optim.Adam, **settings):
    """Run some steps and return losses, parameters and gradients. (JIT's executor optimises from
    the second call on.)"""
    optimizer = optimizer(model.parameters(), lr=0.01, **settings)
    target = torch.tensor([0, 3])
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), target)
        loss.backward()
        optimizer.step()
        seen += [loss, *(p.grad.clone() for p in model.parameters())]
    return [*seen, *model.state_dict().values()]


def assert_trains_as(model, reference, x):
    for a, b in zip(train(model, x), train(reference, x), strict=True):
        assert_same(a, b)
