"""torch.func and forward-mode AD: our dtype shows in every transformation, and derivatives are those of autograd, or of the stock formula."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import torch_dtypes

# PyTorch itself uses torch.jit.script when forward mode is first entered.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

NAMES = "posit16es2 q43 posit32es2 e11m30".split()
DTYPES = [torch_dtypes.dtype(name) for name in NAMES]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)


def numbers(dtype, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expect_same(a, b):
    assert a.dtype is b.dtype and a.shape == b.shape
    assert torch.equal(a.double().nan_to_num(7.0), b.double().nan_to_num(7.0)), (a, b)


def expect_near(a, b, dtype, steps=8):
    assert a.dtype is dtype and a.shape == b.shape
    bound = steps * torch.finfo(dtype).eps * b.double().abs().max().clamp(min=1)
    assert (a.double() - b.double()).abs().max() <= bound, (a, b)


# ---- what a function sees within a transformation ----


@every_dtype
def test_dtype_shows_in_transformations(dtype):
    seen = []

    def f(x):
        made = torch.zeros(3, dtype=x.dtype) + torch.rand(3, dtype=x.dtype) * 0 + torch.tensor([1.0, 0.5, 2.0], dtype=x.dtype)
        seen.extend([x.dtype, (x * 2).dtype, made.dtype, torch.zeros_like(x).dtype, x.new_ones(2).dtype])
        return (x * made).sum()

    x = numbers(dtype, 4, 3)
    grad(f)(x[0])
    vmap(f, randomness="different")(x)
    vmap(grad(f), randomness="different")(x)
    jvp(f, (x[0],), (x[1],))
    assert set(seen) == {dtype}


@pytest.mark.parametrize("stock", [torch.float32, torch.bfloat16, torch.float8_e5m2fnuz, torch.float64])
@every_dtype
def test_casts_to_what_may_be_the_container(stock, dtype):
    x = numbers(dtype, 4, 3)
    seen = []

    def f(x):
        y = x.to(stock)
        seen.append(y.dtype)
        return y.to(dtype).sum()

    assert vmap(f)(x).dtype is dtype
    assert grad(f)(x[0]).dtype is dtype
    assert set(seen) == {stock}


# ---- reverse mode ----

FUNCTIONS = {
    "tanh": torch.tanh,
    "mul": lambda x: x * x,
    "matmul": lambda x: x @ x.t(),
    "casts": lambda x: x.double().sin().to(x.dtype),
    "mixed": lambda x: (x * torch.full((3, 3), 1.5)).to(x.dtype),
    "cat": lambda x: torch.cat([x, x * 2]),
    "norm": lambda x: x.norm(dim=0),
    "prod": lambda x: x.prod(),
    "clamp": lambda x: x.clamp(min=0),
    "softmax": lambda x: F.softmax(x, -1),
    "index": lambda x: x[0] * x[:, 1],
    "in place": lambda x: (x * 2).mul_(x).add_(1),
    "copy_": lambda x: torch.zeros_like(x).copy_(x * x),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "sort": lambda x: x.sort(-1).values,
    "where": lambda x: torch.where(x > 0, x, 0.25),
    "det": torch.linalg.det,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@every_dtype
def test_vjp_is_autograd_bit_for_bit(name, dtype):
    f, x = FUNCTIONS[name], numbers(dtype, 3, 3)
    leaf = x.clone().requires_grad_()
    want = f(leaf)
    cotangent = numbers(dtype, *want.shape, seed=1)
    want.backward(cotangent)
    got, pull = vjp(f, x)
    expect_same(got, want.detach())
    expect_same(pull(cotangent)[0], leaf.grad)


@every_dtype
def test_gradient_of_a_gradient(dtype):
    x = torch.tensor(0.75, dtype=dtype)
    expect_same(grad(grad(lambda x: x * x * x))(x), torch.tensor(4.5, dtype=dtype))


# ---- forward mode ----


@pytest.mark.parametrize("name", "tanh matmul norm prod clamp softmax layer_norm sort det exp var".split())
@every_dtype
def test_tangent_is_the_stock_formula_on_exact_values_rounded_once(name, dtype):
    f = FUNCTIONS.get(name) or getattr(torch, name)
    x, t = numbers(dtype, 3, 3), numbers(dtype, 3, 3, seed=1)
    with forward_ad.dual_level():
        result, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, t)))
    if name not in ("norm", "prod", "clamp", "det"):  # those run by casts altogether where derivatives are asked for
        expect_same(result, f(x))
    _, exact = jvp(f, (x.double(),), (t.double(),))
    compute = torch.float32 if torch_dtypes.format_of(dtype).fits_float else torch.float64
    _, single = jvp(f, (x.to(compute),), (t.to(compute),))
    assert tangent.dtype is dtype
    if torch_dtypes.format_of(dtype).bits <= 16:  # float32's own last bits do not show
        expect_near(tangent, exact, dtype, steps=1)
    expect_near(tangent, single, dtype, steps=1)


@pytest.mark.parametrize("name", FUNCTIONS)
@every_dtype
def test_jvp_agrees_with_vjp(name, dtype):
    f, x, t = FUNCTIONS[name], numbers(dtype, 3, 3), numbers(dtype, 3, 3, seed=1)
    result, tangent = jvp(f, (x,), (t,))
    assert result.dtype is dtype
    expect_near(tangent, jvp(f, (x.double(),), (t.double(),))[1], dtype, steps=40)


@every_dtype
def test_operands_without_tangent(dtype):
    """Stock formulas make zeros of the container's dtype for them."""
    x, t, w = numbers(dtype, 3, 3), numbers(dtype, 3, 3, seed=1), numbers(dtype, 3, 3, seed=2)
    cases = {
        "mm": lambda x: x @ w,
        "linear": lambda x: F.linear(x, w, w[0]),
        "conv": lambda x: F.conv2d(x[None, None], w[None, None, :2, :2]),
        "maximum": lambda x: torch.maximum(x, w),
        "where": lambda x: torch.where(w > 0, x, w),
        "mse": lambda x: F.mse_loss(x, w),
        "stack": lambda x: torch.stack([x, w]),
        "lerp": lambda x: torch.lerp(w, x, 0.5),
        "scatter": lambda x: w.scatter(0, torch.tensor([[0, 1, 2]]), x),
    }
    for name, f in cases.items():
        result, tangent = jvp(f, (x,), (t,))
        assert result.dtype is dtype and tangent.dtype is dtype, name
        expect_same(result, f(x))


