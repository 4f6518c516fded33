"""Linear takums of more than 16 bits: every code of 17 to 20 bits, samples of 32, all modes, against the definition in exact rationals; operators."""

import io
import math
import pickle
import warnings

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

WIDTHS = (17, 18, 19, 20)
MODES = (*DETERMINISTIC, "stochastic", "stochastic_equal", "up_down")


def takum(bits, mode="nearest_even"):
    return torch_dtypes.dtype(f"takum{bits}_linear" + ("" if mode == "nearest_even" else f"_{mode}"))


def magnitudes(bits: int, codes: np.ndarray) -> np.ndarray:
    """The values of positive codes as float64: the definition, on arrays."""
    text_r = codes >> bits - 5 & 7
    upwards = codes >> bits - 2 & 1 == 1
    r = np.where(upwards, text_r, 7 - text_r)
    characteristic = codes % (1 << bits - 5) // (1 << bits - 5 - r)
    c = np.where(upwards, (1 << r) - 1 + characteristic, 1 - (2 << r) + characteristic)
    fraction = codes % (1 << bits - 5 - r) / 2.0 ** (bits - 5 - r)
    return np.ldexp(1 + fraction, c)


def unsigned(t: torch.Tensor, bits: int) -> np.ndarray:
    return codes_of(t).long().numpy() & (1 << bits) - 1


def test_arrays_follow_the_definition():
    for bits in (*WIDTHS, 21, 32, 33):
        drawn = np.random.default_rng(bits).integers(1, 2 ** (bits - 1), 300)
        codes = np.r_[np.arange(1, 40), 2 ** np.arange(bits - 1), 2 ** (bits - 1) - np.arange(1, 40), drawn]
        assert [Fraction(v) for v in magnitudes(bits, codes)] == [oracle.value(bits, int(k)) for k in codes]


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_code(bits):
    half = 1 << bits - 1
    positive = magnitudes(bits, np.arange(1, half))
    values = from_codes(torch.arange(2 * half, dtype=torch.int32), takum(bits)).double().numpy()
    assert values[0] == 0 and not np.signbit(values[0]) and np.isnan(values[half])
    assert np.array_equal(values[1:half], positive) and np.array_equal(values[:half:-1], -positive)
    assert (np.diff(values[:half]) > 0).all()


@pytest.mark.parametrize("mode", DETERMINISTIC)
@pytest.mark.parametrize("bits", WIDTHS)
def test_every_boundary(bits, mode):
    """Each value stays; the middle of two, and the float64 numbers beside it, go where the mode says; with both signs."""
    k = np.arange(1, (1 << bits - 1) - 1)
    middle, odd = magnitudes(bits + 1, 2 * k + 1), k % 2
    at_middle = {"nearest_even": odd, "nearest_zero": 0, "nearest_away": 1}.get(mode, 0)
    cases = ((magnitudes(bits, k), 0), (np.nextafter(middle, 0), 0), (middle, at_middle), (np.nextafter(middle, np.inf), 1))
    for place, (x, beyond) in enumerate(cases):
        for sign in (1, -1):
            ways = {"up": sign > 0, "down": sign < 0, "toward_zero": False, "to_odd": 1 - odd, "nearest_up": sign > 0 if place == 2 else beyond}
            up = ways.get(mode, beyond) if place else 0
            expected = (k + up) * sign % (1 << bits)
            assert np.array_equal(unsigned(torch.from_numpy(sign * x).to(takum(bits, mode)), bits), expected)


