"""Codes to values and values to codes, bit for bit, against exact rationals (oracle.py): the
generic codec, the headers alone, and the fast casts.

The fast casts run in processes of their own, one for each vector unit; this file is also their
script.
"""

import contextlib
import ctypes
import math
import pickle
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import oracle
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes, to_codes
from host_kernels import INCLUDES, argument, fields
from oracle import MODES, as_int64, binary, posit, takum, wide_codes, wide_vectors
from rationals import Fraction
from representatives import FORMATS, thin_out
from spec_formats import (
    MIDDLE,
    SMALL,
    TAPERED,
    WIDE,
    assert_codes,
    by_name,
    differences,
    dtype_of,
    format_of,
    name_of,
    thinned,
)
from vector_units import capabilities, run_for_capability

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.one_worker

POSITS = [
    *(posit(n, es) for es in range(5) for n in range(2, 17)),
    posit(8, 5),
    posit(13, 5),
    posit(16, 5),
]
FLOATS = [
    binary(2, 1, specials="none"),
    binary(2, 3, specials="none"),
    binary(3, 2, specials="none"),
    binary(2, 0, specials="none"),
    binary(4, 0, specials="none", subnormals=False),
    binary(3, 0, specials="fn"),
    binary(8, 0, specials="fn"),
    binary(5, 0, specials="none"),
    binary(2, 1),
    binary(2, 2),
    binary(3, 1),
    binary(3, 2),
    binary(3, 4),
    binary(2, 5, specials="fn"),
    binary(8, 1),
    binary(6, 1),
    binary(4, 3),
    binary(4, 3, specials="fn"),
    binary(4, 3, specials="fn", bias=8, overflow="saturate"),
    binary(4, 3, subnormals=False),
    binary(4, 3, bias=20),
    binary(5, 2),
    binary(5, 2, subnormals=False, overflow="saturate"),
    binary(5, 2, bias=-3),
    binary(5, 2, bias=100),
    binary(4, 3, overflow="saturate"),
    binary(2, 10),
    binary(3, 10),
    binary(6, 4, specials="fn"),
    binary(7, 3, specials="none", subnormals=False),
    binary(5, 10),
    binary(8, 7),
    binary(6, 9),
    binary(7, 8, overflow="saturate"),
    binary(8, 5, specials="fn", subnormals=False),
    binary(8, 3, bias=130),
    binary(8, 4, bias=126),
    binary(9, 4),
    binary(11, 4),
    binary(11, 4, subnormals=False),
    binary(10, 2, bias=100),
    binary(5, 13),
    binary(5, 5),
    binary(5, 7),
    binary(8, 4),
]
SHORT = [
    takum(17),
    posit(16, 2, regime_max=6),
    posit(16, 5, regime_max=6),
    posit(16, 3, regime_max=14),
]
TABLED = list(dict.fromkeys([*POSITS, *FLOATS, binary(8, 10), *SMALL, *MIDDLE, *SHORT]))
NEAREST_WIDE = [
    posit(32, 2),
    *(posit(32, es) for es in (0, 1, 3, 4)),
    posit(20, 1),
    posit(24, 2),
    posit(25, 0),
    posit(26, 0),
    posit(27, 1),
    posit(28, 2),
    posit(29, 2),
    posit(32, 5),
    posit(33, 0),
    posit(40, 2),
    posit(53, 0),
    posit(55, 2),
    posit(57, 3),
    binary(8, 23),
    binary(8, 15),
    binary(5, 20),
    binary(8, 22, specials="fn"),
    binary(11, 20),
    binary(11, 20, subnormals=False),
    binary(6, 30),
    binary(10, 40, specials="fn"),
    binary(11, 51),
    binary(9, 50, overflow="saturate"),
]
WIDE = list(dict.fromkeys([*NEAREST_WIDE, *WIDE, *TAPERED]))
IN_EVERY_MODE = {
    *SMALL,
    *MIDDLE,
    *(s for s in TABLED if s.bits <= 8),
    *(s for s in WIDE if s not in NEAREST_WIDE),
    posit(32, 2),
    binary(8, 23),
    *SHORT[:2],
}


def modes_of(spec):
    return MODES if spec in IN_EVERY_MODE else MODES[:1]


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def same_values(found, expected):
    """Equal bits of float64, all NaNs being one."""
    return np.where(
        np.isnan(expected), np.isnan(found), found.view(np.int64) == expected.view(np.int64)
    )


