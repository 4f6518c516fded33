"""Statistics of stochastic rounding: frequencies, bias and variance of many draws, arithmetic,
accumulation, training.

Seeds are fixed, so that a test always passes or always fails. The limits are five standard
deviations."""

import math

import numpy as np
import oracle
import pytest
import torch
from conftest import codes_of, from_codes, to_codes
from oracle import binary, posit
from oracle_stochastic import encode, random_words
from rationals import Fraction

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.usefixtures("one_thread")
DRAWS = 50_000
MINSUB, MINPOS = 2.0**-9, 2.0**-24
VALUES = {
    "q43": (
        binary(4, 3),
        [
            0.1 * MINSUB,
            0.5 * MINSUB,
            0.999 * MINSUB,
            3.7 * MINSUB,
            7.9 * MINSUB,
            1.01,
            1.1249,
            1.95,
            -3.3,
            77.7,
            239.0,
            241.0,
            -250.0,
            255.9,
        ],
    ),
    "q52": (binary(5, 2), [2.0**-18, 2.0**-17 * 1.1, 0.3, -1.2, 5e4, 6e4, -6.5e4]),
    "posit8es2": (
        posit(8, 2),
        [
            1.5 * MINPOS,
            5 * MINPOS,
            15 * MINPOS,
            20 * MINPOS,
            1e-5,
            0.3,
            1.06,
            -100.7,
            1e4,
            3e5,
            -(2.0**20) * 1.3,
            2.0**22,
            2.0**23 * 1.9,
        ],
    ),
    "posit8es0": (posit(8, 0), [1.2 / 64, 0.3, -1.01, 5.3, 33.0, 63.0]),
    "posit8es2_underflow": (
        posit(8, 2, underflow="zero"),
        [MINPOS / 1000, MINPOS / 3, -0.9 * MINPOS, 1.5 * MINPOS, 1.06],
    ),
    "posit16es2": (
        posit(16, 2),
        [
            2.0**-56 * 1.1,
            2.0**-52 * 1.7,
            2.0**-50 * 1.3,
            1e-3,
            1 + 2.0**-14,
            -3.14159,
            1e9,
            2.0**50 * 1.9,
            2.0**52 * 3,
        ],
    ),
    "e5m7": (binary(5, 7), [2.0**-21 / 7, 2.0**-14 * 0.99, 0.3, -1.004, 65200.0, 65300.0, 65500.0]),
    "posit32es2": (posit(32, 2), [2.0**-118 * 3, 1 + 2.0**-30, -math.pi * 1e10, 2.0**117]),
}


def neighbours(spec, x):
    """Return the codes of the neighbours of |x|, and the probability of the upper one."""
    k, side = spec.locate(Fraction(abs(x)))
    assert side is not None
    up = k + 1 if k == spec.largest else spec.successor(k)
    low, high = spec.magnitude(k), spec.magnitude(up)
    up = spec.overflow_code if k == spec.largest else up
    return spec.signed(k, x < 0), spec.signed(up, x < 0), (Fraction(abs(x)) - low) / (high - low)


def deviation(successes, n, p):
    """Return the deviation in standard deviations. A probability below 1 / n counts by its Poisson
    spread."""
    return (successes - n * p) / math.sqrt(max(n * p * (1 - p), 1.0))


