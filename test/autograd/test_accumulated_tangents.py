"""Forward-mode tangents of products and sums follow the accumulation policy, as gradients do."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F

from torch_dtypes import accumulate

POSIT = torch.posit16es2
POLICIES = ("exact", "format", "chunked(3)", "float64")
# A float32 sum of these loses the small ones.
SUMS = torch.tensor([2.0**30, 2.0**-10, -(2.0**30), 1.0, -1.0, 2.0**-13])

# Linear in each operand.
PRODUCTS = {
    "mm": (torch.mm, (3, 6), (6, 4)),
    "bmm": (torch.bmm, (2, 3, 6), (2, 6, 4)),
    "mv": (torch.mv, (3, 6), (6,)),
    "dot": (torch.dot, (6,), (6,)),
    "matmul": (torch.matmul, (2, 3, 6), (6,)),
    "linear": (F.linear, (3, 6), (4, 6)),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ki", a, b), (3, 6), (4, 6)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), (3, 6), (6, 4)),
    "conv1d": (F.conv1d, (2, 6, 3), (4, 6, 1)),
    "conv_transpose1d": (F.conv_transpose1d, (2, 6, 3), (6, 4, 1)),
    "sum": (lambda a, b: (a * b).sum(-1), (3, 6), (6,)),
}


def numbers(shape, seed):
    """Return numbers whose large values cancel in order along the dimension of length 6."""
    where = [i for i, n in enumerate(shape) if n == 6][
        -1 if len(shape) != 3 or shape[1] != 6 else 0
    ]
    signs = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    first = signs.select(where, 0).unsqueeze(where)
    return (
        SUMS.view([-1 if d == where else 1 for d in range(len(shape))]).expand(shape) * first
    ).to(POSIT)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, policy):
    f, left, right = PRODUCTS[name]
    a, b, ones = numbers(left, 1), torch.ones(right, dtype=POSIT), torch.ones(left, dtype=POSIT)
    with accumulate(policy):
        primal, tangent = torch.func.jvp(lambda x: f(x, b), (ones,), (a,))
        assert tangent.dtype is POSIT
        assert torch.equal(tangent, f(a, b)) and torch.equal(primal, f(ones, b))
        if name != "sum":
            both = torch.func.jvp(f, (ones, b), (a, b * 3))[1]
            assert torch.equal(both, f(a, b) + f(ones, b * 3))
        with forward_ad.dual_level():
            assert torch.equal(
                forward_ad.unpack_dual(f(forward_ad.make_dual(ones, a), b)).tangent, f(a, b)
            )
    with accumulate("float32"):
        lost = f(a, b)
    # The operands tell policies apart; but OpenBLAS adds a short dot product up in float64.
    assert policy not in ("exact", "float64") or name == "dot" or not torch.equal(lost, tangent)


@pytest.mark.parametrize("policy", POLICIES)
def test_starts(policy):
    a, b, start = (
        numbers((3, 6), 1),
        torch.ones(6, 4, dtype=POSIT),
        torch.full((3, 4), 1.5, dtype=POSIT),
    )
    ones = torch.ones_like(a)
    with accumulate(policy):
        assert torch.equal(
            torch.func.jvp(lambda x: torch.addmm(start, x, b), (ones,), (a,))[1], a @ b
        )
        assert torch.equal(
            torch.func.jvp(lambda s: torch.addmm(s, a, b, beta=2), (start,), (start,))[1], start * 2
        )
        assert torch.equal(
            torch.func.jvp(lambda x: start.clone().addmm_(x, b), (ones,), (a,))[1], a @ b
        )
        assert torch.equal(
            torch.func.jvp(lambda x: F.linear(x, b.t(), start[0]), (ones,), (a,))[1], a @ b
        )


@pytest.mark.parametrize("policy", POLICIES[:3])  # PyTorch's float64 kernel has no tangents
def test_attention(policy):
    q = torch.ones(1, 2, 6, 3, dtype=POSIT)
    values = numbers((2, 6, 3), 1)[None]
    with accumulate(policy):
        tangent = torch.func.jvp(
            lambda v: F.scaled_dot_product_attention(q, q, v), (q,), (values,)
        )[1]
        assert torch.equal(tangent, F.scaled_dot_product_attention(q, q, values))


def test_forward_over_reverse():
    a, x = numbers((6, 6), 1), torch.ones(6, dtype=POSIT)
    with accumulate("exact"):
        product = torch.func.jvp(torch.func.grad(lambda v: v @ (a @ v)), (x,), (x,))[1]
        assert torch.equal(product, a @ x + a.t() @ x)


def test_other_convolutions():
    """Convolve over time, batch and channels, and call the operators beneath convolutions."""
    x, w = (
        torch.tensor([2.0**30, 2.0**-10, -(2.0**30)]).to(POSIT).view(1, 1, 3),
        torch.ones(1, 3, 1, dtype=POSIT),
    )
    with accumulate("exact"):
        assert torch.conv_tbc(x, w, torch.zeros(1, dtype=POSIT)).item() == 2.0**-10
        columns, kernel = x.permute(1, 2, 0), w.permute(2, 1, 0)
        assert (
            torch._convolution(
                columns, kernel, None, [1], [0], [1], False, [0], 1, False, False, False, False
            ).item()
            == 2.0**-10
        )
        with pytest.raises(
            NotImplementedError,
            match=r"slow_conv2d.*no stock kernel obeys.*such as torch\.convolution",
        ):
            torch._C._nn.thnn_conv2d(
                columns[..., None], kernel[..., None], (1, 1), None, (1, 1), (0, 0)
            )
    g = torch.Generator().manual_seed(0)
    x, w, b = ((torch.randn(s, generator=g)).to(POSIT) for s in ((7, 2, 3), (3, 3, 5), (5,)))
    with accumulate("format"):
        assert torch.equal(
            torch.conv_tbc(x, w, b, 1),
            F.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1).permute(2, 0, 1),
        )
