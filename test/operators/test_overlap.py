"""Outputs that overlap an operand or themselves are refused, or written, exactly as in stock
PyTorch. So are empty ones."""

import warnings

import pytest
import torch
from conftest import parametrize_dtypes

from torch_dtypes import _C

CALLS = """
x[:4].expand(3, 4).relu_() | x[:4].expand(3, 4).exp_() | x[:4].expand(3, 4).cumsum_(0)
x[:4].expand(3, 4).sub_(1) | x[:4].expand(3, 4).fill_(1)
x[:4].expand(3, 4).sqrt_() | x[:4].expand(3, 4).zero_() | x[:4].expand(3, 4).normal_()
x[:4].expand(3, 4).random_() | x[:4].expand(4, 4).triu_()
x[:4].expand(3, 4).masked_fill_(torch.ones(4, dtype=torch.bool), 1)
x[:4].expand(3, 4).index_fill_(0, torch.tensor([0]), 1)
x[:4].expand(3, 4).index_put_((torch.tensor([0]),), x[:1].clone())
x[:4].expand(3, 4).put_(torch.tensor([0]), x[:1].clone())
x[:4].expand(3, 4).nextafter_(x[:4].clone()) | x[:4].expand(3, 4).bernoulli_()
x[:4].expand(3, 4).uniform_()
x[1:].add_(x[:-1]) | x[1:].copy_(x[:-1]) | x[1:].clamp_(min=x[:-1]) | x[1:].pow_(x[:-1])
x[1:].addcmul_(x[:-1], x[:-1]) | x[1:].lerp_(x[:-1], 0.5)
x[1:].floor_divide_(x[:-1]) | x.__setitem__(slice(1, None), x[:-1])
x[:8].index_add_(0, i, x[4:12]) | x[:8].index_copy_(0, i, x[4:12])
x[:8].scatter_(0, i, x[4:12]) | x[:8].scatter_(0, i, x[:8]) | x[:8].masked_scatter_(i >= 0, x[4:12])
m.addmm_(m, m)
torch.add(x[:-1], x[:-1], out=x[1:]) | torch.exp(x[:-1], out=x[1:]) | torch.exp(x, out=x)
torch.exp(x[:], out=x[:]) | torch.sqrt(x[:-1], out=x[1:])
torch.cumsum(x[:-1], 0, out=x[1:]) | torch.cumsum(x[:], 0, out=x[:])
torch.maximum(x[:-1], x[1:], out=x[1:])
torch.nextafter(x[:-1], x[:-1], out=x[1:])
torch.mm(m, m, out=x[8:].view(4, 4)) | torch.mm(m, m, out=x[:16].view(4, 4))
torch.tril(m, out=x[:16].view(4, 4)) | torch.sum(m, 0, out=x[:4])
torch.sort(x[:8], out=(x[:8], torch.zeros(8, dtype=torch.long)))
torch.gather(x[:8], 0, i, out=x[:8]) | torch.take(x, i[:4], out=x[:4])
torch.cat([x[:4], x[4:8]], out=x[2:10]) | torch.stack([x[:4], x[4:8]], out=x[:8].view(2, 4))
torch.where(x[:4] > 1, x[:4], x[4:8], out=x[2:6])
torch.index_select(x, 0, i, out=x[:8]) | torch.masked_select(x, x > 3, out=x[:20])
torch.lerp(x[:-1], x[:-1], 0.5, out=x[1:])
torch.addcmul(x[:-1], x[:-1], x[:-1], out=x[1:]) | torch.reciprocal(x[:-1], out=x[1:])
torch.nn.functional.logsigmoid(x[:]) | x[::2].mul_(x[1::2])
(lambda y: torch.add(y, x[:3], out=y))(x[0]) | (lambda y: torch.lerp(y, x[:3], 0.5, out=y))(x[0])
(lambda y: torch.nextafter(y, x[:3], out=y))(x[0])
(lambda y: torch.addcmul(y, x[:3], x[:3], out=y))(x[0])
(lambda y: torch.add(y, x[:3], out=y))(x[0].clone())
(lambda y: torch.lerp(y, x[:3], 0.5, out=y))(x[0].clone())
(lambda y: torch.addcmul(y, x[:3], x[:3], out=y))(x[0].clone())
torch.maximum(m, m.t(), out=m) | torch.maximum(m.t(), m, out=m) | torch.fmod(m, m.t(), out=m)
torch.clamp(m, m.t(), out=m) | torch.eq(m, m.t(), out=m)
torch.where(m > 1, m.t(), m, out=m) | torch.maximum(m, m, out=m)
torch.addr(m.t(), m[0], m[1], out=m) | torch.hypot(m, m[0], out=m)
"""
DRAWS = ("normal_", "random_", "bernoulli_", "uniform_")
# CUDA's library may or may not read an operand after writing there.
PRODUCTS = ("addmm_(", "torch.mm(")


