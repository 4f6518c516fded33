"""Arithmetic, sqrt, addcmul, addcdiv and lerp of wide formats, against rationals, over the whole
range and in every mode. The formats have float64's exponents, or too many digits for arithmetic
rounded to odd."""

import math
import random
from functools import cache
from itertools import pairwise

import pytest
import torch
from conftest import codes_of
from oracle import MODES
from rationals import Fraction

import torch_dtypes

# Name, exponent bits, fraction bits, whether there are subnormal numbers.
FORMATS = [
    ("e11m52", 11, 52, True),
    ("e11m51", 11, 51, True),
    ("e11m50", 11, 50, True),
    ("e11m20", 11, 20, True),
    ("e10m5", 10, 5, True),
    ("e11m30_flush", 11, 30, False),
]
by_format = pytest.mark.parametrize("fmt", FORMATS, ids=[f[0] for f in FORMATS])


@cache
def two_to(e):
    return Fraction(1 << e) if e >= 0 else Fraction(1, 1 << -e)


def round_to(x, fmt, mode):
    """Return the rational rounded to the format, as a float."""
    _, exp_bits, man_bits, subnormals = fmt
    low, high = 2 - (1 << (exp_bits - 1)), (1 << (exp_bits - 1)) - 1
    size, negative = abs(x), x < 0
    if not size:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < two_to(exponent)
    place = max(exponent, low) - man_bits
    if not subnormals and exponent < low:
        place = low  # between 0 and the smallest number
    units = size / two_to(place)
    whole, rest = divmod(units.numerator, units.denominator)
    rest = Fraction(rest, units.denominator)
    up = {
        "nearest_even": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1),
        "nearest_zero": rest > Fraction(1, 2),
        "nearest_away": rest >= Fraction(1, 2),
        "nearest_up": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and not negative),
        "up": rest and not negative,
        "down": rest and negative,
        "toward_zero": False,
        "to_odd": rest and not whole & 1,
    }[mode]
    result = (whole + bool(up)) * two_to(place)
    largest = (2 - two_to(-man_bits)) * two_to(high)
    if result > largest:
        stops = mode in ("toward_zero", "to_odd") or mode == ("up" if negative else "down")
        return (-1 if negative else 1) * (float(largest) if stops else math.inf)
    return (-1 if negative else 1) * float(result)


def numbers(fmt, count, seed):
    """Return numbers over the whole range, near 1, with few digits, and the largest and
    smallest."""
    _, exp_bits, man_bits, subnormals = fmt
    r = random.Random(seed)
    low, high = 2 - (1 << (exp_bits - 1)), (1 << (exp_bits - 1)) - 1
    least = two_to(low if not subnormals else low - man_bits)
    ends = [
        least,
        least * 3,
        two_to(low),
        (2 - two_to(-man_bits)) * two_to(high),
        two_to(high),
        Fraction(1),
        1 + two_to(-man_bits),
    ]
    found = []
    for i in range(count):
        digits = r.getrandbits(man_bits) if i % 3 else r.getrandbits(2) << (man_bits - 2)
        exponent = r.choice(
            [
                r.randint(low, high),
                r.randint(-man_bits, man_bits),
                r.randint(-3, 3),
                high - r.randint(0, 2),
                low + r.randint(0, 70),
            ]
        )
        exponent = min(max(exponent, low), high)
        x = (
            r.choice(ends)
            if i % 11 == 0
            else (two_to(man_bits) + digits) * two_to(exponent - man_bits)
        )
        found.append(x * r.choice((1, -1)))
    return found


def as_tensor(values, dtype):
    made = torch.tensor([float(v) for v in values], dtype=torch.float64).to(dtype)
    assert made.tolist() == [float(v) for v in values]
    return made


def dtype_named(fmt):
    name, exp_bits, man_bits, subnormals = fmt
    return (
        torch_dtypes.dtype(name)
        if subnormals
        else torch_dtypes.float_format(exp_bits, man_bits, subnormals=False)
    )


def to_64_digits(x):
    """Round to 64 digits and to nearest even, as formulas of several operations round all but the
    last."""
    if not x:
        return x
    drop = abs(x).numerator.bit_length() - abs(x).denominator.bit_length() - 64
    drop += abs(x) >= two_to(drop + 64)
    unit = two_to(drop)
    return round(x / unit) * unit


def expect(found, exact, fmt, mode, operands):
    expected = [round_to(x, fmt, mode) for x in exact]
    wrong = [
        (f.hex(), e.hex(), [float(o[i]).hex() for o in operands])
        for i, (f, e) in enumerate(zip(found.tolist(), expected, strict=True))
        if f != e
    ]
    assert not wrong, f"{len(wrong)} of {len(expected)} in the mode {mode}: {wrong[:3]}"