@every_dtype
def test_tangents_through_writes_in_place_and_views(dtype):
    x, t = numbers(dtype, 4), numbers(dtype, 4, seed=1)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone(), t.clone())
        view = dual[:2]
        y = dual * 1
        y.mul_(dual)
        y[1:3].add_(dual[:2])
        assert forward_ad.unpack_dual(view).tangent.dtype is dtype
        result, tangent = forward_ad.unpack_dual(y)
    want = x * x
    slope = (x * t).double() * 2
    slope[1:3] += t[:2].double()
    want[1:3] += x[:2]
    expect_same(result, want)
    expect_near(tangent, slope, dtype)


@every_dtype
def test_tangents_meet_stock_tensors(dtype):
    with forward_ad.dual_level():
        product = forward_ad.make_dual(numbers(dtype, 3), numbers(dtype, 3, seed=1)) * torch.ones(3, dtype=torch.float64)
        result, tangent = forward_ad.unpack_dual(product)
    assert result.dtype is torch.float64 and tangent.tolist() == numbers(dtype, 3, seed=1).tolist()


def test_tangent_of_dropout_has_the_result_s_zeros():
    dtype = torch.posit16es2
    with forward_ad.dual_level():
        result, tangent = forward_ad.unpack_dual(F.dropout(forward_ad.make_dual(torch.ones(64, dtype=dtype), torch.ones(64, dtype=dtype))))
    assert 0 < (result == 0).sum() < 64
    expect_same(result, tangent)


