"""HiF4: blocks of 64 numbers, with exponents for groups of 8 and of 4, against exact rationals.
Codes are read from the bytes; special values, axes and graphs."""

import math

import numpy as np
import oracle
import pytest
import torch
from oracle_blocks import hif4, rows
from same_numbers import same
from torch.fx.experimental.proxy_tensor import make_fx

from torch_dtypes import block_format, chop, quantize, target


def inputs() -> np.ndarray:
    """Return random rows of several magnitudes, numbers whose product with a reciprocal is 4, 2 or
    halfway between elements, and the ends of E6M2."""
    x = rows(11, 24, 150, 20)
    generator = np.random.default_rng(12)
    grid = generator.integers(-28, 29, (24, 150)) / 4  # values of HiF4 at scale 1, including 7
    grid[:, 5] = 7
    # Ties at scale 1.5.
    halves = generator.integers(-56, 57, (24, 150)) / 8 * np.float32(1 / 0.66796875)
    halves[:, 70] = 7 * 1.5
    tiny, huge = (
        rows(13, 4, 150, 1) * np.float32(2.0**-49),
        rows(14, 4, 150, 1) * np.float32(2.0**17),
    )
    # Groups of different magnitudes.
    spread = generator.standard_normal((16, 150)) * 2.0 ** generator.integers(-4, 3, (16, 150))
    return np.concatenate([x, grid, halves, tiny, huge, spread]).astype(np.float32)


def test_numbers():
    x = inputs()
    expected = np.array([hif4(row)[0] for row in x])
    same(target("hif4").quantize(torch.tensor(x)), torch.tensor(expected))
    half = torch.tensor(x).bfloat16()
    expected = np.array([hif4(row)[0] for row in half.float().numpy()])
    same(target("hif4").quantize(half), torch.tensor(expected).bfloat16())


@pytest.mark.parametrize("mode", oracle.MODES)
def test_every_mode(mode):
    x = inputs()[::5]
    # rounded by their sign, beside numbers far beyond the range
    x[0, :4] = 1e-45, -1e-45, 3e38, -3e38
    expected = np.array([hif4(row, mode)[0] for row in x])
    same(target(f"hif4_{mode}").quantize(torch.tensor(x)), torch.tensor(expected))


def test_algorithm_by_hand():
    """A block with largest magnitude 7 has scale 1. A 4 in a group of 8 doubles the step there, and
    a group of four that reaches 4 has step 4."""
    x = torch.zeros(64)
    x[0], x[1], x[4] = 7.0, 3.3, 1.3  # step 4, and step 2 in the other four numbers
    x[8], x[12] = 2.1, 1.9  # below 4; from 2 on step 2
    x[16], x[63] = 0.3, -1.8
    expected = torch.zeros(64)
    expected[0], expected[1], expected[4], expected[8], expected[12], expected[16], expected[63] = (
        7.0,
        3.0,
        1.5,
        2.0,
        1.75,
        0.25,
        -1.75,
    )
    assert torch.equal(target("hif4").quantize(x), expected)
    scales = target("hif4").scales(x)
    assert scales.shape == (64,) and scales[::4].tolist() == [4.0, 2.0, 2.0, 1.0] + [1.0] * 12
    packed = quantize(x, "hif4")
    assert packed.scale_codes.tolist() == [48 << 2 | 1 << 8 | 0b101 << 16]


def test_ties_at_a_power_of_two():
    """8 / 7 in bfloat16 is 1.140625. It is above 1.125, the middle, and so rounds to 1.25 in
    E6M2."""
    x = torch.zeros(64)
    x[0] = 8.0
    assert target("hif4").scales(x)[0] == 1.25 * 4
    x[0] = 1.125 * 512 / 73  # the product is 1.125, which rounds to the even fraction
    assert target("hif4").scales(x)[63] == 1.0


