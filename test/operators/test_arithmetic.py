"""Addition to division, sqrt and fused multiply-add are correctly rounded, compared with exact
integers.

A result is right when the exact value lies between the two boundaries around the returned code
(oracle.py), and on one of them only if the code is even. Values and boundaries are integers in
units of 2^-scale, quotients are compared cross-multiplied, roots squared."""

from functools import lru_cache
from itertools import permutations, product

import numpy as np
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes
from oracle import binary, posit
from rationals import Fraction
from representatives import DTYPES, thin_out
from spec_formats import dtype_of

import torch_dtypes

SIX_BITS = binary(3, 2)
SMALL = {n: s for n, s in BUILTIN.items() if s.bits <= 8} | {
    "e3m2": SIX_BITS,
    "posit6es1": posit(6, 1),
    "e4m3fn": binary(4, 3, specials="fn"),
    "e4m3_saturate": binary(4, 3, overflow="saturate"),
    "e4m3_flush": binary(4, 3, subnormals=False),
}
LARGE = {n: s for n, s in BUILTIN.items() if s.bits > 8} | {
    "e8m10fn": binary(8, 10, specials="fn"),
    "e5m10": binary(5, 10),
    "e8m7": binary(8, 7),
}
OPERATORS = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
NUMBERS = [
    0.9,
    0.1,
    1 / 3,
    3.0,
    -7.25,
    1.0 + 2.0**-52,
    2.0**-30,
    1e-3,
    0.999,
    1e30,
    1e-30,
    1e300,
    -1e-300,
    0.0,
    65519.99,
    5,
    -3,
]


def ints(fractions, scale):
    """Convert fractions to integers in units of 2^-scale; they must be multiples of it."""
    out = np.empty(len(fractions), object)
    for i, f in enumerate(fractions):
        shift = scale - (f.denominator.bit_length() - 1)
        assert shift >= 0
        out[i] = f.numerator << shift
    return out


@lru_cache(maxsize=4)
def exact_numbers(spec):
    return Exact(spec)


class Exact:
    """A format's values and boundaries as integers, computed for the codes that occur."""

    def __init__(self, spec):
        self.spec = spec
        least = spec.magnitude(spec.successor(0))
        self.scale = least.denominator.bit_length() + 24
        self.never = 1 << (self.scale + 5000)
        self.known_values, self.known_boundaries = {}, {}

    def _map(self, keys, known, value):
        distinct, where = np.unique(keys, return_inverse=True)
        missing = [k for k in distinct.tolist() if k not in known]
        known.update(zip(missing, ints([value(k) for k in missing], self.scale), strict=True))
        return np.array([known[k] for k in distinct.tolist()] + [None], dtype=object)[:-1][where]

    def split(self, codes):
        """Return sign and magnitude of codes (NaR excluded)."""
        negative = codes >= self.spec.sign_code
        if self.spec.posit:
            return negative, np.where(negative, (1 << self.spec.bits) - codes, codes)
        return negative, codes & (self.spec.sign_code - 1)

    def values(self, codes):
        """Return the values, with 0 in place of those that are not finite."""
        negative, k = self.split(codes)
        magnitudes = self._map(
            np.where(k > self.spec.largest, 0, k), self.known_values, self.spec.magnitude
        )
        return np.where(negative, -magnitudes, magnitudes)

    def boundaries(self, k):
        """Return the boundaries above the magnitudes k."""
        spec = self.spec
        endless = k > spec.largest
        if spec.posit or spec.overflow == "saturate":
            endless |= k == spec.largest
        zero = spec.posit & (k == 0)
        return np.where(
            endless,
            self.never,
            np.where(
                zero,
                0,
                self._map(np.where(endless | zero, 1, k), self.known_boundaries, spec.boundary),
            ),
        )

    def wrong(self, codes, n, d=1, square=False):
        """Mark the codes that are not the rounded n / (d 2^scale), or its root."""
        negative, k = self.split(codes)
        below = (
            np.where(k == 1 << self.spec.man_bits, 0, k - 1)
            if not self.spec.subnormals
            else np.maximum(k - 1, 0)
        )
        low, high = np.where(k > 0, self.boundaries(below), 0), self.boundaries(k)
        if square:
            low, high = low * low, high * high
        m, low, high = abs(n), low * d, high * d
        outside = (m < low) | (m > high)
        tie = ((m == low) & (k > 0)) | (m == high)
        return outside | (tie & (k % 2 == 1)) | ((n != 0) & (negative != (n < 0)))