@every_dtype
def test_jacobians_and_hessians(dtype):
    x = numbers(dtype, 3)

    def f(x):
        return x.sin() * x

    for jacobian in (jacrev(f)(x), jacfwd(f)(x), torch.autograd.functional.jacobian(f, x)):
        expect_near(jacobian, (x.double().cos() * x.double() + x.double().sin()).diag(), dtype)
    for strategy in ("reverse-mode", "forward-mode"):
        expect_near(torch.autograd.functional.jacobian(f, x, vectorize=True, strategy=strategy), jacrev(f)(x), dtype)
    square = hessian(lambda x: (x * x * x).sum())(x)
    expect_near(square, (6 * x.double()).diag(), dtype)
    for ours in (torch.autograd.functional.hvp, torch.autograd.functional.vhp):
        assert {t.dtype for t in tree_leaves(ours(lambda x: f(x).sum(), x, x))} == {dtype}


@every_dtype
def test_custom_function_in_every_transformation(dtype):
    class Square(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

        @staticmethod
        def jvp(ctx, t):
            return 2 * ctx.saved_tensors[0] * t

    x, t = numbers(dtype, 3), numbers(dtype, 3, seed=1)
    expect_same(vmap(Square.apply)(x), x * x)
    expect_same(grad(lambda x: Square.apply(x).sum())(x), 2 * x)
    expect_same(jvp(Square.apply, (x,), (t,))[1], 2 * x * t)


# ---- vmap ----

BATCHED = FUNCTIONS | {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.max(-1).values,
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "linear": lambda x: F.linear(x, torch.ones(2, 3, dtype=x.dtype)),
    "conv": lambda x: F.conv2d(x[None, None], torch.ones(1, 1, 2, 2, dtype=x.dtype)),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 2, 1])),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "rfft": lambda x: torch.fft.rfft(x).abs().to(x.dtype),
    "number by number": lambda x: x * (x == x).all() + x * x.sum(),
    "integer": lambda x: x * (x > 0).sum(),
    "setitem": lambda x: x.clone().__setitem__(0, 1.3) or x,
    "index_put": lambda x: torch.index_put(x, (torch.tensor([0]),), torch.ones(3, dtype=x.dtype)),
    "fill": lambda x: x.clone().fill_(1.3) + torch.full_like(x, 0.3),
    "arange": lambda x: torch.arange(3, dtype=x.dtype) * x + torch.eye(3, dtype=x.dtype) + torch.linspace(0, 1, 3, dtype=x.dtype),
}


@pytest.mark.parametrize("name", BATCHED)
@every_dtype
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of attention, as in stock dtypes (2.15: of three dimensions too)
def test_vmap_is_the_loop(name, dtype):
    f, x = BATCHED[name], numbers(dtype, 4, 3, 3)
    want = torch.stack([f(row) for row in x])
    expect_near(vmap(f)(x), want, dtype, steps=4)
    expect_near(vmap(f, in_dims=1, out_dims=0)(x.transpose(0, 1)), want, dtype, steps=4)


@pytest.mark.parametrize("layer", [F.dropout, F.alpha_dropout, F.dropout1d])
def test_dropout_in_transformations(layer):
    x = torch.ones(4, 8, 8, dtype=torch.posit16es2)
    assert vmap(layer, randomness="different")(x).dtype is x.dtype
    assert grad(lambda x: layer(x).sum())(x).dtype is x.dtype
    assert vmap(layer, randomness="different")(x.float()).dtype is torch.float32


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.posit32es2, torch.q52])
def test_gradients_of_each_sample(dtype):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3, 5)]
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


