"""Dtypes that round at random in whole graphs of torch.compile: eager code's numbers for eager code's seed, and new ones each run."""

import copy

import pytest
import torch
import torch.nn.functional as F
from capture import DEVICE, WHOLE_GRAPHS, Graphs, assert_same, clean  # noqa: F401 (clean is a fixture)
from networks import LeNet5, step

import torch_dtypes

pytestmark = WHOLE_GRAPHS
STOCHASTIC = torch_dtypes.with_rounding(torch.q43, "stochastic")
BACKENDS = ["recorded", "aot_eager", "inductor", "inductor with options"]  # of which the third is not asked on the CPU


def compiled(f, backend):
    options = {"options": {"epilogue_fusion": True}} if "options" in backend else {}
    chosen = Graphs() if backend == "recorded" else backend.partition(" ")[0]
    return torch.compile(f, backend=chosen, fullgraph=True, **options)


def assert_draws_as(run, f, *args):
    """The same results as ``f`` has, and the same number of random words taken, for two seeds."""
    for seed in (1, 2):
        found = []
        for function in (f, run):
            torch.manual_seed(seed)
            found.append((function(*args), torch.get_rng_state()))
        for a, b in zip(found[0][0], found[1][0], strict=True):
            assert_same(a, b)
        assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("backend", ["recorded", "aot_eager"])
@pytest.mark.parametrize("name", ["q43_stochastic", "posit16es2_stochastic_equal", "q52_stochastic_a4"])
def test_networks(name, backend):
    dtype = torch_dtypes.dtype(name)
    torch.manual_seed(0)
    eager = LeNet5().to(dtype)
    model = copy.deepcopy(eager)
    run, x = compiled(model, backend), LeNet5.batch(dtype)
    assert_draws_as(lambda x: step(model, run, x), lambda x: step(eager, eager, x), x)


EXACT = {
    "relu": lambda x: torch.relu(x).sum(),
    "abs of a negative": lambda x: (-x).abs().sum(),
    "gated": lambda x: (torch.relu(x) * x).sum(),
    "maximum": lambda x: torch.maximum(x, -x).sum(),
    "a bound": lambda x: (x.clamp_min(0.1) * x).sum(),
    "dropout": lambda x: F.dropout(torch.relu(x), 0.5, True).sum(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["stochastic", "up_down"])
@pytest.mark.parametrize("name", EXACT)
def test_operators_that_round_nothing_have_gradients(name, mode, backend):
    """Two of them on one 8-bit tensor would be one look-up in a dtype that does not draw."""
    f, dtype = EXACT[name], torch_dtypes.with_rounding(torch.q43, mode)

    def gradient(run):
        x = torch.linspace(-2, 2, 12).to(torch.q43).to(dtype).requires_grad_()
        y = run(x)
        y.backward()
        return y.detach(), x.grad

    assert_draws_as(lambda: gradient(compiled(f, backend)), lambda: gradient(f))


def equal_calls(x):
    twice = x * x - x * x
    parts = torch.cat([twice, twice]).split(2)
    return twice, (x.float() / 3).to(x.dtype), parts[0] * 1.1, F.dropout(x, 0.5, True), torch.relu(x).neg().abs() * 0.3


def chains(x):
    return F.gelu(x * 1.5 + 0.25), (x.relu() + 1).sqrt() / 3


def reductions(x):
    return x.sum(0), x.mean(), x.softmax(0), x.cumsum(0), torch.add(x, x, alpha=0.3), torch.where(x > 0, x, 0.3), x @ x.t()


def batched(x):
    return (torch.func.vmap(lambda row: row * 0.3 + row.sum())(x),)


def written(x):
    x = x.clone()
    x.mul_(0.3)
    x[0] = x[1] * 0.7
    return (x,)


def written_between_others(x):
    x = x.clone()
    x[:, 1].add_(x[:, 0])
    x[1:, ::2].mul_(0.3)
    x.t()[2:4].addcmul_(x.t()[1:3], x.t()[1:3])
    return x, x[:, 1::3].sqrt_()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [equal_calls, chains, reductions, batched, written, written_between_others])
@pytest.mark.parametrize("whose", ["the dtype's mode", "the block's mode"])
def test_functions(whose, f, backend):
    x = torch.randn(4, 16).to(STOCHASTIC if whose == "the dtype's mode" else torch.q43)
    run = compiled(f, backend)
    if whose == "the dtype's mode":
        assert_draws_as(run, f, x)
    else:
        with torch_dtypes.rounding("stochastic"):
            assert_draws_as(run, f, x)


def test_each_run_draws_anew():
    run, x = compiled(lambda x: x * 0.3, "recorded"), torch.linspace(-2, 2, 64).to(STOCHASTIC)
    assert run(x).tolist() != run(x).tolist()


def test_a_block_s_mode_holds_at_the_run():
    """The graph was recorded without one, and knows of none."""
    run, x = compiled(chains, "recorded"), torch.linspace(-2, 2, 64).to(STOCHASTIC)
    run(x)
    with torch_dtypes.rounding("toward_zero"):
        for a, b in zip(run(x), chains(x), strict=True):
            assert_same(a, b)


def test_random_numbers_of_another_device():
    """Also where no operand is on it, a recording takes none of it, and an operator that draws there says so."""

    def f(x):
        y = x.to(DEVICE)
        noise = torch.randn(4, dtype=STOCHASTIC, device=DEVICE)
        return x + noise.cpu(), y * y, x.float().to(DEVICE, STOCHASTIC) / 3

    graphs = Graphs()
    assert_draws_as(torch.compile(f, backend=graphs, fullgraph=True), f, torch.randn(4).cpu().to(STOCHASTIC))
    assert {f"torch_dtypes_codes.{name}_random" for name in ("mul.Tensor", "div.Tensor_other")} <= set(graphs.targets())
