"""Logarithmic takums of more than 16 bits: against the tables of shorter ones, and samples of 17 to 32 bits against the definition by mpmath."""

import io
import math

import numpy as np
import oracle_takum as oracle
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


def takum(bits, mode="nearest_even"):
    return torch_dtypes.dtype(f"takum{bits}_log" + ("" if mode == "nearest_even" else f"_{mode}"))


def unsigned(t: torch.Tensor, bits: int) -> list[int]:
    return (codes_of(t).long() & (1 << bits) - 1).tolist()


def positive_codes(bits: int, count: int) -> list[int]:
    """Drawn ones, those at which fields change, and both ends."""
    rng, half = np.random.default_rng(bits), 1 << bits - 1
    codes = np.r_[rng.integers(1, half - 1, count), 1 << np.arange(bits - 1), (1 << np.arange(2, bits - 1)) - 1, half - 1, half - 2]
    return sorted(set(codes.tolist()))


@pytest.mark.parametrize("bits", [17, 21, 32])
def test_values(bits):
    codes = positive_codes(bits, 250)
    found = from_codes(torch.tensor([0, 1 << bits - 1, *codes, *((1 << bits) - k for k in codes)]).to(torch.int32), takum(bits)).double()
    assert found[0].item() == 0 and found[1].isnan()
    expected = [oracle.log_value(bits, k) for k in codes]
    assert [Fraction(v) for v in found[2:].tolist()] == [*expected, *(-v for v in expected)]


def test_every_code_of_17_bits_is_above_the_one_before():
    values = from_codes(torch.arange(1, 1 << 16, dtype=torch.int32), takum(17)).double()
    assert (values.diff() > 0).all() and values[2**15 - 1].item() == 1
    # Of 16 bits, the string with a 0 behind it: the same number.
    assert torch.equal(values[1::2], _C.decode_exact(torch_dtypes.format_of("takum16_log"), torch.arange(1, 1 << 15)))