def operands_of(fmt, count, seed):
    """Return operands, with some that cancel and neighbours of each other."""
    a, b, c = (numbers(fmt, count, seed + i) for i in range(3))
    unit = two_to(-fmt[2])
    for i in range(0, count, 5):
        b[i] = -a[i]
        if abs(a[i]) < 1 and i % 2:
            b[i] = -Fraction(round_to(a[i] * (1 - unit), fmt, "nearest_even"))
        c[i] = -Fraction(round_to(a[i] * b[i], fmt, "toward_zero"))
    return a, b, c


@pytest.mark.parametrize("mode", MODES)
@by_format
def test_operators(fmt, mode):
    count = 600 if mode == "nearest_even" else 150
    a, b, c = operands_of(fmt, count, 1)
    dtype = dtype_named(fmt)
    x, y, z = (as_tensor(v, dtype) for v in (a, b, c))
    with torch_dtypes.rounding(mode):
        expect(x + y, [p + q for p, q in zip(a, b, strict=True)], fmt, mode, (a, b))
        expect(x - y, [p - q for p, q in zip(a, b, strict=True)], fmt, mode, (a, b))
        expect(x * y, [p * q for p, q in zip(a, b, strict=True)], fmt, mode, (a, b))
        expect(x / y, [p / q for p, q in zip(a, b, strict=True)], fmt, mode, (a, b))
        expect(
            torch.addcmul(z, x, y),
            [p * q + r for p, q, r in zip(a, b, c, strict=True)],
            fmt,
            mode,
            (a, b, c),
        )
        # a block of these takes float64's operations
        far = [v if two_to(-470) < abs(v) < two_to(470) else v / abs(v) for v in a]
        near = as_tensor(far, dtype)
        expect(near * near, [p * p for p in far], fmt, mode, (far,))
        expect(torch.addcmul(near, near, near), [p * p + p for p in far], fmt, mode, (far,))


@pytest.mark.parametrize("mode", ["nearest_even", "down", "to_odd"])
@by_format
def test_formulas(fmt, mode):
    """Check formulas of several operations. Their results before the last one have 64 digits."""
    a, b, c = operands_of(fmt, 150, 7)
    dtype = dtype_named(fmt)
    x, y, z = (as_tensor(v, dtype) for v in (a, b, c))
    s = Fraction(0.3)
    with torch_dtypes.rounding(mode):
        products = [to_64_digits(p * q) * s + r for p, q, r in zip(a, b, c, strict=True)]
        expect(torch.addcmul(z, x, y, value=0.3), products, fmt, mode, (a, b, c))
        expect(
            torch.addcdiv(z, x, y, value=0.3),
            [to_64_digits(p / q) * s + r for p, q, r in zip(a, b, c, strict=True)],
            fmt,
            mode,
            (a, b, c),
        )
        expect(
            torch.lerp(x, y, 0.3),
            [to_64_digits(q - p) * s + p for p, q in zip(a, b, strict=True)],
            fmt,
            mode,
            (a, b),
        )


@pytest.mark.parametrize("mode", MODES)
@by_format
def test_square_roots(fmt, mode):
    """Check by the squares of a root's neighbours and of the boundary between them, which must be
    on the right sides."""
    a = [abs(v) for v in numbers(fmt, 400, 3)]
    with torch_dtypes.rounding(mode):
        found = [Fraction(v) for v in as_tensor(a, dtype_named(fmt)).sqrt().tolist()]
    for v, r in zip(a, found, strict=True):
        exponent = r.numerator.bit_length() - r.denominator.bit_length()
        exponent -= r < two_to(exponent)
        unit = two_to(exponent - fmt[2])
        # Below a power of two the neighbour is nearer.
        below = unit / 2 if r == two_to(exponent) else unit
        if r * r == v:
            continue
        if mode.startswith("nearest"):
            assert (r - below / 2) ** 2 < v < (r + unit / 2) ** 2
        elif mode == "up":
            assert (r - below) ** 2 < v < r * r
        elif mode == "to_odd":
            assert (r / unit).numerator & 1 and (r - below) ** 2 < v < (r + unit) ** 2
        else:
            assert r * r < v < (r + unit) ** 2


