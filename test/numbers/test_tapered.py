"""Linear takums of more than 16 bits and bounded posits against their definitions.

The definitions are in exact rationals. Compared are codes, all modes and operators.
"""

# ruff: noqa: F811 (a fixture that is imported)

import io
import math
import pickle
import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import oracle_bounded
import oracle_takum
import pytest
import torch
from oracle_tables import DETERMINISTIC
from oracle_vectors import root_of
from rationals import Fraction
from same_codecs import assert_same_codecs
from test_codec import codec  # noqa: F401 (a fixture)

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.formats.code_types import bits_dtype
from torch_dtypes.formats.codes import codes as codes_of
from torch_dtypes.formats.codes import from_codes

MODES = (*DETERMINISTIC, "stochastic", "stochastic_equal", "up_down")


@dataclass(frozen=True)
class Row:
    """A format by its parameters: bits; of a bounded posit also es and regime_max."""

    bits: int
    shape: tuple[int, ...] = ()

    def value(self, code, more_bits=0):
        bits = self.bits + more_bits
        return oracle_bounded.value(bits, *self.shape, code) if self.shape else oracle_takum.value(bits, code)

    def encode(self, x, mode="nearest_even", word=0):
        return (oracle_bounded if self.shape else oracle_takum).encode(self.bits, *self.shape, x, mode, word)

    def name(self, mode="nearest_even"):
        name = "posit{}es{}_regime{}".format(self.bits, *self.shape) if self.shape else f"takum{self.bits}_linear"
        return name if mode == "nearest_even" else f"{name}_{mode}"

    def dtype(self, mode="nearest_even"):
        return torch_dtypes.dtype(self.name(mode))

    def codes(self, t):
        return [k & (1 << self.bits) - 1 for k in codes_of(t).long().flatten().tolist()]

    def tensor(self, codes, mode="nearest_even"):
        dtype = self.dtype(mode)
        return from_codes(torch.tensor(codes).to(bits_dtype(dtype)), dtype)


TAKUM, POSIT = Row(32), Row(16, (5, 6))
SHORT = [Row(17), Row(16, (2, 6)), POSIT, Row(8, (2, 3)), Row(16, (3, 14))]
# Of the last two bounded posits the longest regimes leave no fraction, or cut exponents.
SAMPLED = [
    Row(17), Row(24), TAKUM, POSIT, Row(16, (2, 6)), Row(14, (3, 5)), Row(16, (0, 3)),
    Row(8, (2, 3)), Row(15, (4, 2)), Row(16, (2, 13)), Row(16, (3, 14)),
]  # fmt: skip


def by_row(rows):
    return pytest.mark.parametrize("row", rows, ids=Row.name)


@by_row(SHORT)
def test_every_code(codec, row):
    found = codec.decode(torch_dtypes.format_of(row.name()), torch.arange(1 << row.bits))
    assert torch.equal(found.nan_to_num(), row.tensor(range(1 << row.bits)).double().nan_to_num())
    found, nar = found.tolist(), 1 << row.bits - 1
    assert math.isnan(found[nar]) and not math.copysign(1, found[0]) < 0
    found[nar] = None
    assert found == [row.value(k) for k in range(1 << row.bits)]


@cache
def boundaries(row):
    """Every positive value but the last as float64, and the boundary behind it."""
    codes = range(1, (1 << row.bits - 1) - 1)
    return [np.array([float(row.value(c, more)) for c in of]) for of, more in ((codes, 0), ((2 * k + 1 for k in codes), 1))]


@pytest.mark.parametrize("mode", DETERMINISTIC)
@by_row(SHORT[:2])
def test_every_boundary(row, mode):
    """Each value stays; its boundary, and the float64 numbers beside it, go where the mode says; with both signs."""
    value, middle = boundaries(row)
    k = np.arange(1, len(value) + 1)
    odd = k % 2
    at_middle = {"nearest_even": odd, "nearest_away": 1}.get(mode, 0)
    for place, (x, beyond) in enumerate(((value, 0), (np.nextafter(middle, 0), 0), (middle, at_middle), (np.nextafter(middle, np.inf), 1))):
        for sign in (1, -1):
            up = {"up": sign > 0, "down": sign < 0, "toward_zero": False, "to_odd": 1 - odd}.get(mode, beyond) if place else 0
            if mode == "nearest_up" and place == 2:
                up = sign > 0
            assert row.codes(torch.from_numpy(sign * x).to(row.dtype(mode))) == ((k + up) * sign % (1 << row.bits)).tolist()


