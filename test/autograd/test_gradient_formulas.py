"""Gradients that stock computes in one kernel, though it has them as several operators too: rounded once, as of bfloat16."""

import pytest
import torch
import torch.nn.functional as F

import torch_dtypes


@pytest.mark.parametrize("name", ["silu", "mish", "hardswish", "softplus"])
@pytest.mark.parametrize("dtype", ["posit16es2", "q43", "e5m7", "e8m7"])
def test_activations(name, dtype):
    dtype = torch_dtypes.dtype(dtype)
    x = torch.linspace(-6, 6, 2001).to(dtype).requires_grad_()
    getattr(F, name)(x).backward(torch.ones_like(x))
    exact = x.detach().double().requires_grad_()
    getattr(F, name)(exact).sum().backward()
    expected = exact.grad.to(dtype)
    # The kernel computes in float32, which may lie on the other side of a midpoint; every step was rounded, and a third of them wrong.
    assert (x.grad != expected).float().mean() < 0.005


@pytest.mark.parametrize("name", ["silu", "mish"])
def test_second_derivatives(name):
    x = torch.linspace(-3, 3, 13, dtype=torch.posit32es2).requires_grad_()
    (slope,) = torch.autograd.grad(getattr(F, name)(x).sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(slope.sum(), x)
    exact = x.detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(getattr(F, name)(exact).sum(), exact, create_graph=True)
    (expected,) = torch.autograd.grad(slope.sum(), exact)
    assert found.dtype is torch.posit32es2
    assert torch.allclose(found.double(), expected, atol=1e-6)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["posit16es2", "q43", "e8m7"])
def test_weight_norm(dtype, dim):
    dtype = torch_dtypes.dtype(dtype)
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(24, 17, generator=generator).to(dtype).requires_grad_()
    g = torch.rand((24, 1) if dim == 0 else (1, 17), generator=generator).add(0.5).to(dtype).requires_grad_()
    weight = torch._weight_norm(v, g, dim)
    error = torch.randn(weight.shape, generator=generator).to(dtype)
    found = torch.autograd.grad(weight, (v, g), error)
    exact = [x.detach().double().requires_grad_() for x in (v, g)]
    expected = torch.autograd.grad(torch._weight_norm(*exact, dim), exact, error.double())
    assert weight.dtype is dtype
    assert all(a.dtype is dtype for a in found)
    # Norms that are rounded to the format on the way had a third of q43's wrong.
    assert all((a != b.to(dtype)).float().mean() < 0.005 for a, b in zip(found, expected, strict=True))
