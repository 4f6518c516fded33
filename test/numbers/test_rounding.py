"""Arithmetic in every deterministic rounding mode against exact rationals (oracle.py)."""

import itertools

import numpy as np
import oracle
import pytest
import torch
from conftest import codes_of, from_codes, to_codes
from exact_codecs import tensor
from oracle import MODES, binary, posit, takum
from rationals import Fraction
from representatives import thin_out
from spec_formats import assert_codes, name_of

import torch_dtypes

pytestmark = [pytest.mark.one_worker, pytest.mark.usefixtures("one_thread")]
every_mode = pytest.mark.parametrize("mode", MODES)


def in_mode(mode, call):
    with torch_dtypes.rounding(mode):
        return call()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["q43", "e5m5", "e8m4", "e7m4", "posit16es2"])
def test_a_processor_that_flushes_subnormal_numbers_changes_nothing(name, mode):
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        torch.set_flush_denormal(False)
        smallest = torch.finfo(
            getattr(torch, name) if hasattr(torch, name) else torch_dtypes.dtype(name)
        ).smallest_normal
        bits = torch.tensor(
            [1, 2, 0x7FFFFF, 0x800000, 0x800001, 0, -(2**31) + 1, -(2**31), -(2**31) + 0x400000],
            dtype=torch.int32,
        )
        x = torch.cat(
            [
                bits.view(torch.float32),
                smallest * torch.tensor([0.3, -0.7, 1.0, 0.99999994, -1.0000001]),
            ]
        )
        with torch_dtypes.rounding(mode):
            expected = (
                to_codes(x, torch_dtypes.dtype(name)),
                torch_dtypes.chop(x, name).view(torch.int32),
            )
            torch.set_flush_denormal(True)
            found = (
                to_codes(x, torch_dtypes.dtype(name)),
                torch_dtypes.chop(x, name).view(torch.int32),
            )
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


@every_mode
@pytest.mark.parametrize(
    "kind",
    [
        torch.float16,
        torch.bfloat16,
        torch.float8_e5m2,
        torch.int16,
        torch.int64,
        torch.posit16es2,
        torch.tf32,
    ],
    ids=str,
)
def test_casts_from_other_dtypes_in_every_mode(kind, mode):
    numbers = oracle.table(binary(4, 3)).all_inputs()
    finite = torch.tensor(numbers[np.isfinite(numbers) & (np.abs(numbers) < 3e4)])
    x = finite.to(kind) if kind.is_floating_point else (finite * 100).to(kind)
    exact = x.double().numpy()
    with torch_dtypes.rounding(mode):
        for dtype, spec in ((torch.q43, binary(4, 3)), (torch.posit8es2, posit(8, 2))):
            assert_codes(to_codes(x, dtype), oracle.table(spec).encode(exact, mode), spec, exact)


# ---- arithmetic ----

OPERATORS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "sqrt": lambda a, _: a.sqrt(),
}
NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": lambda a, _: np.sqrt(a),
}
BY_PAIRS = {
    "posit8es0": posit(8, 0),
    "posit8es2": posit(8, 2),
    "q43": binary(4, 3),
    "q52": binary(5, 2),
    "e4m3fnuz": binary(4, 3, specials="fnuz"),
    "posit8es2_underflow": posit(8, 2, underflow="zero"),
    "e3m2finite": binary(3, 2, specials="none"),
}
BY_SAMPLE = {
    "posit16es2": posit(16, 2),
    "posit16es1": posit(16, 1),
    "posit32es2": posit(32, 2),
    "tf32": binary(8, 10),
    "e5m7": binary(5, 7),
    "e8m4": binary(8, 4),
    "e8m23": binary(8, 23),
    "e11m40": binary(11, 40),
}
TAPERED = {
    name_of(spec): spec for spec in (takum(17), takum(23), takum(32), posit(16, 5, regime_max=6))
}
BY_SAMPLE.update(TAPERED)


def assert_results(found, expected, spec, operands, reference=0.0):
    """Compare codes. A NaN, known from the float64 reference, may have either sign."""
    free = spec.sign_code * (np.isnan(reference) & (not spec.posit) & (not spec.one_zero))
    bad = np.flatnonzero((found | free) != (expected | free))
    rows = [
        f"{[float(x[i]) for x in operands]}: {found[i]:#x}, expected {expected[i]:#x}"
        for i in bad[:5]
    ]
    assert not len(bad), f"{len(bad)} of {len(found)} wrong: " + "; ".join(rows)


