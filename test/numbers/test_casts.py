"""Casts from integers and to stock dtypes, bit for bit, and comparisons with independent
implementations."""

import math

import numpy as np
import oracle
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes, to_codes
from exact_codecs import float32_inputs, same_values, tensor
from oracle import MODES, as_int64, binary, posit, wide_vectors
from rationals import Fraction
from representatives import thin_out
from spec_formats import assert_codes, by_name, dtype_of, format_of, name_of

import torch_dtypes
from torch_dtypes import _C

# ---- integers ----

INTEGERS = [
    0,                 1,                 2,                 3,                 5,
    127,               128,               255,               257,               2**24 - 1,
    2**24 + 1,         2**25 + 3,         2**31 - 1,         2**53 - 1,         2**53 + 1,
    2**54 + 2,         2**54 + 6,         2**62 + 1,         2**63 - 1,         2**63 - 2**9,
    3 * 2**40 + 1,     31 * 2**58,        2**62 + 2**57 + 1, 2**62 + 2**57 - 1, 65519,
    65520,             65521,
]  # fmt: skip
INTEGER_FORMATS = [
    *BUILTIN.values(),
    posit(32, 0),
    posit(12, 1),
    binary(8, 23),
    binary(11, 51),
    binary(4, 3, specials="fn"),
    binary(6, 2),
    binary(4, 3, specials="fnuz"),
]


@by_name(INTEGER_FORMATS)
def test_encode_integers_exactly(spec):
    dtype = dtype_of(spec)
    rng = np.random.default_rng(5)
    random = (rng.integers(0, 2**63 - 1, 400) >> rng.integers(0, 62, 400)).tolist()
    near = []
    # Ties among the integers, and next to them.
    for k in rng.integers(0, spec.largest, 100).tolist():
        boundary = spec.boundary(k)
        if boundary.denominator == 1 and boundary < 2**62:
            near += [int(boundary) - 1, int(boundary), int(boundary) + 1]
    signed = [s * i for i in [*INTEGERS, *random, *near] for s in (1, -1)] + [-(2**63)]
    expected = as_int64([spec.encode(Fraction(i)) for i in signed])
    x = torch.tensor(signed)
    assert_codes(_C.encode_exact(format_of(spec), x), expected, spec, x)
    for mode in MODES[1:]:
        assert_codes(
            _C.encode_exact(format_of(spec, mode), x[:60]),
            as_int64([spec.encode(Fraction(i), mode) for i in signed[:60]]),
            spec,
            x,
            mode,
        )
    assert_codes(to_codes(x, dtype), expected, spec, x)
    unsigned = [*INTEGERS, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2**10, *random]
    expected = as_int64([spec.encode(Fraction(i)) for i in unsigned])
    assert_codes(
        to_codes(torch.tensor(unsigned, dtype=torch.uint64), dtype), expected, spec, unsigned
    )
    for kind in (
        torch.int32,
        torch.uint32,
        torch.int16,
        torch.uint16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ):
        low, high = (0, 1) if kind == torch.bool else (torch.iinfo(kind).min, torch.iinfo(kind).max)
        held = [i for i in {*signed, *unsigned, low, high} if low <= i <= high]
        if spec.bits <= 20:
            held += range(max(low, -(2**15)), min(high + 1, 2**16))
            expected = oracle.table(spec).encode(np.array(held, dtype=np.float64))
        else:
            expected = as_int64([spec.encode(Fraction(i)) for i in held])
        assert_codes(to_codes(torch.tensor(held, dtype=kind), dtype), expected, spec, held)


# ---- independent implementations ----


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_encode_as_softposit(bits):
    """softposit's posit_2 has es = 2 and any number of bits, at the top of 32."""
    softposit = pytest.importorskip(
        "softposit", reason="softposit is the independent implementation"
    )
    spec = posit(bits, 2)
    x = (
        np.random.default_rng(6).choice(oracle.table(spec).inputs(), 20000)
        if bits <= 16
        else wide_vectors(spec, 1000)[0]
    )
    expected = np.array([softposit.convertDoubleToPX2(float(v), bits).v >> (32 - bits) for v in x])
    assert_codes(to_codes(tensor(x), dtype_of(spec)), expected, spec, x)