@pytest.mark.parametrize("kind", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_frequencies_are_the_probabilities(name, kind):
    """Check the frequency of each value, and of all together by a chi-square test."""
    spec, values = VALUES[name]
    dtype = torch_dtypes.dtype(name)
    chi_square = {"stochastic": 0.0, "stochastic_equal": 0.0}
    if kind == torch.float32:
        values = [
            v for v in np.float32(values).tolist() if spec.locate(Fraction(abs(v)))[1] is not None
        ]
    for i, v in enumerate(values):
        low, up, p = neighbours(spec, v)
        for mode, probability in (("stochastic", float(p)), ("stochastic_equal", 0.5)):
            torch.manual_seed(100 + i)
            with torch_dtypes.rounding(mode):
                codes = to_codes(torch.full((DRAWS,), v, dtype=kind), dtype)
            ups = int((codes == up).sum())
            assert int((codes == low).sum()) == DRAWS - ups
            z = deviation(ups, DRAWS, probability)
            assert abs(z) < 5, (v, mode, ups / DRAWS, probability)
            chi_square[mode] += z * z
    for total in chi_square.values():
        assert total < len(values) + 5 * math.sqrt(2 * len(values))


@pytest.mark.parametrize("name", VALUES)
def test_the_mean_is_the_value_and_the_variance_the_least(name):
    """E = x and Var = (high - x)(x - low), wherever both neighbours are finite."""
    spec, values = VALUES[name]
    dtype = torch_dtypes.dtype(name)
    for i, v in enumerate(values):
        low, up, _ = neighbours(spec, v)
        ends = [float(spec.decode(c)) for c in (low, up)]
        if not np.isfinite(ends).all():
            continue
        torch.manual_seed(200 + i)
        with torch_dtypes.rounding("stochastic"):
            y = torch.full((DRAWS,), v, dtype=torch.float64).to(dtype).double()
        error = (y - v) / (ends[1] - ends[0])
        part = (v - ends[0]) / (ends[1] - ends[0])
        variance = part * (1 - part)
        assert abs(error.mean().item()) < 5 * math.sqrt(max(variance, 1 / DRAWS) / DRAWS)
        fourth = part * (1 - part) * (1 - 3 * variance)
        assert (
            abs((error**2).mean().item() - variance)
            < 5 * math.sqrt(max(fourth - variance**2, 1 / DRAWS) / DRAWS) + 1e-9
        )


def test_many_values_at_once():
    """Round a million numbers over all of posit16es2's range once. The relative errors, in units of
    the neighbours' distance, add up to 0."""
    spec, dtype = posit(16, 2), torch.posit16es2
    t = oracle.table(spec)
    rng = np.random.default_rng(0)
    at = rng.integers(1, len(t.values) - 1, 1_000_000)
    low, high = t.values[at], t.values[at + 1]
    part = rng.random(len(at))
    x = low + (high - low) * part
    torch.manual_seed(4)
    with torch_dtypes.rounding("stochastic"):
        up = to_codes(torch.from_numpy(x), dtype).numpy() - t.codes[at]
    assert set(np.unique(up)) == {0, 1}
    assert abs(deviation(up.sum(), len(x), part.mean())) < 5
    for bucket in range(10):
        here = (part >= bucket / 10) & (part < (bucket + 1) / 10)
        assert abs(deviation(up[here].sum(), here.sum(), part[here].mean())) < 5


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("mode", ["stochastic", "stochastic_equal"])
def test_exact_values_never_move(name, mode):
    spec, dtype = VALUES[name][0], torch_dtypes.dtype(name)
    codes = (
        torch.arange(1 << spec.bits)
        if spec.bits <= 16
        else torch.randint(0, 2**32, (65536,), generator=torch.Generator().manual_seed(0))
    )
    values = from_codes(codes, dtype).double()
    kept = values.isfinite()
    expected = to_codes(values, dtype)
    for _ in range(5):
        with torch_dtypes.rounding(mode):
            assert torch.equal(to_codes(values, dtype)[kept], expected[kept])
            if spec.bits <= 16:
                assert torch.equal(to_codes(values.float(), dtype)[kept], expected[kept])


@pytest.mark.parametrize("name", ["q43", "posit8es2", "posit16es2"])
def test_up_down_goes_to_both_sides_alike(name):
    spec, dtype = VALUES[name][0], torch_dtypes.dtype(name)
    for v in (1.0, 1.06, -3.3, 0.01):
        k = spec.encode(abs(v))
        torch.manual_seed(6)
        with torch_dtypes.rounding("up_down"):
            codes = to_codes(torch.full((DRAWS,), v, dtype=torch.float64), dtype)
        ups = int((codes == spec.signed(k + 1, v < 0)).sum())
        assert (
            int((codes == spec.signed(k - 1, v < 0)).sum()) == DRAWS - ups
            and abs(deviation(ups, DRAWS, 0.5)) < 5
        )
    with torch_dtypes.rounding("up_down"):
        assert torch.zeros(100).to(dtype).tolist() == [0.0] * 100


# ---- arithmetic ----

OPERATIONS = {
    "add": (lambda x: x + 2.0**-9, Fraction(2) ** -9 + 1, 1.0),
    "number": (lambda x: x * 0.9, Fraction(0.9), 1.0),
    "mul": (lambda x: x * x, Fraction(81, 64), 1.125),
    "div": (lambda x: 1 / x, Fraction(1, 3), 3.0),
    "sub": (lambda x: x - x * 2.0**-6, Fraction(63, 64), 1.0),
    "sqrt": (lambda x: x.sqrt(), math.sqrt(2), 2.0),
    "exp": (lambda x: x.exp(), math.exp(1), 1.0),
    "sum": (lambda x: torch.stack([x, x / 64], 1).sum(1), Fraction(65, 64), 1.0),
}


@pytest.mark.parametrize("name", ["q43", "posit8es2"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_arithmetic_is_unbiased(name, operation):
    operate, exact, start = OPERATIONS[operation]
    x = torch.full((DRAWS,), start).to(torch_dtypes.dtype(name))
    torch.manual_seed(8)
    with torch_dtypes.rounding("stochastic"):
        y = operate(x)
    spec = VALUES[name][0]
    low, up, p = neighbours(spec, float(exact))
    codes = codes_of(y)
    ups = int((codes == up).sum())
    assert int((codes == low).sum()) == DRAWS - ups and abs(deviation(ups, DRAWS, float(p))) < 5


@pytest.mark.parametrize("name", ["q43", "posit16es2"])
@pytest.mark.parametrize("operator", [torch.add, torch.sub, torch.mul])
def test_arithmetic_takes_the_words_of_the_seed(name, operator):
    """The bits agree where float64 holds the exact result."""
    spec, dtype = VALUES[name][0], torch_dtypes.dtype(name)
    codes = torch.randint(
        1, spec.largest >> 1, (2, 3000), generator=torch.Generator().manual_seed(1)
    ) + (spec.largest >> 2)
    x, y = from_codes(codes, dtype)
    exact = operator(x.double(), y.double()).tolist()
    torch.manual_seed(9)
    seed = int(_C.next_seed()) % 2**64
    torch.manual_seed(9)
    with torch_dtypes.rounding("stochastic"):
        found = codes_of(operator(x, y)).tolist()
    words = random_words(seed, 0, len(exact)).tolist()
    assert found == [encode(spec, v, "stochastic", w) for v, w in zip(exact, words, strict=True)]


def test_small_steps_add_up():
    """Add 256 steps of 2^-11 to 1, each a sixteenth of the distance there. Nearest rounding stays
    at 1; stochastic rounding reaches 1.125 on average."""
    n = 4000
    nearest = torch.ones(n).to(torch.e5m7)
    step = torch.full((n,), 2.0**-11).to(torch.e5m7)
    stochastic = nearest.clone()
    torch.manual_seed(0)
    for _ in range(256):
        nearest += step
        with torch_dtypes.rounding("stochastic"):
            stochastic += step
    assert nearest.unique().tolist() == [1.0]
    spread = math.sqrt(256 * (1 / 16) * (15 / 16)) * 2.0**-7
    assert abs(stochastic.double().mean().item() - 1.125) < 5 * spread / math.sqrt(n)
    assert abs(stochastic.double().std().item() - spread) < 5 * spread / math.sqrt(2 * n)


# ---- autograd and training ----


@pytest.mark.parametrize("mode", ["stochastic", "stochastic_equal", "up_down"])
def test_training_in_a_stochastic_mode(mode):
    with torch_dtypes.rounding(mode):
        first, again = train(torch.posit16es2), train(torch.posit16es2)
    assert first == again and first[-1] < 0.5 * first[0]


def test_training_in_a_stochastic_dtype():
    losses = train(torch_dtypes.dtype("posit16es2_stochastic"))
    assert losses[-1] < 0.5 * losses[0]


def train(dtype):
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    target = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        dtype
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(dtype)), target.to(dtype))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.grad.dtype == dtype and p.isfinite().all() for p in model.parameters())
    return losses


def test_gradients_are_rounded_stochastically():
    x = torch.ones(DRAWS).to(torch_dtypes.dtype("q43_stochastic")).requires_grad_()
    torch.manual_seed(2)
    (x * 0.9).sum().backward()
    spec = binary(4, 3)
    low, up, p = neighbours(spec, 0.9)
    ups = int((codes_of(x.grad) == up).sum())
    assert (
        int((codes_of(x.grad) == low).sum()) == DRAWS - ups
        and abs(deviation(ups, DRAWS, float(p))) < 5
    )
