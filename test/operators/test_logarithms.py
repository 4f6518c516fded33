"""Operators of logarithmic takums and LNS: products, quotients, roots and powers by exact
logarithms, sums and casts correctly rounded."""

import math

import mpmath
import numpy as np
import pytest
import torch
from oracle import MODES as DETERMINISTIC
from oracle_logarithms import of_name
from rationals import Fraction
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.formats.codes import codes as codes_of
from torch_dtypes.formats.codes import from_codes

NARROW = ("lns3_3", "lns2_1", "takum8_log")
WIDE = ("lns5_7", "lns9_5", "lns0_14", "takum13_log", "takum16_log")
KEPT = {"takum8_log", "lns5_7"}


def tensor(name, codes, mode="nearest_even"):
    dtype = torch_dtypes.dtype(name if mode == "nearest_even" else f"{name}_{mode}")
    return from_codes(
        torch.from_numpy(codes).to({1: torch.uint8, 2: torch.int16}[dtype.itemsize]), dtype
    )


def unsigned(t):
    return codes_of(t).numpy().astype(np.int64) & (1 << torch_dtypes.format_of(t.dtype).bits) - 1


def pairs(name, count=100_000):
    """Return codes that have logarithms: all pairs up to 8 bits, otherwise drawn ones and
    neighbours of 1."""
    f = of_name(name)
    ours = np.flatnonzero(f.of_codes[0])
    if f.bits <= 8:
        return np.repeat(ours, len(ours)), np.tile(ours, len(ours))
    rng = np.random.default_rng(f.bits)
    one = f.codes[np.searchsorted(f.logs, 0)]
    near = (
        f.codes[np.searchsorted(f.codes, one) + rng.integers(-200, 200, count // 2)]
        if f.base is None
        else rng.integers(1, 200, count // 2)
    )
    return rng.choice(ours, count), np.concatenate([rng.choice(ours, count - len(near)), near])


def in_mode(call, mode):
    with torch_dtypes.rounding(mode):
        return call()


def all_codes(name):
    f = of_name(name)
    codes = np.flatnonzero(f.of_codes[0])
    return f, codes, *(x[codes] for x in f.of_codes)


@pytest.mark.parametrize("name", thin_out([*NARROW, *WIDE], KEPT))
def test_products_and_quotients(name):
    f, (first, second) = of_name(name), pairs(name)
    (signs, logs), a, b = f.of_codes, tensor(name, first), tensor(name, second)
    for mode in DETERMINISTIC:
        for call, log in (
            (torch.mul, logs[first] + logs[second]),
            (torch.div, logs[first] - logs[second]),
        ):
            found = unsigned(in_mode(lambda call=call: call(a, b), mode))
            assert np.array_equal(found, f.encode(signs[first] * signs[second], log, mode)), (
                mode,
                call,
            )


def test_cases_of_the_issue():
    a, b = (tensor("takum16_log", np.array([code])) for code in (0x7589, 0x3070))
    assert unsigned(a * b).tolist() == [0x752C]
    f = of_name("lns5_7")
    assert len(f.codes) == 8191 and np.array_equal(
        unsigned(tensor("lns5_7", f.codes).sqrt()), f.encode(1, f.logs // 2, "nearest_even")
    )


@pytest.mark.parametrize("name", thin_out([*NARROW, *WIDE], KEPT))
def test_functions_of_one_operand(name):
    f, codes, signs, logs = all_codes(name)
    x, positive = tensor(name, codes), signs > 0
    for mode in DETERMINISTIC:
        for call, log in ((torch.sqrt, logs // 2), (torch.rsqrt, -(logs // 2))):
            found = unsigned(in_mode(lambda call=call: call(x), mode))
            assert np.array_equal(found, np.where(positive, f.encode(signs, log, mode), f.nan)), (
                mode,
                call,
            )
        for call, log, sign in (
            (torch.reciprocal, -logs, signs),
            (torch.square, 2 * logs, signs * signs),
        ):
            assert np.array_equal(
                unsigned(in_mode(lambda call=call: call(x), mode)), f.encode(sign, log, mode)
            ), (mode, call)


EXPONENTS = (
    0,
    1,
    2,
    3,
    -1,
    -2,
    -7,
    0.5,
    -0.5,
    1.5,
    0.25,
    1 / 3,
    0.1,
    -2.7,
    1 + 2.0**-40,
    1e-9,
    300,
)


@pytest.mark.parametrize("name", ["lns3_3", "takum8_log", "lns5_7", "takum12_log"])
def test_powers(name):
    f, codes, signs, logs = all_codes(name)
    x = tensor(name, codes)
    for i, n in enumerate(EXPONENTS):
        mode, exact = DETERMINISTIC[i % 7], Fraction(n)
        sign = np.where(signs > 0, 1, 0) if exact.denominator != 1 else signs ** (abs(int(n)) % 2)
        top, bottom = int(exact.numerator), int(exact.denominator)
        expected = np.where(
            sign == 0, f.nan, f.encode(sign, logs.astype(object) * top, mode, denominator=bottom)
        )
        assert np.array_equal(unsigned(in_mode(lambda n=n: x**n, mode)), expected), (n, mode)
        assert np.array_equal(unsigned(in_mode(lambda n=n: x[:100] ** n, mode)), expected[:100]), (
            n,
            mode,
        )


def test_powers_of_two_tensors():
    name = "lns3_3"
    f, codes, signs, logs = all_codes(name)
    values = tensor(name, codes).double()
    x, n = (
        tensor(name, np.repeat(codes[signs > 0], len(codes))),
        tensor(name, np.tile(codes, (signs > 0).sum())),
    )
    found = unsigned(x**n).reshape(-1, len(codes))
    for column, exponent in enumerate(values.tolist()):
        exact = Fraction(exponent)
        log = logs[signs > 0].astype(object) * int(exact.numerator)
        assert np.array_equal(
            found[:, column],
            f.encode(
                1 + 0 * signs[signs > 0], log, "nearest_even", denominator=int(exact.denominator)
            ),
        ), exponent


@pytest.mark.parametrize("name", ["lns3_3", "takum8_log", "takum16_log"])
@pytest.mark.parametrize("mode", ["stochastic", "stochastic_equal", "up_down"])
def test_random_modes_for_given_words(name, mode):
    """The generic codec uses given words; `stochastic` decides by the value, of which 300 bits are
    known."""
    f, (first, second) = of_name(name), pairs(name)
    rng = np.random.default_rng(3)
    chosen = rng.integers(0, len(first), 600)
    signs, logs = (
        x[chosen]
        for x in (
            f.of_codes[0][first] * f.of_codes[0][second],
            f.of_codes[1][first] + f.of_codes[1][second],
        )
    )
    words = rng.choice(np.array([0, 2**64 - 1, 2**63 - 1, 2**63], dtype=np.uint64), 600)
    fmt = torch_dtypes.format_of(f"{name}_{mode}").on_logarithms
    products = tensor(name, first[chosen]).double() * tensor(name, second[chosen]).double()
    found = _C.encode_exact(fmt, products, torch.from_numpy(words.view(np.int64))).numpy()
    if mode != "stochastic":
        assert np.array_equal(found, f.encode(signs, logs, mode, words >> np.uint64(63) == 1))
        return
    lower, upper = (f.encode(np.ones_like(signs), logs, m) for m in ("down", "up"))
    with mpmath.workprec(300):
        for code, sign, log, word, low, high in zip(
            found.tolist(), signs, logs, words.tolist(), lower.tolist(), upper.tolist(), strict=True
        ):
            end = low
            if low != high:
                a, b = (0 if c == f.zero else f.power(f.of_codes[1][c]) for c in (low, high))
                end = (
                    high
                    if int(mpmath.floor((f.power(log) - a) / (b - a) * 2**64)) + word >= 2**64
                    else low
                )
            assert (
                code == f.encode(np.array([sign]), f.of_codes[1][[end]], "nearest_even")[0]
                or end == code == f.zero
            )


def test_exact_results_draw_nothing_that_moves_them():
    name = "lns3_3"
    f, (first, second) = of_name(name), pairs(name)
    (signs, logs), a, b = f.of_codes, tensor(name, first), tensor(name, second)
    within = (abs(logs[first] + logs[second]) <= f.logs[-1]).nonzero()[0]
    for mode in ("stochastic", "stochastic_equal"):
        found = unsigned(in_mode(lambda: a * b, mode))[within]
        assert np.array_equal(
            found,
            f.encode(signs[first] * signs[second], logs[first] + logs[second], "nearest_even")[
                within
            ],
        )


def test_halves_between_takums_go_up_as_often_as_their_values_say():
    a, b = (tensor("takum16_log", np.full(200_000, code)) for code in (0x7589, 0x3070))
    with torch_dtypes.rounding("stochastic"):
        torch.manual_seed(0)
        found = (a * b).double()
    low, high = found.unique().tolist()
    with mpmath.workprec(200):
        f = of_name("takum16_log")
        exact = float(
            (f.power(f.of_codes[1][0x7589] + f.of_codes[1][0x3070]) - low)
            / (mpmath.mpf(high) - low)
        )
    assert abs((found == high).double().mean().item() - exact) < 5 * math.sqrt(0.25 / 200_000)


def test_ways_to_call():
    name = "lns5_7"
    f, (first, second) = of_name(name), pairs(name, 4000)
    signs, logs = f.of_codes
    expected = f.encode(signs[first] * signs[second], logs[first] + logs[second], "nearest_even")
    a, b = tensor(name, first), tensor(name, second)
    out = torch.empty_like(a)
    torch.mul(a, b, out=out)
    wide = torch.stack([a, b], 1)
    graded = a.clone().requires_grad_()
    for found in (
        out,
        a.clone().mul_(b),
        torch._foreach_mul([a], [b])[0],
        wide[:, 0] * wide[:, 1],
        graded.mul(b),
        torch.vmap(torch.mul)(a, b),
    ):
        assert np.array_equal(unsigned(found.detach()), expected)
    number = float(b[0].double())
    expected = f.encode(
        signs[first] * signs[second[0]], logs[first] + logs[second[0]], "nearest_even"
    )
    for found in (a * number, a * b[0], a.clone().mul_(number), torch._foreach_mul([a], number)[0]):
        assert np.array_equal(unsigned(found), expected)
    positive = a.abs()
    expected = f.encode(np.ones_like(signs[first]), logs[first] * 3, "nearest_even", denominator=2)
    power = positive.clone().requires_grad_() ** 1.5
    power.backward(torch.ones_like(power))
    for found in (
        positive**1.5,
        positive.clone().pow_(1.5),
        torch._foreach_pow([positive], 1.5)[0],
        power.detach(),
    ):
        assert np.array_equal(unsigned(found), expected)


def test_a_number_beside_it_that_is_none_of_its_values():
    """A value counts with its 51 bits."""
    name = "lns5_7"
    _, codes, _, _ = all_codes(name)
    x = tensor(name, codes)
    assert torch.equal((x * 3).double(), (x.double() * 3).to(x.dtype).double())


# ---- sums ----


def grids():
    """Yield (base, units to 1, largest distance of two logarithms in units). Values and boundaries
    are multiples of half a unit."""
    yield None, 1 << 12, 255 << 12  # covers the logarithms of all takums of up to 16 bits
    for frac_bits in range(15):
        yield 2, 1 << frac_bits, 2 << min(14 - frac_bits, 9) + frac_bits


def gaussian(base, apart, sign):
    """Return the logarithm of 1 + sign * base^-apart, to float64's precision."""
    natural = np.asarray(apart) * (math.log(2) if base else 1.0)
    log = np.log1p(np.exp(-natural)) if sign > 0 else np.log(-np.expm1(-natural))
    return log / (math.log(2) if base else 1.0)


def test_no_sum_is_so_near_to_a_boundary_that_51_bits_do_not_decide():
    """Check sums and differences of two values of any of the formats, except doubles and halves.
    The distance of each to all values and boundaries exceeds the error by a factor of at least
    2^15. The error is that of the values' 51 bits and of float64's rounding to odd.

    Where the nearest value is the larger operand itself, the sum of the numbers is on the same side
    of it as that of the values."""
    worst = math.inf
    for base, units, most in grids():
        apart = np.arange(1, most + 1) / units
        for sign in (1, -1):
            g = gaussian(base, apart, sign)
            steps = np.round(g * 2 * units)
            with np.errstate(under="ignore"):
                small = np.exp(-apart * (math.log(2) if base else 1.0))
            away = np.abs(g - steps / (2 * units)) * (math.log(2) if base else 1.0)
            error = 2.0**-51 * (1 + small) / (1 + sign * small) + 2.0**-52 + 2.0**-51
            counts = (steps != 0) & ~((sign < 0) & (apart == 1) & (base == 2))
            worst = min(worst, (away / error)[counts].min())
    assert worst > 2**15


@pytest.mark.parametrize("name", thin_out([*NARROW, *WIDE], KEPT))
def test_sums(name):
    """Check by logarithms in float64, whose precision the test above shows to be enough. Exact sums
    only occur for equal numbers, or for one and its half."""
    f, (first, second) = of_name(name), pairs(name)
    signs, logs = f.of_codes
    larger, smaller = (
        np.where((logs[first] >= logs[second]) == flag, first, second) for flag in (True, False)
    )
    apart = logs[larger] - logs[smaller]
    same = signs[larger] == signs[smaller]
    with np.errstate(divide="ignore"):
        g = np.where(
            same, gaussian(f.base, apart / f.unit, 1), gaussian(f.base, apart / f.unit, -1)
        )
    # Between two multiples of 2; values and boundaries are multiples of 2.
    steps = 2 * np.floor(g * f.unit / 2) + 1
    steps = np.where(g == 0, np.where(same, 1, -1), steps)
    exact = (f.base == 2) & ((same & (apart == 0)) | (~same & (apart == f.unit)))
    steps = np.where(exact, np.where(same, f.unit, -f.unit), steps)
    cancels = ~same & (apart == 0)
    total = logs[larger] + np.where(cancels, 0, steps).astype(np.int64)
    a, b = tensor(name, first), tensor(name, second)
    for mode in DETERMINISTIC:
        expected = np.where(cancels, f.zero, f.encode(signs[larger], total, mode))
        assert np.array_equal(unsigned(in_mode(lambda: a + b, mode)), expected), mode
        assert np.array_equal(unsigned(in_mode(lambda: a - (-b), mode)), expected), mode


@pytest.mark.parametrize("name", thin_out([*NARROW, *WIDE], 3))
def test_casts_beside_boundaries(name):
    """Cast float64's numbers next to a boundary, which has more digits than float64."""
    f = of_name(name)
    places = np.arange(len(f.between))
    if len(places) > 400:
        places = np.random.default_rng(1).choice(places, 400)
    x, above = [], []
    with mpmath.workprec(200):
        for place in places.tolist():
            exact = f.power(f.between[place])
            rounded = math.ldexp(
                float(
                    mpmath.nint(
                        mpmath.ldexp(exact, k := 52 - int(mpmath.floor(mpmath.log(exact, 2)) + 1))
                    )
                ),
                -k,
            )
            for number in (
                rounded,
                math.nextafter(float(exact), 0),
                float(exact),
                math.nextafter(float(exact), math.inf),
            ):
                x.append(number)
                above.append(mpmath.mpf(number) > exact)
    above, codes = np.array(above), np.repeat(places, 4)
    for sign in (1, -1):
        found = unsigned((torch.tensor(x, dtype=torch.float64) * sign).to(torch_dtypes.dtype(name)))
        expected = f.encode(np.full(len(x), sign), f.logs[codes + above], "nearest_even")
        assert np.array_equal(found, expected)
