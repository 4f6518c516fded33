"""Codes to values and values to codes, bit for bit, against exact rationals (oracle.py): the generic codec and the fast ones.

The fast codecs run in processes of their own, one for each vector unit and each 48 formats; this file is also their script.
"""

import math
import pickle
import sys

import numpy as np
import oracle
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes, to_codes
from oracle import as_int64, binary, posit, wide_codes, wide_vectors
from rationals import Fraction
from spec_formats import dtype_of, format_of
from vector_units import capabilities, run_for_capability

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.own_process

POSITS = [*(posit(n, es) for es in range(5) for n in range(2, 17)), posit(8, 5), posit(13, 5), posit(16, 5)]
FLOATS = [
    binary(2, 1, specials="none"), binary(2, 3, specials="none"), binary(3, 2, specials="none"), binary(2, 0, specials="none"),
    binary(4, 0, specials="none", subnormals=False), binary(3, 0, specials="fn"), binary(8, 0, specials="fn"), binary(5, 0, specials="none"),
    binary(2, 1), binary(2, 2), binary(3, 1), binary(3, 2), binary(3, 4), binary(2, 5, specials="fn"), binary(8, 1), binary(6, 1),
    binary(4, 3), binary(4, 3, specials="fn"), binary(4, 3, specials="fn", bias=8, overflow="saturate"), binary(4, 3, subnormals=False),
    binary(4, 3, bias=20), binary(5, 2), binary(5, 2, subnormals=False, overflow="saturate"), binary(5, 2, bias=-3), binary(5, 2, bias=100),
    binary(4, 3, overflow="saturate"), binary(2, 10), binary(3, 10), binary(6, 4, specials="fn"), binary(7, 3, specials="none", subnormals=False),
    binary(5, 10), binary(8, 7), binary(6, 9), binary(7, 8, overflow="saturate"), binary(8, 5, specials="fn", subnormals=False),
    binary(8, 3, bias=130), binary(8, 4, bias=126), binary(9, 4), binary(11, 4), binary(11, 4, subnormals=False), binary(10, 2, bias=100),
    binary(5, 13), binary(5, 5), binary(5, 7), binary(8, 4),
]  # fmt: skip
TABLED = list(dict.fromkeys([*POSITS, *FLOATS, binary(8, 10)]))
WIDE = [
    posit(32, 2), *(posit(32, es) for es in (0, 1, 3, 4)), posit(20, 1), posit(24, 2), posit(25, 0), posit(26, 0), posit(27, 1),
    posit(28, 2), posit(29, 2), posit(32, 5), posit(33, 0), posit(40, 2), posit(53, 0), posit(55, 2), posit(57, 3),
    binary(8, 23), binary(8, 15), binary(5, 20), binary(8, 22, specials="fn"), binary(11, 20),
    binary(11, 20, subnormals=False), binary(6, 30), binary(10, 40, specials="fn"), binary(11, 51), binary(9, 50, overflow="saturate"),
]  # fmt: skip
SMALL = [s for s in TABLED if s.bits <= 8]


def name(spec):
    if spec.posit:
        return f"posit{spec.bits}es{spec.exp_bits}"
    flush = "" if spec.subnormals else "-flush"
    return f"e{spec.exp_bits}m{spec.man_bits}-{spec.specials}-{spec.overflow}-bias{spec.bias}{flush}"


def by_name(specs):
    return pytest.mark.parametrize("spec", specs, ids=name)


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def same_values(found, expected):
    """Equal bits of float64, all NaNs being one."""
    return np.where(np.isnan(expected), np.isnan(found), found.view(np.int64) == expected.view(np.int64))


def report(wrong, spec, x, found, expected):
    rows = [f"{float(x[i])!r} ({float(x[i]).hex()}): {found[i]:#x}, expected {expected[i]:#x}" for i in np.flatnonzero(wrong)[:5]]
    return f"{name(spec)}: {np.count_nonzero(wrong)} of {len(x)} wrong: " + "; ".join(rows)


def assert_codes(found, expected, spec, x):
    wrong = np.asarray(found) != np.asarray(expected)
    assert not wrong.any(), report(wrong, spec, x, np.asarray(found), np.asarray(expected))