def sample(bits: int, count: int) -> list[float]:
    """Values, middles and their neighbours, numbers between, next to the ends and beyond them."""
    rng = np.random.default_rng(bits)
    half = 1 << bits - 1
    codes = np.r_[rng.integers(1, half - 1, count), 1 << rng.integers(0, bits - 1, count // 4), (1 << rng.integers(2, bits - 1, count // 4)) - 1]
    codes = np.r_[np.clip(codes, 1, half - 2), 1, 2, half - 2, half - 3]
    values, middles = magnitudes(bits, codes), magnitudes(bits + 1, 2 * codes + 1)
    between = values + (middles - values) * rng.random(len(values)) * 2
    least, most = float(oracle.value(bits, 1)), float(oracle.value(bits, half - 1))
    ends = np.array([2.0**-255, least / 2, least * 0.999, 5e-324, 1e-300, most * 1.001, most * 2, 1e308, 0.0])
    x = np.concatenate([values, middles, np.nextafter(middles, 0), np.nextafter(middles, np.inf), between, ends])
    return [*(x * rng.choice([1, -1], len(x))).tolist(), -0.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", [17, 24, 32])
def test_samples_in_every_mode(bits, mode):
    x = sample(bits, 60)
    rng = np.random.default_rng(7)
    words = rng.integers(0, 2**64, len(x), dtype=np.uint64)
    words[::4], words[1::4], words[2::8] = 0, 2**64 - 1, 2**63
    fmt = torch_dtypes.format_of(f"takum{bits}_linear_{mode}" if mode != "nearest_even" else f"takum{bits}_linear")
    found = _C.encode_exact(fmt, torch.tensor(x, dtype=torch.float64), torch.from_numpy(words.view(np.int64))).tolist()
    expected = [oracle.encode(bits, v, mode, int(w)) for v, w in zip(x, words, strict=True)]
    assert found == expected, [(v, f, e) for v, f, e in zip(x, found, expected, strict=True) if f != e][:5]


@pytest.mark.parametrize("bits", [12, 13, 15, 16])
def test_short_ones_agree_with_the_tables(bits):
    """The codec at widths that are tables: the same codes for the same numbers, in every mode and for given words."""
    wide, table = _C.Format.takum(bits, True), torch_dtypes.format_of(f"takum{bits}_linear")
    k = torch.from_numpy(np.random.default_rng(bits).integers(1, 2 ** (bits - 1) - 2, 500))
    values, middles = _C.decode_exact(wide, k), torch.from_numpy(magnitudes(bits + 1, 2 * k.numpy() + 1))
    zero, huge = torch.tensor([0.0, 1e308], dtype=torch.float64)
    x = torch.cat([values, middles, middles.nextafter(zero), middles.nextafter(huge), values * 1.0001])
    assert_same_codecs(wide, table, x)


@pytest.mark.parametrize("mode", DETERMINISTIC)
def test_casts(mode):
    """From float32, float64 and integers, through the kernels."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(800, generator=generator) * torch.exp2(torch.randint(-120, 120, (800,), generator=generator))
    for values in (x, x.double() * 1.23456789, (x.clamp(-1e9, 1e9) * 1000).long()):
        assert unsigned(values.to(takum(27, mode)), 27).tolist() == [oracle.encode(27, Fraction(v), mode) for v in values.tolist()]


def test_stochastic_probabilities():
    x = torch.full((40000,), 1 + 0.3 * 2.0**-14, dtype=torch.float64)  # three tenths of the way, in 19 bits
    share = (x.to(takum(19, "stochastic")).double() > 1).double().mean().item()
    assert abs(share - 0.3) < 0.01
    moved = torch.ones(10000).to(takum(19, "up_down")).double()
    assert set(moved.tolist()) == {1 + 2.0**-14, 1 - 2.0**-15}


def root(x: Fraction) -> Fraction:
    """The square root of a number, or one on the same side of all that 200 bits tell apart."""
    wide = x.numerator * x.denominator << 800
    r = math.isqrt(wide)
    return Fraction(2 * r + (r * r != wide), x.denominator << 401)


@pytest.mark.parametrize("mode", DETERMINISTIC)
@pytest.mark.parametrize("bits", [17, 23, 32])
def test_arithmetic(bits, mode):
    rng = np.random.default_rng(bits)
    half = 1 << bits - 1
    near = half // 2 + rng.integers(-half // 16, half // 16, 120)  # around 1
    codes = np.concatenate([rng.integers(1, half, 120), near])
    codes = np.where(rng.random(240) < 0.5, codes, 2 * half - codes)
    a, b = (from_codes(torch.from_numpy(c).to(torch.int32), takum(bits, mode)) for c in (codes[0::2], codes[1::2]))
    c = from_codes(torch.from_numpy(np.roll(codes[0::2], 7)).to(torch.int32), takum(bits, mode))
    exact = [[oracle.value(bits, int(v)) for v in unsigned(t, bits)] for t in (a, b, c)]
    results = {
        "add": (a + b, [x + y for x, y in zip(*exact[:2], strict=True)]),
        "sub": (a - b, [x - y for x, y in zip(*exact[:2], strict=True)]),
        "mul": (a * b, [x * y for x, y in zip(*exact[:2], strict=True)]),
        "div": (a / b, [x / y for x, y in zip(*exact[:2], strict=True)]),
        "fma": (torch.addcmul(c, a, b), [z + x * y for x, y, z in zip(*exact, strict=True)]),
        "sqrt": (a.abs().sqrt(), [root(abs(x)) for x in exact[0]]),
        "scalar": (a * 0.1, [x * Fraction(0.1) for x in exact[0]]),
    }
    for name, (found, expected) in results.items():
        assert unsigned(found, bits).tolist() == [oracle.encode(bits, v, mode) for v in expected], name


def test_beyond_the_ends_in_operators():
    """Products and quotients beyond the range are the outermost numbers, never NaR or 0; so is what leaves float64's range."""
    dtype = takum(32)
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    x = torch.tensor([most, least, -most], dtype=torch.float64).to(dtype)
    assert (x * x).double().tolist() == [most, least, most] and (x / x.flip(0)).double().tolist() == [-1.0, 1.0, -1.0]
    assert torch.exp(torch.tensor([1000.0, -1000.0]).to(dtype)).double().tolist() == [most, least]
    assert (torch.ones(2).to(dtype) / torch.tensor([0.0, -0.0]).to(dtype)).isnan().all()


def test_dot_products():
    a, b = (torch.randn(5, 40, generator=torch.Generator().manual_seed(s)).to(takum(32)) for s in (1, 2))
    exact = [[sum(Fraction(x) * Fraction(y) for x, y in zip(r, s, strict=True)) for s in b.double().tolist()] for r in a.double().tolist()]
    with torch_dtypes.accumulate("exact"):
        assert unsigned(a @ b.T, 32).tolist() == [[oracle.encode(32, v) for v in row] for row in exact]
    with torch_dtypes.accumulate("format"):
        stepwise = torch.zeros(5, dtype=takum(32))
        for i in range(40):
            stepwise = stepwise + a[:, i] * b[0, i]
        assert torch.equal((a @ b.T)[:, 0], stepwise)


def test_what_it_is():
    dtype = torch_dtypes.takum_format(20)
    info, card = torch.finfo(dtype), torch_dtypes.card(dtype)
    assert str(dtype) == "torch.takum20_linear" and dtype is torch_dtypes.dtype("takum20_linear") and dtype.itemsize == 4
    assert info.max == -info.min == float(oracle.value(20, 2**19 - 1)) and info.tiny == float(oracle.value(20, 1)) and info.eps == 2.0**-15
    assert (card.largest, card.smallest, card.finite, card.nans, card.zeros) == (info.max, info.tiny, 2**20 - 1, 1, 1)
    assert "kind=takum, nbits=20" in repr(torch_dtypes.format_of(dtype))
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    stream = io.BytesIO()
    torch.save(torch.tensor([1.5, -3.25]).to(dtype), stream)
    stream.seek(0)
    loaded = torch.load(stream)
    assert loaded.dtype is dtype and loaded.double().tolist() == [1.5, -3.25]
    assert torch_dtypes.with_rounding(dtype, "up") is torch_dtypes.dtype("takum20_linear_up")


def test_order_and_neighbours():
    dtype = takum(18)
    codes = torch.tensor([-3, -2, -1, 0, 1, 2, 3, 131070, 131071], dtype=torch.int32)
    x = from_codes(codes & 0x3FFFF, dtype)
    assert torch.equal(x.flip(0).sort()[0].double(), x.double())
    up = torch.nextafter(x, torch.full_like(x, 1e300))
    assert unsigned(up, 18).tolist() == [2**18 - 2, 2**18 - 1, 0, 1, 2, 3, 4, 131071, 131071]
    down = torch.nextafter(x, torch.full_like(x, -1e300))
    assert unsigned(down, 18).tolist() == [2**18 - 4, 2**18 - 3, 2**18 - 2, 2**18 - 1, 0, 1, 2, 131069, 131070]


def test_functions_of_the_package():
    dtype = takum(22)
    x = torch.randn(500, generator=torch.Generator().manual_seed(6))
    y = torch_dtypes.chop(x, dtype)
    assert y.dtype is torch.float32 and torch.equal(y, x.to(dtype).float())
    flipped = torch_dtypes.chop(x, dtype, flip_prob=1.0)
    assert (flipped != y).all() and ((flipped / y - 1).abs() <= 0.5).all(), "a bit of the fraction"
    u = torch.rand(2000, dtype=dtype)
    assert (u.double() < 1).all() and (u.double() >= 0).all()
    leaf = x.to(dtype).requires_grad_()
    (leaf * leaf).sum().backward()
    assert leaf.grad.dtype is dtype and torch.equal(leaf.grad, (2 * leaf.detach().double()).to(dtype))
    with warnings.catch_warnings():  # said once in a process
        warnings.simplefilter("ignore")
        filled = torch.tensor([math.inf, -math.inf], dtype=dtype)
    assert filled.double().tolist() == [torch.finfo(dtype).max, torch.finfo(dtype).min]
    with pytest.raises(ValueError, match="expected elements with float32's exponents"):
        torch_dtypes.block_format("takum22_linear", "e8m0", 32)
