"""float32 itself as a format: + - * / with random rounding in one pass, against exact rationals and
against the codec."""

import math

import pytest
import torch
from rationals import Fraction

import torch_dtypes
from torch_dtypes import _C

STOCHASTIC, UP_DOWN = "e8m23_stochastic", "e8m23_up_down"
OPERATIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}
LAST = Fraction(1, 2**149)


def words_of_next_call(n, steps=1):
    """Return the random words of elements 0 to n - 1 in the next call, which then draws the same
    seed."""
    state = torch.get_rng_state()
    seed = _C.next_seed()
    torch.set_rng_state(state)
    return [w % 2**64 for w in _C.random_words(seed, 0, n).tolist()]


def bits(x):
    return x.view(torch.int32)


def in_dtype(x, dtype):
    return _C.alias_binary32(x, dtype)


def stock(y):
    return _C.alias_binary32(y, None)


def stochastic(exact, word):
    """Return the float32 number by definition: the cut-off fraction, cut to 53 bits of the result
    and rounded to odd, plus the word."""
    sign, m = (-1, -exact) if exact < 0 else (1, exact)
    if m == 0:
        return 0.0
    exponent = m.numerator.bit_length() - m.denominator.bit_length()
    exponent -= m < Fraction(2) ** exponent
    unit53 = Fraction(2) ** (exponent - 52)
    cut = math.floor(m / unit53)
    if m != cut * unit53:
        m = (cut | 1) * unit53
    unit = max(LAST, Fraction(2) ** (exponent - 23))
    kept = math.floor(m / unit)
    fraction = m / unit - kept
    kept += fraction * 2**64 + word >= 2**64
    value = kept * unit
    return sign * (math.inf if value >= Fraction(2) ** 128 else float(value))


def operands(n, scale, seed):
    g = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-scale, scale + 1, (2, n), generator=g)
    values = torch.ldexp(1 + torch.rand(2, n, generator=g), exponents) * torch.randint(
        0, 2, (2, n), generator=g
    ).mul(2).sub(1)
    return values[0].contiguous(), values[1].contiguous()


@pytest.mark.parametrize("scale", [0, 3, 30, 63, 75])
@pytest.mark.parametrize("name", OPERATIONS)
def test_stochastic_against_rationals(name, scale):
    x, y = operands(1300, scale, seed=scale)
    if scale == 75 and name == "mul":
        # Subnormal products, whose digits are far below the last place.
        x, y = x * 2.0**-60, y * 2.0**-60
        x, y = torch.where(x == 0, 1.0, x), torch.where(y == 0, 1.0, y)
    torch.manual_seed(scale)
    words = words_of_next_call(len(x))
    found = stock(OPERATIONS[name](*(in_dtype(t, torch_dtypes.dtype(STOCHASTIC)) for t in (x, y))))
    expected = [
        stochastic(OPERATIONS[name](Fraction(a), Fraction(b)), w)
        for a, b, w in zip(x.tolist(), y.tolist(), words, strict=True)
    ]
    assert found.tolist() == expected


@pytest.mark.parametrize("name", OPERATIONS)
def test_up_down_against_stock(name):
    x, y = operands(1300, 30, seed=7)
    x[:20], y[:20] = y[:20], -y[:20]  # zeros among the sums
    torch.manual_seed(1)
    words = words_of_next_call(len(x))
    found = stock(OPERATIONS[name](*(in_dtype(t, torch_dtypes.dtype(UP_DOWN)) for t in (x, y))))
    nearest = bits(OPERATIONS[name](x, y)).tolist()
    expected = [
        u + (1 if w >> 63 else -1) if u & 0x7FFFFFFF else u
        for u, w in zip(nearest, words, strict=True)
    ]
    assert bits(found).tolist() == expected


SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.0**-149,
    -(2.0**-149),
    2.0**-126,
    1.9 * 2.0**-127,
    3.4028234663852886e38,
    -3.4028234663852886e38,
    2.0**127,
    2.0**-70,
    1.2345 * 2.0**-76,
    math.inf,
    -math.inf,
    math.nan,
]


def rounded_to_odd(name, x, y):
    """Return float64 results rounded to odd: an inexact even one is replaced by its odd neighbour
    towards the exact result."""
    wide = OPERATIONS[name](x.double(), y.double())
    toward = torch.zeros_like(wide)
    for i, (a, b, w) in enumerate(zip(x.tolist(), y.tolist(), wide.tolist(), strict=True)):
        if all(map(math.isfinite, (a, b, w))):
            lost = OPERATIONS[name](Fraction(a), Fraction(b)) - Fraction(w)
            toward[i] = math.inf * ((lost > 0) - (lost < 0)) if lost else 0.0
    even = (wide.view(torch.int64) & 1) == 0
    return torch.where((toward != 0) & even, torch.nextafter(wide, toward), wide)