def outcome(call: str, dtype: torch.dtype):
    x = torch.arange(24.0).to(dtype)
    names = {"torch": torch, "x": x, "i": torch.arange(8), "m": x[:16].view(4, 4)}
    with warnings.catch_warnings():
        # Stock PyTorch warns of writes into expanded tensors that it still performs.
        warnings.simplefilter("ignore")
        try:
            eval(call, names)
        except RuntimeError as error:
            return str(error).split(".")[0].split("\n")[0], x
    return "", x


@parametrize_dtypes("posit16es2 e8m4")
@pytest.mark.parametrize(
    "call", [c.strip() for line in CALLS.strip().splitlines() for c in line.split(" | ")]
)
def test_as_stock(call, dtype):
    refused, x = outcome(call, dtype)
    stock_refused, y = outcome(call, torch.float32)
    assert refused == stock_refused
    if not any(
        name in call for name in (*DRAWS, *(PRODUCTS if x.is_cuda or _C.gpu_on_host() else ()))
    ):
        assert torch.equal(x.double().nan_to_num(7, 7, 7), y.to(dtype).double().nan_to_num(7, 7, 7))


def test_nothing_beside_the_output_is_written():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.q43)
    torch.exp(x[:2], out=x[:2])
    torch.cumsum(x[1:3], 0, out=x[1:3])
    assert x[3].item() == 4.0 and x[0].item() == 2.75


INTO_EMPTY = """
torch.add(m, m, out=o) | torch.maximum(m, m, out=o) | torch.exp(m, out=o)
torch.addr(m, v, w, out=o)
torch.softmax(m, 0, out=o) | torch.eq(m, m, out=o)
torch.mm(m, m.t(), out=o) | torch.sum(m, 0, out=o) | torch.sqrt(m[:, ::2], out=o)
torch.where(m > 1, m, m, out=o) | torch.clamp(m, m, out=o)
torch.lerp(c, c, 0.5, out=o) | torch.add(c, c, out=o) | torch.cumsum(c, 0, out=o)
torch.add(m, m.t()[:1].t(), out=o) | torch.atan2(c, c[:1], out=o)
"""


@parametrize_dtypes("posit16es2 q43")
@pytest.mark.parametrize(
    "call", [c.strip() for line in INTO_EMPTY.strip().splitlines() for c in line.split(" | ")]
)
def test_an_empty_output_is_laid_out_as_in_stock_pytorch(call, dtype):
    def out(of):
        m, o = torch.arange(12.0).to(of).view(4, 3).t(), torch.empty(0, dtype=of)
        c = torch.ones(2, 3, 4, 5).to(of).contiguous(memory_format=torch.channels_last)
        eval(
            call, {"torch": torch, "m": m, "o": o, "c": c, "v": m[:, 0].clone(), "w": m[0].clone()}
        )
        return o

    ours, stock = out(dtype), out(torch.float64)
    assert ours.dtype is dtype and (ours.shape, ours.stride()) == (stock.shape, stock.stride())
    assert torch.equal(ours.double(), stock.to(dtype).double())