def assert_right(exact, found, reference, n, d=1, operands=(), square=False):
    """Check the codes `found` against the exact result n / d. `reference` is the float64 operation,
    for zeros' signs, infinities and NaN."""
    spec = exact.spec
    finite = np.ones(len(found), bool)
    for x in operands:
        finite &= np.isfinite(x)
    finite &= ~np.isnan(reference) & ~(np.isinf(reference) & division_by_zero(operands, reference))
    wrong = np.zeros(len(found), bool)
    n = np.asarray(n, dtype=object)
    d = np.broadcast_to(np.asarray(d, dtype=object), n.shape)
    wrong[finite] = exact.wrong(found[finite], n[finite], d[finite], square)
    zero = finite & (n == 0)
    specials = np.flatnonzero(~finite | zero)
    expected = np.array([spec.special(float(r)) for r in reference[specials]], dtype=np.int64)
    same = found[specials] == expected
    if not spec.posit and spec.nan_code is not None:  # a NaN may have either sign
        same |= np.isnan(reference[specials]) & (
            found[specials] & (spec.sign_code - 1) == spec.nan_code
        )
    wrong[specials] = ~same
    bad = np.flatnonzero(wrong)[:5]
    rows = [
        (
            f"{[float(x[i]) for x in operands]}: {found[i]:#x} = {spec.decode(int(found[i]))}, "
            f"float64 {reference[i]!r}"
        )
        for i in bad
    ]
    assert not wrong.any(), f"{np.count_nonzero(wrong)} of {len(found)} wrong: " + "; ".join(rows)


def division_by_zero(operands, reference):
    """Mark infinite references that are exact. The others only exceed float64."""
    return operands[-1] == 0 if len(operands) == 2 else np.zeros(len(reference), bool)


def operate(name, a, b):
    with np.errstate(all="ignore"):
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name](a, b)


def exact_result(name, x, y, scale):
    """Return numerator and denominator of x op y, in units of 2^-scale."""
    if name == "add":
        return x + y, 1
    if name == "sub":
        return x - y, 1
    if name == "mul":
        return x * y, 1 << scale
    d = np.where(y == 0, 1, y)
    return np.where(d < 0, -x, x) * (1 << scale), abs(d)


def check_pairs(spec, dtype, name, a, b):
    exact = exact_numbers(spec)
    x, y = from_codes(torch.from_numpy(a), dtype), from_codes(torch.from_numpy(b), dtype)
    found = codes_of(OPERATORS[name](x, y)).numpy()
    fx, fy = x.double().numpy(), y.double().numpy()
    n, d = exact_result(name, exact.values(a), exact.values(b), exact.scale)
    assert_right(exact, found, operate(name, fx, fy), n, d, (fx, fy))


def dtype_named(name, spec):
    return getattr(torch, name) if name in BUILTIN else dtype_of(spec)


