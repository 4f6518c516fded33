"""The result of a format tensor beside a stock tensor has the stock dtype, or the narrowest dtype
with the numbers of both."""

import itertools

import pytest
import torch
from conftest import from_codes

import torch_dtypes

STOCK = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NARROW = (
    "q43 q52 posit8es1 posit8es2 posit16es1 posit16es2 e5m5 e5m7 e8m4 e4m3finite e5m10 bf16 nf4 "
    "fixed8_8"
).split()
WIDE = "posit32es2 e8m23 e8m31 e11m52 tf32 posit24es3".split()


def test_pythons_types_stand_for_dtypes_as_in_stock():
    for kind in (bool, int, float, complex):
        named = torch.promote_types(torch.bool, kind)
        for a, b in ((torch.q43, kind), (kind, torch.q43)):
            assert torch.promote_types(a, b) is torch.promote_types(torch.q43, named)
        assert torch.can_cast(torch.q43, kind) is torch.can_cast(torch.bfloat16, kind)


def numbers(dtype):
    """Return all numbers of a narrow format. For a wide one, return those at the limits of its
    digits and its range."""
    f = torch_dtypes.format_of(dtype)
    if f.bits <= 16:
        x = from_codes(torch.arange(1 << f.bits), dtype).double()
    else:
        info = torch.finfo(dtype)
        x = torch.tensor(
            [
                1 + info.eps,
                -1 - info.eps,
                info.max,
                info.smallest_normal,
                torch_dtypes.card(dtype).smallest,
            ],
            dtype=torch.float64,
        )
        x = x.to(dtype).double()
    return x[x.isfinite()]


def narrowest(dtype, other):
    """Return the narrowest dtype, judged by the numbers themselves."""
    x = numbers(dtype)
    wide = [
        d for d in STOCK if torch.equal(x.to(d).double(), x) and torch.promote_types(d, other) is d
    ]
    return min(wide, key=lambda d: d.itemsize)


@pytest.mark.parametrize("name", NARROW + WIDE)
def test_the_narrowest_dtype_that_has_both(name):
    dtype = torch_dtypes.dtype(name)
    x = numbers(dtype)
    for other in STOCK:
        expected = narrowest(dtype, other)
        assert torch.promote_types(dtype, other) is torch.promote_types(other, dtype) is expected, (
            other
        )
        a, b = x.to(dtype), torch.ones_like(x).to(other)
        for made in (
            a + b,
            b - a,
            torch.maximum(a, b),
            torch.where(x > 0, a, b),
            torch.cat([a, b]),
            torch.hypot(a, b),
            torch.stack([b, a]),
            a.clamp(b),
        ):
            assert made.dtype is expected
        assert torch.result_type(a, b) is expected
        assert torch.equal(
            torch.maximum(a, b).double(), torch.maximum(x, b.double())
        ) and torch.equal(torch.cat([a, b])[: len(x)].double(), x)
        for compare in (torch.eq, torch.lt, torch.ge):
            assert torch.equal(compare(a, b), compare(x, b.double())) and torch.equal(
                compare(b, a), compare(b.double(), x)
            )
        assert torch.equal(a, b) == torch.equal(x, b.double())


def test_digits_beyond_float32_stay():
    x, one = torch.tensor([1 + 2**-27], dtype=torch.float64).to(torch.posit32es2), torch.ones(1)
    assert (x - one).dtype is torch.float64 and (x - one).item() == 2**-27 == torch.sub(
        x, one, out=torch.empty(1, dtype=torch.posit32es2)
    ).item()
    assert (
        not torch.equal(x, one) and (x > one).item() and torch.maximum(x, one).item() == 1 + 2**-27
    )
    assert (
        torch.tensor([1e6]).to(torch.posit16es2) + torch.zeros(1, dtype=torch.float16)
    ).item() == torch.tensor([1e6]).to(torch.posit16es2).item()


def test_what_outranks_is_not_widened():
    """As for float32 beside a float64 number without dimensions."""
    x, number = torch.ones(2, dtype=torch.posit32es2), torch.ones(())
    assert (
        (x + number).dtype is (number + x).dtype is torch.result_type(x, number) is torch.posit32es2
    )
    small = torch.ones((), dtype=torch.posit32es2)
    for other in STOCK[:3]:
        assert (
            (torch.ones(2, dtype=other) * small).dtype
            is torch.result_type(torch.ones(2, dtype=other), small)
            is other
        )
    y = torch.ones(2)
    assert (
        y.add_(x).dtype is torch.float32
        and torch.ones(2, dtype=torch.float16).mul_(x).dtype is torch.float16
    )
    assert torch.add(x, y, out=torch.empty(2)).dtype is torch.float32
    complex_ = torch.ones(2, dtype=torch.complex64)
    assert (
        (complex_ * x).dtype
        is torch.promote_types(torch.complex64, torch.posit32es2)
        is torch.complex128
    )
    assert (complex_ * x.to(torch.posit16es2)).dtype is torch.complex64


@pytest.mark.parametrize(
    ("dtype", "other"), list(itertools.product([torch.posit16es2, torch.posit32es2], STOCK[:3]))
)
def test_gradients_come_back_to_both(dtype, other):
    x, y = (
        torch.full((3,), 1.5, dtype=dtype, requires_grad=True),
        torch.full((3,), 0.25, dtype=other, requires_grad=True),
    )
    (x * y).sum().backward()
    assert x.grad.dtype is dtype and y.grad.dtype is other
    assert x.grad.tolist() == [0.25] * 3 and y.grad.tolist() == [1.5] * 3