@pytest.mark.parametrize("mode", [STOCHASTIC, UP_DOWN])
@pytest.mark.parametrize("name", OPERATIONS)
def test_specials_as_the_codec_has_them(name, mode):
    """Compare with float64 results, exact or rounded to odd, that the codec rounds with the same
    words."""
    dtype = torch_dtypes.dtype(mode)
    pairs = torch.cartesian_prod(torch.tensor(SPECIALS), torch.tensor(SPECIALS)).repeat(8, 1)
    x, y = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
    torch.manual_seed(3)
    words = words_of_next_call(len(x))
    found = stock(OPERATIONS[name](in_dtype(x, dtype), in_dtype(y, dtype)))
    wide = rounded_to_odd(name, x, y)
    signed = torch.tensor([w - 2**64 if w >= 2**63 else w for w in words])
    codes = _C.encode_exact(torch_dtypes.format_of(dtype), wide, signed).to(torch.int32)
    nan = wide.isnan()  # the sign depends on the processor
    assert torch.equal(bits(found)[~nan], codes[~nan]) and found[nan].isnan().all()
    assert torch.equal(bits(found)[nan] & 0x7FFFFFFF, torch.full_like(codes[nan], 0x7FC00000))


@pytest.mark.parametrize("mode", [STOCHASTIC, UP_DOWN])
@pytest.mark.parametrize("name", OPERATIONS)
def test_layouts_numbers_and_places(name, mode):
    dtype = torch_dtypes.dtype(mode)
    f = OPERATIONS[name]
    x, y = operands(3000, 5, seed=1)
    X, Y = in_dtype(x, dtype), in_dtype(y, dtype)

    def run_seeded(call):
        torch.manual_seed(5)
        return bits(stock(call())).clone()

    whole = run_seeded(lambda: f(X, Y))
    assert torch.equal(
        whole.reshape(50, 60), run_seeded(lambda: f(X.reshape(50, 60), Y.reshape(50, 60)))
    )
    transposed = run_seeded(lambda: f(X.reshape(50, 60).t(), Y.reshape(50, 60).t()))
    assert torch.equal(transposed, whole.reshape(50, 60).t())
    into = X.clone()
    in_place = {"add": into.add_, "sub": into.sub_, "mul": into.mul_, "div": into.div_}[name]
    assert torch.equal(whole, run_seeded(lambda: in_place(Y)))
    every_second = torch.empty(6000)[::2].copy_(x)
    assert torch.equal(whole, run_seeded(lambda: f(in_dtype(every_second, dtype), Y)))
    for number in (0.75, -3.0):
        full = in_dtype(torch.full_like(x, number), dtype)
        assert torch.equal(
            run_seeded(lambda full=full: f(X, full)), run_seeded(lambda number=number: f(X, number))
        )
        assert torch.equal(
            run_seeded(lambda full=full: f(full, Y)), run_seeded(lambda number=number: f(number, Y))
        )
        one = in_dtype(torch.tensor([number]), dtype)
        assert torch.equal(
            run_seeded(lambda full=full: f(X, full)), run_seeded(lambda one=one: f(X, one))
        )
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        big, other = (in_dtype(t.repeat(40), dtype) for t in (x, y))
        two = run_seeded(lambda: f(big, other))
        torch.set_num_threads(1)
        assert torch.equal(two, run_seeded(lambda: f(big, other)))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", [STOCHASTIC, UP_DOWN])
def test_casts_from_float64(name):
    dtype = torch_dtypes.dtype(name)
    values = torch.cat(
        [torch.randn(2000, dtype=torch.float64) * 2.0**e for e in (0, -130, -148, -160, 127)]
    )
    values = torch.cat(
        [
            values,
            torch.tensor(SPECIALS, dtype=torch.float64),
            torch.tensor([1e300, -1e300, 5e-324, 2.0**128, 2.0**-150]),
        ]
    )
    torch.manual_seed(9)
    words = words_of_next_call(len(values))
    found = stock(values.to(dtype))
    signed = torch.tensor([w - 2**64 if w >= 2**63 else w for w in words])
    codes = _C.encode_exact(torch_dtypes.format_of(dtype), values, signed).to(torch.int32)
    assert torch.equal(bits(found), codes)
