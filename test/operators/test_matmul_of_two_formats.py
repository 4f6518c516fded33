"""torch_dtypes.matmul: operands of two formats, a result with a format of its own, under every
policy, and gradients."""

import pytest
import torch
from oracle import binary
from oracle_sums import exact_sum, round_value, step_sum, times
from rationals import Fraction
from sums import some, values_of

import torch_dtypes
from torch_dtypes import accumulate, matmul

Q43, Q52, E5M7 = binary(4, 3), binary(5, 2), binary(5, 7)


def pairs(a, b, i, j):
    return list(zip(values_of(a[i], Q43), values_of(b[:, j], Q52), strict=True))


def test_every_policy():
    a, b = some("q43", 4, 19).clamp(-16, 16), some("q52", 19, 5, seed=1).clamp(-16, 16)
    wide = torch_dtypes.dtype("e5m7")
    with accumulate("exact"):
        exact = matmul(a, b, out="e5m7")
    with accumulate("format"):
        steps = matmul(a, b, out=wide)
    with accumulate("format", fused=True):
        fused = matmul(a, b, out=wide)
    machine = matmul(a, b, out=wide)
    for i in range(4):
        for j in range(5):
            terms = pairs(a, b, i, j)
            right = round_value(E5M7, exact_sum([times(x, y) for x, y in terms]))
            # float64 has these sums exactly
            assert Fraction(exact[i, j].item()) == right == Fraction(machine[i, j].item())
            assert Fraction(steps[i, j].item()) == round_value(E5M7, step_sum(terms, E5M7, E5M7))
            assert Fraction(fused[i, j].item()) == round_value(
                E5M7, step_sum(terms, E5M7, E5M7, fused=True)
            )
    assert exact.dtype == steps.dtype == wide
    a2, b2 = a.to(wide), b.to(wide)
    with accumulate("format"):
        assert torch.equal(steps, a2 @ b2)  # both operands are numbers of e5m7


def test_start_and_broadcasting():
    a, b = some("q43", 3, 1, 4, 6).clamp(-4, 4), some("q52", 2, 6, 5, seed=1).clamp(-4, 4)
    start = torch.linspace(-3, 3, 5).to(torch.e5m7)
    for policy in ("exact", "format", "block(terms=4, extra_bits=2)", "machine"):
        with accumulate(policy):
            got = matmul(a, b, out="e5m7", start=start)
            assert got.shape == (3, 2, 4, 5)
            for i in range(3):
                for j in range(2):
                    assert torch.equal(got[i, j], matmul(a[i, 0], b[j], out="e5m7", start=start))
    with accumulate("exact"):
        want = (a.double() @ b.double() + start.double()).to(torch.e5m7)
        assert torch.equal(matmul(a, b, out="e5m7", start=start), want)


def test_gradients_are_products_in_the_operands_dtypes():
    a, b = (
        some("q43", 3, 4, 6).clamp(-4, 4).requires_grad_(),
        some("q52", 6, 5, seed=1).clamp(-4, 4).requires_grad_(),
    )
    start = torch.zeros(5, dtype=torch.e5m7, requires_grad=True)
    g = torch.linspace(-3, 3, 60).reshape(3, 4, 5).to(torch.e5m7)
    with accumulate("exact"):
        matmul(a, b, out="e5m7", start=start).backward(g)
    assert (
        torch.equal(a.grad, (g.double() @ b.detach().double().T).to(torch.q43))
        and a.grad.dtype == torch.q43
    )
    each = (a.detach().double().transpose(1, 2) @ g.double()).to(torch.q52)
    with accumulate("exact"):
        assert torch.equal(b.grad, each.sum(0)) or torch.equal(b.grad, each.sum_to_size(b.shape))
    assert b.grad.dtype == torch.q52 and start.grad.dtype == torch.e5m7 and start.grad.shape == (5,)


def test_empty_sums():
    a, b = torch.ones(3, 0, dtype=torch.q43), torch.ones(0, 2, dtype=torch.q52)
    start = torch.full((2,), 1.5).to(torch.e5m7)
    for policy in (
        "machine",
        "exact",
        "format",
        "format(order=tree)",
        "format(order=lanes(4))",
        "chunked(2, outer=e5m7)",
        "block(terms=2)",
    ):
        with accumulate(policy):
            assert matmul(a, b, out="e5m7").tolist() == [[0, 0]] * 3
            assert matmul(a, b, out="e5m7", start=start).tolist() == [[1.5, 1.5]] * 3


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            TypeError,
            "expected a dtype of a number format, but got torch.int32",
            lambda a, b: matmul(a, b, out=torch.int32),
        ),
        (
            TypeError,
            "expected a dtype of a number format, but got torch.float32",
            lambda a, b: matmul(a.float(), b, out="e5m7"),
        ),
        (
            TypeError,
            "expected tensors .* but got list as argument 2",
            lambda a, b: matmul(a, [1], out="e5m7"),
        ),
        (
            ValueError,
            "with 2 dimensions or more, but got 1 in argument 1",
            lambda a, b: matmul(a[0], b, out="e5m7"),
        ),
        (
            ValueError,
            r"expected factors of sizes .* but got \(2, 3\) and \(2, 3\)",
            lambda a, b: matmul(a, b.T, out="e5m7"),
        ),
        (
            TypeError,
            "expected start of the result's dtype, torch.e5m7, but got torch.q43",
            lambda a, b: matmul(a, b, out="e5m7", start=a),
        ),
        (
            ValueError,
            r"expected start of a size that broadcasts to \(2, 2\), but got \(3,\)",
            lambda a, b: matmul(a, b, out="e5m7", start=torch.ones(3, dtype=torch.e5m7)),
        ),
    ],
)
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call(torch.ones(2, 3, dtype=torch.q43), torch.ones(3, 2, dtype=torch.q52))


@pytest.mark.parametrize(
    ("stock", "name"),
    [
        (torch.float32, "fp32"),
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
        (torch.float64, "fp64"),
    ],
)
def test_a_stock_result_has_the_numbers_of_its_format(stock, name):
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(3, 40, generator=generator).to(torch.q43),
        torch.randn(40, 5, generator=generator).to(torch.q52),
    )
    for policy in ("machine", "exact", "nvidia-h100"):
        with torch_dtypes.accumulate(policy):
            x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
            start = torch.randn(3, 5, generator=generator).to(stock).requires_grad_()
            made = torch_dtypes.matmul(x, y, out=stock, start=start)
            same = torch_dtypes.matmul(
                a, b, out=name, start=start.detach().to(torch_dtypes.dtype(name))
            )
            assert made.dtype == stock and torch.equal(made, same.to(stock))
        made.sum().backward()
        assert (x.grad.dtype, y.grad.dtype) == (torch.q43, torch.q52) and torch.equal(
            start.grad, torch.ones(3, 5, dtype=stock)
        )
    with pytest.raises(TypeError, match=f"start of the result's dtype, {stock}"):
        torch_dtypes.matmul(a, b, out=stock, start=torch.zeros(3, 5, dtype=torch.q43))
