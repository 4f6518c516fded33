"""Random numbers of a seed are float32's draws, rounded (float64's, for formats with more than 24
significant bits). They follow places in memory, and the generator ends up as after a float32 draw.
"""

import pytest
import torch
from representatives import DTYPES, thin_out
from torch import nn
from torch.nn import functional as F

import torch_dtypes

NAMES = ["posit16es2", "posit8es0", "q43", "e5m5", "posit32es2", "fixed4_4", "e11m10"]
each_format = pytest.mark.parametrize("name", thin_out(NAMES, DTYPES))
pytestmark = pytest.mark.usefixtures("one_thread")


def types(name):
    return torch_dtypes.dtype(name), torch.float64 if name == "posit32es2" else torch.float32


def drawn(draw, *args):
    """Return a call's result and the generator's state afterwards, from one seed."""
    torch.manual_seed(7)
    result = draw(*args)
    return result, torch.get_rng_state()


def in_its_interval(low, high):
    """Round to nearest, except to the open end of an interval, or to 0 where numbers are
    positive."""

    def convert(exact, dtype):
        above, below = (torch.tensor(v, dtype=dtype) for v in (low, high))
        result = exact.to(dtype)
        inward = torch.where(result == below, torch.nextafter(below, above), result)
        return (
            inward if low != 0 else torch.where(inward == 0, torch.nextafter(above, below), inward)
        )

    return convert


def in_its_range(low, high):
    """Round to nearest, except beyond the range."""

    def convert(exact, dtype):
        rounded = torch.arange(low, high).to(dtype).double()
        inside = rounded[(rounded >= low) & (rounded < high)]
        return exact.clamp(inside.min().item(), inside.max().item()).to(dtype)

    return convert


IN_INTERVALS = {
    "uniform_": in_its_interval(-1.0, 3.0),
    "exponential_": in_its_interval(0.0, float("inf")),
    "log_normal_": in_its_interval(0.0, float("inf")),
    "random_ to": in_its_range(0, 12),
    "random_ from to": in_its_range(-5, 6),
    "randint": in_its_range(0, 9),
    "randint of many": in_its_range(-16, 16),
}


def assert_rounded(draw, name, convert=None):
    dtype, wide = types(name)
    found, state = drawn(draw, dtype)
    exact, expected_state = drawn(draw, wide)
    assert found.dtype is dtype and torch.equal(state, expected_state)
    assert found.stride() == exact.stride()
    expected = exact.to(dtype) if convert is None else convert(exact, dtype)
    assert torch.equal(found.double(), expected.double())


def toward_zero(exact, dtype):
    """Round to the format's grid. In posits nothing rounds to 0, which would give numbers greater
    than the draw."""
    with torch_dtypes.rounding("toward_zero"):
        result = exact.to(dtype)
    assert (result.double() < 1).all()
    return torch.where(result.double() > exact, 0.0, result.double())


FACTORIES = {
    "randn": lambda n, d: torch.randn(n, dtype=d),
    "randn of sizes": lambda n, d: torch.randn(3, n, dtype=d),
    "randn with a generator": lambda n, d: torch.randn(
        n, dtype=d, generator=torch.Generator().manual_seed(3)
    ),
    "randn out=": lambda n, d: torch.randn(n, out=torch.empty(0, dtype=d)),
    "randn_like": lambda n, d: torch.randn_like(torch.zeros(n), dtype=d),
    "randn_like of its own": lambda n, d: torch.randn_like(torch.zeros(2, n, dtype=d).t()),
    "randn_like with gaps": lambda n, d: torch.randn_like(
        torch.zeros(4, 2 * n, dtype=d)[:, ::2].t()
    ),
    "randint": lambda n, d: torch.randint(0, 9, (n,), dtype=d),
    "randint of many": lambda n, d: torch.randint(-16, 16, (n,), dtype=d),
    "randint_like": lambda n, d: torch.randint_like(torch.zeros(n), -3, 4, dtype=d),
    "randint_like of its own": lambda n, d: torch.randint_like(torch.zeros(n, 3, dtype=d).t(), 7),
    "randperm": lambda n, d: torch.randperm(min(n, 9), dtype=d),
    "normal": lambda n, d: torch.normal(1.5, 0.25, (n,), dtype=d),
    "normal with a generator": lambda n, d: torch.normal(
        1.5, 0.25, (n,), dtype=d, generator=torch.Generator().manual_seed(3)
    ),
}


