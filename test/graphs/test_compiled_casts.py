"""Casts, moves between devices, numbers and indices in whole graphs of torch.compile, with eager code's bits."""

# ruff: noqa: F811 (a fixture that is imported)

import pytest
import torch
import torch.nn.functional as F
from capture import DEVICE, WHOLE_GRAPHS, assert_same, backend, clean  # noqa: F401 (the last two are fixtures)

import torch_dtypes
from torch_dtypes._overlay import graphs

pytestmark = WHOLE_GRAPHS


def test_casts_and_mixed_operands(backend):
    def f(x, s):
        return x.float() * s, x + s, (x > 0).float().sum(), x.to(torch.bfloat16), torch.prod(x), F.layer_norm(x, (4,), s, s)

    x, s = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2), torch.linspace(1, 2, 4)
    for a, b in zip(torch.compile(f, backend=backend, fullgraph=True)(x, s), f(x, s), strict=True):
        assert_same(a, b)


def test_names_of_types(backend):
    for x in (torch.ones(2, dtype=torch.posit16es2), torch.ones(2, dtype=torch.bfloat16), torch.ones(2)):
        y, name = torch.compile(lambda x: (x + 1, (x + 1).type()), backend=backend, fullgraph=True)(x)
        assert_same(y, x + 1)
        assert name == x.type()


@pytest.mark.parametrize("name", ["as recorded", "aot_eager"])
def test_numbers_in_the_places_of_tensors(backend, name):
    def f(x, c):
        rows = torch.tensor([0, 2], device=x.device)
        scale = torch.tensor([0.1, 0.2, 0.3, 0.4], device=x.device)
        scale += 1
        dropped = F.dropout(x, 1.0)
        y = x.clone()
        y[0], y[:, 1] = 0.3, 2
        return y, torch.where(x > c, x, 0.3), torch.where(x > 0, 3, x), x.index_fill(0, rows, 0.3) * scale, x * torch.tensor(0.7), dropped

    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2).requires_grad_()
    run = torch.compile(f, backend=backend if name == "as recorded" else name, fullgraph=True)

    def everything(g):
        found = list(g(x, 0.5))
        slopes = torch.autograd.grad(sum(v.float().sum() for v in found), x)
        with torch_dtypes.rounding("up"):
            return [*found, *slopes, *g(x, 0.5)]

    for _ in range(2):
        for a, b in zip(everything(run), everything(f), strict=True):
            assert_same(a, b)


@pytest.mark.filterwarnings("ignore:.* has no infinity")
def test_infinities_as_numbers(backend):
    """They are outermost numbers, of which those that a cast makes are NaN."""

    def f(x):
        cast = torch.scalar_tensor(float("inf")).to(x.dtype)
        return torch.where(x > 0, x, float("-inf")), torch.where(x > 0, float("inf"), x), torch.where(x > 0, float("nan"), x), cast

    x = torch.linspace(-2, 2, 5).to(torch.posit16es2)
    for a, b in zip(torch.compile(f, backend=backend, fullgraph=True)(x), f(x), strict=True):
        assert_same(a, b)


def test_indices(backend):
    """Their number says what shape a result has, unlike those of a mask."""

    def f(x, i):
        return x[:, i] * x[i, i]

    def results(g):
        x = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2).requires_grad_()
        y = g(x, torch.tensor([[0, 2], [1, 1]]))
        y.square().sum().backward()
        return y, x.grad

    for a, b in zip(results(torch.compile(f, backend=backend, fullgraph=True)), results(f), strict=True):
        assert_same(a, b)


def test_casts_to_formats(backend):
    def f(x, w):
        y = x.to(torch.posit16es2) * w
        return y.tanh().float() * x, y.to(torch.q43), y.to(dtype=torch.posit8es1, copy=True), (x > 0).to(torch.q43)

    def results(g):
        x = torch.linspace(-3, 3, 35).reshape(5, 7).requires_grad_()
        w = torch.linspace(1, 2, 7).to(torch.posit16es2).requires_grad_()
        found = g(x, w)
        return [*found, *torch.autograd.grad(found[:3], [x, w], [torch.ones_like(v) for v in found[:3]])]

    for a, b in zip(results(torch.compile(f, backend=backend, fullgraph=True)), results(f), strict=True):
        assert a.requires_grad == b.requires_grad
        assert_same(a, b)
    assert len(backend.seen) == 2


def test_moves_between_devices(backend):
    """Those of numbers in our dtypes are of codes, after a cast from stock numbers and before any other."""

    def f(x):
        there = x.cpu() * 2
        codes = torch.arange(4, dtype=x.dtype).to(x.device) * x, there.to(DEVICE) + x, x.to(there) * 3, there.type_as(x) - x
        casts = x.to("cpu", torch.q43), (x.float() / 3).to(device="cpu", dtype=torch.q52), x.to("cpu", torch.float64), there.to(DEVICE, torch.float32)
        return there, *codes, *casts

    def results(g):
        x = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2).requires_grad_()
        found = g(x)
        return [*found, *torch.autograd.grad(found, x, [torch.ones_like(v) for v in found])]

    for name in (backend, "aot_eager"):
        for a, b in zip(results(torch.compile(f, backend=name, fullgraph=True)), results(f), strict=True):
            assert a.device == b.device
            assert_same(a, b)
        torch._dynamo.reset()


def test_casts_of_stock_tensors_end_other_graphs(backend, monkeypatch):
    monkeypatch.setattr(graphs, "_noticed", True)

    def f(x):
        return (x.sin() + 1).to(torch.q43) * 2

    x = torch.linspace(-3, 3, 7)
    assert_same(torch.compile(f, backend=backend)(x), f(x))
    assert not any("torch_dtypes" in target for target in backend.targets(0))  # what a compiler fuses


def test_gradients_of_some_results_and_of_casts(backend):
    def f(x, w):
        y = torch.prod(x, 1) + 1
        return y * w, torch.cat([x, x * 2]).float(), x.detach() * 2, 3

    def gradients(g, *values):
        a, b, c, n = g(*values)
        assert n == 3 and not c.requires_grad
        return torch.autograd.grad(a.sum(), values, retain_graph=True) + torch.autograd.grad(b.T.square().sum(), values[0], retain_graph=True)

    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2).requires_grad_()
    w = torch.ones(3, dtype=torch.posit16es2, requires_grad=True)
    for a, b in zip(gradients(torch.compile(f, backend=backend, fullgraph=True), x, w), gradients(f, x, w), strict=True):
        assert_same(a, b)