ML_DTYPES = {
    "float8_e4m3": binary(4, 3),
    "float8_e5m2": binary(5, 2),
    "float8_e4m3fn": binary(4, 3, specials="fn"),
    "float8_e3m4": binary(3, 4),
    "bfloat16": binary(8, 7),
    "float4_e2m1fn": binary(2, 1, specials="none"),
    "float6_e2m3fn": binary(2, 3, specials="none"),
    "float6_e3m2fn": binary(3, 2, specials="none"),
}


@pytest.mark.parametrize("other", ML_DTYPES)
def test_casts_as_ml_dtypes(other):
    ml_dtypes = pytest.importorskip(
        "ml_dtypes", reason="ml_dtypes is the independent implementation"
    )
    spec, kind = ML_DTYPES[other], np.dtype(getattr(ml_dtypes, other))
    dtype = dtype_of(spec)
    x = float32_inputs(oracle.table(spec).inputs())
    x = x[~np.isnan(x)]  # the sign and payload of a NaN are unspecified
    with np.errstate(all="ignore"):
        expected = x.astype(kind).view(np.uint8 if kind.itemsize == 1 else np.uint16)
    if spec.specials == "none":
        expected = expected & (2**spec.bits - 1)
        x, expected = x[np.isfinite(x)], expected[np.isfinite(x)]
    assert_codes(to_codes(tensor(x), dtype), expected.astype(np.int64), spec, x)
    codes = np.arange(1 << spec.bits, dtype=np.uint8 if kind.itemsize == 1 else np.uint16)
    found = from_codes(tensor(codes.astype(np.int64)), dtype).double().numpy()
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = codes.view(kind).astype(np.float64)
    assert same_values(found, expected).all()


@by_name(
    [
        binary(5, 5),
        binary(3, 4),
        binary(4, 6, specials="fn"),
        binary(6, 4, bias=20),
        binary(2, 5, specials="none"),
        binary(5, 10),
        binary(5, 7),
    ]
)
@pytest.mark.parametrize(
    "mode", thin_out(["nearest_even", "nearest_away", "up", "down", "toward_zero"], {"down"})
)
def test_encode_as_gfloat(spec, mode):
    gfloat = pytest.importorskip("gfloat", reason="gfloat is the independent implementation")
    nans = {"ieee": 2**spec.man_bits - 1, "fn": 1, "none": 0}[spec.specials]
    domain = gfloat.Domain.Extended if spec.specials == "ieee" else gfloat.Domain.Finite
    info = gfloat.FormatInfo(
        name_of(spec),
        spec.bits,
        spec.man_bits + 1,
        bias=spec.bias,
        is_signed=True,
        domain=domain,
        has_nz=True,
        num_high_nans=nans,
        has_subnormals=True,
        is_twos_complement=False,
    )
    modes = {
        "nearest_even": "TiesToEven",
        "nearest_away": "TiesToAway",
        "up": "TowardPositive",
        "down": "TowardNegative",
        "toward_zero": "TowardZero",
    }
    x = oracle.table(spec).inputs()
    # Beyond the range, conventions differ.
    x = np.unique(x[np.isfinite(x) & (np.abs(x) < float(spec.boundary(spec.largest)))])
    if mode != "nearest_even":
        x = x[np.abs(x) <= float(spec.magnitude(spec.largest))]
    rounded = gfloat.round_ndarray(
        info, x, getattr(gfloat.RoundMode, modes[mode]), sat=spec.specials == "none"
    )
    expected = gfloat.encode_ndarray(info, rounded)
    assert_codes(
        _C.encode_exact(format_of(spec, mode), tensor(x)), expected.astype(np.int64), spec, x
    )


STOCK = {
    torch.float16: (5, 10),
    torch.bfloat16: (8, 7),
    torch.float8_e5m2: (5, 2),
    torch.float8_e4m3fn: (4, 3),
}
STOCK = {
    stock: binary(*fields, specials="fn" if stock == torch.float8_e4m3fn else "ieee")
    for stock, fields in STOCK.items()
}


