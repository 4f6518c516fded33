"""Bounded posits of more than 16 bits: codes, casts in all modes and operators, against the definition in exact rationals."""

import math
import pickle

import numpy as np
import oracle_bounded as oracle
import pytest
import torch
from oracle_tables import DETERMINISTIC
from rationals import Fraction
from same_codecs import assert_same_codecs

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.interchange import codes as codes_of
from torch_dtypes.interchange import from_codes

pytestmark = pytest.mark.own_process

MODES = (*DETERMINISTIC, "stochastic", "stochastic_equal", "up_down")
# (bits, es, regime_max); of the last two the longest regimes leave no fraction, or cut exponents.
SHAPES = [(32, 5, 6), (17, 2, 6), (24, 3, 5), (20, 0, 3), (48, 5, 6), (57, 4, 2), (18, 2, 15), (18, 3, 16)]


def named(shape, mode="nearest_even"):
    bits, es, most = shape
    return f"posit{bits}es{es}_regime{most}" + ("" if mode == "nearest_even" else f"_{mode}")


def unsigned(t, bits):
    return [k & (1 << bits) - 1 for k in codes_of(t).long().tolist()]


@pytest.mark.parametrize("shape", [(17, 2, 6), (17, 5, 6), (17, 3, 15)], ids=named)
def test_every_code(shape):
    bits = shape[0]
    found = from_codes(torch.arange(1 << bits, dtype=torch.int32), torch_dtypes.dtype(named(shape))).double().tolist()
    assert math.isnan(found[1 << bits - 1])
    found[1 << bits - 1] = None
    assert found == [oracle.value(*shape, k) for k in range(1 << bits)]


