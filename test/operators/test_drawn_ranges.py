"""Random numbers are in the range of a float32 draw: an open interval stays open, and a positive
number is not rounded to 0."""

import re

import pytest
import torch
from torch.nn import functional as F

import torch_dtypes

NAMES = [
    "q43",
    "q52",
    "posit8es1",
    "posit16es2",
    "e5m7",
    "e4m3finite",
    "fixed8_8",
    "q43_stochastic",
    "posit16es2_up",
]
dtypes = pytest.mark.parametrize("name", NAMES)
INTERVALS = [(0, 1), (-1, 1), (1, 2), (0, 3)]


@dtypes
@pytest.mark.parametrize("interval", INTERVALS)
def test_uniform_numbers_stay_below_an_end_that_the_format_has(name, interval):
    dtype, (low, high) = torch_dtypes.dtype(name), interval
    torch.manual_seed(1)
    x = torch.empty(50_000, dtype=dtype).uniform_(low, high)
    assert x.min().item() >= low and x.max().item() < high
    torch.manual_seed(1)
    drawn = torch.empty(50_000).uniform_(low, high)
    if "_" not in name.removeprefix("fixed8_"):  # rounds to nearest
        nearest = drawn.to(dtype)
        inside = nearest.double() < high
        assert torch.equal(x[inside], nearest[inside])
        end = torch.tensor(float(high), dtype=dtype)
        assert inside.all() or (x[~inside] == torch.nextafter(end, end * 0)).all()


@pytest.mark.parametrize("interval", [(0.1, 0.3), (-3, -2.9), (-0.2, 0.2)])
def test_other_ends_are_not_kept_to(interval):
    """Draws that initialise parameters are float32's, rounded."""
    torch.manual_seed(1)
    x = torch.empty(5000, dtype=torch.q43).uniform_(*interval)
    torch.manual_seed(1)
    assert torch.equal(x, torch.empty(5000).uniform_(*interval).to(torch.q43))


def test_an_interval_without_numbers_gives_the_nearest():
    assert torch.empty(100, dtype=torch.q43).uniform_(1.01, 1.02).eq(1).all()
    assert torch.empty(100, dtype=torch.q43).uniform_(1, 1).eq(1).all()


RANGES = {
    "e8m7": [(0, 1000), (-300, 3000), (-1001, -998)],
    "posit16es2": [(0, 5000), (-2049, 2049)],
    "q43": [(0, 241), (17, 19)],
    "q43_stochastic": [(-15, 18)],
    "e5m5_up": [(0, 129)],
    "lns4_3": [(1, 12)],
}
DRAWS = {
    "randint": lambda low, high, dtype: torch.randint(low, high, (3000,), dtype=dtype),
    "randint by name": lambda low, high, dtype: torch.randint(
        low=low, high=high, size=(3000,), dtype=dtype
    ),
    "randint out": lambda low, high, dtype: torch.randint(
        low, high, (3000,), out=torch.empty(0, dtype=dtype)
    ),
    "randint_like": lambda low, high, dtype: torch.randint_like(
        torch.empty(3000, dtype=dtype), low, high
    ),
    "randint_like of stock": lambda low, high, dtype: torch.randint_like(
        torch.empty(3000), low, high, dtype=dtype
    ),
    "randint_like by hand": lambda low, high, dtype: torch.ops.aten.randint_like.low_dtype(
        torch.empty(3000, dtype=dtype), low, high
    ),
    "random_": lambda low, high, dtype: torch.empty(3000, dtype=dtype).random_(low, high),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [(name, *ends) for name, all_ends in RANGES.items() for ends in all_ends],
)
def test_integers_stay_in_their_range(name, low, high, draw):
    """999 rounds to 1000 in e8m7, which is outside range(1000)."""
    dtype = torch_dtypes.dtype(name)
    x = DRAWS[draw](low, high, dtype)
    assert x.dtype is dtype and x.min().item() >= low and x.max().item() < high
    assert len(x.unique()) > 1 or high - low < 4


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("name", "low", "high", "words"),
    [
        ("q43", 0, 300, "within the numbers of torch.q43, -240 to 240, but got [0, 300)"),
        ("posit8es0", -65, 3, "within the numbers of torch.posit8es0, -64 to 64"),
        (
            "e8m7",
            100_000,
            100_100,
            "that holds numbers of torch.e8m7, but got [100000, 100100), between 99840 and 100352",
        ),
        ("e8m7", 999, 1000, "that holds numbers of torch.e8m7"),
    ],
)
def test_ranges_that_a_format_has_not(name, low, high, words, draw):
    with pytest.raises(RuntimeError, match=re.escape(words)):
        DRAWS[draw](low, high, torch_dtypes.dtype(name))