@each_format
@pytest.mark.parametrize("n", [5, 16, 77])
@pytest.mark.parametrize("factory", FACTORIES)
def test_factories(factory, n, name):
    assert_rounded(lambda d: FACTORIES[factory](n, d), name, IN_INTERVALS.get(factory))


OUT = {
    "randn": lambda x: torch.randn(5, out=x),
    "rand": lambda x: torch.rand(5, out=x),
    "normal": lambda x: torch.normal(0.0, 1.0, (5,), out=x),
    "randint": lambda x: torch.randint(0, 9, (5,), out=x),
    "randperm": lambda x: torch.randperm(5, out=x),
}


@pytest.mark.parametrize("factory", OUT)
def test_a_tensor_to_write_says_whose_generator_draws(factory):
    """They once drew from the CPU's generator and copied the numbers to the tensor."""
    before = torch.default_generator.get_state()
    for device in ("meta", "cuda") if torch.cuda.is_available() else ("meta",):
        x = torch.empty(0, dtype=torch.posit16es2, device=device)
        assert (
            OUT[factory](x) is x
            and x.shape == (5,)
            and torch.equal(before, torch.default_generator.get_state())
        )
        with pytest.raises(RuntimeError, match=f"expected out= on cpu, but got one on {device}"):
            torch.rand(5, out=x, device="cpu")
    # Their numbers are rounded so that 1 never occurs.
    if torch.cuda.is_available() and factory != "rand":
        found, expected = (
            drawn(OUT[factory], torch.empty(0, dtype=d, device="cuda"))[0]
            for d in (torch.posit16es2, torch.float32)
        )
        assert torch.equal(found, expected.to(found.dtype))


UNIFORM = {
    "rand": lambda n, d: torch.rand(n, dtype=d),
    "rand of sizes": lambda n, d: torch.rand((2, n), dtype=d),
    "rand with a generator": lambda n, d: torch.rand(
        n, dtype=d, generator=torch.Generator().manual_seed(3)
    ),
    "rand_like": lambda n, d: torch.rand_like(torch.zeros(n, 3).t(), dtype=d),
    "rand_like of its own": lambda n, d: torch.rand_like(torch.zeros(n, 3, dtype=d).t()),
    "rand_like in channels_last": lambda n, d: torch.rand_like(
        torch.zeros(2, 3, n, 2, dtype=d).to(memory_format=torch.channels_last)
    ),
    "rand_like by hand": lambda n, d: torch.ops.aten.rand_like(torch.zeros(n, dtype=d)),
}


@each_format
@pytest.mark.parametrize("n", [5, 16, 77])
@pytest.mark.parametrize("factory", UNIFORM)
def test_uniform_numbers_are_rounded_toward_zero(factory, n, name):
    assert_rounded(lambda d: UNIFORM[factory](n, d), name, toward_zero)


@each_format
def test_one_never_comes(name):
    x = torch.rand(200_000, dtype=torch_dtypes.dtype(name))
    assert (x < 1).all() and (x >= 0).all() and x.double().max() > 0.9
    assert (torch.rand_like(x) < 1).all()


def test_the_mode_of_a_block_does_not_reach_rand():
    for mode in ("up", "to_odd", "nearest_away"):
        with torch_dtypes.rounding(mode):
            assert (torch.rand(5000, dtype=torch.q52) < 1).all() and (
                torch.rand_like(torch.zeros(5000, dtype=torch.q52)) < 1
            ).all()