def all_values(spec):
    """The values of all codes as float64: tabled ones for the nonnegative, their negatives, specials; a sample one by one."""
    t = oracle.table(spec)
    out = np.full(1 << spec.bits, np.nan)
    out[t.codes] = t.values
    out[[spec.signed(int(k), True) for k in t.codes]] = -t.values
    for k in range(t.codes[-1] + 1, spec.sign_code):
        out[k], out[k + spec.sign_code] = spec.decode(k), spec.decode(k + spec.sign_code)
    if not spec.subnormals:
        out[1 : 1 << spec.man_bits], out[spec.sign_code : spec.sign_code + (1 << spec.man_bits)] = 0.0, -0.0
    if spec.posit:
        out[0], out[spec.sign_code] = 0.0, np.nan
    for code in {*range(min(64, 1 << spec.bits)), *np.random.default_rng(spec.bits).integers(0, 1 << spec.bits, 64).tolist()}:
        assert same_values(out[code : code + 1], np.array([float(spec.decode(code))])).all()
    return out


def float32_inputs(x64):
    """Those of them that float32 has, the float32 neighbours of all, and float32's own subnormal numbers."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = x64.astype(np.float32)
        near = [x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))]
    own = np.random.default_rng(1).integers(0, 2**24, 2000).astype(np.uint32).view(np.float32)
    return np.unique(np.concatenate([*near, own, -own]).view(np.uint32)).view(np.float32)


# ---- the generic codec ----


@by_name(TABLED)
def test_decode_every_code(spec):
    expected = all_values(spec)
    found = _C.decode_exact(format_of(spec), torch.arange(1 << spec.bits)).numpy()
    wrong = ~same_values(found, expected)
    assert not wrong.any(), [(hex(i), found[i], expected[i]) for i in np.flatnonzero(wrong)[:5]]


@by_name(WIDE)
def test_decode_wide(spec):
    codes = [spec.signed(k, s) for k in wide_codes(spec, 20000 if spec.bits == 32 else 2000) for s in (False, True)]
    expected = np.array([float(spec.decode(c)) for c in codes])
    found = _C.decode_exact(format_of(spec), tensor(as_int64(codes))).numpy()
    assert same_values(found, expected).all()


@by_name(TABLED)
def test_encode_nearest_even(spec):
    t = oracle.table(spec)
    x = t.inputs()
    assert_codes(_C.encode_exact(format_of(spec), tensor(x)), t.encode(x), spec, x)


@by_name(WIDE)
def test_encode_nearest_even_wide(spec):
    x, codes = wide_vectors(spec, 10000 if spec.bits == 32 else 1000)
    assert_codes(_C.encode_exact(format_of(spec), tensor(x)), codes, spec, x)


@pytest.mark.parametrize("mode", oracle.MODES)
@by_name(SMALL)
def test_encode_in_every_mode(spec, mode):
    t = oracle.table(spec)
    x = t.inputs()
    assert_codes(_C.encode_exact(format_of(spec, mode), tensor(x)), t.encode(x, mode), spec, x)


# ---- the fast codecs ----


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A folder of pickled (spec, float64 inputs, codes, float32 inputs, codes, all codes or some, their values)."""
    folder = tmp_path_factory.mktemp("vectors")
    for i, spec in enumerate([*TABLED, *WIDE]):
        if spec in TABLED:
            t = oracle.table(spec)
            x64 = t.inputs()
            x32 = float32_inputs(x64)
            rows = [x64, t.encode(x64), x32, t.encode(x32.astype(np.float64)), np.arange(1 << spec.bits), all_values(spec)]
        else:
            codes = [spec.signed(k, s) for k in wide_codes(spec, 2000) for s in (False, True)]
            values = np.array([float(spec.decode(c)) for c in codes])
            x64, codes64 = wide_vectors(spec, 2000)
            x32 = float32_inputs(np.random.default_rng(2).choice(x64, 60))[::16]
            codes32 = as_int64([spec.encode(float(v)) for v in x32])
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                held = x64.astype(np.float32).astype(np.float64) == x64  # float32 has them
            x32, codes32 = np.append(x32, x64[held].astype(np.float32)), np.append(codes32, codes64[held])
            rows = [x64, codes64, x32, codes32, as_int64(codes), values]
        (folder / f"{i:03d}.pickle").write_bytes(pickle.dumps((spec, *rows)))
    return sorted(folder.iterdir())


