"""A network of convolution, normalisation and linear layers, and the results of one of its steps,
for tests of quantize_."""

import torch
from torch import nn
from torch.nn import functional as F


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, padding_mode="reflect", groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).flatten(1))


def batch():
    torch.manual_seed(1)
    return torch.randn(5, 2, 4, 4), torch.tensor([0, 1, 2, 0, 1])


def gradients(model):
    model.zero_grad()
    x, t = batch()
    loss = F.cross_entropy(model(x), t)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def equal(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b), (a - b).abs().max()
