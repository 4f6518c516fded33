"""A network of two layers and its training steps by LowPrecision."""

import torch
from torch import nn


def numbers(*shape, seed=0, scale=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def network(dtype=torch.q52, seed=0):
    """Build a network with the same weights on every device."""
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(4, 8, device="cpu"), nn.Tanh(), nn.Linear(8, 2, device="cpu"))
    return layers.to(torch.empty(0).device, dtype)


def batch(i, dtype=torch.q52):
    return numbers(16, 4, seed=100 + i).to(dtype), torch.arange(16) % 2


def steps(model, optimizer, which, scheduler=None):
    for i in which:
        x, t = batch(i, next(model.parameters()).dtype)
        optimizer.zero_grad()
        optimizer.scale(nn.functional.cross_entropy(model(x), t)).backward()
        optimizer.step()
        if scheduler:
            scheduler.step()


def masters(optimizer):
    return list(optimizer.state_dict()["low_precision"]["masters"].values())


def bits(model):
    return [p.detach().double().clone() for p in model.parameters()]