def test_functionalize():
    x = numbers(torch.posit16es2, 3)
    expect_same(torch.func.functionalize(lambda x: x.clone().add_(1).view(3, 1).mul_(2))(x), (x + 1).view(3, 1) * 2)


WRITES = {
    "number": (0, 1.3), "integer": (1, 2), "slice": (slice(1, 3), 0.3), "mask": (None, 0.0), "list": ([0, 2], True),
    "tensor": (0, torch.ones(2)), "number of a tensor": (0, torch.tensor(0.3)),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@every_dtype
def test_writing_to_elements(write, dtype):
    index, value = WRITES[write]

    def f(x):
        y = x.clone()
        y[y > 0 if index is None else index] = value
        assert y.dtype is dtype and y[0].dtype is dtype
        return y

    x = numbers(dtype, 4, 2).requires_grad_()
    (expected,) = torch.autograd.grad(f(x).sum(), x)
    x = x.detach()
    expect_same(torch.func.functionalize(f)(x), f(x))
    expect_same(grad(lambda x: f(x).sum())(x), expected)
    expect_same(jvp(f, (x,), (torch.ones_like(x),))[1], expected)
    if index is not None:  # stock: a mask has a dynamic shape
        expect_same(vmap(f)(x[None]), f(x)[None])
        expect_same(vmap(grad(lambda x: f(x).sum()))(x[None]), expected[None])
    expect_same(grad(lambda x: vmap(lambda r: torch.where(r > 0, r, 0.3))(x).sum())(x), (x > 0).to(dtype))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # isclose in vmap, stock too
@every_dtype
def test_which_numbers_are_finite(dtype):
    x = torch.tensor([[1.0, -2.0], [0.0, float("nan")]]).to(dtype)
    for f in (torch.isfinite, torch.isreal, torch.isnan, torch.isinf, lambda x: torch.isclose(x, 2 * x), torch.nan_to_num):
        expect_same(vmap(f)(x), f(x))
        assert grad(lambda x, f=f: (f(x) * x).sum())(x).dtype is dtype
        expect_same(jvp(lambda x, f=f: f(x).to(dtype), (x,), (torch.ones_like(x),))[0], f(x).to(dtype))


def test_stock_transformations_are_as_before():
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    assert torch.equal(vmap(lambda x: x * x.sum())(x), torch.stack([r * r.sum() for r in x]))
    assert vmap(lambda x: x.half() * x.sum())(x).dtype is torch.float16
    assert torch.equal(vmap(lambda x: torch.fft.rfft(x))(x), torch.fft.rfft(x))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(F.dropout)(x)


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 0.3, lambda x: x / 0.3, lambda x: x + 0.3, lambda x: 0.3 - x, lambda x: x**0.3, lambda x: x == 0.3, lambda x: x < 0.25,
     lambda x: torch.where(x > 0, x, 0.3), lambda x: torch.where(x > 0, 7, x)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.posit32es2], ids=str)
def test_numbers_within_vmap_stay_exact(dtype, function):
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)).to(dtype)
    found, expected = torch.func.vmap(function)(x), function(x)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    # In a sample of one number, too, and per sample in gradients and second derivatives.
    torch.testing.assert_close(torch.func.vmap(function)(x[0]), function(x[0]), rtol=0, atol=0, equal_nan=True)


def test_numbers_within_vmap_stay_exact_in_derivatives():
    x, w = torch.tensor([[1.0, 0.5], [1.25, 0.25]]).to(torch.q43), torch.ones(2, dtype=torch.q43)

    def loss(w, x):
        return (w * x).square().sum() * 0.1

    expect_same(vmap(grad(loss), (None, 0))(w, x), torch.stack([grad(loss)(w, row) for row in x]))
    expect_same(torch.func.hessian(loss)(w, x[0]), torch.autograd.functional.hessian(lambda w: loss(w, x[0]), w))