def hard_pairs(spec, dtype, name, count, seed=0):
    """Return seeded codes: any two, neighbours of each other's negatives, equal exponents,
    extremes, and results next to boundaries."""
    rng = np.random.default_rng(seed)
    size = 1 << spec.bits
    a, b = rng.integers(0, size, count), rng.integers(0, size, count)
    part = count // 8
    b[:part] = (a[:part] ^ spec.sign_code if not spec.posit else -a[:part]) + rng.integers(
        -3, 4, part
    )
    b[part : 2 * part] = a[part : 2 * part] ^ rng.integers(0, size >> 4 or 2, part)
    ends = np.array(
        [
            0,
            1,
            2,
            3,
            spec.largest - 1,
            spec.largest,
            spec.largest + 1,
            spec.sign_code - 1,
            spec.sign_code,
            spec.sign_code + 1,
            size - 1,
        ]
    )
    b[2 * part : 3 * part] = rng.choice(ends, part)
    coarse = max(spec.bits // 2, 1)
    # Short fractions, whose products and sums are ties.
    a[3 * part : 4 * part] = a[3 * part : 4 * part] >> coarse << coarse
    b[3 * part : 4 * part] = b[3 * part : 4 * part] >> coarse << coarse
    a, b = a % size, b % size
    # In the last half, b and `a` give a result next to a random boundary.
    k = rng.integers(1, spec.largest, count - 4 * part)
    exact = exact_numbers(spec)
    target = (exact.boundaries(k) / (1 << exact.scale)).astype(float)
    y = from_codes(torch.from_numpy(b[4 * part :]), dtype).double().numpy()
    with np.errstate(all="ignore"):
        start = {"add": target - y, "sub": target + y, "mul": target / y, "div": target * y}[name]
    a[4 * part :] = (
        codes_of(torch.from_numpy(start).to(dtype)).numpy() + rng.integers(-1, 2, len(start))
    ) % size
    return a, b


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype_name", SMALL)
def test_all_pairs_of_small_formats(dtype_name, name):
    spec = SMALL[dtype_name]
    codes = np.arange(1 << spec.bits)
    a, b = (m.ravel() for m in np.meshgrid(codes, codes))
    check_pairs(spec, dtype_named(dtype_name, spec), name, a, b)


@pytest.mark.parametrize("mode", ["nearest_even", "toward_zero"])
@pytest.mark.parametrize("dtype_name", ["posit8es1", "hif8"])
def test_long_operands_of_8_bits_are_looked_up(dtype_name, mode):
    dtype = torch_dtypes.dtype(dtype_name)
    codes = torch.arange(256)
    a, b = (from_codes(c.ravel(), dtype) for c in torch.meshgrid(codes, codes, indexing="ij"))
    with torch_dtypes.rounding(mode):
        for name, operator in OPERATORS.items():
            # Rows of 256 are too short for a table.
            rows = [operator(*pair) for pair in zip(a.split(256), b.split(256), strict=True)]
            for _ in range(6):
                assert codes_of(operator(a, b)).equal(codes_of(torch.cat(rows))), name


@pytest.mark.parametrize("dtype_name", ["q43", "e5m5", "posit8es1", "posit16es2"])
def test_rows_of_any_length(dtype_name):
    # The kernels take sixteen elements at a time, and the others apart.
    dtype = getattr(torch, dtype_name)
    a, b = torch.randn(2, 40).to(dtype)
    each = torch.stack([x * y for x, y in zip(a, b, strict=True)])
    for n in range(41):
        around = torch.ones(n + 2, dtype=dtype)
        around[1:-1] = a[:n]
        around[1:-1] *= b[:n]
        assert codes_of(around[1:-1]).equal(codes_of(each[:n]))
        assert (around[[0, -1]] == 1).all()


@pytest.mark.whole
@pytest.mark.parametrize(("dtype_name", "name"), thin_out(product(LARGE, OPERATORS), 7))
def test_hard_pairs_of_large_formats(dtype_name, name):
    spec = LARGE[dtype_name]
    dtype = dtype_named(dtype_name, spec)
    count = 150_000 if dtype_name in BUILTIN and spec.bits <= 20 else 60_000
    check_pairs(spec, dtype, name, *hard_pairs(spec, dtype, name, count))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype_name", LARGE)
def test_many_hard_pairs_of_large_formats(dtype_name, name):
    spec = LARGE[dtype_name]
    dtype = dtype_named(dtype_name, spec)
    for seed in range(1, 9):
        check_pairs(spec, dtype, name, *hard_pairs(spec, dtype, name, 500_000, seed))


@pytest.mark.parametrize("dtype_name", thin_out([*SMALL, *LARGE], DTYPES))
def test_sqrt(dtype_name):
    spec = (SMALL | LARGE)[dtype_name]
    dtype = dtype_named(dtype_name, spec)
    codes = (
        np.arange(1 << spec.bits)
        if spec.bits <= 20
        else np.random.default_rng(0).integers(0, 1 << spec.bits, 100_000)
    )
    if spec.bits > 20:  # squares of boundaries and numbers next to them
        boundaries = torch.tensor(
            [float(spec.boundary(int(k))) for k in codes[:30_000] % spec.largest if k]
        )
        squares = codes_of((boundaries.double() ** 2).to(dtype)).numpy()
        codes = np.concatenate([codes, squares, (squares + 1) % (1 << spec.bits)])
    x = from_codes(torch.from_numpy(codes), dtype)
    floats = x.double().numpy()
    exact = exact_numbers(spec)
    with np.errstate(all="ignore"):
        reference = np.sqrt(floats)
    assert_right(
        exact,
        codes_of(x.sqrt()).numpy(),
        reference,
        abs(exact.values(codes)) << exact.scale,
        1,
        (floats,),
        square=True,
    )


def check_fma(spec, dtype, a, b, c):
    exact = exact_numbers(spec)
    x, y, z = (from_codes(torch.from_numpy(codes), dtype) for codes in (a, b, c))
    found = codes_of(torch.addcmul(z, x, y)).numpy()
    floats = [t.double().numpy() for t in (x, y, z)]
    with np.errstate(all="ignore"):
        product = floats[0] * floats[1]
        reference = product + floats[2]
    n = exact.values(a) * exact.values(b) + (exact.values(c) << exact.scale)
    assert_right(exact, found, reference, n, 1 << exact.scale, floats)


@pytest.mark.parametrize("dtype_name", thin_out([*SMALL, *LARGE], DTYPES))
def test_fused_multiply_add(dtype_name):
    spec = (SMALL | LARGE)[dtype_name]
    dtype = dtype_named(dtype_name, spec)
    count = 100_000 if spec.bits <= 20 else 50_000
    rng = np.random.default_rng(3)
    a, b = hard_pairs(spec, dtype, "mul", count)
    product = (
        from_codes(torch.from_numpy(a), dtype).double()
        * from_codes(torch.from_numpy(b), dtype).double()
    )
    rounded = codes_of(product.to(dtype)).numpy()
    cancelling = (rounded ^ spec.sign_code if not spec.posit else -rounded) + rng.integers(
        -2, 3, count
    )
    c = np.where(np.arange(count) % 3 == 0, rng.integers(0, 1 << spec.bits, count), cancelling) % (
        1 << spec.bits
    )
    check_fma(spec, dtype, a, b, np.where(np.arange(count) % 7 == 0, rng.integers(0, 4, count), c))


def apply_number(name, x, number):
    return {
        "add": lambda: x + number,
        "sub": lambda: x - number,
        "mul": lambda: x * number,
        "div": lambda: x / number,
        "rsub": lambda: number - x,
        "rdiv": lambda: number / x,
    }[name]()


def exact_with_number(name, x, number, scale):
    """Return numerator and denominator in units of 2^-scale. The number is the exact value of
    Python's float."""
    p, q = Fraction(number).numerator, Fraction(number).denominator
    if name in ("add", "sub", "rsub"):
        n = {
            "add": x * q + (p << scale),
            "sub": x * q - (p << scale),
            "rsub": (p << scale) - x * q,
        }[name]
        return n, q
    if name == "mul":
        return x * p, q
    if name == "div":
        return (x * q * (1 if p >= 0 else -1), abs(p) or 1)
    d = np.where(x == 0, 1, x)
    return np.where(d < 0, -1, 1).astype(object) * (p << 2 * scale), abs(d) * q


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rsub", "rdiv"])
@pytest.mark.parametrize("dtype_name", thin_out([*SMALL, *LARGE]))
def test_python_numbers_count_exactly(dtype_name, name):
    spec = (SMALL | LARGE)[dtype_name]
    dtype = dtype_named(dtype_name, spec)
    exact = exact_numbers(spec)
    size = 1 << spec.bits
    codes = np.arange(size) if size <= 4096 else np.random.default_rng(4).integers(0, size, 3000)
    x = from_codes(torch.from_numpy(codes), dtype)
    floats, values = x.double().numpy(), exact.values(codes)
    for number in NUMBERS:
        found = codes_of(apply_number(name, x, number)).numpy()
        numbers = np.full(len(codes), float(number))
        operands = (numbers, floats) if name.startswith("r") else (floats, numbers)
        reference = operate(name.removeprefix("r"), *operands)
        assert_right(
            exact, found, reference, *exact_with_number(name, values, number, exact.scale), operands
        )


def test_number_in_place_and_tensor_without_dimensions(builtin):
    dtype, spec = builtin
    x = from_codes(torch.arange(min(1 << spec.bits, 4096)), dtype)
    expected = codes_of(x * 0.9)
    assert torch.equal(codes_of(x.clone().mul_(0.9)), expected)
    assert torch.equal(codes_of(x * torch.tensor(0.9, dtype=torch.float64)), expected)
    assert torch.equal(codes_of(torch.mul(x, 0.9, out=torch.empty_like(x))), expected)


def test_posit_saturates_where_a_number_leaves_float64():
    x = torch.tensor([4.0, -4.0]).to(torch.posit16es2)
    largest = torch_dtypes.format_of(torch.posit16es2).max_code
    for found in (x * 1e308, torch.add(torch.zeros_like(x), x, alpha=1e308), x / 1e-308):
        assert codes_of(found).tolist() == [largest, (1 << 16) - largest]


@pytest.mark.parametrize("name", ["e3m2finite", "e2m1finite"])
def test_invalid_operations_of_formats_without_nan_are_positive(name):
    """The largest number stands for NaN. A processor would choose its sign: negative on x86,
    positive on ARM."""
    dtype = torch_dtypes.dtype(name)
    zero, minus, two = (
        torch.zeros(40, dtype=dtype),
        torch.full((40,), -1.0, dtype=dtype),
        torch.full((40,), 2.0, dtype=dtype),
    )
    results = {
        "0 / 0": zero / zero,
        "0 / -0": zero / -zero,
        "0 / number": zero / 0,
        "number / 0": 0 / zero,
        "div_": zero.clone().div_(zero),
        "div, out=": torch.div(zero, zero, out=zero.clone()),
        "fmod": zero.fmod(zero),
        "fmod_": zero.clone().fmod_(zero),
        "sqrt": minus.sqrt(),
        "rsqrt_": minus.clone().rsqrt_(),
        "log": minus.log(),
        "log_": minus.clone().log_(),
        "acos": two.acos(),
        "atanh": (-two).atanh(),
        "addcdiv": torch.addcdiv(zero, zero, zero),
        "foreach": torch._foreach_div([zero], [zero])[0],
        "mean": zero[:0].mean().expand(40),
    }
    assert {
        k: y.tolist() for k, y in results.items() if y.tolist() != [torch.finfo(dtype).max] * 40
    } == {}


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_s_0_by_0_is_as_the_operators_have_it(fused):
    x = torch.zeros(40, dtype=torch_dtypes.dtype("e3m2finite"), requires_grad=True)
    x.grad = torch.zeros_like(x)
    torch.optim.Adam([x], eps=0.0, lr=1.0, fused=fused, foreach=False).step()
    assert x.tolist() == [torch.finfo(x.dtype).max] * 40


FACTORS = [
    1.0,
    -1.0,
    8192.0,
    8193.0,
    65535.0,
    65536.0,
    -65536.0,
    2.0**-16,
    0.3,
    1e-30,
    1e300,
    -1e-300,
    5e-324,
]


@pytest.mark.parametrize("dtype_name", ["posit16es2", "q43", "e6m9", "posit8es2"])
def test_a_scaled_product_at_the_ends_of_the_range(dtype_name):
    """Compute z + s * x * y of the largest and smallest numbers, where s * x * y exceeds the range
    of float32 or float64."""
    dtype = torch_dtypes.dtype(dtype_name)
    least = torch.nextafter(torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)).item()
    most = torch.finfo(dtype).max
    factors = torch.tensor([least, -least, 1.0, 1.5, most, -most])
    x, y, z = (
        torch.cartesian_prod(factors, factors, torch.tensor([0.0, 1.0, least, -most]))
        .to(dtype)
        .unbind(1)
    )
    terms = [
        tuple(map(Fraction, row)) for row in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    for s in FACTORS:
        products = torch.tensor(
            [to_odd(c + Fraction(s) * a * b) for a, b, c in terms], dtype=torch.float64
        )
        scaled = torch.tensor(
            [to_odd(c + Fraction(s) * a) for a, _, c in terms], dtype=torch.float64
        )
        for mode in ("nearest_even", "up", "down"):
            with torch_dtypes.rounding(mode):
                # A zero of either sign.
                assert torch.equal(torch.addcmul(z, x, y, value=s), products.to(dtype)), (s, mode)
                assert torch.equal(torch.add(z, x, alpha=s), scaled.to(dtype)), (s, mode)


ZERO_SUMS = {  # for tensors z, x, y: z + factor * (x * y), x / y or x
    "addcmul": (lambda z, x, y: torch.addcmul(z, x, y), 1, lambda x, y: x * y),
    "addcmul twice": (lambda z, x, y: torch.addcmul(z, x, y, value=2), 2, lambda x, y: x * y),
    "addcmul by a third": (
        lambda z, x, y: torch.addcmul(z, x, y, value=-1 / 3),
        -1 / 3,
        lambda x, y: x * y,
    ),
    "addcdiv": (lambda z, x, y: torch.addcdiv(z, x, y, value=-1), -1, lambda x, y: x / y),
    "add": (lambda z, x, y: torch.add(z, x, alpha=2), 2, lambda x, y: x),
    "subtract": (lambda z, x, y: torch.sub(z, x, alpha=2), -2, lambda x, y: x),
    "foreach": (lambda z, x, y: torch._foreach_addcmul([z], [x], [y], 2)[0], 2, lambda x, y: x * y),
    "lerp": (lambda z, x, y: torch.lerp(z, x, 2), 2, None),
}


@pytest.mark.parametrize("dtype_name", ["q43", "e5m6", "e8m13", "e11m40", "e5m6_down", "posit8es1"])
@pytest.mark.parametrize("what", ZERO_SUMS)
def test_the_sign_of_a_sum_that_is_0(what, dtype_name):
    """IEEE 754-2019, section 6.3: -0 rounding down, unless both terms are positive."""
    dtype = torch_dtypes.dtype(dtype_name)
    numbers = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0])
    z, x, y = torch.cartesian_prod(numbers, numbers, numbers[2:]).to(dtype).unbind(1)
    call, factor, product = ZERO_SUMS[what]
    term = (
        x.double() - z.double() if product is None else product(x.double(), y.double())
    ) * factor
    sum_is_0 = z.double() + term == 0
    assert sum_is_0.sum() > 10
    for mode in ("nearest_even", "down", "up"):
        with torch_dtypes.rounding(mode):
            found = call(z, x, y)
        both_positive = ~z.double().signbit() & ~term.signbit()
        negative = ~both_positive if mode == "down" else (z.double() + term).signbit()
        if dtype_name.startswith("posit"):
            negative = torch.zeros_like(negative)
        assert torch.equal(found.double()[sum_is_0].signbit(), negative[sum_is_0]), mode


