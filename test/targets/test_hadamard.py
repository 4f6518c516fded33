"""Hadamard transforms: orthogonal, the same bits for the same seed, and products that stay."""

import math
import pickle

import pytest
import torch
from rationals import Fraction

from torch_dtypes import target
from torch_dtypes.targets.transforms import SIZES, Hadamard, draw_bits, transform_of


def sylvester(size):
    """Return the matrix by its other definition: parity of the common bits of row and column."""
    return [[(-1) ** (i & j).bit_count() for j in range(size)] for i in range(size)]


@pytest.mark.parametrize("size", SIZES)
def test_the_matrix(size):
    """Rows of the identity give the matrix: signs times Hadamard's, orthogonal."""
    matrix = Hadamard(size).apply(torch.eye(size, dtype=torch.float64), seed=3)
    bits = draw_bits(3, size)
    for i, row in enumerate(sylvester(size)):
        sign = 1 - 2 * (bits >> i & 1)
        assert (matrix[i] * math.sqrt(size)).round().int().tolist() == [sign * h for h in row]
    product = matrix @ matrix.T
    assert (product - torch.eye(size, dtype=torch.float64)).abs().max() < 1e-15
    plain = Hadamard(size).apply(torch.eye(size), seed=None)
    assert torch.equal(plain.sign().int(), torch.tensor(sylvester(size)).int())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_the_inverse(size, axis):
    x = torch.randn(3, 3 * size, 4, dtype=torch.float64).transpose(1, axis)
    y = Hadamard(size).apply(x, axis, seed=5)
    assert y.shape == x.shape and not torch.allclose(x, y)
    torch.testing.assert_close(Hadamard(size).invert(y, axis, seed=5), x, rtol=0, atol=1e-14)
    blocks = Hadamard(size).apply(x.movedim(axis, -1).unflatten(-1, (-1, size)), seed=5)
    assert torch.equal(blocks.flatten(-2).movedim(-1, axis), y)


def test_a_product_of_exact_numbers_stays_exact():
    """With 16 and 64 the factor is a power of two: small integers give the same bits."""
    a, b = (torch.randint(-8, 9, shape).float() for shape in ((5, 128), (7, 128)))
    for size in (16, 64):
        rotated = Hadamard(size).apply(a, seed=1) @ Hadamard(size).apply(b, seed=1).T
        assert torch.equal(rotated, a @ b.T)


@pytest.mark.parametrize("size", SIZES)
def test_a_product_stays(size):
    a, b = (torch.randn(shape, dtype=torch.float64) for shape in ((256, 5), (256, 7)))
    rotated = Hadamard(size).apply(a, 0, seed=9).T @ Hadamard(size).apply(b, 0, seed=9)
    torch.testing.assert_close(rotated, a.T @ b, rtol=0, atol=1e-13)


def test_an_outlier_is_spread():
    x = torch.zeros(48)
    x[20] = 100.0
    assert Hadamard(16).apply(x).abs().tolist() == [0.0] * 16 + [25.0] * 16 + [0.0] * 16


def test_seeds():
    x = torch.randn(4, 32)
    first = Hadamard(16).apply(x, seed=1)
    torch.rand(7)  # no generator's state matters
    assert torch.equal(first, Hadamard(16).apply(x, seed=1))
    assert not torch.equal(first.abs(), Hadamard(16).apply(x, seed=2).abs())
    # Vigna's splitmix64 from the state 0.
    assert draw_bits(0, 128) == 0x6E789E6AA1B965F4 << 64 | 0xE220A8397B1DCDAF
    ones = [draw_bits(seed, 16).bit_count() for seed in range(1000)]
    assert abs(sum(ones) / 16000 - 0.5) < 0.02


def test_bits_of_float32():
    """Each sum of two rounds once, and so does the product with 1/sqrt(32)."""
    x = torch.randn(32, generator=torch.Generator().manual_seed(1))

    def single(v):
        return Fraction(torch.tensor(float(v), dtype=torch.float64).float().item())

    values, step = [Fraction(v) for v in x.tolist()], 1
    while step < 32:
        values = [
            single(values[i] + values[i + step])
            if not i & step
            else single(values[i - step] - values[i])
            for i in range(32)
        ]
        step *= 2
    factor = single(1 / math.sqrt(32))
    expected = [float(single(v * factor)) for v in values]
    assert Hadamard(32).apply(x, seed=None).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_dtypes_are_computed_in_float32(dtype):
    x = torch.randn(3, 32).to(dtype)
    y = Hadamard(16).apply(x)
    assert y.dtype == dtype and torch.equal(y, Hadamard(16).apply(x.float()).to(dtype))


def test_gradients():
    """The gradient of straight-through rounding behind the transform is the inverse's."""
    x = torch.randn(3, 64, dtype=torch.float64, requires_grad=True)
    g = torch.randn(3, 64, dtype=torch.float64)
    hadamard = Hadamard(32)
    target("nvfp4").quantize(hadamard.apply(x, seed=4)).backward(g)
    torch.testing.assert_close(x.grad, hadamard.invert(g, seed=4), rtol=0, atol=1e-14)
    small = torch.randn(16, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: Hadamard(16).apply(t, 0, seed=2), small)
    _, tangent = torch.func.jvp(lambda t: hadamard.apply(t, seed=4), (x,), (g,))
    torch.testing.assert_close(tangent, hadamard.apply(g, seed=4))
    each = torch.func.vmap(lambda t: hadamard.apply(t, seed=4))(x)
    assert torch.equal(each, hadamard.apply(x, seed=4))


def test_graphs():
    x = torch.randn(3, 64)
    for seed in (1, 2, 3, None):
        step = torch.compile(
            lambda t, s: Hadamard(64).apply(t, -1, s), backend="eager", fullgraph=True
        )
        assert torch.equal(step(x, seed), Hadamard(64).apply(x, -1, seed))


def test_names():
    for size in SIZES:
        t = transform_of(f"hadamard{size}")
        assert t == Hadamard(size) == transform_of(t) == pickle.loads(pickle.dumps(t))
        assert t.name == f"hadamard{size}"
    assert transform_of("rht") == Hadamard(16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: transform_of("hadamard8"), ValueError, "expected a transform as one of 'hadamard"),
        (lambda: transform_of(16), ValueError, "but got 16"),
        (
            lambda: Hadamard(16).apply(torch.ones(4, 20)),
            ValueError,
            "expected a multiple of 16 numbers along dimension -1 for hadamard16, but got shape",
        ),
        (lambda: Hadamard(16).apply(torch.ones(16), 1), ValueError, "along dimension 1"),
        (lambda: Hadamard(16).apply(torch.ones(())), ValueError, "expected a multiple of 16"),
        (lambda: Hadamard(16).apply(torch.ones(16).int()), TypeError, "but got torch.int32"),
        (lambda: Hadamard(16).apply([1.0] * 16), TypeError, "expected a tensor of float16"),
        (lambda: Hadamard(16).apply(torch.ones(16), seed=-1), ValueError, "expected a seed from 0"),
        (lambda: Hadamard(16).apply(torch.ones(16).to_sparse()), TypeError, "expected a dense"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_nothing():
    assert Hadamard(16).apply(torch.ones(0, 32)).shape == (0, 32)
    assert Hadamard(16).apply(torch.ones(3, 0)).shape == (3, 0)