FILLS = {
    "normal_": lambda x, **g: x.normal_(0.5, 2.0, **g),
    "uniform_": lambda x, **g: x.uniform_(-1.0, 3.0, **g),
    "exponential_": lambda x, **g: x.exponential_(1.5, **g),
    "cauchy_": lambda x, **g: x.cauchy_(0.5, 0.25, **g),
    "log_normal_": lambda x, **g: x.log_normal_(0.0, 0.5, **g),
    "geometric_": lambda x, **g: x.geometric_(0.4, **g),
    "bernoulli_": lambda x, **g: x.bernoulli_(0.3, **g),
    "bernoulli_ of a tensor": lambda x, **g: x.bernoulli_(torch.tensor(0.3), **g),
    "random_ to": lambda x, **g: x.random_(12, **g),
    "random_ from to": lambda x, **g: x.random_(-5, 6, **g),
}
LAYOUTS = {
    "5": lambda d: torch.zeros(5, dtype=d),
    "16": lambda d: torch.zeros(16, dtype=d),
    "matrix": lambda d: torch.zeros(9, 13, dtype=d),
    "transposed": lambda d: torch.zeros(9, 13, dtype=d).t(),
    "channels_last": lambda d: torch.zeros(2, 3, 4, 5, dtype=d).to(
        memory_format=torch.channels_last
    ),
    "every other": lambda d: torch.zeros(80, dtype=d)[::2],
    "a few of every other": lambda d: torch.zeros(16, dtype=d)[1::3],
    "a column block": lambda d: torch.zeros(9, 13, dtype=d)[:, 2:7],
    "transposed with gaps": lambda d: torch.zeros(12, 13, dtype=d)[::2, 1:].t(),
    "none": lambda d: torch.zeros(0, 3, dtype=d),
}


@each_format
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fill", FILLS)
def test_fills(fill, layout, name):
    assert_rounded(lambda d: FILLS[fill](LAYOUTS[layout](d)), name, IN_INTERVALS.get(fill))
    assert_rounded(
        lambda d: FILLS[fill](LAYOUTS[layout](d), generator=torch.Generator().manual_seed(5)),
        name,
        IN_INTERVALS.get(fill),
    )


@pytest.mark.parametrize("fill", FILLS)
def test_a_fill_touches_nothing_between(fill):
    whole = torch.full((6, 8), 7.0, dtype=torch.posit16es2)
    FILLS[fill](whole[1:5:2, ::3])
    untouched = torch.ones(6, 8, dtype=torch.bool)
    untouched[1:5:2, ::3] = False
    assert (whole[untouched] == 7).all()


def test_parameters_made_in_the_format_are_those_made_in_float32():
    def make_layers(dtype):
        with torch.nn.utils.parametrize.cached():
            layers = [
                nn.Linear(20, 9, dtype=dtype),
                nn.Conv2d(3, 4, 3, dtype=dtype),
                nn.Embedding(7, 5, dtype=dtype),
                nn.LSTM(3, 5, dtype=dtype),
            ]
        return torch.cat([p.detach().flatten() for layer in layers for p in layer.parameters()])

    assert_rounded(make_layers, "posit16es2")
    assert_rounded(make_layers, "q43")


INITIALISERS = {
    "uniform_": lambda t: nn.init.uniform_(t, -0.5, 0.5),
    "normal_": lambda t: nn.init.normal_(t, 0.0, 0.1),
    "xavier_uniform_": nn.init.xavier_uniform_,
    "xavier_normal_": nn.init.xavier_normal_,
    "kaiming_uniform_": nn.init.kaiming_uniform_,
    "kaiming_normal_": nn.init.kaiming_normal_,
    "sparse_": lambda t: nn.init.sparse_(t, 0.5),
    "dirac_": lambda t: nn.init.dirac_(t[..., None]).squeeze(-1),
}


@pytest.mark.parametrize("name", ["posit16es2", "e5m5", "posit32es2"])
@pytest.mark.parametrize("initialiser", INITIALISERS)
def test_initialisers(initialiser, name):
    assert_rounded(lambda d: INITIALISERS[initialiser](torch.empty(9, 11, dtype=d)), name)


