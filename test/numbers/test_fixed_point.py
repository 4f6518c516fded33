"""Fixed-point formats: codes, saturation and wrapping, arithmetic against exact integers
(oracle_fixed.py), and as dtypes.

Tests with dtypes of many formats run in a separate process for each vector unit; this file is also
their script."""

import io
import pickle
import sys

import numpy as np
import oracle_fixed
import pytest
import torch
from conftest import codes_of, from_codes, to_codes
from exact_codecs import codec, tensor  # noqa: F401 (a fixture)
from oracle import MODES, as_int64
from oracle_fixed import Fixed, round_quotients
from rationals import Fraction
from representatives import thin_out
from spec_formats import (
    FIXED_8,
    FIXED_WIDE,
    assert_codes,
    by_name,
    differences,
    dtype_of,
    format_of,
    name_of,
    take_few,
)
from vector_units import run_for_capability

import torch_dtypes
from torch_dtypes import _C

pytestmark = [pytest.mark.one_worker, pytest.mark.usefixtures("one_thread")]
ALL = [*FIXED_8, *FIXED_WIDE]
every_mode = pytest.mark.parametrize("mode", MODES)
INF, NAN = float("inf"), float("nan")


def in_mode(mode, call):
    with torch_dtypes.rounding(mode):
        return call()


# ---- codes ----