# Beside the first number, no block takes float64's operations.
@pytest.mark.parametrize("outermost", [2.0**500, 2.0**400])
@by_format
def test_specials(fmt, outermost):
    dtype = dtype_named(fmt)
    values = torch.tensor(
        [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -4.0, outermost], dtype=torch.float64
    )
    a, b, c = torch.cartesian_prod(values, values, values).unbind(1)
    x, y, z = (v.to(dtype) for v in (a, b, c))
    cases = {
        "add": (x + y, a + b),
        "sub": (x - y, a - b),
        "mul": (x * y, a * b),
        "div": (x / y, a / b),
        "sqrt": (x.sqrt(), a.sqrt()),
        "addcmul": (torch.addcmul(z, x, y), torch.addcmul(c, a, b)),
        "addcdiv": (torch.addcdiv(z, x, y, value=-2), torch.addcdiv(c, a, b, value=-2)),
    }
    for name, (found, expected) in cases.items():
        expected = expected.to(dtype).double()
        assert torch.equal(found.isnan(), expected.isnan()), name
        sound = ~expected.isnan()
        assert len(codes_of(found[~sound]).unique()) <= 1, name  # one NaN
        assert torch.equal(found.double()[sound], expected[sound]) and torch.equal(
            found.signbit()[sound], expected.signbit()[sound]
        ), name


def neighbours(values, dtype):
    """Return for each number the one before and the one after; 0 and infinities have none."""
    x = torch.tensor(values, dtype=torch.float64).to(dtype)
    ends = [torch.nextafter(x, torch.full_like(x, end)).tolist() for end in (-math.inf, math.inf)]
    return [
        {v} if not v or math.isinf(v) else {low, high}
        for v, low, high in zip(values, *ends, strict=True)
    ]


@pytest.mark.parametrize("mode", ["stochastic", "stochastic_equal", "up_down"])
@by_format
def test_random_modes(fmt, mode):
    """The result is one of the two neighbours, by the words of the results' places. Each occurs."""
    a, b, _ = operands_of(fmt, 300, 5)
    dtype = dtype_named(fmt)
    x, y = as_tensor(a, dtype), as_tensor(b, dtype)
    exact = [p * q for p, q in zip(a, b, strict=True)]
    ends = [[round_to(v, fmt, m) for v in exact] for m in ("down", "up")]
    seen, around = set(), neighbours([round_to(v, fmt, "nearest_even") for v in exact], dtype)
    for seed in range(4):
        torch.manual_seed(seed)
        with torch_dtypes.rounding(mode):
            found = (x * y).tolist()
        torch.manual_seed(seed)
        with torch_dtypes.rounding(mode):
            assert (x * y).tolist() == found
        for i, (v, low, high) in enumerate(zip(found, *ends, strict=True)):
            if mode == "up_down":
                seen.add((i, v))
                assert v in around[i]
            else:
                assert low <= v <= high
                seen |= {(i, v)} if low < high else set()
    assert len(seen) > len({i for i, _ in seen})


def test_probabilities():
    """At a quarter of the last place, one in four rounds up."""
    x = torch.full((40_000,), 1 + 2.0**-52, dtype=torch.float64).to(
        torch_dtypes.dtype("e11m52_stochastic")
    )
    y = torch.full((), 1.25, dtype=torch.float64).to(x.dtype)
    torch.manual_seed(0)
    found = (x * y).double()
    low, high = 1.25 + 2.0**-52, 1.25 + 2.0**-51
    assert set(found.unique().tolist()) == {low, high}
    assert abs((found == high).double().mean().item() - 0.25) < 0.02


@pytest.mark.parametrize("mode", [*MODES, "stochastic", "stochastic_equal"])
def test_float64_s_own_numbers_are_cast_as_they_are(mode):
    values = [0.0, -0.0, 1.5, -math.inf, 5e-324, 1.7976931348623157e308, math.pi]
    x = torch.tensor([*values, math.nan], dtype=torch.float64)
    dtype = torch_dtypes.dtype("e11m52")
    with torch_dtypes.rounding(mode):
        found = x.to(dtype)
    assert found[:-1].tolist() == values and found[1].signbit() and math.isnan(found[-1].item())
    payload = (
        torch.tensor([0x7FF0000000000001, -1], dtype=torch.int64).view(torch.float64).to(dtype)
    )
    assert codes_of(payload).tolist() == [0x7FF8 << 48, -(1 << 51)]


def test_blocks_of_all_lengths_and_strides():
    """Mix elements far within the range with others."""
    dtype = torch_dtypes.dtype("e11m20")
    g = torch.Generator().manual_seed(0)
    wide = torch.randn(3000, generator=g, dtype=torch.float64)
    wide[700:720] *= 2.0**-900
    x, y = wide.to(dtype), wide.flip(0).to(dtype)
    whole = codes_of(x * y)
    for first, last in pairwise([0, 1, 256, 500, 513, 1030, 2100, 3000]):
        assert torch.equal(codes_of(x[first:last] * y[first:last]), whole[first:last])
    assert torch.equal(codes_of(x[::3] * y[::3]), whole[::3])
    assert torch.equal(
        codes_of(x[:64].reshape(8, 8).t() * 0.3), codes_of(x[:64] * 0.3).reshape(8, 8).t()
    )