@cache
def all_values(spec):
    """The values of all codes as float64. Of long codes the table's, their negatives, and the
    others one by one."""
    t = oracle.table(spec)
    if spec.bits <= 12:
        return t.decode()
    out, seen = np.empty(1 << spec.bits), np.zeros(1 << spec.bits, dtype=bool)
    negatives = t.signed(t.codes, np.ones(len(t.codes), dtype=bool))
    out[negatives], out[t.codes] = -t.values, t.values
    seen[negatives] = seen[t.codes] = True
    for code in np.flatnonzero(~seen).tolist():
        out[code] = float(spec.decode(code))
    return out


@cache
def some_values(spec):
    """Codes of a wide format, and their values."""
    codes = [
        spec.signed(k, s)
        for k in wide_codes(spec, 20000 if spec.bits == 32 else 2000)
        for s in (False, True)
    ]
    return as_int64(codes), np.array([float(spec.decode(c)) for c in codes])


@cache
def vectors_of(spec, mode):
    """Float64 inputs and their codes."""
    if spec in WIDE:
        count = 10000 if spec.bits == 32 else 1000
        return wide_vectors(spec, 200 if spec in IN_EVERY_MODE else count, mode)
    t = oracle.table(spec)
    x = thinned(t.all_inputs(), 300_000 if mode == MODES[0] else 100_000)
    return x, t.encode(x, mode)