@by_name(ALL)
def test_decode(spec):
    size = 1 << spec.bits
    codes = (
        range(size)
        if spec.bits <= 16
        else [*range(50), *range(size // 2 - 50, size // 2 + 50), *range(size - 50, size)]
    )
    found = _C.decode_exact(format_of(spec), torch.tensor(list(codes)))
    # There is no minus zero.
    assert [str(v) for v in found.tolist()] == [str(float(spec.decode(c))) for c in codes]


@by_name(ALL)
def test_encode_in_every_mode(spec):
    x = take_few(oracle_fixed.inputs(spec, 200), 1200)
    for mode in MODES:
        expected = [spec.encode(float(v), mode) for v in x]
        assert_codes(_C.encode_exact(format_of(spec, mode), tensor(x)), expected, spec, x, mode)


@by_name(ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chop_in_every_mode(spec, dtype):
    """chop rounds without codes."""
    x = tensor(take_few(oracle_fixed.inputs(spec, 200), 1200)).to(dtype)
    for mode in MODES:
        values = [spec.decode(spec.encode(v, mode)) for v in x.tolist()]
        expected = torch.tensor([float(v) for v in values], dtype=torch.float64).to(dtype)
        found = torch_dtypes.chop(x, name_of(spec), mode)
        bits = torch.int32 if dtype == torch.float32 else torch.int64
        wrong = found.view(bits) != expected.view(bits)
        assert not wrong.any(), (mode, x[wrong][:4], found[wrong][:4], expected[wrong][:4])


@pytest.mark.whole
@pytest.mark.parametrize("codec", ["headers"], indirect=True)
def test_fast_paths_agree_with_the_generic_codec(codec):  # noqa: F811
    for spec in ALL:
        x = oracle_fixed.inputs(spec, 100)
        x = tensor(np.concatenate([x, tensor(x).float().double()]))
        for mode in MODES:
            codec.encode(format_of(spec, mode), x)  # raises where they differ


@by_name(ALL)
def test_encode_integers_in_every_mode(spec):
    """All 64 bits count, also for numbers that wrap."""
    random = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 200) >> np.random.default_rng(
        3
    ).integers(0, 62, 200)
    x = [
        *random.tolist(),
        *range(-10, 11),
        2**63 - 1,
        -(2**63),
        2**62 + 1,
        -(2**62) - 1,
        2**53 + 1,
        spec.highest,
        spec.highest + 1,
    ]
    for mode in MODES:
        expected = as_int64([spec.encode(Fraction(i), mode) for i in x])
        assert_codes(
            _C.encode_exact(format_of(spec, mode), torch.tensor(x)), expected, spec, x, mode
        )


# Columns: nearest_even nearest_zero nearest_away up down toward_zero to_odd nearest_up
LITERAL = {
    "fixed1_2": [
        (0.125, "0 0 1 1 0 0 1 1"),
        (-0.125, "0 0 f 0 f 0 f 0"),
        (0.375, "2 1 2 2 1 1 1 2"),
        (-0.375, "e f e f e f f f"),
        (1.75, "7 7 7 7 7 7 7 7"),
        (1.8, "7 7 7 7 7 7 7 7"),
        (-2.0, "8 8 8 8 8 8 8 8"),
        (-2.1, "8 8 8 8 8 8 8 8"),
        (9e9, "7 7 7 7 7 7 7 7"),
        (NAN, "0 0 0 0 0 0 0 0"),
        (INF, "7 7 7 7 7 7 7 7"),
        (-INF, "8 8 8 8 8 8 8 8"),
        (-0.0, "0 0 0 0 0 0 0 0"),
        (-1e-300, "0 0 0 0 f 0 f 0"),
    ],
    "fixed1_2_symmetric": [
        (-2.0, "9 9 9 9 9 9 9 9"),
        (-1.8, "9 9 9 9 9 9 9 9"),
        (-INF, "9 9 9 9 9 9 9 9"),
        (1.9, "7 7 7 7 7 7 7 7"),
    ],
    "fixed1_2_wrap": [
        (1.875, "8 7 8 8 7 7 7 8"),
        (2.0, "8 8 8 8 8 8 8 8"),
        (-2.125, "8 8 7 8 7 8 7 8"),
        (4.25, "1 1 1 1 1 1 1 1"),
        (1e300, "0 0 0 0 0 0 0 0"),
        (INF, "7 7 7 7 7 7 7 7"),
        (-INF, "8 8 8 8 8 8 8 8"),
        (NAN, "0 0 0 0 0 0 0 0"),
    ],
    "ufixed2_2": [
        (3.75, "f f f f f f f f"),
        (3.9, "f f f f f f f f"),
        (-0.1, "0 0 0 0 0 0 0 0"),
        (-7.0, "0 0 0 0 0 0 0 0"),
        (INF, "f f f f f f f f"),
        (-INF, "0 0 0 0 0 0 0 0"),
        (0.125, "0 0 1 1 0 0 1 1"),
    ],
    "ufixed2_2_wrap": [
        (4.0, "0 0 0 0 0 0 0 0"),
        (-0.25, "f f f f f f f f"),
        (-0.1, "0 0 0 0 f 0 f 0"),
        (-INF, "0 0 0 0 0 0 0 0"),
        (3.875, "0 f 0 0 f f f 0"),
    ],
    "fixed5_minus2": [
        (2.0, "0 0 1 1 0 0 1 1"),
        (-6.0, "e f e f e f f f"),
        (99.0, "7 7 7 7 7 7 7 7"),
        (-33.0, "8 8 8 8 8 8 8 8"),
    ],
    "fixedminus2_5": [
        (2.0**-6, "0 0 1 1 0 0 1 1"),
        (-3 * 2.0**-6, "e f e f e f f f"),
        (0.25, "7 7 7 7 7 7 7 7"),
        (-1.0, "8 8 8 8 8 8 8 8"),
    ],
}
LITERAL_SPECS = [
    Fixed(1, 2),
    Fixed(1, 2, symmetric=True),
    Fixed(1, 2, overflow="wrap"),
    Fixed(2, 2, False),
    Fixed(2, 2, False, "wrap"),
]
LITERAL_SPECS += [Fixed(5, -2), Fixed(-2, 5)]


@every_mode
@by_name(LITERAL_SPECS)
def test_edges_are_as_written(spec, mode):
    rows = LITERAL[name_of(spec)]
    x = torch.tensor([v for v, _ in rows], dtype=torch.float64)
    expected = [text.split()[MODES.index(mode)] for _, text in rows]
    assert [f"{spec.encode(v, mode):x}" for v in x.tolist()] == expected  # the oracle agrees
    assert [f"{c:x}" for c in _C.encode_exact(format_of(spec, mode), x).tolist()] == expected


# ---- casts of tensors ----


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Pickled (spec, float64 inputs, float32 inputs, int64 inputs, {mode: codes of each})."""
    folder = tmp_path_factory.mktemp("vectors")
    for i, spec in enumerate(ALL):
        x64 = take_few(oracle_fixed.inputs(spec, 100), 800)
        with np.errstate(all="ignore"):
            x32 = np.unique(x64.astype(np.float32).view(np.int32)).view(np.float32)
        integers = np.append(
            np.random.default_rng(i).integers(-(2**63), 2**63 - 1, 200) >> np.arange(200) % 60,
            [0, 1, -1],
        )
        codes = {
            mode: [
                np.array([spec.encode(float(v), mode) for v in x64]),
                np.array([spec.encode(float(v), mode) for v in x32]),
                np.array([spec.encode(Fraction(v), mode) for v in integers.tolist()]),
            ]
            for mode in MODES
        }
        (folder / f"{i:03d}.pickle").write_bytes(pickle.dumps((spec, x64, x32, integers, codes)))
    return sorted(folder.iterdir())


def wrong_casts(path):
    """List the casts that differ from one file of vectors."""
    with open(path, "rb") as file:
        spec, *inputs, codes = pickle.load(file)
    dtype = dtype_of(spec)
    for mode in MODES:
        for x, expected in zip(inputs, codes[mode], strict=True):
            if wrong := differences(
                in_mode(mode, lambda x=x: to_codes(tensor(x), dtype)), expected, spec, x
            ):
                yield f"{x.dtype} {mode} {wrong}"
    sample = np.unique(codes["nearest_even"][0])
    if from_codes(tensor(sample), dtype).double().tolist() != [
        float(spec.decode(int(c))) for c in sample
    ]:
        yield f"decode {name_of(spec)}"
    for mode in ("stochastic", "stochastic_equal", "up_down"):
        x = inputs[0]
        torch.manual_seed(1)
        words = _C.random_words(_C.next_seed(), 0, len(x))
        torch.manual_seed(1)
        found = in_mode(mode, lambda x=x: to_codes(tensor(x), dtype))
        if wrong := differences(
            found, _C.encode_exact(format_of(spec, mode), tensor(x), random=words), spec, x
        ):
            yield f"{mode}, against the generic codec: {wrong}"
    for check in (
        check_properties,
        check_signs_and_order,
        check_arithmetic,
        check_roots_and_numbers,
    ):
        try:
            check(spec, dtype)
        except AssertionError as error:
            yield f"{check.__name__} {error}"


@pytest.mark.whole
@pytest.mark.parametrize("capability", thin_out(["default", "avx2", "avx512"]))
def test_tensors_in_every_mode(vectors, capability):
    run_for_capability(__file__, capability, [vectors])


# ---- arithmetic ----

OPERATORS = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}


def exact_result(operator, a, b, spec):
    """Return numerator and positive denominator in units of 2^-frac_bits. A division by zero is by
    one here, and replaced later."""
    up, down = 1 << max(spec.frac_bits, 0), 1 << max(-spec.frac_bits, 0)
    if operator == "div":
        d = np.where(b == 0, 1, b)
        return np.where(d < 0, -a, a) * up, abs(d) * down
    return {"add": (a + b, 1), "sub": (a - b, 1), "mul": (a * b * down, up)}[operator]


def pairs(spec):
    """Return pairs of codes: all pairs up to 8 bits, seeded and extreme ones beyond."""
    codes = np.arange(1 << spec.bits if spec.bits <= 8 else 0)
    a, b = (m.ravel() for m in np.meshgrid(codes, codes))
    if spec.bits <= 8:
        return a, b
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 1 << spec.bits, (2, 2000))
    b[:500] >>= rng.integers(0, spec.bits, 500)
    a[250:750] >>= rng.integers(0, spec.bits, 500)
    ends = np.array([0, 1, 2, spec.highest, spec.highest + 1, (1 << spec.bits) - 1]) % (
        1 << spec.bits
    )
    a[-72:], b[-72:] = np.tile(np.repeat(ends, 6), 2), np.tile(ends, 12)
    return a, b


def check_arithmetic(spec, dtype):
    a, b = pairs(spec)
    x, y = from_codes(tensor(a), dtype), from_codes(tensor(b), dtype)
    wide = object if 2 * spec.bits + abs(spec.frac_bits) > 60 else np.int64
    m, n = (
        np.where(c > spec.highest, c - (1 << spec.bits), c).astype(wide)
        if spec.signed_codes
        else c.astype(wide)
        for c in (a, b)
    )
    for operator, operate in OPERATORS.items():
        numerator, denominator = exact_result(operator, m, n, spec)
        for mode in MODES:
            found = codes_of(in_mode(mode, lambda operate=operate: operate(x, y))).numpy()
            expected = spec.fitted_array(round_quotients(numerator, denominator, mode))
            if operator == "div":
                by_zero = np.array([spec.special(INF), spec.special(-INF), 0])[
                    np.where(m == 0, 2, (m < 0) * 1).astype(int)
                ]
                expected = np.where(n == 0, by_zero, expected)
            wrong = np.flatnonzero(found != expected)
            rows = [
                f"{m[i]} {operator} {n[i]}: {found[i]:#x}, expected {expected[i]:#x}"
                for i in wrong[:5]
            ]
            assert not rows, (
                f"{name_of(spec)} {mode}: {len(wrong)} of {len(a)} wrong, in units of the last "
                "place: "
            ) + "; ".join(rows)


def check_roots_and_numbers(spec, dtype):
    rng = np.random.default_rng(2)
    codes = (
        np.arange(1 << spec.bits)
        if spec.bits <= 6
        else rng.integers(0, 1 << spec.bits, 150) >> rng.integers(0, spec.bits, 150)
    )
    x = from_codes(tensor(codes), dtype)
    y, z = x.roll(3), x.roll(11)
    values = [spec.decode(int(c)) for c in codes]
    for mode in MODES:
        with torch_dtypes.rounding(mode):
            roots, fused, scaled, less = (
                codes_of(x.sqrt()),
                codes_of(torch.addcmul(z, x, y)),
                codes_of(x * 0.9),
                codes_of(0.3 - x),
            )
        assert_codes(
            roots,
            [spec.encode_sqrt(v, mode) if v >= 0 else 0 for v in values],
            spec,
            values,
            f"{mode} sqrt",
        )
        triples = zip(values, np.roll(values, 3), np.roll(values, 11), strict=True)
        assert_codes(
            fused,
            [spec.encode(u * v + w, mode) for u, v, w in triples],
            spec,
            values,
            f"{mode} addcmul",
        )
        assert_codes(
            scaled,
            [spec.encode(v * Fraction(0.9), mode) for v in values],
            spec,
            values,
            f"{mode} * 0.9",
        )
        assert_codes(
            less,
            [spec.encode(Fraction(0.3) - v, mode) for v in values],
            spec,
            values,
            f"{mode} 0.3 -",
        )


def check_signs_and_order(spec, dtype):
    codes = np.array([c for c in range(1 << min(spec.bits, 10)) if spec.integer(c) >= spec.lowest])
    x = from_codes(tensor(codes), dtype)
    values = [spec.decode(c) for c in codes.tolist()]
    assert_codes(codes_of(x.neg()), [spec.encode(-v) for v in values], spec, values, "neg")
    assert_codes(codes_of(x.abs()), [spec.encode(abs(v)) for v in values], spec, values, "abs")
    assert_codes(
        codes_of(x.relu()), [spec.encode(max(v, Fraction(0))) for v in values], spec, values, "relu"
    )
    assert x.sort().values.tolist() == sorted(map(float, values)), f"{name_of(spec)} sort"
    assert (x.max().item(), x.min().item()) == (float(max(values)), float(min(values))), (
        f"{name_of(spec)} max, min"
    )
    assert ((x < x.roll(1)) == (x.double() < x.roll(1).double())).all(), f"{name_of(spec)} <"
    assert not x.isnan().any() and x.isfinite().all(), f"{name_of(spec)} isnan"


def check_properties(spec, dtype):
    info, fmt, unit = torch.finfo(dtype), torch_dtypes.format_of(dtype), 2.0**-spec.frac_bits
    limits = [8 * dtype.itemsize, unit, spec.highest * unit, spec.lowest * unit]
    # There is no minus zero.
    assert str([info.bits, info.eps, info.max, info.min]) == str(limits), (
        f"{info}, expected {limits}"
    )
    assert (dtype.is_signed, fmt.is_signed, dtype.is_floating_point, dtype.is_complex) == (
        spec.signed_codes,
        spec.signed_codes,
        True,
        False,
    )
    assert (fmt.kind, fmt.int_bits, fmt.frac_bits, fmt.bits) == (
        _C.Kind.fixed,
        spec.int_bits,
        spec.frac_bits,
        spec.bits,
    )
    assert (fmt.symmetric, fmt.overflow) == (spec.symmetric, getattr(_C.Overflow, spec.overflow))
    assert dtype.itemsize == next(size for size in (1, 2, 4) if spec.bits <= 8 * size)


# ---- as dtypes ----


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((0, 0), {}),
        ((0, 0), {"signed": False}),
        ((32, 0), {}),
        ((16, 16), {}),
        ((33, 0), {"signed": False}),
        ((20, 20), {}),
        ((-65, 70), {}),
        ((-4, 4), {}),
        ((40, -5), {}),
        ((-16, 40), {"overflow": "wrap"}),
        ((32, -1), {"overflow": "wrap"}),
        ((4, 3), {"overflow": "ieee"}),
        ((4, 3), {"overflow": "wrap", "symmetric": True}),
        ((4, 3), {"signed": False, "symmetric": True}),
        ((4, 3), {"rounding": "odd"}),
    ],
)
def test_impossible_parameters(arguments, options):
    with pytest.raises(ValueError, match=r"expected .* but got|expected symmetric"):
        torch_dtypes.fixed_format(*arguments, **options)


def test_tensors_print_view_save_and_cast():
    dtype = torch_dtypes.dtype("fixed8_7")
    x = torch.tensor([[0.5, -1.25, 255.99], [-256.0, -300.0, 1e-3]]).to(dtype)
    assert x.tolist() == [[0.5, -1.25, 255.9921875], [-256.0, -256.0, 0.0]]
    assert "-1.25" in repr(x).replace("e+00", "").replace(
        "00,", ","
    ) and "dtype=torch.fixed8_7" in repr(x)
    assert torch.equal(x.t()[1:, 0], torch.tensor([-1.25, 255.9921875]).to(dtype))
    assert x.view(torch.int16).tolist() == [[64, -160, 32767], [-32768, -32768, 0]]
    assert torch.tensor([64, -160], dtype=torch.int16).view(dtype).tolist() == [0.5, -1.25]
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)["x"]
    assert loaded.dtype is dtype and torch.equal(loaded, x)
    assert (
        x.to(torch.int64).tolist() == [[0, -1, 255], [-256, -256, 0]]
        and x.double().to(dtype).tolist() == x.tolist()
    )
    assert x.to(torch.posit16es2).to(dtype).tolist()[0][:2] == [0.5, -1.25]
    wide = torch_dtypes.dtype("fixed15_16")
    assert x.to(wide).tolist() == x.tolist()
    assert torch.tensor(["1" == "1"]).to(dtype).tolist() == [1.0]
    assert (torch.zeros(2, dtype=dtype) + 1).dtype is dtype and torch.full(
        (2,), 0.3, dtype=dtype
    ).tolist() == [0.296875] * 2


def test_float64_and_integers_beyond_float32_are_rounded_once():
    wide = torch_dtypes.dtype("fixed15_16")
    half = 2.0**-17
    x = torch.tensor([2.0**14 + half, 2.0**14 + 3 * half, 2.0**14 + 2 * half], dtype=torch.float64)
    assert codes_of(x.to(wide)).tolist() == [2**30, 2**30 + 2, 2**30 + 1]
    assert torch.tensor([2**15 - 1, -(2**15), 2**40 + 1]).to(wide).tolist() == [
        2**15 - 1,
        -(2**15),
        2**15 - 2.0**-16,
    ]


@pytest.mark.parametrize("mode", ["nearest_even", "stochastic"])
@pytest.mark.parametrize("name", ["fixed15_16", "fixed8_7"])
def test_training(name, mode):
    with torch_dtypes.rounding(mode):
        train(torch_dtypes.dtype(name))


def train(dtype):
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    target = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        dtype
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(dtype)), target.to(dtype))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.dtype == p.grad.dtype == dtype for p in model.parameters())
    assert losses[-1] < 0.3 * losses[0]


if __name__ == "__main__":
    if _C.cpu_capability() != sys.argv[1]:
        sys.exit(f"expected the kernels of {sys.argv[1]}, but got those of {_C.cpu_capability()}")
    found = [line for path in sys.argv[2:] for line in wrong_casts(path)]
    sys.exit("\n".join(found) or None)