def by_mode(result, operator, x, y, mode):
    """Return float64's results with the zeros of rounding down: a sum of 0 is -0 unless both terms
    are positive (IEEE 754-2019, section 6.3)."""
    if mode != "down" or operator not in ("add", "sub"):
        return result
    positive = ~np.signbit(x) & (np.signbit(y) == (operator == "sub"))
    return np.where((result == 0) & ~positive, -0.0, result)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", BY_PAIRS)
def test_all_pairs_in_every_mode(name, operator):
    """float64's sum and product are exact here. Its quotient and root are inexact, but on the
    correct side of every short number."""
    spec, dtype = BY_PAIRS[name], torch_dtypes.dtype(name)
    codes = np.arange(1 << spec.bits)
    a, b = (m.ravel() for m in np.meshgrid(codes, codes)) if operator != "sqrt" else (codes, codes)
    x, y = from_codes(tensor(a), dtype), from_codes(tensor(b), dtype)
    fx, fy = x.double().numpy(), y.double().numpy()
    with np.errstate(all="ignore"):
        result = NUMPY[operator](fx, fy)
    for mode in MODES:
        with torch_dtypes.rounding(mode):
            found = codes_of(OPERATORS[operator](x, y)).numpy()
        assert_results(
            found,
            oracle.table(spec).encode(by_mode(result, operator, fx, fy, mode), mode),
            spec,
            (fx, fy),
            result,
        )


def sample(spec, count, seed):
    """Return seeded codes. Many are close to each other, close to each other's negatives, short, or
    extreme."""
    rng = np.random.default_rng(seed)
    size = 1 << spec.bits
    a, b = rng.integers(0, size, count), rng.integers(0, size, count)
    part = count // 6
    b[:part] = (-a[:part] if spec.posit else a[:part] ^ spec.sign_code) + rng.integers(-3, 4, part)
    b[part : 2 * part] = a[part : 2 * part] ^ rng.integers(0, size >> 4, part)
    b[2 * part : 3 * part] = rng.choice(
        [
            0,
            1,
            2,
            spec.largest - 1,
            spec.largest,
            spec.largest + 1,
            spec.sign_code,
            spec.sign_code + 1,
        ],
        part,
    )
    coarse = spec.bits // 2
    a[2 * part : 4 * part] = a[2 * part : 4 * part] >> coarse << coarse
    b[3 * part : 4 * part] = b[3 * part : 4 * part] >> coarse << coarse
    return a % size, b % size


def exact_result(operator, x, y):
    """Return a Fraction (for a root, its square), or None where the float64 result is enough:
    zeros, infinities, NaN."""
    y = 1.0 if operator == "sqrt" else y
    if (
        not (np.isfinite(x) and np.isfinite(y))
        or (operator == "div" and y == 0)
        or (operator == "sqrt" and x <= 0)
    ):
        return None
    x, y = Fraction(float(x)), Fraction(float(y))
    if operator == "div":
        return x / y or None
    return {"add": x + y, "sub": x - y, "mul": x * y, "sqrt": x}[operator] or None


@pytest.mark.parametrize(("name", "operator"), thin_out(itertools.product(BY_SAMPLE, OPERATORS), 3))
def test_sampled_pairs_in_every_mode(name, operator):
    spec, dtype = BY_SAMPLE[name], torch_dtypes.dtype(name)
    a, b = sample(spec, 1200, len(name))
    x, y = from_codes(tensor(a), dtype), from_codes(tensor(b), dtype)
    fx, fy = x.double().numpy(), y.double().numpy()
    with np.errstate(all="ignore"):
        reference = NUMPY[operator](fx, fy)
    exact = [exact_result(operator, u, v) for u, v in zip(fx, fy, strict=True)]
    located = [
        None if e is None else (*spec.locate(abs(e), square=operator == "sqrt"), e < 0)
        for e in exact
    ]
    for mode in MODES:
        zeros = by_mode(reference, operator, fx, fy, mode)
        expected = [
            spec.special(float(r)) if f is None else spec.encode_place(*f, mode)
            for f, r in zip(located, zeros, strict=True)
        ]
        with torch_dtypes.rounding(mode):
            found = codes_of(OPERATORS[operator](x, y)).numpy()
        assert_results(found, np.array(expected), spec, (fx, fy), reference)