def differences(path):
    """The fast codecs' answers to one file of vectors, also for every length of a vector loop's rest."""
    with open(path, "rb") as file:
        spec, x64, codes64, x32, codes32, codes, values = pickle.load(file)
    dtype = dtype_of(spec)
    for kind, x, expected in (("float64", x64, codes64), ("float32", x32, codes32)):
        found = to_codes(tensor(x), dtype).numpy()
        if (found != expected).any():
            yield f"encode {kind} " + report(found != expected, spec, x, found, expected)
        for n in range(1, 40):
            found = to_codes(tensor(x[n : 2 * n]), dtype).numpy()
            if (found != expected[n : 2 * n]).any():
                yield f"encode {kind} {name(spec)}: wrong in a piece of {n} elements"
    found = from_codes(tensor(codes), dtype).double().numpy()
    wrong = ~same_values(found, values)
    if wrong.any():
        rows = [(hex(codes[i]), found[i], values[i]) for i in np.flatnonzero(wrong)[:5]]
        yield f"decode {name(spec)}: {np.count_nonzero(wrong)} wrong: {rows}"


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_fast_codecs_agree(vectors, capability):
    groups = [vectors[i::3] for i in range(3)] if capability == capabilities()[-1] else [vectors[::4]]
    run_for_capability(__file__, capability, groups)


# ---- integers ----

INTEGERS = [
    0, 1, 2, 3, 5, 127, 128, 255, 257, 2**24 - 1, 2**24 + 1, 2**25 + 3, 2**31 - 1, 2**53 - 1, 2**53 + 1, 2**54 + 2, 2**54 + 6, 2**62 + 1,
    2**63 - 1, 2**63 - 2**9, 3 * 2**40 + 1, 31 * 2**58, 2**62 + 2**57 + 1, 2**62 + 2**57 - 1, 65519, 65520, 65521,
]  # fmt: skip
INTEGER_FORMATS = [*BUILTIN.values(), posit(32, 0), posit(12, 1), binary(8, 23), binary(11, 51), binary(4, 3, specials="fn"), binary(6, 2)]


@by_name(INTEGER_FORMATS)
def test_encode_integers_exactly(spec):
    dtype = dtype_of(spec)
    rng = np.random.default_rng(5)
    random = (rng.integers(0, 2**63 - 1, 400) >> rng.integers(0, 62, 400)).tolist()
    near = []
    for k in rng.integers(0, spec.largest, 100).tolist():  # ties among the integers, and next to them
        boundary = spec.boundary(k)
        if boundary.denominator == 1 and boundary < 2**62:
            near += [int(boundary) - 1, int(boundary), int(boundary) + 1]
    signed = [s * i for i in [*INTEGERS, *random, *near] for s in (1, -1)] + [-(2**63)]
    expected = as_int64([spec.encode(Fraction(i)) for i in signed])
    x = torch.tensor(signed)
    assert_codes(_C.encode_exact(format_of(spec), x), expected, spec, x)
    assert_codes(to_codes(x, dtype), expected, spec, x)
    unsigned = [*INTEGERS, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2**10, *random]
    expected = as_int64([spec.encode(Fraction(i)) for i in unsigned])
    assert_codes(to_codes(torch.tensor(unsigned, dtype=torch.uint64), dtype), expected, spec, unsigned)
    for kind in (torch.int32, torch.uint32, torch.int16, torch.uint16, torch.int8, torch.uint8, torch.bool):
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
    softposit = pytest.importorskip("softposit", reason="softposit is the independent implementation")
    spec = posit(bits, 2)
    x = np.random.default_rng(6).choice(oracle.table(spec).inputs(), 20000) if bits <= 16 else wide_vectors(spec, 1000)[0]
    expected = np.array([softposit.convertDoubleToPX2(float(v), bits).v >> (32 - bits) for v in x])
    assert_codes(to_codes(tensor(x), dtype_of(spec)), expected, spec, x)


ML_DTYPES = {
    "float8_e4m3": binary(4, 3), "float8_e5m2": binary(5, 2), "float8_e4m3fn": binary(4, 3, specials="fn"), "float8_e3m4": binary(3, 4),
    "bfloat16": binary(8, 7), "float4_e2m1fn": binary(2, 1, specials="none"), "float6_e2m3fn": binary(2, 3, specials="none"),
    "float6_e3m2fn": binary(3, 2, specials="none"),
}  # fmt: skip


@pytest.mark.parametrize("other", ML_DTYPES)
def test_casts_as_ml_dtypes(other):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is the independent implementation")
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


