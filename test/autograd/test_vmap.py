"""torch.func.vmap of a batch equals a loop over its samples. Numbers and stock operands are
promoted as outside of vmap."""

import copy

import pytest
import torch
from conftest import parametrize_dtypes
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F
from transformed import FUNCTIONS, every_dtype, expect_near, expect_same, numbers

# PyTorch itself uses torch.jit.script when forward mode is first entered.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)

BATCHED = FUNCTIONS | {  # products with a bias, convolutions, attention: test_batched_sums.py
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.max(-1).values,
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 2, 1])),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "rfft": lambda x: torch.fft.rfft(x).abs().to(x.dtype),
    "number by number": lambda x: x * (x == x).all() + x * x.sum(),
    "integer": lambda x: x * (x > 0).sum(),
    "setitem": lambda x: x.clone().__setitem__(0, 1.3) or x,
    "index_put": lambda x: torch.index_put(x, (torch.tensor([0]),), torch.ones(3, dtype=x.dtype)),
    "fill": lambda x: x.clone().fill_(1.3) + torch.full_like(x, 0.3),
    "arange": lambda x: (
        torch.arange(3, dtype=x.dtype) * x
        + torch.eye(3, dtype=x.dtype)
        + torch.linspace(0, 1, 3, dtype=x.dtype)
    ),
}


@pytest.mark.parametrize("name", BATCHED)
@every_dtype
def test_vmap_is_the_loop(name, dtype):
    f, x = BATCHED[name], numbers(dtype, 4, 3, 3)
    want = torch.stack([f(row) for row in x])
    expect_near(vmap(f)(x), want, dtype, steps=4)
    expect_near(vmap(f, in_dims=1, out_dims=0)(x.transpose(0, 1)), want, dtype, steps=4)


@parametrize_dtypes("posit16es2 posit32es2 q52")
def test_gradients_of_each_sample(dtype):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 4, 3),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 2),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 5),
    ]
    model = nn.Sequential(*layers).to(dtype)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, t = numbers(dtype, 3, 1, 8, 8), torch.tensor([1, 2, 4])

    def loss(parameters, x, t):
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), t[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, t)
    for i in range(3):
        model.zero_grad()
        F.cross_entropy(model(x[i : i + 1]), t[i : i + 1]).backward()
        for name, p in model.named_parameters():
            expect_near(each[name][i], p.grad, dtype)


def test_ensembles():
    dtype = torch.posit16es2
    models = [nn.Linear(3, 2).to(dtype) for _ in range(3)]
    parameters, _ = stack_module_state(models)
    base, x = copy.deepcopy(models[0]).to("meta"), numbers(dtype, 4, 3)
    y = vmap(lambda p, x: functional_call(base, p, (x,)), in_dims=(0, None))(parameters, x)
    for got, model in zip(y, models, strict=True):
        expect_near(got, model(x), dtype, steps=2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 0.3,
        lambda x: x / 0.3,
        lambda x: x + 0.3,
        lambda x: 0.3 - x,
        lambda x: x**0.3,
        lambda x: x == 0.3,
        lambda x: x < 0.25,
        lambda x: torch.where(x > 0, x, 0.3),
        lambda x: torch.where(x > 0, 7, x),
    ],
)
@parametrize_dtypes("posit16es2 q43 posit32es2")
def test_numbers_within_vmap_stay_exact(dtype, function):
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)).to(dtype)
    found, expected = torch.func.vmap(function)(x), function(x)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    # The same holds for a sample of one number, and for gradients and second derivatives of each
    # sample.
    torch.testing.assert_close(
        torch.func.vmap(function)(x[0]), function(x[0]), rtol=0, atol=0, equal_nan=True
    )


def test_numbers_within_vmap_stay_exact_in_derivatives():
    x, w = torch.tensor([[1.0, 0.5], [1.25, 0.25]]).to(torch.q43), torch.ones(2, dtype=torch.q43)

    def loss(w, x):
        return (w * x).square().sum() * 0.1

    expect_same(vmap(grad(loss), (None, 0))(w, x), torch.stack([grad(loss)(w, row) for row in x]))
    expect_same(
        torch.func.hessian(loss)(w, x[0]),
        torch.autograd.functional.hessian(lambda w: loss(w, x[0]), w),
    )


