"""Shared by tests of torch.func and forward mode: dtypes, functions, and tolerances of results."""

import torch
from conftest import parametrize_dtypes
from torch.nn import functional as F

every_dtype = parametrize_dtypes("posit16es2 q43 posit32es2 e11m30")


def numbers(dtype, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expect_same(a, b):
    assert a.dtype is b.dtype and a.shape == b.shape
    assert torch.equal(a.double().nan_to_num(7.0), b.double().nan_to_num(7.0)), (a, b)


def expect_near(a, b, dtype, steps=8):
    assert a.dtype is dtype and a.shape == b.shape
    bound = steps * torch.finfo(dtype).eps * b.double().abs().max().clamp(min=1)
    assert (a.double() - b.double()).abs().max() <= bound, (a, b)


FUNCTIONS = {
    "tanh": torch.tanh,
    "mul": lambda x: x * x,
    "matmul": lambda x: x @ x.t(),
    "casts": lambda x: x.double().sin().to(x.dtype),
    "mixed": lambda x: (x * torch.full((3, 3), 1.5)).to(x.dtype),
    "cat": lambda x: torch.cat([x, x * 2]),
    "norm": lambda x: x.norm(dim=0),
    "prod": lambda x: x.prod(),
    "clamp": lambda x: x.clamp(min=0),
    "softmax": lambda x: F.softmax(x, -1),
    "index": lambda x: x[0] * x[:, 1],
    "in place": lambda x: (x * 2).mul_(x).add_(1),
    "copy_": lambda x: torch.zeros_like(x).copy_(x * x),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "sort": lambda x: x.sort(-1).values,
    "where": lambda x: torch.where(x > 0, x, 0.25),
    "det": torch.linalg.det,
}