def float32_inputs(x64):
    """Those of them that float32 has, the float32 neighbours of all, and float32's own subnormal
    numbers."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = x64.astype(np.float32)
        near = [x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))]
    own = np.random.default_rng(1).integers(0, 2**24, 2000).astype(np.uint32).view(np.float32)
    return np.unique(np.concatenate([*near, own, -own]).view(np.uint32)).view(np.float32)


# ---- the generic codec ----


class Package:
    encode = staticmethod(_C.encode_exact)
    decode = staticmethod(_C.decode_exact)


class Headers:
    """The codecs compiled from the headers alone; the fast ones among them must agree with the
    generic one."""

    def __init__(self):
        options = [
            "-std=c++20",
            "-O1",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-shared",
            *INCLUDES,
        ]
        with tempfile.TemporaryDirectory() as folder:
            command = [
                "g++",
                *options,
                Path(__file__).parent / "cpp/codec/codec.cpp",
                "-o",
                f"{folder}/codec.so",
            ]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stderr
            self.library = ctypes.CDLL(f"{folder}/codec.so")

    def call(self, name, fmt, *tensors):
        assert (
            getattr(self.library, name)(
                fields(fmt), *map(argument, tensors), argument(len(tensors[0]))
            )
            == 0
        ), "a fast path differs"
        return tensors[-1]

    def encode(self, fmt, x, words=None):
        return self.call("encode_all", fmt, x, words, torch.empty(len(x), dtype=torch.int64))

    def decode(self, fmt, codes):
        return self.call("decode_all", fmt, codes, torch.empty(len(codes), dtype=torch.float64))


@cache
def compile_headers():
    return Headers()


@pytest.fixture(params=["package", "headers"])
def codec(request):
    if request.param == "package":
        return Package
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    return compile_headers()


@by_name([*TABLED, *WIDE])
def test_decode(codec, spec):
    codes, expected = (
        some_values(spec) if spec in WIDE else (np.arange(1 << spec.bits), all_values(spec))
    )
    found = codec.decode(format_of(spec), tensor(codes)).numpy()
    wrong = ~same_values(found, expected)
    assert not wrong.any(), [
        (hex(codes[i]), found[i], expected[i]) for i in np.flatnonzero(wrong)[:5]
    ]


@by_name([*TABLED, *WIDE])
def test_encode(codec, spec):
    for mode in modes_of(spec):
        x, codes = vectors_of(spec, mode)
        assert_codes(codec.encode(format_of(spec, mode), tensor(x)), codes, spec, x, mode)


# ---- the fast casts ----

PARTS = {
    "representatives": [s for s in (*TABLED, *WIDE) if name_of(s) in FORMATS],
    "others": [s for s in (*TABLED, *WIDE) if name_of(s) not in FORMATS],
}
# These formats have each mode as their own, too; all else is rounded in a block that overrides it.
OWN_MODES = (posit(8, 2), binary(4, 3, specials="fnuz"), posit(16, 2), binary(5, 10))


@pytest.fixture(scope="module", params=thin_out(PARTS))
def vectors(request, tmp_path_factory):
    """A folder of pickled (spec, mode, float64 inputs, codes, float32 inputs, codes, some codes or
    all, their values)."""
    folder = tmp_path_factory.mktemp("vectors")
    for i, spec in enumerate(PARTS[request.param]):
        for mode in modes_of(spec):
            x64, codes64 = vectors_of(spec, mode)
            if mode != MODES[0]:
                some = thinned(np.arange(len(x64)), 30_000)
                x64, codes64 = x64[some], codes64[some]
            if spec in TABLED:
                x32 = float32_inputs(x64)
                codes32 = oracle.table(spec).encode(x32.astype(np.float64), mode)
                decoded = np.arange(1 << spec.bits), all_values(spec)
            else:
                x32 = float32_inputs(np.random.default_rng(2).choice(x64, 60))[::16]
                codes32 = as_int64([spec.encode(float(v), mode) for v in x32])
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    held = x64.astype(np.float32).astype(np.float64) == x64  # float32 has them
                x32, codes32 = (
                    np.append(x32, x64[held].astype(np.float32)),
                    np.append(codes32, codes64[held]),
                )
                decoded = some_values(spec)
            (folder / f"{i:03d} {mode}.pickle").write_bytes(
                pickle.dumps((spec, mode, x64, codes64, x32, codes32, *decoded))
            )
    return sorted(folder.iterdir())


def same_bits(a, b):
    return (
        torch.equal(a.nan_to_num(), b.nan_to_num())
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a.signbit(), b.signbit())
    )


def wrong_casts(path):
    """The answers of tensors' casts that differ from one file of vectors; to nearest even in pieces
    of every length that a loop may leave."""
    with open(path, "rb") as file:
        spec, mode, x64, codes64, x32, codes32, codes, values = pickle.load(file)
    for own in (False, True) if spec in OWN_MODES else (False,):
        dtype = dtype_of(spec, mode) if own else dtype_of(spec)
        for x, expected in ((x64, codes64), (x32, codes32)):
            with contextlib.nullcontext() if own else torch_dtypes.rounding(mode):
                found = to_codes(tensor(x), dtype).numpy()
                chopped = torch_dtypes.chop(tensor(x), dtype)
                pieces = [
                    n
                    for n in range(1, 40)
                    if (to_codes(tensor(x[n : 2 * n]), dtype).numpy() != expected[n : 2 * n]).any()
                ]
            if wrong := differences(found, expected, spec, x):
                yield f"{x.dtype} {mode}{' of its own' if own else ''} {wrong}"
            if pieces:
                yield f"{x.dtype} {mode} {name_of(spec)}: wrong in pieces of {pieces} elements"
            if not same_bits(
                chopped, from_codes(torch.from_numpy(as_int64(expected)), dtype).to(chopped.dtype)
            ):
                yield f"{x.dtype} {mode}: chop of {name_of(spec)} gives other values than the codes"
    if not same_values(from_codes(tensor(codes), dtype).double().numpy(), values).all():
        yield f"{name_of(spec)}: wrong values"


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_fast_casts(vectors, capability):
    run_for_capability(
        __file__, capability, [vectors if capability == capabilities()[-1] else vectors[::4]]
    )


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
    """Its posit_2 has es = 2 and any number of bits, at the top of 32."""
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
    x = x[~np.isnan(x)]  # the sign and the bits of a NaN are its own affair
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
    # Beyond: conventions differ.
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
    """From float32, which stock rounds once; within float8_e4m3fn's range, whose overflow depends
    on the PyTorch release."""
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
    """Stock PyTorch 2.13 gives 1.0."""
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
    """A float64 format's values may lie beside a bfloat16 boundary by less than float32 can
    tell."""
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


if __name__ == "__main__":
    if _C.cpu_capability() != sys.argv[1]:
        sys.exit(f"expected the kernels of {sys.argv[1]}, but got those of {_C.cpu_capability()}")
    found = [line for path in sys.argv[2:] for line in wrong_casts(path)]
    sys.exit("\n".join(found) or None)