def test_a_scaled_product_with_a_number_of_float32():
    """float32 cannot hold the product of this number and a short value."""
    g, s = torch.Generator().manual_seed(0), 3.0
    x, z = (torch.randn(20_000, generator=g).to(torch.posit16es2) for _ in range(2))
    for number in (1.2345678, 0.7001953125, 1 / 3):
        factor = torch.tensor(number)
        for found in (torch.addcmul(z, x, factor, value=s), torch.addcmul(z, factor, x, value=s)):
            exact = [
                to_odd(Fraction(c) + Fraction(s) * Fraction(factor.item()) * Fraction(a))
                for a, c in zip(x.tolist(), z.tolist(), strict=True)
            ]
            assert torch.equal(found, torch.tensor(exact, dtype=torch.float64).to(torch.posit16es2))


def to_odd(exact):
    """Return the float64 rounded to odd, which rounds to the format as the exact number does.
    Beyond the range it is the largest or smallest float64."""
    sign, size = (-1 if exact < 0 else 1), abs(exact)
    if not size:
        return 0.0
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 60, -1074)
    units = size / Fraction(2) ** exponent
    whole, inexact = int(units), units.denominator != 1
    drop = max(whole.bit_length() - 53, 0)
    inexact, whole = inexact or whole & ((1 << drop) - 1) != 0, whole >> drop
    if whole.bit_length() + drop + exponent > 1024:
        return sign * 1.7976931348623157e308
    return sign * float(Fraction(whole | inexact) * Fraction(2) ** (exponent + drop))