def sample(bits: int, count: int) -> list[float]:
    """Values, boundaries and their neighbours, numbers between, next to the ends and beyond them."""
    rng = np.random.default_rng(bits)
    codes = positive_codes(bits, count)[:-1]
    values = np.array([float(oracle.log_value(bits, k)) for k in codes])
    middles = np.array([float(oracle.log_value(bits + 1, 2 * k + 1, 52)) for k in codes])
    between = values + (middles - values) * rng.random(len(codes)) * 2
    least, most = values[0], float(oracle.log_value(bits, (1 << bits - 1) - 1))
    ends = np.array([least / 2, least * 0.999, np.nextafter(least, 0), 5e-324, 1e-300, most * 1.001, np.nextafter(most, np.inf), 1e308, most])
    x = np.concatenate([values, np.nextafter(values, 0), middles, np.nextafter(middles, 0), np.nextafter(middles, np.inf), between, ends])
    return [*(x * rng.choice([1, -1], len(x))).tolist(), 0.0, -0.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", [17, 24, 32])
def test_samples_in_every_mode(bits, mode):
    x = sample(bits, 30)
    words = np.random.default_rng(7).integers(0, 2**64, len(x), dtype=np.uint64)
    words[::4], words[1::4], words[2::8] = 0, 2**64 - 1, 2**63
    fmt = torch_dtypes.format_of(f"takum{bits}_log_{mode}" if mode != "nearest_even" else f"takum{bits}_log")
    found = _C.encode_exact(fmt, torch.tensor(x, dtype=torch.float64), torch.from_numpy(words.view(np.int64))).tolist()
    expected = [oracle.encode(bits, v, mode, int(w), linear=False) for v, w in zip(x, words, strict=True)]
    assert found == expected, [(v, f, e) for v, f, e in zip(x, found, expected, strict=True) if f != e][:5]


@pytest.mark.parametrize("bits", [12, 13, 16])
def test_short_ones_agree_with_the_tables(bits):
    """The codec at widths that are tables: the same numbers for all codes, the same codes for the same numbers, in every mode and for given words."""
    wide, table, longer = _C.Format.takum(bits, False), torch_dtypes.format_of(f"takum{bits}_log"), torch_dtypes.format_of("takum17_log")
    k = torch.arange(1, 1 << bits - 1)[:: 1 << max(0, bits - 13)]
    values, middles = _C.decode_exact(wide, k), _C.decode_exact(longer, (2 * k + 1) << 16 - bits)
    zero, huge = torch.tensor([0.0, 1e308], dtype=torch.float64)
    near = [m.nextafter(end) for m in (middles, values) for end in (zero, huge)]
    x = torch.cat([values, middles, *near, *(n.nextafter(end) for n in near[:2] for end in (zero, huge)), values * 1.0001])
    assert_same_codecs(wide, table, x)


@pytest.mark.parametrize("mode", DETERMINISTIC)
def test_arithmetic_and_casts(mode):
    bits = 22
    dtype, codes = takum(bits, mode), np.random.default_rng(2).integers(1, 2**21, (3, 60))
    codes[1] = (1 << 20) + codes[1] % 2**17  # near 1
    a, b, c = (from_codes(torch.from_numpy(k).to(torch.int32), dtype) for k in codes)
    x, y, z = ([oracle.log_value(bits, int(k)) for k in row] for row in codes)
    results = {
        "add": (a + b, [v + w for v, w in zip(x, y, strict=True)]),
        "sub": (a - b, [v - w for v, w in zip(x, y, strict=True)]),
        "mul": (a * b, [v * w for v, w in zip(x, y, strict=True)]),
        "div": (a / b, [v / w for v, w in zip(x, y, strict=True)]),
        "fma": (torch.addcmul(c, a, b), [u + v * w for u, v, w in zip(z, x, y, strict=True)]),
        "cast": (torch.tensor([float(v) for v in y]).to(dtype), [Fraction(float(np.float32(float(v)))) for v in y]),
    }
    for name, (found, expected) in results.items():
        assert unsigned(found, bits) == [oracle.encode(bits, v, mode, linear=False) for v in expected], name


def test_exact_dot_products():
    a, b = (torch.randn(3, 12, generator=torch.Generator().manual_seed(s)).to(takum(32)) for s in (1, 2))
    exact = [[sum(Fraction(x) * Fraction(y) for x, y in zip(r, s, strict=True)) for s in b.double().tolist()] for r in a.double().tolist()]
    with torch_dtypes.accumulate("exact"):
        found = a @ b.T
    assert [unsigned(row, 32) for row in found] == [[oracle.encode(32, v, linear=False) for v in row] for row in exact]


def test_what_it_is():
    dtype = torch_dtypes.takum_format(20, linear=False)
    info, card = torch.finfo(dtype), torch_dtypes.card(dtype)
    assert str(dtype) == "torch.takum20_log" and dtype is torch_dtypes.dtype("takum20_log") and dtype is not torch_dtypes.dtype("takum20_linear")
    assert info.max == -info.min == float(oracle.log_value(20, 2**19 - 1)) and info.tiny == float(oracle.log_value(20, 1))
    assert info.eps == float(oracle.log_value(20, 2**18 + 1)) - 1
    assert (card.largest, card.smallest, card.finite, card.nans, card.zeros) == (info.max, info.tiny, 2**20 - 1, 1, 1)
    assert "kind=takum, nbits=20, linear=False" in repr(torch_dtypes.format_of(dtype))
    stream = io.BytesIO()
    torch.save(torch.tensor([1.5, -3.25]).to(dtype), stream)
    assert torch.load(io.BytesIO(stream.getvalue())).dtype is dtype
    x = torch.tensor([info.max, info.tiny, -info.max], dtype=torch.float64).to(dtype)
    assert (x * x).double().tolist() == [info.max, info.tiny, info.max] and (x / x.flip(0)).double().tolist() == [-1.0, 1.0, -1.0]
    leaf = torch.randn(50, generator=torch.Generator().manual_seed(6)).to(dtype).requires_grad_()
    (leaf * leaf).sum().backward()
    assert torch.equal(leaf.grad, (2 * leaf.detach().double()).to(dtype))
    up = torch.nextafter(x, torch.full_like(x, 1e300))
    assert unsigned(up, 20) == [2**19 - 1, 2, 2**19 + 2]
    flipped = torch_dtypes.chop(torch.ones(100), dtype, flip_prob=1.0)
    assert (flipped > 1).all() and (flipped < math.exp(0.5)).all(), "a bit of the fraction"