# A format tensor and a stock tensor, in samples with and without dimensions: dtypes and values
# equal those of a loop.
MIXED_PAIRS = {
    "mask": lambda x, n: x[0] * (x > 0),
    "range": lambda x, n: x.mean() * torch.arange(4),
    "integer": lambda x, n: x + n,
    "number of integers": lambda x, n: x.sum() / torch.tensor(3),
    "floor_divide": lambda x, n: x // n,
    "true_divide": torch.true_divide,
    "mode": lambda x, n: torch.div(x, n, rounding_mode="floor"),
    "ldexp": torch.ldexp,
    "xlogy": lambda x, n: torch.xlogy(n, x.abs()),
    "copysign": lambda x, n: torch.copysign(x, -n),
    "logaddexp": lambda x, n: torch.logaddexp(x, n.double()),
    "power": lambda x, n: x**n,
    "larger": lambda x, n: torch.maximum(x, n),
    "comparison": lambda x, n: x < n,
    "half tensor": lambda x, n: x[0] + n.half().expand(2),
    "half number": lambda x, n: x * (n * 0.3).half(),
    "complex": lambda x, n: x[0] * 1j,
    "exact number": lambda x, n: 0.3 / x,
    "smoothing": lambda x, n: F.cross_entropy(x[None], n[None] - 2, label_smoothing=0.1),
    "mean": lambda x, n: (x * n).sum() / (x > 0).sum(),
}


@parametrize_dtypes("posit16es2 q43 posit32es2")
def test_a_mean_of_smoothed_losses_within_vmap(dtype):
    """The labels have no batch, and their count divides by integers."""
    x, labels = (
        torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).to(dtype),
        torch.tensor([1, 0]),
    )

    def loss(row):
        return F.cross_entropy(row.view(2, 2), labels, label_smoothing=0.1)

    assert torch.equal(vmap(loss)(x), torch.stack([loss(row) for row in x]))


@parametrize_dtypes("posit16es2 q43 posit32es2")
@pytest.mark.parametrize("name", MIXED_PAIRS)
def test_stock_operands_within_vmap(name, dtype):
    f, x, n = (
        MIXED_PAIRS[name],
        torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).to(dtype),
        torch.tensor([2, 3, 4]),
    )
    expected = torch.stack([f(row, k) for row, k in zip(x, n, strict=True)])
    found = vmap(f)(x, n)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


FILLS = {
    "normal_": lambda t, g: t.normal_(1, 2, generator=g),
    "uniform_": lambda t, g: t.uniform_(-1, 1, generator=g),
    "random_": lambda t, g: t.random_(generator=g),
    "random_ to": lambda t, g: t.random_(5, generator=g),
    "random_ from to": lambda t, g: t.random_(-3, 5, generator=g),
    "cauchy_": lambda t, g: t.cauchy_(generator=g),
    "exponential_": lambda t, g: t.exponential_(generator=g),
    "geometric_": lambda t, g: t.geometric_(0.5, generator=g),
    "log_normal_": lambda t, g: t.log_normal_(generator=g),
    "bernoulli_": lambda t, g: t.bernoulli_(0.5, generator=g),
    "bernoulli_ tensor": lambda t, g: t.bernoulli_(torch.full((600,), 0.5), generator=g),
}


@parametrize_dtypes("q43 posit16es2 posit32es2 tf32 e8m7")
@pytest.mark.parametrize("fill", FILLS)
def test_fills_with_the_same_randomness_draw_what_they_draw_outside_of_vmap(dtype, fill):
    def make_generator():
        return torch.Generator().manual_seed(5)

    expected = FILLS[fill](torch.zeros(600, dtype=dtype), make_generator())
    for shape, in_dims in (((2, 600), (0,)), ((600, 3), (1,)), ((2, 3, 600), (0, 0))):
        generator = make_generator()

        def f(t, generator=generator):
            return FILLS[fill](t, generator)

        for in_dim in in_dims:
            f = vmap(f, in_dims=in_dim, randomness="same")
        made = f(torch.zeros(shape, dtype=dtype))
        assert made.dtype is dtype
        for example in made.reshape(-1, 600):
            assert torch.equal(example, expected)