# Of a tensor of ours and a stock one, in samples with and without dimensions: dtypes and values are those of a loop.
MIXED_PAIRS = {
    "mask": lambda x, n: x[0] * (x > 0), "range": lambda x, n: x.mean() * torch.arange(4), "integer": lambda x, n: x + n,
    "number of integers": lambda x, n: x.sum() / torch.tensor(3), "floor_divide": lambda x, n: x // n, "true_divide": torch.true_divide,
    "mode": lambda x, n: torch.div(x, n, rounding_mode="floor"), "ldexp": torch.ldexp, "xlogy": lambda x, n: torch.xlogy(n, x.abs()),
    "copysign": lambda x, n: torch.copysign(x, -n), "logaddexp": lambda x, n: torch.logaddexp(x, n.double()), "power": lambda x, n: x**n,
    "larger": lambda x, n: torch.maximum(x, n), "comparison": lambda x, n: x < n, "half tensor": lambda x, n: x[0] + n.half().expand(2),
    "half number": lambda x, n: x * (n * 0.3).half(), "complex": lambda x, n: x[0] * 1j, "exact number": lambda x, n: 0.3 / x,
    "smoothing": lambda x, n: F.cross_entropy(x[None], n[None] - 2, label_smoothing=0.1), "mean": lambda x, n: (x * n).sum() / (x > 0).sum(),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.posit32es2], ids=str)
def test_a_mean_of_smoothed_losses_within_vmap(dtype):
    """Of labels without a batch, whose count divides by integers."""
    x, labels = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).to(dtype), torch.tensor([1, 0])

    def loss(row):
        return F.cross_entropy(row.view(2, 2), labels, label_smoothing=0.1)

    assert torch.equal(vmap(loss)(x), torch.stack([loss(row) for row in x]))


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.posit32es2], ids=str)
@pytest.mark.parametrize("name", MIXED_PAIRS)
def test_stock_operands_within_vmap(name, dtype):
    f, x, n = MIXED_PAIRS[name], torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).to(dtype), torch.tensor([2, 3, 4])
    expected = torch.stack([f(row, k) for row, k in zip(x, n, strict=True)])
    found = vmap(f)(x, n)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


FILLS = {
    "normal_": lambda t, g: t.normal_(1, 2, generator=g), "uniform_": lambda t, g: t.uniform_(-1, 1, generator=g),
    "random_": lambda t, g: t.random_(generator=g), "random_ to": lambda t, g: t.random_(5, generator=g),
    "random_ from to": lambda t, g: t.random_(-3, 5, generator=g), "cauchy_": lambda t, g: t.cauchy_(generator=g),
    "exponential_": lambda t, g: t.exponential_(generator=g), "geometric_": lambda t, g: t.geometric_(0.5, generator=g),
    "log_normal_": lambda t, g: t.log_normal_(generator=g), "bernoulli_": lambda t, g: t.bernoulli_(0.5, generator=g),
    "bernoulli_ tensor": lambda t, g: t.bernoulli_(torch.full((600,), 0.5), generator=g),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.q43, torch.posit16es2, torch.posit32es2, torch.tf32, torch_dtypes.dtype("e8m7")], ids=str)
@pytest.mark.parametrize("fill", FILLS)
def test_fills_with_the_same_randomness_draw_what_they_draw_outside_of_vmap(dtype, fill):
    def seeded():
        return torch.Generator().manual_seed(5)

    expected = FILLS[fill](torch.zeros(600, dtype=dtype), seeded())
    for shape, in_dims in (((2, 600), (0,)), ((600, 3), (1,)), ((2, 3, 600), (0, 0))):
        generator = seeded()

        def f(t, generator=generator):
            return FILLS[fill](t, generator)

        for in_dim in in_dims:
            f = vmap(f, in_dims=in_dim, randomness="same")
        made = f(torch.zeros(shape, dtype=dtype))
        assert made.dtype is dtype
        for example in made.reshape(-1, 600):
            assert torch.equal(example, expected)