# Random decisions, such as which elements to keep, are float32's wherever the chances are numbers
# of the format.
DECISIONS = {
    "dropout": lambda x: F.dropout(x, 0.25) != 0,
    "dropout in place": lambda x: F.dropout(x.clone(), 0.25, inplace=True) != 0,
    "dropout1d": lambda x: F.dropout1d(x, 0.5) != 0,
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.25) == x,
    "feature_alpha_dropout": lambda x: nn.FeatureAlphaDropout(0.5)(x) == x,
    "native_dropout": lambda x: torch.native_dropout(x, 0.25, True)[1],
    "bernoulli": lambda x: torch.bernoulli(x / 4),
    "bernoulli with p": lambda x: torch.bernoulli(x, 0.25),
    "bernoulli_ of probabilities": lambda x: torch.zeros_like(x).bernoulli_(x / 4),
    "multinomial": lambda x: torch.multinomial(x, 3),
    "multinomial with replacement": lambda x: torch.multinomial(x, 9, replacement=True),
    "poisson": lambda x: torch.poisson(x * 2),
    "binomial": lambda x: torch.binomial(x * 0 + 8, x / 2),
    "DropPath": lambda x: x.new_empty((x.shape[0], 1)).bernoulli_(0.5),
    "DropPath by rand": lambda x: (torch.rand((x.shape[0], 1), dtype=x.dtype) + 0.5).floor(),
    "new": lambda x: x.new(3, 5).normal_() > 0,
    "a mask of rand": lambda x: torch.rand_like(x) < 0.5,
}


def numbers(dtype, layout):
    x = (torch.arange(84).reshape(12, 7) % 4 * 0.25 + 0.25).to(dtype)
    return {"rows": x, "columns": x.t().contiguous().t(), "gaps": x[::2, 1:]}[layout]


@pytest.mark.parametrize("name", ["posit16es2", "q43", "e5m5", "posit32es2"])
@pytest.mark.parametrize("layout", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("decide", DECISIONS)
def test_decisions(decide, layout, name):
    dtype, wide = types(name)
    found, state = drawn(DECISIONS[decide], numbers(dtype, layout))
    expected, expected_state = drawn(DECISIONS[decide], numbers(wide, layout))
    assert torch.equal(found.double(), expected.double()) and torch.equal(state, expected_state)


VALUES = {
    "normal of means": lambda x: torch.normal(x, 0.5),
    "normal of deviations": lambda x: torch.normal(0.5, x),
    "normal of both": lambda x: torch.normal(x, x),
    "dropout": lambda x: F.dropout(x, 0.5),
    "rrelu": lambda x: F.rrelu(-x, training=True),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
    "with gradients": lambda x: torch.normal(x.clone().requires_grad_(), 0.5).detach(),
}


@pytest.mark.parametrize("name", ["posit16es2", "q43", "e5m5", "posit32es2"])
@pytest.mark.parametrize("layout", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("draw", VALUES)
def test_values_drawn_around_others(draw, layout, name):
    assert_rounded(lambda d: VALUES[draw](numbers(d, layout)), name)


def test_gumbel_softmax_chooses_as_float32():
    logits = torch.arange(12.0).reshape(3, 4) / 4
    found, state = drawn(lambda: F.gumbel_softmax(logits.to(torch.posit32es2), hard=True))
    expected, expected_state = drawn(lambda: F.gumbel_softmax(logits.double(), hard=True))
    assert torch.equal(found.double(), expected) and torch.equal(state, expected_state)


@pytest.mark.parametrize("name", ["posit16es2", "posit32es2", "q43"])
def test_probabilities_that_are_drawn_over(name):
    """x.bernoulli_(x) reads its probabilities before it writes."""
    x = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]).to(torch_dtypes.dtype(name))
    for own in (x, x.clone().t()):
        expected = own.tolist()
        assert own.bernoulli_(own) is own and own.tolist() == expected


@each_format
def test_sobol_points_are_drawn_in_stock_dtypes(name):
    dtype, engine = types(name)[0], torch.quasirandom.SobolEngine(3, seed=5)
    with pytest.raises(
        NotImplementedError,
        match=f"SobolEngine.draw: expected a stock dtype, .* but got {dtype}; draw in float64",
    ):
        engine.draw(4, dtype=dtype)
    torch.set_default_dtype(dtype)
    try:
        under_default = torch.quasirandom.SobolEngine(3, seed=5)
        for call in (
            lambda: engine.draw_base2(2),
            lambda: under_default.draw(4),
            lambda: under_default.draw(4, dtype=torch.float32),
        ):
            with pytest.raises(NotImplementedError, match=f"but got {dtype}"):
                call()
    finally:
        torch.set_default_dtype(torch.float32)
    exact = engine.draw(64, dtype=torch.float64)
    # the advice in the error
    found = torch_dtypes.chop(exact, dtype, rounding="toward_zero").to(dtype)
    assert torch.equal(found.double(), toward_zero(exact, dtype))