def test_a_range_without_an_end_ends_where_the_format_misses_an_integer():
    x = torch.empty(5000, dtype=torch_dtypes.dtype("e8m7")).random_(-300, None)
    assert x.min().item() == -300 and x.max().item() == 256
    with pytest.raises(
        RuntimeError,
        match=r"expected from of at most 256, up to which torch.e8m7 has every integer, but got "
        r"300",
    ):
        x.random_(300, None)


def test_a_format_of_float64_s_numbers_draws_float64_s_integers():
    found, expected = (
        torch.empty(100, dtype=d).random_(generator=torch.Generator().manual_seed(1))
        for d in (torch_dtypes.dtype("e11m52"), torch.float64)
    )
    assert torch.equal(found.double(), expected)


def test_a_permutation_has_every_integer():
    e8m7 = torch_dtypes.dtype("e8m7")
    assert torch.randperm(257, dtype=e8m7).double().sort().values.tolist() == list(range(257))
    assert torch.randperm(
        257, out=torch.empty(0, dtype=e8m7)
    ).double().sort().values.tolist() == list(range(257))
    out = torch.empty(0, dtype=e8m7)
    for call in (
        lambda: torch.randperm(258, dtype=e8m7),
        lambda: torch.randperm(n=258, dtype=e8m7),
        lambda: torch.randperm(258, out=out),
    ):
        with pytest.raises(
            RuntimeError,
            match=r"expected n of at most 257, since torch.e8m7 has every integer up to 256, but "
            r"got 258",
        ):
            call()
    assert torch.randperm(16, dtype=torch_dtypes.dtype("fixed4_4")).max() == 15
    with pytest.raises(
        RuntimeError,
        match=r"expected n of at most 16, since torch.fixed4_4 has every integer up to 15, but got "
        r"17",
    ):
        torch.randperm(17, dtype=torch_dtypes.dtype("fixed4_4"))
    even = torch_dtypes.dtype("fixed9_minus1")
    assert torch.randperm(1, dtype=even).tolist() == [0.0]
    with pytest.raises(
        RuntimeError,
        match=r"expected n of at most 1, since torch.fixed9_minus1 has every integer up to 0, but "
        r"got 2",
    ):
        torch.randperm(2, dtype=even)


@dtypes
def test_positive_numbers_stay_positive(name):
    dtype = torch_dtypes.dtype(name)
    torch.manual_seed(2)
    x = torch.empty(200_000, dtype=dtype).exponential_()
    assert (
        x.min().item() > 0 and torch.empty(50_000, dtype=dtype).log_normal_(-3, 2).min().item() > 0
    )
    torch.manual_seed(2)
    if "_" not in name.removeprefix("fixed8_"):
        nearest = torch.empty(200_000).exponential_().to(dtype)
        assert torch.equal(x[nearest != 0], nearest[nearest != 0])


@pytest.mark.parametrize("name", ["q43", "q52", "posit8es1", "posit16es2"])
def test_what_stock_code_makes_of_them_is_finite(name):
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    assert not F.gumbel_softmax(torch.zeros(3000, 10, dtype=dtype)).isnan().any()
    drawn = torch.distributions.Laplace(
        torch.zeros(200_000, dtype=dtype), torch.ones(200_000, dtype=dtype)
    ).rsample()
    assert drawn.isfinite().all()


@pytest.mark.parametrize("fill", ["normal_", "uniform_", "exponential_", "randn"])
def test_a_generator_decides_every_bit(fill):
    """The random words of the rounding come from the generator, too."""
    dtype, made = torch_dtypes.dtype("q43_stochastic"), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        g = torch.Generator().manual_seed(7)
        made.append(
            torch.randn(1000, dtype=dtype, generator=g)
            if fill == "randn"
            else getattr(torch.empty(1000, dtype=dtype), fill)(generator=g)
        )
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*made)
    values = made[0].double()
    assert values.unique().numel() > 10