def sample(shape):
    """Values, what lies between two and its neighbours, numbers next to the ends and beyond them."""
    bits = shape[0]
    rng = np.random.default_rng(bits)
    half = 1 << bits - 1
    codes = [1, 2, 3, half - 2, half - 3, *(1 << k for k in range(bits - 1)), *((1 << k) - 1 for k in range(2, bits - 1))]
    codes += rng.integers(1, half - 1, 40).tolist()
    between = [float(oracle.value(bits + 1, *shape[1:], 2 * k + 1)) for k in codes]
    least, most = float(oracle.value(*shape, 1)), float(oracle.value(*shape, half - 1))
    x = [float(oracle.value(*shape, k)) for k in codes]
    x += [*between, *np.nextafter(between, 0).tolist(), *np.nextafter(between, np.inf).tolist(), *(between * (1 + rng.random(len(between)) * 1e-4))]
    x += [least / 2, least * 0.999, least * 0.75, 5e-324, 1e-300, most * 1.001, most * 2, 1e308, 0.0]
    return [*(np.array(x) * rng.choice([1, -1], len(x))).tolist(), -0.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_samples_in_every_mode(shape, mode):
    x = sample(shape)
    words = np.random.default_rng(7).integers(0, 2**64, len(x), dtype=np.uint64)
    words[::4], words[1::4], words[2::8] = 0, 2**64 - 1, 2**63
    found = _C.encode_exact(torch_dtypes.format_of(named(shape, mode)), torch.tensor(x, dtype=torch.float64), torch.from_numpy(words.view(np.int64)))
    expected = [oracle.encode(*shape, v, mode, int(w)) for v, w in zip(x, words, strict=True)]
    found = found.tolist()
    assert found == expected, [(v, f, e) for v, f, e in zip(x, found, expected, strict=True) if f != e][:5]


@pytest.mark.parametrize("shape", [(16, 5, 6), (8, 2, 3), (12, 3, 10)], ids=named)
def test_short_ones_agree_with_the_tables(shape):
    """The codec at widths that are tables: the same codes for the same numbers, in every mode and for given words."""
    wide, table = _C.Format.bounded_posit(*shape), torch_dtypes.format_of(named(shape))
    k = torch.arange(1, 2 ** (shape[0] - 1) - 1)[:: 1 if shape[0] < 16 else 61]
    values = _C.decode_exact(wide, k)
    middles = torch.tensor([float(oracle.value(shape[0] + 1, *shape[1:], 2 * c + 1)) for c in k.tolist()], dtype=torch.float64)
    zero, huge = torch.tensor([0.0, 1e308], dtype=torch.float64)
    assert_same_codecs(wide, table, torch.cat([values, middles, middles.nextafter(zero), middles.nextafter(huge), values * 1.0001]))


@pytest.mark.parametrize("mode", DETERMINISTIC)
def test_casts_and_arithmetic(mode):
    shape = (32, 5, 6)
    dtype = torch_dtypes.dtype(named(shape, mode))
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(200, generator=generator) * torch.exp2(torch.randint(-110, 110, (200,), generator=generator))
    for values in (x, x.double() * 1.23456789, (x.clamp(-1e9, 1e9) * 1000).long()):
        assert unsigned(values.to(dtype), 32) == [oracle.encode(*shape, Fraction(v), mode) for v in values.tolist()]
    a, b = x[:100].to(dtype), x[100:].to(dtype)
    p, q = ([Fraction(v) for v in t.double().tolist()] for t in (a, b))
    for found, exact in (
        (a + b, [u + v for u, v in zip(p, q, strict=True)]),
        (a * b, [u * v for u, v in zip(p, q, strict=True)]),
        (a / b, [u / v for u, v in zip(p, q, strict=True)]),
    ):
        assert unsigned(found, 32) == [oracle.encode(*shape, v, mode) for v in exact]


def test_beyond_the_ends_in_operators():
    dtype = torch_dtypes.posit_format(32, 5, regime_max=6)
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    x = torch.tensor([most, least, -most], dtype=torch.float64).to(dtype)
    assert (x * x).double().tolist() == [most, least, most]
    assert torch.exp(torch.tensor([1000.0, -1000.0]).to(dtype)).double().tolist() == [most, least]
    assert (torch.ones(2).to(dtype) / torch.tensor([0.0, -0.0]).to(dtype)).isnan().all()
    up = torch.nextafter(x, torch.full_like(x, most))
    assert up.double().tolist() == [most, float(oracle.value(32, 5, 6, 2)), -float(oracle.value(32, 5, 6, 2**31 - 2))]


def test_uniform_numbers_reach_zero():
    dtype = torch_dtypes.posit_format(20, 0, regime_max=3)  # minpos is a little above 1/8
    x = torch.rand(4000, dtype=dtype, generator=torch.Generator().manual_seed(1)).double()
    assert 400 < (x == 0).sum() < 600 and x.max() < 1


def test_what_it_is():
    dtype = torch_dtypes.posit_format(32, 5, regime_max=6)
    info, card, fmt = torch.finfo(dtype), torch_dtypes.card(dtype), torch_dtypes.format_of(dtype)
    assert str(dtype) == "torch.posit32es5_regime6" and dtype is torch_dtypes.dtype("posit32es5_regime6") and dtype.itemsize == 4
    assert info.max == -info.min == 2.0**192 * (1 - 2.0**-21) and info.tiny == 2.0**-192 * (1 + 2.0**-20) and info.eps == 2.0**-24
    assert (card.largest, card.smallest, card.finite, card.nans, card.zeros) == (info.max, info.tiny, 2**32 - 1, 1, 1)
    assert "kind=bounded_posit, nbits=32, es=5, regime_max=6" in repr(fmt)
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    x = torch.randn(300, generator=torch.Generator().manual_seed(6))
    y = torch_dtypes.chop(x, dtype)
    assert torch.equal(y, x.to(dtype).float()) and torch.equal(torch_dtypes.target(dtype).quantize(x), y)
    y = torch_dtypes.chop(x.double(), dtype)
    flipped = torch_dtypes.chop(x.double(), dtype, flip_prob=1.0)
    assert (flipped != y).all() and ((flipped / y - 1).abs() <= 0.5).all(), "a bit of the fraction"
    leaf = x.to(dtype).requires_grad_()
    (leaf * leaf).sum().backward()
    assert leaf.grad.dtype is dtype and torch.equal(leaf.grad, (2 * leaf.detach().double()).to(dtype))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((32, 5, 32), "regime_max from 2 to 31 with nbits=32, but got 32"),
        ((64, 5, 6), "at most 53 significant bits.*nbits=64, es=5: 57 significant bits"),
        ((40, 5, 31), "exponents that float64 has, but got regime_max=31 with es=5"),
    ],
)
def test_refused(arguments, message):
    bits, es, most = arguments
    with pytest.raises(ValueError, match=message):
        torch_dtypes.posit_format(bits, es, regime_max=most)