def test_codes():
    """Read the parts of each block from the bytes, without the implementation's decoder."""
    x = inputs()
    packed = quantize(torch.tensor(x), "hif4")
    assert (
        packed.scale_codes.dtype == torch.int32
        and packed.scale_codes.shape == (len(x), 3)
        and packed.bits_per_value == 4 + 3 * 32 / 150
    )
    nibbles = [n for byte in packed.data.tolist() for n in (byte & 15, byte >> 4)]
    for r, row in enumerate(x):
        for b, (scale, eights, fours, elements) in enumerate(hif4(row)[1]):
            code = int(packed.scale_codes[r, b]) & 0xFFFFFFFF
            assert code & 255 == scale
            assert [code >> 8 + i & 1 for i in range(8)] == eights + [0] * (8 - len(eights))
            assert [code >> 16 + i & 1 for i in range(16)] == fours + [0] * (16 - len(fours))
            start = 150 * r + 64 * b
            assert nibbles[start : start + len(elements)] == elements


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_specials_stay_in_their_block(bad):
    x = torch.tensor(rows(5, 2, 192))
    clean = target("hif4").quantize(x)
    x[1, 70] = bad
    y = target("hif4").quantize(x)
    assert y[1, 64:128].isnan().all() and y.isnan().sum() == 64
    same(y[:, 128:], clean[:, 128:])
    packed = quantize(x, "hif4")
    assert packed.scale_codes[1, 1] == 255
    same(packed.dequantize(), y)


def test_zeros_and_the_ends():
    x = torch.tensor([0.0, -0.0] * 40)
    same(target("hif4").quantize(x), x)
    assert quantize(x, "hif4").scale_codes.tolist() == [0, 0]
    assert target("hif4").quantize(torch.tensor([1e30, -1e30])).tolist() == [
        7 * 49152.0,
        -7 * 49152.0,
    ]
    assert target("hif4").quantize(torch.tensor([2.0**-50, 2.0**-51, 2.0**-52])).tolist() == [
        2.0**-50,
        0,
        0,
    ]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 70, 5), (130, 2, 66), (7, 1, 64)])
def test_axes(axis, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    t = block_format("e1m2finite_bias1", "hif4", 64, axis)
    expected = target("hif4").quantize(x.movedim(axis, -1).contiguous()).movedim(-1, axis)
    same(t.quantize(x), expected)
    packed = quantize(x, t)
    same(packed.dequantize(), expected)
    same(packed.transpose(0, 2).dequantize(), expected.transpose(0, 2))


@pytest.mark.parametrize("shape", [(), (5,), (0,), (2, 0), (64,), (3, 128)])
def test_shapes(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    packed = quantize(x, "hif4")
    assert packed.dequantize().shape == x.shape == packed.scales.shape
    same(packed.dequantize(), target("hif4").quantize(x))
    same(packed.scales, target("hif4").scales(x) if x.numel() else x)


# PyTorch's own.
@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_gradients_and_graphs():
    x = torch.tensor(rows(8, 3, 100, 2), requires_grad=True)
    y = chop(x, "hif4")
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))

    def two(t):
        return chop(t, "hif4") + target("hif4").quantize(t, clamped="zero")

    x = x.detach()
    same(make_fx(two)(x)(x / 3), two(x / 3))
    same(torch.func.vmap(two)(torch.stack([x, x * 5])), torch.stack([two(x), two(x * 5)]))
    torch._dynamo.reset()
    same(torch.compile(two, backend="aot_eager", fullgraph=True)(x), two(x))
    torch._dynamo.reset()


def test_what_it_is():
    t = target("hif4")
    assert (
        t == block_format("e1m2finite_bias1", "hif4", 64)
        and t.name == "hif4"
        and t.bits_per_value == 4.5
    )
    assert (
        target("hif4_axis0_up").name == "hif4_axis0_up"
        and target("hif4_axis0_up").with_rounding("nearest_even").name == "hif4_axis0"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: block_format("e2m1finite", "hif4", 64),
            "expected elements 'e1m2finite_bias1' in blocks of 64",
        ),
        (lambda: block_format("e1m2finite_bias1", "hif4", 32), "size=32"),
        (lambda: block_format("e1m2finite_bias1", "hif4", (8, 8)), "along one axis"),
        (lambda: block_format("e1m2finite_bias1", "hif4", None, dim=0), "dim=0"),
        (lambda: target("hif4_ceil"), "scale_rule='ceil'"),
        (lambda: target("hif4_scaled"), "tensor_scale=True"),
        (lambda: target("hif4_emax0"), "expected emax with power-of-two scales"),
        (lambda: target("hif4").quantize(torch.ones(64), scale=2.0), "expected no scale with hif4"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