@every_mode
@pytest.mark.parametrize("name", ["posit16es2", "e5m7", "posit32es2", *TAPERED])
def test_fused_multiply_add_and_numbers_in_every_mode(name, mode):
    spec, dtype = BY_SAMPLE[name], torch_dtypes.dtype(name)
    a, b = sample(spec, 300, 3)
    c = np.roll(b, 7)
    x, y, z = (from_codes(tensor(codes), dtype) for codes in (a, b, c))
    rows = [
        (float(u), float(v), float(w))
        for u, v, w in zip(x.double(), y.double(), z.double(), strict=True)
    ]
    keep = [
        i
        for i, row in enumerate(rows)
        if np.isfinite(row).all() and row[0] * row[1] + row[2] != 0 and row[0]
    ]
    with torch_dtypes.rounding(mode):
        fused, scaled = codes_of(torch.addcmul(z, x, y)).numpy(), codes_of(x * 0.1).numpy()
    fractions = {i: [Fraction(v) for v in rows[i]] for i in keep}
    assert_results(
        fused[keep],
        np.array([spec.encode(f[0] * f[1] + f[2], mode) for f in fractions.values()]),
        spec,
        (x.double()[keep],),
    )
    assert_results(
        scaled[keep],
        np.array([spec.encode(f[0] * Fraction(0.1), mode) for f in fractions.values()]),
        spec,
        (x.double()[keep],),
    )


@every_mode
@pytest.mark.parametrize("number", [0.1, -0.001, 0.5, 1.0, 7.7e9, 1e30, 2.0**-70])
@pytest.mark.parametrize("name", ["posit16es2", "e5m7"])
def test_operators_of_three_operands_with_a_number_in_every_mode(name, number, mode):
    """The exact value is rounded once. lerp's difference and addcdiv's quotient are float64's."""
    spec, dtype = BY_SAMPLE[name], torch_dtypes.dtype(name)
    a, b = sample(spec, 120, 5)
    x, y, z = (from_codes(tensor(codes), dtype) for codes in (a, b, np.roll(b, 7)))
    finite = (x.isfinite() & y.isfinite() & z.isfinite() & (y != 0)).numpy()
    with torch_dtypes.rounding(mode):
        found = {
            "add": torch.add(x, y, alpha=number),
            "addcmul": torch.addcmul(z, x, y, value=number),
            "lerp": torch.lerp(x, y, number),
            "addcdiv": torch.addcdiv(z, x, y, value=number),
        }
    rows = np.stack([t.double().numpy() for t in (x, y, z)], 1)[finite]
    s = Fraction(number)
    exact = {
        "add": [Fraction(u) + s * Fraction(v) for u, v, _ in rows],
        "addcmul": [Fraction(w) + s * Fraction(u) * Fraction(v) for u, v, w in rows],
        "lerp": [Fraction(u) + s * Fraction(v - u) for u, v, _ in rows],
        "addcdiv": [Fraction(w) + s * Fraction(u / v) for u, v, w in rows],
    }
    for operator, values in exact.items():
        keep = np.array([value != 0 for value in values])
        expected = np.array([spec.encode(value, mode) for value in values if value])
        assert_results(
            codes_of(found[operator]).numpy()[finite][keep],
            expected,
            spec,
            (rows[keep, 0], rows[keep, 1]),
        )


@every_mode
def test_other_operators_round_a_stock_result_once(mode):
    """The result is rounded once from float32, or from float64 where it is more exact.
    (test_elementary_directed.py has functions that come close to a number.)"""
    x = from_codes(torch.arange(256), torch.q43)
    x = x[x.isfinite()]
    t = oracle.table(binary(4, 3))
    softmax, softplus = torch.nn.functional.softmax, torch.nn.functional.softplus
    for operator in (
        torch.acos,
        softplus,
        torch.deg2rad,
        lambda v: v.view(-1, 2).sum(1),
        lambda v: softmax(v, 0),
    ):
        narrow, wide = operator(x.float()).double().numpy(), operator(x.double()).numpy()
        found = codes_of(in_mode(mode, lambda operator=operator: operator(x))).numpy()
        expected = t.encode(wide, mode)
        assert_results(
            found, np.where(found == t.encode(narrow, mode), found, expected), t.spec, (wide,)
        )