@by_name([binary(5, 5), binary(3, 4), binary(4, 6, specials="fn"), binary(6, 4, bias=20), binary(2, 5, specials="none"), binary(5, 10), binary(5, 7)])
@pytest.mark.parametrize("mode", ["nearest_even", "nearest_away", "up", "down", "toward_zero"])
def test_encode_as_gfloat(spec, mode):
    gfloat = pytest.importorskip("gfloat", reason="gfloat is the independent implementation")
    nans = {"ieee": 2**spec.man_bits - 1, "fn": 1, "none": 0}[spec.specials]
    domain = gfloat.Domain.Extended if spec.specials == "ieee" else gfloat.Domain.Finite
    info = gfloat.FormatInfo(name(spec), spec.bits, spec.man_bits + 1, bias=spec.bias, is_signed=True, domain=domain, has_nz=True,
                             num_high_nans=nans, has_subnormals=True, is_twos_complement=False)  # fmt: skip
    modes = {"nearest_even": "TiesToEven", "nearest_away": "TiesToAway", "up": "TowardPositive", "down": "TowardNegative",
             "toward_zero": "TowardZero"}  # fmt: skip
    x = oracle.table(spec).inputs()
    x = np.unique(x[np.isfinite(x) & (np.abs(x) < float(spec.boundary(spec.largest)))])  # beyond: conventions differ
    if mode != "nearest_even":
        x = x[np.abs(x) <= float(spec.magnitude(spec.largest))]
    rounded = gfloat.round_ndarray(info, x, getattr(gfloat.RoundMode, modes[mode]), sat=spec.specials == "none")
    expected = gfloat.encode_ndarray(info, rounded)
    assert_codes(_C.encode_exact(format_of(spec, mode), tensor(x)), expected.astype(np.int64), spec, x)


STOCK = {torch.float16: (5, 10), torch.bfloat16: (8, 7), torch.float8_e5m2: (5, 2), torch.float8_e4m3fn: (4, 3)}
STOCK = {stock: binary(*fields, specials="fn" if stock == torch.float8_e4m3fn else "ieee") for stock, fields in STOCK.items()}


@pytest.mark.parametrize("stock", STOCK, ids=str)
def test_casts_as_stock_dtypes(stock):
    """From float32, which stock rounds once; within float8_e4m3fn's range, whose overflow depends on the PyTorch release."""
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
    assert same_values(from_codes(codes, dtype).double().numpy(), codes.to(bits).view(stock).double().numpy()).all()


# ---- to stock dtypes ----


@pytest.mark.parametrize("name", ["e2m1fnuz", "e4m3p3109", "e5m10fnuz", "e4m3p3109_propagate", "posit8es1", "takum12_linear"])
def test_a_nan_without_a_sign_is_positive(name):
    x = torch.tensor([math.nan, -math.nan]).to(torch_dtypes.dtype(name))
    for stock in (torch.float32, torch.float64):
        assert not x.to(stock).signbit().any()
    assert x.to(torch_dtypes.dtype("e2m20finite")).tolist() == [torch.finfo(torch_dtypes.dtype("e2m20finite")).max] * 2


def test_float64_is_not_rounded_to_float32_first():
    """Stock PyTorch 2.13 gives 1.0."""
    x = torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64)
    assert x.to(dtype_of(binary(5, 10))).double().tolist() == [1 + 2.0**-10]


def test_to_stock_dtypes(builtin):
    dtype, spec = builtin
    codes = torch.arange(1 << spec.bits) if spec.bits <= 20 else tensor(np.random.default_rng(7).integers(0, 2**32, 50000))
    x = from_codes(codes, dtype)
    exact = x.double()
    with np.errstate(over="ignore", under="ignore"):
        assert same_values(x.float().double().numpy(), exact.numpy().astype(np.float32).astype(np.float64)).all()
    for stock in (torch.float16, torch.bfloat16, torch.float8_e5m2):
        target = oracle.table(STOCK[stock])
        finite = exact.isfinite()
        found = x.to(stock).view(torch.uint8 if stock.itemsize == 1 else torch.int16)[finite].long() & (2**target.spec.bits - 1)
        assert_codes(found, target.encode(exact[finite].numpy()), target.spec, exact[finite])
        assert x.to(stock)[exact.isnan()].isnan().all()
    for stock in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        held = exact.isfinite() & (exact > torch.iinfo(stock).min - 1.0) & (exact < torch.iinfo(stock).max)
        assert x.to(stock)[held].tolist() == [int(v) for v in exact[held].tolist()]
    assert torch.equal(x.bool(), exact != 0)
    assert torch.equal(torch.view_as_real(x.to(torch.complex128))[:, 0].nan_to_num(), exact.nan_to_num())


def test_tie_survives_below_float32():
    """A float64 format's values may lie beside a bfloat16 boundary by less than float32 can tell."""
    wide = dtype_of(binary(11, 40))
    tie = torch.tensor([5 * 2.0**-134, 5 * 2.0**-134 + 2.0**-170, 5 * 2.0**-134 - 2.0**-170], dtype=torch.float64)
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
    found = [line for path in sys.argv[2:] for line in differences(path)]
    sys.exit("\n".join(found) or None)