@cache
def sample(row):
    """Values, their boundaries with neighbours, numbers between, next to the ends and beyond them; and a random word for each."""
    rng, half = np.random.default_rng(row.bits), 1 << row.bits - 1
    codes = [1, 2, 3, half - 2, half - 3, *(1 << k for k in range(row.bits - 1)), *((1 << k) - 1 for k in range(2, row.bits - 1))]
    codes += rng.integers(1, half - 1, 40).tolist()
    between = np.array([float(row.value(2 * k + 1, 1)) for k in codes])
    least, most = float(row.value(1)), float(row.value(half - 1))
    x = [*(float(row.value(k)) for k in codes), *between, *np.nextafter(between, 0), *np.nextafter(between, np.inf)]
    x += [*(between * (1 + rng.random(len(between)) * 1e-4)), 2.0**-255, least / 2, least * 0.75, least * 0.999, 5e-324, 1e-300]
    x = np.array([*x, most * 1.001, most * 2, 1e308, 0.0]) * rng.choice([1, -1], len(x) + 4)
    x = np.append(x, [-0.0, math.inf, -math.inf, math.nan])
    words = rng.integers(0, 2**64, len(x), dtype=np.uint64)
    words[::4], words[1::4], words[2::8] = 0, 2**64 - 1, 2**63
    return x, words


@pytest.mark.parametrize("mode", MODES)
@by_row(SAMPLED)
def test_samples_in_every_mode(codec, row, mode):
    x, words = sample(row)
    given = torch.from_numpy(words.view(np.int64)) if mode not in DETERMINISTIC else None
    found = codec.encode(torch_dtypes.format_of(row.name(mode)), torch.from_numpy(x), given).tolist()
    expected = [row.encode(v, mode, int(w)) for v, w in zip(x.tolist(), words, strict=True)]
    assert found == expected, [(v, f, e) for v, f, e in zip(x, found, expected, strict=True) if f != e][:5]


@by_row([Row(12), Row(13), Row(15), Row(16)])
def test_short_ones_agree_with_the_tables(row):
    """The codec at widths that are tables: the same codes for the same numbers, in every mode and for given words."""
    wide = _C.Format.takum(row.bits)
    k = torch.arange(1, 2 ** (row.bits - 1) - 1)[:: 1 if row.bits < 12 else 2 ** (row.bits - 10) - 3]
    values = _C.decode_exact(wide, k)
    middles = torch.tensor([float(row.value(2 * c + 1, 1)) for c in k.tolist()], dtype=torch.float64)
    zero, huge = torch.tensor([0.0, 1e308], dtype=torch.float64)
    x = torch.cat([values, middles, middles.nextafter(zero), middles.nextafter(huge), values * 1.0001])
    assert_same_codecs(wide, torch_dtypes.format_of(row.name()), x)


# ---- operators ----


@pytest.mark.parametrize("mode", DETERMINISTIC)
@by_row([Row(27), POSIT])
def test_casts(row, mode):
    """From float32, float64 and integers, through the kernels."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(400, generator=generator) * torch.exp2(torch.randint(-110, 110, (400,), generator=generator))
    for values in (x, x.double() * 1.23456789, (x.clamp(-1e9, 1e9) * 1000).long()):
        assert row.codes(values.to(row.dtype(mode))) == [row.encode(Fraction(v), mode) for v in values.tolist()]


@pytest.mark.parametrize("mode", DETERMINISTIC)
@by_row([Row(17), Row(23), TAKUM, POSIT])
def test_arithmetic(row, mode):
    rng, half = np.random.default_rng(row.bits), 1 << row.bits - 1
    near = half // 2 + rng.integers(-half // 16, half // 16, 120)  # around 1
    codes = np.concatenate([rng.integers(1, half, 120), near])
    codes = np.where(rng.random(240) < 0.5, codes, 2 * half - codes)
    rows = codes[0::2], codes[1::2], np.roll(codes[0::2], 7)
    a, b, c = (row.tensor(some.tolist(), mode) for some in rows)
    x, y, z = ([row.value(int(k)) for k in some] for some in rows)
    results = {
        "add": (a + b, [p + q for p, q in zip(x, y, strict=True)]), "sub": (a - b, [p - q for p, q in zip(x, y, strict=True)]),
        "mul": (a * b, [p * q for p, q in zip(x, y, strict=True)]), "div": (a / b, [p / q for p, q in zip(x, y, strict=True)]),
        "fma": (torch.addcmul(c, a, b), [r + p * q for p, q, r in zip(x, y, z, strict=True)]),
        "sqrt": (a.abs().sqrt(), [root_of(abs(p)) for p in x]), "scalar": (a * 0.1, [p * Fraction(0.1) for p in x]),
    }  # fmt: skip
    for name, (found, expected) in results.items():
        assert row.codes(found) == [row.encode(v, mode) for v in expected], name


@by_row([TAKUM, POSIT])
def test_beyond_the_ends_in_operators(row):
    """Results beyond the range are the outermost numbers, never NaR or 0; so is what leaves float64's range."""
    dtype = row.dtype()
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    x = torch.tensor([most, least, -most], dtype=torch.float64).to(dtype)
    assert (x * x).double().tolist() == [most, least, most] and (x / x.flip(0)).double().tolist() == [-1.0, 1.0, -1.0]
    assert torch.exp(torch.tensor([1000.0, -1000.0]).to(dtype)).double().tolist() == [most, least]
    assert (torch.ones(2).to(dtype) / torch.tensor([0.0, -0.0]).to(dtype)).isnan().all()
    up = torch.nextafter(x, torch.full_like(x, most))
    below_most = float(row.value((1 << row.bits - 1) - 2))
    assert up.double().tolist() == [most, float(row.value(2)), -below_most]


