"""torch.func.vmap of products with a bias, convolutions, attention and vecdot has the bits of a
loop. The accumulation policy says how they are added up."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jvp, vmap

import torch_dtypes
from torch_dtypes import accumulate

D = torch_dtypes.dtype("e5m7")


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(D)


A, B, VECTOR, BIAS, START = (
    numbers(5, 9),
    numbers(9, 4, seed=1),
    numbers(9, seed=2),
    numbers(4, seed=3),
    numbers(5, 4, seed=4),
)
BATCHES, OTHERS, STARTS = (
    numbers(2, 5, 9, seed=5),
    numbers(2, 9, 4, seed=6),
    numbers(2, 5, 4, seed=7),
)
IMAGES, KERNELS = numbers(3, 2, 5, 5, seed=8), numbers(4, 2, 3, 3, seed=9)
SUMS = {  # batched: one tensor, another, then all
    "linear": (F.linear, [A, B.t().contiguous(), BIAS]),
    "linear of one row": (F.linear, [VECTOR, B.t().contiguous(), BIAS]),
    "linear of batches": (F.linear, [BATCHES, B.t().contiguous(), BIAS]),
    "addmm": (torch.addmm, [BIAS, A, B]),
    "addmm with scalars": (
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=0.3),
        [START, A, B],
    ),
    "addmv": (torch.addmv, [START[:, 0], A, VECTOR]),
    "addbmm": (torch.addbmm, [START, BATCHES, OTHERS]),
    "baddbmm": (torch.baddbmm, [STARTS, BATCHES, OTHERS]),
    "baddbmm of one start": (
        lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.25),
        [BIAS, BATCHES, OTHERS],
    ),
    "addr": (torch.addr, [START, A[:, 0], B[0]]),
    "conv1d": (F.conv1d, [IMAGES[:, :, 0], KERNELS[:, :, 0], BIAS]),
    "conv2d in groups": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2),
        [IMAGES, KERNELS[:, :1], BIAS],
    ),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, groups=2),
        [IMAGES, KERNELS.transpose(0, 1)[:, :2], BIAS],
    ),
    "attention": (F.scaled_dot_product_attention, [BATCHES, BATCHES.flip(1), BATCHES.flip(2)]),
    "vecdot": (torch.linalg.vecdot, [BATCHES, BATCHES.flip(2)]),
}


def several(t, dim):
    return torch.stack([t, t * 0.7, t.flip(0)], dim)


@pytest.mark.parametrize("policy", ["machine", "float64", "exact", "format", "chunked(2)"])
@pytest.mark.parametrize("name", SUMS)
def test_vmap_has_the_bits_of_a_loop(name, policy):
    f, operands = SUMS[name]
    some = [{i} for i in range(len(operands))] + [set(range(len(operands)))]
    with accumulate(policy):
        for batched in some:
            along = [i % 2 if t.dim() else 0 for i, t in enumerate(operands)]
            dims = tuple(d if i in batched else None for i, d in enumerate(along))
            given = [t if d is None else several(t, d) for t, d in zip(operands, dims, strict=True)]
            one_of = [
                lambda k, t=t, d=d: t if d is None else t.select(d, k)
                for t, d in zip(given, dims, strict=True)
            ]
            looped = torch.stack([f(*(of(k) for of in one_of)) for k in range(3)])
            found = vmap(f, in_dims=dims)(*given)
            assert found.dtype is D and torch.equal(found, looped), (dims, policy)


def test_within_other_transformations():
    rows, columns = several(A, 0), several(B, 1)
    with accumulate("exact"):
        twice = vmap(vmap(torch.addmm, (None, 0, None)), (None, None, 1))(BIAS, rows, columns)
        assert torch.equal(
            twice,
            torch.stack(
                [torch.stack([torch.addmm(BIAS, a, columns[:, j]) for a in rows]) for j in range(3)]
            ),
        )

        def loss(a):
            return F.linear(a, B.t(), BIAS).square().sum()

        assert torch.equal(vmap(grad(loss))(rows), torch.stack([grad(loss)(a) for a in rows]))
        assert torch.equal(
            jvp(lambda v: F.linear(v, B.t(), BIAS), (VECTOR,), (VECTOR,))[0],
            F.linear(VECTOR, B.t(), BIAS),
        )


def test_levels_that_pass_by():
    """The operands are wrapped by an outer vmap alone."""
    x, w, b, y = several(A, 0), several(B, 0), several(BIAS, 0), numbers(7, 2, seed=8)

    def inner(f):
        return vmap(lambda a, c, s: vmap(lambda q: f(s, a, c) * q.sum())(y))(x, w, b)

    for f in (torch.addmm, lambda s, a, c: F.linear(a, c.t(), s)):
        expected = torch.stack(
            [torch.stack([f(b[i], x[i], w[i]) * q.sum() for q in y]) for i in range(3)]
        )
        assert torch.equal(inner(f), expected)


def test_rows_that_lie_apart():
    x = numbers(3, 9, 4, 5, seed=9).permute(0, 2, 3, 1)
    for policy in ("machine", "float64", "exact"):
        for bias in (BIAS, BIAS[0]):
            with accumulate(policy):
                looped = torch.stack([F.linear(q, B.t(), bias) for q in x])
                assert torch.equal(vmap(lambda q, bias=bias: F.linear(q, B.t(), bias))(x), looped)


def test_without_elements():
    none = numbers(0, 5, 9)
    assert vmap(torch.addmm, (None, 0, None))(BIAS, none, B).shape == (0, 5, 4)
    assert vmap(torch.addmm, (0, None, None))(numbers(0, 4), A, B).shape == (0, 5, 4)
    assert vmap(torch.addbmm, (None, 0, None))(
        START[:0], several(BATCHES[:, :0], 0), OTHERS
    ).shape == (3, 0, 4)


def test_what_stock_refuses():
    with pytest.raises(RuntimeError):  # although the sums have as many terms
        vmap(torch.addbmm, (None, 0, None))(numbers(2, 5), numbers(3, 2, 2, 6), numbers(3, 4, 5))
    for f, operands in (
        (torch.addmm, (BIAS, A, A)),
        (torch.addmv, (START, A, VECTOR)),
        (torch.baddbmm, (STARTS, A, OTHERS)),
    ):
        with pytest.raises(RuntimeError):
            vmap(f, in_dims=(None, 0, None))(operands[0], several(operands[1], 0), operands[2])


@pytest.mark.parametrize("policy", ["float32", "float64"])
def test_vecdot_rounds_once(policy):
    with accumulate(policy):
        found = torch.linalg.vecdot(A, A.flip(1))
    assert torch.equal(found, (A.double() * A.flip(1).double()).sum(1).to(D))


@pytest.mark.parametrize("policy", ["exact", "format"])
def test_gradients_by_time_batch_and_channel(policy):
    x, w, b = (
        numbers(*s, seed=i).requires_grad_() for i, s in enumerate(((6, 2, 4), (3, 4, 3), (3,)))
    )
    with accumulate(policy):
        made, other = (
            torch.conv_tbc(x, w, b, 1),
            F.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1).permute(2, 0, 1),
        )
        assert torch.equal(made, other)
        g = numbers(6, 2, 3, seed=9)
        for found, wanted in zip(
            torch.autograd.grad(made, (x, w, b), g),
            torch.autograd.grad(other, (x, w, b), g),
            strict=True,
        ):
            assert torch.equal(found, wanted)
