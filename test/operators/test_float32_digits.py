"""Formats with float32's digits or more: modes other than to nearest affect every operator, and
powers follow the rules of arithmetic."""

import math

import pytest
import torch
from rationals import Fraction

import torch_dtypes
from torch_dtypes import accumulate, rounding

FP32 = torch_dtypes.dtype("fp32")


def values(n, seed=0, low=0.1, high=1.1):
    g = torch.Generator().manual_seed(seed)
    return (torch.rand(n, generator=g) * (high - low) + low).to(FP32)


def exact(x):
    return [Fraction(v) for v in x.double().tolist()]


def dot(a, b):
    return sum(x * y for x, y in zip(exact(a), exact(b), strict=True))


A, B, W = values(37), values(37, 1, -1, 1), values(37, 2, 0, 1)
OPERATORS = {
    "sum": (lambda: B.sum(), lambda: [sum(exact(B))]),
    "mean": (lambda: A.mean(), lambda: [sum(exact(A)) / 37]),
    "dot": (lambda: A.dot(B), lambda: [dot(A, B)]),
    "mm": (lambda: A[None] @ B[:, None], lambda: [dot(A, B)]),
    "cumsum": (lambda: A.cumsum(0)[-1], lambda: [sum(exact(A))]),
    "prod": (lambda: A[:9].prod(), lambda: [math.prod(exact(A[:9]))]),
    "lerp": (
        lambda: torch.lerp(A, B, W),
        lambda: [a + w * (b - a) for a, b, w in zip(*map(exact, (A, B, W)), strict=True)],
    ),
    "addr": (
        lambda: torch.addr(A.view(1, 37), A[:1], B),
        lambda: [a + exact(A)[0] * b for a, b in zip(exact(A), exact(B), strict=True)],
    ),
    "square": (lambda: B.square(), lambda: [b * b for b in exact(B)]),
    "cumprod": (lambda: A[:6].cumprod(0)[-1], lambda: [math.prod(exact(A[:6]))]),
    "var": (
        lambda: A.var(correction=0),
        lambda: [sum(a * a for a in exact(A)) / 37 - (sum(exact(A)) / 37) ** 2],
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_directed_modes_enclose_the_exact_result(name):
    compute, of_fractions = OPERATORS[name]
    want = of_fractions()
    with rounding("up"):
        above = exact(compute().flatten())
    with rounding("down"):
        below = exact(compute().flatten())
    for low, true, high in zip(below, want, above, strict=True):
        assert low <= true <= high and high - low <= abs(true) * Fraction(2) ** -22


@pytest.mark.parametrize("name", ["up", "stochastic"])
def test_the_mode_of_the_dtype_itself_acts(name):
    dtype = torch_dtypes.dtype(f"fp32_{name}")
    small = torch.tensor([1.0, 2.0**-24], dtype=torch.float64).to(dtype)
    torch.manual_seed(0)
    sums = {small.sum().item() for _ in range(64)} | {
        small.dot(torch.ones_like(small)).item() for _ in range(64)
    }
    assert sums == {1 + 2**-23} if name == "up" else {1.0, 1 + 2**-23}


def test_the_policy_float32_stays_float32s():
    small = torch.tensor([1.0, 2.0**-30], dtype=torch.float64).to(FP32)
    with rounding("up"), accumulate("float32"):
        assert small.dot(torch.ones_like(small)).item() == 1


def test_to_nearest_bits_are_float32s():
    a, b = torch.randn(40, 30), torch.randn(30, 20)
    assert torch.equal((a.to(FP32) @ b.to(FP32)).float(), a @ b) and torch.equal(
        a.to(FP32).softmax(1).float(), a.softmax(1)
    )


@pytest.mark.parametrize("name", ["e10m40", "posit40es2", "e11m52"])
@pytest.mark.parametrize("mode", ["nearest_even", "up", "toward_zero"])
def test_powers_are_arithmetic(name, mode):
    dtype = torch_dtypes.dtype(name)
    x = (
        torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    ).to(dtype)
    with rounding(mode):
        product, reciprocal, root = x * x, x.reciprocal(), x.sqrt()
        for found in (
            x.square(),
            x**2,
            x.pow(2.0),
            x.clone().square_(),
            x.clone().pow_(2),
            torch.pow(x, 2, out=torch.empty_like(x)),
        ):
            assert torch.equal(found, product)
        for n, want in ((-1, reciprocal), (0.5, root)):
            assert torch.equal(x**n, want) and torch.equal(x.clone().pow_(n), want)
    leaf = x[:3].clone().requires_grad_()
    (leaf**2).sum().backward()
    assert torch.equal(leaf.grad, 2 * x[:3])


@pytest.mark.parametrize("policy", ["exact", "format", "float64", "chunked(2)"])
@pytest.mark.parametrize("name", ["q43", "posit16es2", "e8m23"])
def test_rank_one_updates_obey_policies(name, policy):
    dtype = torch_dtypes.dtype(name)
    g = torch.Generator().manual_seed(3)
    m, u, v = (torch.randn(size, generator=g).to(dtype) for size in ((12, 9), (12,), (9,)))
    with accumulate(policy):
        for options in ({}, {"beta": 0.5, "alpha": -2}, {"beta": 0}):
            want = torch.addmm(m, u[:, None], v[None], **options)
            assert torch.equal(torch.addr(m, u, v, **options), want) and torch.equal(
                m.clone().addr_(u, v, **options), want
            )
            assert torch.equal(torch.addr(m, u, v, **options, out=torch.empty_like(m)), want)
        assert torch.equal(torch.addr(m[0], u, v), torch.addmm(m[0], u[:, None], v[None]))
        assert torch.equal(
            torch.addr(m, u[::2].repeat_interleave(2), v.flip(0)),
            torch.addmm(m, u[::2].repeat_interleave(2)[:, None], v.flip(0)[None]),
        )
    c = torch.tensor([1.125]).to(torch.q43)
    with accumulate("format"):
        assert torch.addr(torch.tensor([[-1.25]]).to(torch.q43), c, c).item() == 0
    with accumulate(policy):
        assert torch.equal(
            torch.func.vmap(torch.addr)(m.expand(2, 12, 9), u.expand(2, 12), v.expand(2, 9))[1],
            torch.addr(m, u, v),
        )


def test_condition_numbers_are_rounded_once_and_warn_of_nothing(recwarn):
    for dtype in (torch.posit16es2, torch.q43, torch.posit32es2):
        for p in (None, 1, "fro", -2, float("inf")):
            a = torch.tensor([[2.0, 1.0], [1.0, 3.0]]).to(dtype)
            assert torch.equal(torch.linalg.cond(a, p), torch.linalg.cond(a.double(), p).to(dtype))
        assert torch.linalg.cond(torch.ones(2, 2, dtype=dtype), 1).isfinite().item() is False
    assert not recwarn.list


@pytest.mark.parametrize("policy", ["machine", "float32", "float64", "exact"])
@pytest.mark.parametrize("dtype", [torch.q43, torch.posit16es2])
def test_dot_products_do_not_depend_on_gaps(dtype, policy):
    g = torch.Generator().manual_seed(4)
    x, y = (torch.randn(40, 6, generator=g).to(dtype) for _ in range(2))
    with accumulate(policy):
        for i in range(6):
            a, b = x[:, i], y[:, 5 - i]
            want = torch.dot(a.clone(), b.clone())
            assert (
                torch.equal(torch.inner(a, b), want)
                and torch.equal(torch.tensordot(a, b, 1), want)
                and torch.equal(torch.dot(a, b), want)
            )
        whole = torch.tensordot(x.t(), y, ([0, 1], [1, 0]))
        assert torch.equal(whole, torch.dot(x.t().reshape(-1), y.t().reshape(-1)))