def test_order_and_neighbours():
    row = Row(18)
    x = row.tensor([k & 0x3FFFF for k in (-3, -2, -1, 0, 1, 2, 3, 131070, 131071)])
    assert torch.equal(x.flip(0).sort()[0].double(), x.double())
    up, down = (row.codes(torch.nextafter(x, torch.full_like(x, end))) for end in (1e300, -1e300))
    assert up == [2**18 - 2, 2**18 - 1, 0, 1, 2, 3, 4, 131071, 131071]
    assert down == [2**18 - 4, 2**18 - 3, 2**18 - 2, 2**18 - 1, 0, 1, 2, 131069, 131070]


def test_random_numbers():
    x = torch.full((40000,), 1 + 0.3 * 2.0**-14, dtype=torch.float64)  # three tenths of the way, in 19 bits
    share = (x.to(Row(19).dtype("stochastic")).double() > 1).double().mean().item()
    assert abs(share - 0.3) < 0.01
    moved = torch.ones(10000).to(Row(19).dtype("up_down")).double()
    assert set(moved.tolist()) == {1 + 2.0**-14, 1 - 2.0**-15}
    drawn = torch.rand(4000, dtype=Row(16, (0, 3)).dtype(), generator=torch.Generator().manual_seed(1)).double()
    assert 400 < (drawn == 0).sum() < 600 and drawn.max() < 1, "minpos is a little above 1/8, and 0 is drawn"


def test_dot_products():
    a, b = (torch.randn(5, 40, generator=torch.Generator().manual_seed(s)).to(TAKUM.dtype()) for s in (1, 2))
    exact = [[sum(Fraction(x) * Fraction(y) for x, y in zip(r, s, strict=True)) for s in b.double().tolist()] for r in a.double().tolist()]
    with torch_dtypes.accumulate("exact"):
        assert TAKUM.codes(a @ b.T) == [TAKUM.encode(v) for row in exact for v in row]
    with torch_dtypes.accumulate("format"):
        stepwise = torch.zeros(5, dtype=TAKUM.dtype())
        for i in range(40):
            stepwise = stepwise + a[:, i] * b[0, i]
        assert torch.equal((a @ b.T)[:, 0], stepwise)


@pytest.mark.parametrize(
    ("row", "made", "kind", "eps"),
    [
        (Row(20), lambda: torch_dtypes.takum_format(20), "kind=takum, nbits=20", 2.0**-15),
        (POSIT, lambda: torch_dtypes.posit_format(16, 5, regime_max=6), "kind=table, bits=16", 2.0**-8),
    ],
)
def test_what_it_is(row, made, kind, eps):
    dtype = made()
    info, card = torch.finfo(dtype), torch_dtypes.card(dtype)
    assert str(dtype) == f"torch.{row.name()}" and dtype is row.dtype()
    assert dtype.itemsize == (4 if row.bits > 16 else 2)
    half = 1 << row.bits - 1
    assert info.max == -info.min == float(row.value(half - 1)) and info.tiny == float(row.value(1)) and info.eps == eps
    assert (card.largest, card.smallest, card.finite, card.nans, card.zeros) == (info.max, info.tiny, 2 * half - 1, 1, 1)
    assert kind in repr(torch_dtypes.format_of(dtype))
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    stream = io.BytesIO()
    torch.save(torch.tensor([1.5, -3.25]).to(dtype), stream)
    stream.seek(0)
    loaded = torch.load(stream)
    assert loaded.dtype is dtype and loaded.double().tolist() == [1.5, -3.25]
    assert torch_dtypes.with_rounding(dtype, "up") is row.dtype("up")


@by_row([Row(22), POSIT])
def test_functions_of_the_package(row):
    dtype = row.dtype()
    x = torch.randn(500, generator=torch.Generator().manual_seed(6))
    y = torch_dtypes.chop(x, dtype)
    assert y.dtype is torch.float32 and torch.equal(y, x.to(dtype).float()) and torch.equal(torch_dtypes.target(dtype).quantize(x), y)
    y = torch_dtypes.chop(x.double(), dtype)
    flipped = torch_dtypes.chop(x.double(), dtype, flip_prob=1.0)
    assert (flipped != y).all()
    if not row.shape:  # a table does not say which of its bits are the fraction's
        assert ((flipped / y - 1).abs() <= 0.5).all(), "a bit of the fraction"
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((16, 5, 16), "regime_max from 2 to 15 with nbits=16, but got 16"),
        ((16, 6, 5), "es from 0 to 5, but got 6"),
        ((17, 5, 6), "at most 16 bits, but got nbits=17 with regime_max=6; use fewer bits, a posit"),
        ((32, 5, 32), "at most 16 bits, but got nbits=32 with regime_max=32; use fewer bits"),
    ],
)
def test_refused(arguments, message):
    bits, es, most = arguments
    with pytest.raises(ValueError, match=message):
        torch_dtypes.posit_format(bits, es, regime_max=most)
    with pytest.raises(ValueError, match=message):
        torch_dtypes.dtype(f"posit{bits}es{es}_regime{most}")
