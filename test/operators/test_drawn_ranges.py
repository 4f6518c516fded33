"""Numbers that are drawn lie where a float32 draw does: an interval stays open where it is, and what is positive is not rounded to 0."""

import pytest
import torch
from torch.nn import functional as F

import torch_dtypes

NAMES = ["q43", "q52", "posit8es1", "posit16es2", "e5m7", "e4m3finite", "fixed8_8", "q43_stochastic", "posit16es2_up"]
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
    if "_" not in name.removeprefix("fixed8_"):  # to nearest
        nearest = drawn.to(dtype)
        inside = nearest.double() < high
        assert torch.equal(x[inside], nearest[inside])
        end = torch.tensor(float(high), dtype=dtype)
        assert inside.all() or (x[~inside] == torch.nextafter(end, end * 0)).all()


@pytest.mark.parametrize("interval", [(0.1, 0.3), (-3, -2.9), (-0.2, 0.2)])
def test_other_ends_are_not_kept_to(interval):
    """What initialises parameters is float32's draw, rounded."""
    torch.manual_seed(1)
    x = torch.empty(5000, dtype=torch.q43).uniform_(*interval)
    torch.manual_seed(1)
    assert torch.equal(x, torch.empty(5000).uniform_(*interval).to(torch.q43))


def test_an_interval_without_numbers_gives_the_nearest():
    assert torch.empty(100, dtype=torch.q43).uniform_(1.01, 1.02).eq(1).all()
    assert torch.empty(100, dtype=torch.q43).uniform_(1, 1).eq(1).all()


@dtypes
def test_positive_numbers_stay_positive(name):
    dtype = torch_dtypes.dtype(name)
    torch.manual_seed(2)
    x = torch.empty(200_000, dtype=dtype).exponential_()
    assert x.min().item() > 0 and torch.empty(50_000, dtype=dtype).log_normal_(-3, 2).min().item() > 0
    torch.manual_seed(2)
    if "_" not in name.removeprefix("fixed8_"):
        nearest = torch.empty(200_000).exponential_().to(dtype)
        assert torch.equal(x[nearest != 0], nearest[nearest != 0])


@pytest.mark.parametrize("name", ["q43", "q52", "posit8es1", "posit16es2"])
def test_what_stock_code_makes_of_them_is_finite(name):
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    assert not F.gumbel_softmax(torch.zeros(3000, 10, dtype=dtype)).isnan().any()
    drawn = torch.distributions.Laplace(torch.zeros(200_000, dtype=dtype), torch.ones(200_000, dtype=dtype)).rsample()
    assert drawn.isfinite().all()


@pytest.mark.parametrize("fill", ["normal_", "uniform_", "exponential_", "randn"])
def test_a_generator_decides_every_bit(fill):
    """The rounding's random words come from it, too."""
    dtype, made = torch_dtypes.dtype("q43_stochastic"), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        g = torch.Generator().manual_seed(7)
        made.append(torch.randn(1000, dtype=dtype, generator=g) if fill == "randn" else getattr(torch.empty(1000, dtype=dtype), fill)(generator=g))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*made)
    values = made[0].double()
    assert values.unique().numel() > 10
