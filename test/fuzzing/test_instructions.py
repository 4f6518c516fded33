"""fuzzy(level="instruction"): each multiply-add is rounded at random, in index order.

Oracles: float64, where it has the exact result; rationals for the distribution of a sum.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from representatives import thin_out
from torch import nn
from vector_units import outputs_by_unit

import torch_dtypes

BOTH = pytest.mark.parametrize("mode", ["stochastic", "up_down"])
FUSED = pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])


def block(mode="stochastic", seed=1, fused=True):
    return torch_dtypes.fuzzy(mode=mode, seed=seed, level="instruction", fused=fused)


def codes(x):
    """Codes of float32 numbers as integers in the order of the numbers."""
    u = np.asarray(x, dtype=np.float32).view(np.int32).astype(np.int64)
    return np.where(u < 0, -(u & 0x7FFFFFFF), u)


def million_sums():
    """a + b * c of a million triples, whose exact results float64 has: start, b, c, results."""
    source = np.random.default_rng(1)
    b, c = (source.integers(-(2**13), 2**13, 1000) / 2**8 for _ in range(2))
    start = source.integers(-(2**23), 2**23, (1000, 1000)) / 2**12
    return start, b, c, start + b[:, None] * c


def multiply_add(start, b, c, **options):
    start, b, c = (torch.tensor(x, dtype=torch.float32) for x in (start, b[:, None], c[None]))
    with block(**options):
        found = torch.addmm(start, b, c)
    return found.numpy()


def test_a_million_instructions_keep_the_mean():
    start, b, c, exact = million_sums()
    start += 2.0**-17 * np.random.default_rng(2).integers(0, 32, start.shape)
    start = start.astype(np.float32)
    exact = start + b[:, None] * c
    found = multiply_add(start, b, c)
    nearest = exact.astype(np.float32)
    down = np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    up = np.where(down < exact, np.nextafter(down, np.float32(np.inf)), down)
    assert ((found == down) | (found == up)).all()
    inexact = up > down
    assert 0.2 < inexact.mean() < 0.99 and (found == exact)[~inexact].all()
    wide = up.astype(np.float64) - down
    share = ((exact - down) / np.where(inexact, wide, 1))[inexact]
    went_up = (found == up)[inexact]
    for low in (0, 0.25, 0.5, 0.75):
        here = (share >= low) & (share < low + 0.25)
        deviation = math.sqrt((share * (1 - share))[here].sum())
        assert abs(went_up[here].sum() - share[here].sum()) < 4.5 * deviation


def test_a_million_instructions_move():
    start, b, c, exact = million_sums()
    start[0], b[0] = 0, 0
    exact = start + b[:, None] * c
    steps = codes(multiply_add(start, b, c, mode="up_down")) - codes(exact.astype(np.float32))
    assert (steps[exact == 0] == 0).all() and (abs(steps[exact != 0]) == 1).all()
    assert abs(steps.sum()) < 4.5 * 1000


def neighbours(x):
    """The float32 numbers around a rational number, and the share of the way to the upper one."""
    near = np.float32(float(x))  # no double rounding: terms have few digits
    down = np.nextafter(near, np.float32(-np.inf)) if Fraction(float(near)) > x else near
    if Fraction(float(down)) == x:
        return down, down, Fraction(0)
    up = np.nextafter(down, np.float32(np.inf))
    low, high = Fraction(float(down)), Fraction(float(up))
    return down, up, (x - low) / (high - low)


def outcomes(x, mode):
    """Possible roundings of a rational number, with their probabilities."""
    down, up, share = neighbours(x)
    if mode == "stochastic":
        return [(Fraction(float(up)), share), (Fraction(float(down)), 1 - share)]
    near = np.float32(float(x))
    return [
        (Fraction(float(np.nextafter(near, np.float32(to)))), Fraction(1, 2))
        for to in (-np.inf, np.inf)
    ]


def distribution(a, b, mode, fused):
    """All results of the sum of products a b, from 0, with their probabilities."""
    sums = {Fraction(0): Fraction(1)}
    for x, y in zip(a, b, strict=True):
        exact = Fraction(x) * Fraction(y)
        products = [(exact, Fraction(1))] if fused else outcomes(exact, mode)
        after = {}
        for value, p in sums.items():
            for product, q in products:
                for result, r in outcomes(value + product, mode):
                    after[result] = after.get(result, 0) + p * q * r
        sums = after
    return {value: p for value, p in sums.items() if p}


@BOTH
@FUSED
def test_the_distribution_of_a_dot_product(mode, fused):
    a = [float(np.float32(x)) for x in (0.1, 0.7, -0.3)]
    b = [float(np.float32(x)) for x in (1.3, 0.9, 1.1)]
    expected = distribution(a, b, mode, fused)
    n = 500
    with block(mode, 3, fused):
        found = torch.tensor(a).expand(n, 3) @ torch.tensor(b)[:, None].expand(3, n)
    values, counts = np.unique(found.double().numpy(), return_counts=True)
    assert {Fraction(v) for v in values.tolist()} <= set(expected)
    count_of = dict(zip(map(Fraction, values.tolist()), counts.tolist(), strict=True))
    for value, p in expected.items():
        deviation = math.sqrt(n * n * p * (1 - p))
        assert abs(count_of.get(value, 0) - n * n * p) < 5 * deviation + 1


@pytest.mark.parametrize("mode", thin_out(["stochastic", "up_down"], []))
def test_a_million_terms_have_the_variance_of_random_errors(mode):
    """u^2 p (1 - p) for each stochastic step, where p is evenly spread, is u^2 / 6; up-down has
    u^2 with the sign, and 0 for the step to nearest."""
    terms, runs = 1 << 20, 64
    x = torch.from_numpy(np.random.default_rng(1).random((terms, 1)).astype(np.float32))
    with block(mode):
        sums = x.expand(terms, runs).sum(0)
    sums = sums.double().numpy()
    partial = np.cumsum(x.double().numpy()[:, 0])
    u = np.spacing(partial.astype(np.float32)).astype(np.float64)
    expected = (u * u).sum() * (1 / 6 if mode == "stochastic" else 1)
    assert 0.4 < sums.var(ddof=1) / expected < 1.9  # 5 deviations of chi-square, 63 degrees
    if mode == "stochastic":
        assert abs(sums.mean() - partial[-1]) < 5 * math.sqrt(expected / runs)


def pieces(seed):
    """Sums and products whose exact results float32 has."""
    source = torch.Generator().manual_seed(seed)
    return lambda *size: torch.randint(-4, 5, size, generator=source).float()


EXACT = {
    "linear": lambda x: F.linear(x(5, 300), x(7, 300), x(7)),
    "one column": lambda x: x(40, 300) @ x(300),
    "batches": lambda x: torch.baddbmm(x(3, 9, 4), x(3, 9, 20), x(3, 20, 4)),
    "scaled": lambda x: torch.addmm(x(4, 5), x(4, 6), x(6, 5), beta=2, alpha=-3),
    "convolution": lambda x: F.conv2d(x(2, 4, 9, 8), x(6, 2, 3, 3), x(6), 2, 1, groups=2),
    "transposed": lambda x: F.conv_transpose2d(x(2, 4, 5, 5), x(4, 3, 3, 3), x(3), 2, 1, 1),
    "sum": lambda x: x(3, 70, 5).sum((0, 2)),
    "mean": lambda x: x(64, 3).mean(0),
    "long": lambda x: x(20, 700) @ x(700, 300),
}


@pytest.mark.parametrize("name", thin_out(EXACT, ["convolution", "mean"]))
@FUSED
def test_exact_sums_stay(name, fused):
    with block(fused=fused):
        found = EXACT[name](pieces(1))
    assert torch.equal(found, EXACT[name](pieces(1)))


@pytest.mark.parametrize("stride", [1, 2])
@BOTH
def test_gradients_of_a_convolution(stride, mode):
    draw = pieces(2)
    x, w, b = draw(2, 3, 8, 8), draw(5, 3, 3, 3), draw(5)

    def gradients():
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        y = F.conv2d(*leaves, stride=stride, padding=1)
        y.backward(torch.ones_like(y))
        return [t.grad for t in leaves]

    expected = gradients()
    with block(mode):
        found = gradients()
    for f, e in zip(found, expected, strict=True):
        assert torch.equal(f, e) if mode == "stochastic" else torch.allclose(f, e, atol=1e-3)


def test_ranges():
    """Subnormal, cancelling, infinite and undefined results, beside those of float64."""
    tiny, large, inf, nan = 2.0**-140, 2.0**127, math.inf, math.nan
    a = torch.tensor([[tiny, tiny], [2.0**-75, 2.0**-75], [large, large], [inf, 1], [inf, -inf]])
    b = torch.tensor([[0.3, 2.0**-75, 1.5, nan], [0.3, -(2.0**-75), 1.5, 1]])
    with np.errstate(all="ignore"):
        exact = a.double().numpy() @ b.double().numpy()
    for mode in ("stochastic", "up_down"):
        for fused in (True, False):
            with block(mode, fused=fused):
                found = a @ b
            found = found.numpy()
            large_or_nan = ~np.isfinite(exact) | (abs(exact) >= 2.0**128)
            with np.errstate(over="ignore"):
                same = found == exact.astype(np.float32)
            assert (same | np.isnan(exact) & np.isnan(found))[large_or_nan].all()
            error = abs(codes(found) - codes(np.where(large_or_nan, 0, exact)))
            if mode == "up_down":
                error[exact == 0] = 0  # what two moved numbers leave when they cancel
            assert (error[~large_or_nan] <= 4).all()


@BOTH
def test_threads_change_no_bit(mode):
    draw = torch.Generator().manual_seed(1)
    x, w = torch.randn(3, 5, 40, 40, generator=draw), torch.randn(150, 5, 3, 3, generator=draw)
    threads, results = torch.get_num_threads(), []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            with block(mode):
                results.append((F.conv2d(x, w), x.sum((0, 2))))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    with block(mode, seed=2):
        assert not torch.equal(F.conv2d(x, w), results[0][0])


def test_neighbours_are_independent():
    """Errors of neighbouring elements and steps: correlations of a million pairs."""
    n = 1024
    ones, half = torch.ones(n, 1), torch.full((1, n), 2.0**-25)
    with block():  # 1 + 2^-25 goes up with the probability 1 / 4
        up = torch.addmm(torch.ones(n, n), ones, half).double() > 1
        second = torch.addmm(torch.ones(n, n), ones, half).double() > 1
    up, second = (t.double().numpy() - 0.25 for t in (up, second))
    pairs = [(up[1:], up[:-1]), (up[8:], up[:-8]), (up[:, 1:], up[:, :-1]), (up, second)]
    for a, b in pairs:
        assert abs((a * b).mean()) < 5 * 0.1875 / math.sqrt(a.size)


FUNCTIONS = {
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(20), torch.ones(20), training=True),
    "group_norm": lambda x: F.group_norm(x, 4),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(30) % 20),
    "mse_loss": lambda x: F.mse_loss(x, torch.ones_like(x)),
    "huber_loss": lambda x: F.huber_loss(x, torch.ones_like(x)),
    "std": lambda x: x.std(1),
    "var_mean": lambda x: torch.stack(torch.var_mean(x, (0, 1), correction=0)),
    "norm": lambda x: x.norm(dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 3, 10, 20)] * 3),
}


@pytest.mark.parametrize("name", thin_out(FUNCTIONS, ["batch_norm", "cross_entropy"]))
def test_operators_of_many_instructions(name):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(30, 20, generator=draw).requires_grad_()

    def run(x):
        y = FUNCTIONS[name](x)
        return y.detach(), torch.autograd.grad(y.square().sum(), x)[0]

    exact = run(x.detach().double().requires_grad_()) if name != "batch_norm" else run(x)
    spread = {}
    for level in ("operator", "instruction"):
        runs = []
        for seed in range(4):
            with torch_dtypes.fuzzy(seed=seed, level=level) as fuzzy:
                runs.append(run(x))
            assert not fuzzy.unseen
        for found in runs:
            for f, e in zip(found, exact, strict=True):
                assert torch.allclose(f.double(), e.double(), rtol=1e-4, atol=2e-5)
        spread[level] = torch.stack([r[0] for r in runs]).double().std(0).mean()
    assert spread["instruction"] > spread["operator"]


def test_float32_results_of_narrow_operands_keep_their_dtype():
    """Regression: statistics of a bfloat16 batch with float32 parameters were bfloat16."""
    x = 3 + torch.randn(64, 4, generator=torch.Generator().manual_seed(1)).bfloat16()
    x.requires_grad_()
    ones, direction = torch.ones(4, requires_grad=True), torch.arange(-32.0, 32)[:, None].bfloat16()
    with block():
        results = torch.native_batch_norm(x, ones, None, None, None, True, 0.1, 1e-5)
        torch._weight_norm(x, torch.ones_like(x[:, :1])).sum().backward()
        slope = torch.autograd.grad(results[0], ones, direction.expand(64, 4))[0]
    values = x.detach().double()
    mean, deviation = values.mean(0), values.var(0, correction=0).sqrt()
    exact = (direction.double() * (values - mean) / deviation).sum(0)
    assert [r.dtype for r in results] == [torch.bfloat16, torch.float32, torch.float32]
    assert torch.allclose(results[1].double(), mean, rtol=1e-5)
    assert torch.allclose(results[2].double(), 1 / deviation, rtol=1e-4)
    assert torch.allclose(slope.double(), exact, rtol=1e-3)


def test_a_training_step_rounds_each_instruction():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )
    x, t = torch.randn(6, 1, 8, 8), torch.arange(6) % 5
    losses = set()
    for seed in (1, 1, 2):
        with torch_dtypes.fuzzy(model, seed=seed, level="instruction") as fuzzy:
            loss = F.cross_entropy(model(x), t)
            loss.backward()
        losses.add(loss.item())
    assert len(losses) == 2 and not fuzzy.unseen
    assert not {"native_batch_norm", "_log_softmax"} & set(fuzzy.operations)
    assert {"convolution", "convolution_backward", "sum", "exp"} <= set(fuzzy.operations)


HASH = """
import torch, torch_dtypes
draw = torch.Generator().manual_seed(1)
a, b = torch.randn(19, 300, generator=draw), torch.randn(300, 45, generator=draw)
a[3, 7], b[50, 3] = 1e-38, 1e-30
for mode in ("stochastic", "up_down"):
    for fused in (True, False):
        with torch_dtypes.fuzzy(mode=mode, seed=1, level="instruction", fused=fused):
            print(torch.hash_tensor((a @ b).view(torch.int32)).item(), b.sum(0).sum().item())
"""


@pytest.mark.whole
def test_vector_units_change_no_bit():
    found = outputs_by_unit(HASH)
    assert len(found) == 1 and len(found.pop().splitlines()) == 4