# Axes from the outermost to the innermost: contiguous, channels_last, transposed batches.
LAYOUTS = [(0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)]


@pytest.mark.parametrize("dtype_name", ["q43", "posit16es2", "e8m23", "q52_stochastic"])
@pytest.mark.parametrize("name", ["add", "sub", "rsub", "addcmul", "addcdiv"])
def test_a_sum_with_a_product_has_the_addend_s_order_in_memory(dtype_name, name):
    dtype = torch_dtypes.dtype(dtype_name)
    call = {
        "add": lambda x, y, z: torch.add(x, y, alpha=2),
        "sub": lambda x, y, z: torch.sub(x, y, alpha=2),
        "rsub": lambda x, y, z: torch.rsub(x, y, alpha=2),
        "addcmul": torch.addcmul,
        "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=2),
    }[name]
    values = torch.randint(1, 3, (2, 3, 4, 5), generator=torch.Generator().manual_seed(0)).float()
    flat = call(*[values.to(dtype)] * 3)
    for order in permutations(LAYOUTS):
        stock = [torch.empty_permuted(values.shape, axes).copy_(values) for axes in order]
        ours = [t.to(dtype) for t in stock]
        found = call(*ours)
        assert found.stride() == call(*stock).stride(), order
        assert torch.equal(found, flat)
        assert call(*(t.to("meta") for t in ours)).stride() == found.stride(), order
    stock = [torch.empty_permuted(values.shape, axes).copy_(values) for axes in LAYOUTS[1:]]
    row = values[:1, :1, :1].clone()
    assert call(row.to(dtype), *(t.to(dtype) for t in stock)).stride() == call(row, *stock).stride()


VIEWS = {
    "contiguous": lambda t: t,
    "permuted": lambda t: t.transpose(0, 2),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "gaps": lambda t: t[:, ::2],
    "any stride of a dimension of one": lambda t: t.as_strided((2, 1, 4), (4, 7, 1)),
    "no elements": lambda t: t[:0],
    "no dimensions": lambda t: t[0, 0, 0, 0],
}


@pytest.mark.parametrize("layout", VIEWS)
def test_results_have_the_strides_of_float32(layout):
    values = torch.arange(-24.0, 24.0).reshape(2, 3, 2, 4)
    stock = VIEWS[layout](values)
    x = VIEWS[layout](values.to(torch.posit16es2))
    for call in (
        lambda t: t + t,
        lambda t: t.clone().mul_(t),
        lambda t: torch.addcmul(t, t, t),
    ):
        found, expected = call(x), call(stock)
        assert found.stride() == expected.stride()
        assert torch.equal(found.float(), expected)