@pytest.mark.parametrize("stock", STOCK, ids=str)
def test_casts_as_stock_dtypes(stock):
    """Inputs are float32, which stock PyTorch rounds once. They stay within float8_e4m3fn's range,
    whose overflow depends on the PyTorch release."""
    spec = STOCK[stock]
    dtype = dtype_of(spec)
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    x = torch.cat([halves, tensor(float32_inputs(oracle.table(spec).inputs()))])
    x = x[~x.isnan()]
    if stock == torch.float8_e4m3fn:
        x = x[x.abs() <= 464]
    bits = torch.uint8 if spec.bits == 8 else torch.int16
    assert_codes(to_codes(x, dtype), x.to(stock).view(bits).long() & (2**spec.bits - 1), spec, x)
    codes = torch.arange(1 << spec.bits)
    assert same_values(
        from_codes(codes, dtype).double().numpy(), codes.to(bits).view(stock).double().numpy()
    ).all()


# ---- to stock dtypes ----


@pytest.mark.parametrize(
    "name",
    ["e2m1fnuz", "e4m3p3109", "e5m10fnuz", "e4m3p3109_propagate", "posit8es1", "takum12_linear"],
)
def test_a_nan_without_a_sign_is_positive(name):
    x = torch.tensor([math.nan, -math.nan]).to(torch_dtypes.dtype(name))
    for stock in (torch.float32, torch.float64):
        assert not x.to(stock).signbit().any()
    assert (
        x.to(torch_dtypes.dtype("e2m20finite")).tolist()
        == [torch.finfo(torch_dtypes.dtype("e2m20finite")).max] * 2
    )


def test_float64_is_not_rounded_to_float32_first():
    """Stock PyTorch 2.13 returns 1.0."""
    x = torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64)
    assert x.to(dtype_of(binary(5, 10))).double().tolist() == [1 + 2.0**-10]


def test_to_stock_dtypes(builtin):
    dtype, spec = builtin
    codes = (
        torch.arange(1 << spec.bits)
        if spec.bits <= 20
        else tensor(np.random.default_rng(7).integers(0, 2**32, 50000))
    )
    x = from_codes(codes, dtype)
    exact = x.double()
    with np.errstate(over="ignore", under="ignore"):
        assert same_values(
            x.float().double().numpy(), exact.numpy().astype(np.float32).astype(np.float64)
        ).all()
    for stock in (torch.float16, torch.bfloat16, torch.float8_e5m2):
        target = oracle.table(STOCK[stock])
        finite = exact.isfinite()
        found = x.to(stock).view(torch.uint8 if stock.itemsize == 1 else torch.int16)[
            finite
        ].long() & (2**target.spec.bits - 1)
        assert_codes(found, target.encode(exact[finite].numpy()), target.spec, exact[finite])
        assert x.to(stock)[exact.isnan()].isnan().all()
    for stock in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        held = (
            exact.isfinite()
            & (exact > torch.iinfo(stock).min - 1.0)
            & (exact < torch.iinfo(stock).max)
        )
        assert x.to(stock)[held].tolist() == [int(v) for v in exact[held].tolist()]
    assert torch.equal(x.bool(), exact != 0)
    assert torch.equal(
        torch.view_as_real(x.to(torch.complex128))[:, 0].nan_to_num(), exact.nan_to_num()
    )


def test_tie_survives_below_float32():
    """A value of a float64 format may differ from a boundary of bfloat16 by less than float32 can
    show."""
    wide = dtype_of(binary(11, 40))
    tie = torch.tensor(
        [5 * 2.0**-134, 5 * 2.0**-134 + 2.0**-170, 5 * 2.0**-134 - 2.0**-170], dtype=torch.float64
    )
    assert tie.to(wide).to(torch.bfloat16).view(torch.int16).tolist() == [2, 3, 2]


def test_complex_values_lose_their_imaginary_part():
    x = torch.complex(torch.tensor([1.25, -0.1]), torch.tensor([3.0, 4.0]))
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="discards the imaginary part"):
            found = x.to(torch.posit16es2)
    finally:
        torch.set_warn_always(False)
    assert torch.equal(codes_of(found), to_codes(x.real, torch.posit16es2))
