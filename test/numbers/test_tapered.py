"""Linear takums of more than 16 bits and bounded posits as dtypes. test_codec.py has their codes,
test_rounding.py their arithmetic."""

import io
import math
import pickle
import warnings

import pytest
import torch
from oracle import MODES, posit, takum
from rationals import Fraction
from same_codecs import assert_same_codecs
from spec_formats import by_name, dtype_of, name_of

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.formats.code_types import bits_dtype
from torch_dtypes.formats.codes import codes as codes_of
from torch_dtypes.formats.codes import from_codes

TAKUM, POSIT = takum(32), posit(16, 5, regime_max=6)


def codes_in(spec, t):
    return [k & (1 << spec.bits) - 1 for k in codes_of(t).long().flatten().tolist()]


def of_codes(spec, codes, mode="nearest_even"):
    return from_codes(
        torch.tensor(codes).to(bits_dtype(dtype_of(spec, mode))), dtype_of(spec, mode)
    )


@by_name([takum(12), takum(13), takum(15), takum(16)])
def test_short_ones_agree_with_the_tables(spec):
    """At widths that have tables, the codec returns the same codes for the same numbers, in every
    mode and for given words."""
    wide = _C.Format.takum(spec.bits)
    k = torch.arange(1, 2 ** (spec.bits - 1) - 1)[
        :: 1 if spec.bits < 12 else 2 ** (spec.bits - 10) - 3
    ]
    values = _C.decode_exact(wide, k)
    middles = torch.tensor(
        [float(spec.value(2 * c + 1, 1)) for c in k.tolist()], dtype=torch.float64
    )
    zero, huge = torch.tensor([0.0, 1e308], dtype=torch.float64)
    x = torch.cat(
        [values, middles, middles.nextafter(zero), middles.nextafter(huge), values * 1.0001]
    )
    assert_same_codecs(wide, torch_dtypes.format_of(name_of(spec)), x)


# ---- operators ----


@pytest.mark.parametrize("mode", MODES)
@by_name([takum(27), POSIT])
def test_casts(spec, mode):
    """Cast from float32, float64 and integers, through the kernels."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(400, generator=generator) * torch.exp2(
        torch.randint(-110, 110, (400,), generator=generator)
    )
    for values in (x, x.double() * 1.23456789, (x.clamp(-1e9, 1e9) * 1000).long()):
        assert codes_in(spec, values.to(dtype_of(spec, mode))) == [
            spec.encode(Fraction(v), mode) for v in values.tolist()
        ]


@by_name([TAKUM, POSIT])
def test_beyond_the_ends_in_operators(spec):
    """Results beyond the range become the largest or smallest numbers, never NaR or 0. So do
    results beyond float64's range."""
    dtype = dtype_of(spec)
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    x = torch.tensor([most, least, -most], dtype=torch.float64).to(dtype)
    assert (x * x).double().tolist() == [most, least, most] and (
        x / x.flip(0)
    ).double().tolist() == [-1.0, 1.0, -1.0]
    assert torch.exp(torch.tensor([1000.0, -1000.0]).to(dtype)).double().tolist() == [most, least]
    assert (torch.ones(2).to(dtype) / torch.tensor([0.0, -0.0]).to(dtype)).isnan().all()
    up = torch.nextafter(x, torch.full_like(x, most))
    assert up.double().tolist() == [
        most,
        float(spec.value(2)),
        -float(spec.value((1 << spec.bits - 1) - 2)),
    ]


def test_order_and_neighbours():
    spec = takum(18)
    x = of_codes(spec, [k & 0x3FFFF for k in (-3, -2, -1, 0, 1, 2, 3, 131070, 131071)])
    assert torch.equal(x.flip(0).sort()[0].double(), x.double())
    up, down = (
        codes_in(spec, torch.nextafter(x, torch.full_like(x, end))) for end in (1e300, -1e300)
    )
    assert up == [2**18 - 2, 2**18 - 1, 0, 1, 2, 3, 4, 131071, 131071]
    assert down == [2**18 - 4, 2**18 - 3, 2**18 - 2, 2**18 - 1, 0, 1, 2, 131069, 131070]


def test_random_numbers():
    # Three tenths of the way, in 19 bits.
    x = torch.full((40000,), 1 + 0.3 * 2.0**-14, dtype=torch.float64)
    share = (x.to(dtype_of(takum(19), "stochastic")).double() > 1).double().mean().item()
    assert abs(share - 0.3) < 0.01
    moved = torch.ones(10000).to(dtype_of(takum(19), "up_down")).double()
    assert set(moved.tolist()) == {1 + 2.0**-14, 1 - 2.0**-15}
    drawn = torch.rand(
        4000, dtype=dtype_of(posit(16, 0, regime_max=3)), generator=torch.Generator().manual_seed(1)
    ).double()
    assert 400 < (drawn == 0).sum() < 600 and drawn.max() < 1, (
        "minpos is a little above 1/8, and 0 is drawn"
    )


def test_dot_products():
    a, b = (
        torch.randn(5, 40, generator=torch.Generator().manual_seed(s)).to(dtype_of(TAKUM))
        for s in (1, 2)
    )
    exact = [
        [
            sum(Fraction(x) * Fraction(y) for x, y in zip(r, s, strict=True))
            for s in b.double().tolist()
        ]
        for r in a.double().tolist()
    ]
    with torch_dtypes.accumulate("exact"):
        assert codes_in(TAKUM, a @ b.T) == [TAKUM.encode(v) for row in exact for v in row]
    with torch_dtypes.accumulate("format"):
        stepwise = torch.zeros(5, dtype=dtype_of(TAKUM))
        for i in range(40):
            stepwise = stepwise + a[:, i] * b[0, i]
        assert torch.equal((a @ b.T)[:, 0], stepwise)


@pytest.mark.parametrize(
    ("spec", "made", "kind", "eps"),
    [
        (takum(20), lambda: torch_dtypes.takum_format(20), "kind=takum, nbits=20", 2.0**-15),
        (
            POSIT,
            lambda: torch_dtypes.posit_format(16, 5, regime_max=6),
            "kind=table, bits=16",
            2.0**-8,
        ),
    ],
)
def test_what_it_is(spec, made, kind, eps):
    dtype = made()
    info, card = torch.finfo(dtype), torch_dtypes.card(dtype)
    assert str(dtype) == f"torch.{name_of(spec)}" and dtype is dtype_of(spec)
    assert dtype.itemsize == (4 if spec.bits > 16 else 2)
    half = 1 << spec.bits - 1
    assert (
        info.max == -info.min == float(spec.value(half - 1))
        and info.tiny == float(spec.value(1))
        and info.eps == eps
    )
    assert (card.largest, card.smallest, card.finite, card.nans, card.zeros) == (
        info.max,
        info.tiny,
        2 * half - 1,
        1,
        1,
    )
    assert kind in repr(torch_dtypes.format_of(dtype))
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    stream = io.BytesIO()
    torch.save(torch.tensor([1.5, -3.25]).to(dtype), stream)
    stream.seek(0)
    loaded = torch.load(stream)
    assert loaded.dtype is dtype and loaded.double().tolist() == [1.5, -3.25]
    assert torch_dtypes.with_rounding(dtype, "up") is dtype_of(spec, "up")


@by_name([takum(22), POSIT])
def test_functions_of_the_package(spec):
    dtype = dtype_of(spec)
    x = torch.randn(500, generator=torch.Generator().manual_seed(6))
    y = torch_dtypes.chop(x, dtype)
    assert (
        y.dtype is torch.float32
        and torch.equal(y, x.to(dtype).float())
        and torch.equal(torch_dtypes.target(dtype).quantize(x), y)
    )
    y = torch_dtypes.chop(x.double(), dtype)
    flipped = torch_dtypes.chop(x.double(), dtype, flip_prob=1.0)
    assert (flipped != y).all()
    if spec.regime_max is None:  # a table does not name its fraction bits
        assert ((flipped / y - 1).abs() <= 0.5).all(), "a bit of the fraction"
    u = torch.rand(2000, dtype=dtype)
    assert (u.double() < 1).all() and (u.double() >= 0).all()
    leaf = x.to(dtype).requires_grad_()
    (leaf * leaf).sum().backward()
    assert leaf.grad.dtype is dtype and torch.equal(
        leaf.grad, (2 * leaf.detach().double()).to(dtype)
    )
    with warnings.catch_warnings():  # warned once in a process
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
        (
            (17, 5, 6),
            "at most 16 bits, but got nbits=17 with regime_max=6; use fewer bits, a posit",
        ),
        ((32, 5, 32), "at most 16 bits, but got nbits=32 with regime_max=32; use fewer bits"),
    ],
)
def test_refused(arguments, message):
    bits, es, most = arguments
    with pytest.raises(ValueError, match=message):
        torch_dtypes.posit_format(bits, es, regime_max=most)
    with pytest.raises(ValueError, match=message):
        torch_dtypes.dtype(f"posit{bits}es{es}_regime{most}")
