"""torch.func and forward-mode AD: the format dtype is visible in every transformation, and
derivatives are those of autograd or of the stock formula."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from transformed import FUNCTIONS, every_dtype, expect_near, expect_same, numbers

import torch_dtypes

# PyTorch itself uses torch.jit.script when forward mode is first entered.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)

# ---- what a function sees within a transformation ----


@every_dtype
def test_dtype_shows_in_transformations(dtype):
    seen = []

    def f(x):
        made = (
            torch.zeros(3, dtype=x.dtype)
            + torch.rand(3, dtype=x.dtype) * 0
            + torch.tensor([1.0, 0.5, 2.0], dtype=x.dtype)
        )
        seen.extend(
            [x.dtype, (x * 2).dtype, made.dtype, torch.zeros_like(x).dtype, x.new_ones(2).dtype]
        )
        return (x * made).sum()

    x = numbers(dtype, 4, 3)
    grad(f)(x[0])
    vmap(f, randomness="different")(x)
    vmap(grad(f), randomness="different")(x)
    jvp(f, (x[0],), (x[1],))
    assert set(seen) == {dtype}


@pytest.mark.parametrize(
    "stock", [torch.float32, torch.bfloat16, torch.float8_e5m2fnuz, torch.float64]
)
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


@pytest.mark.parametrize(
    "name", "tanh matmul norm prod clamp softmax layer_norm sort det exp var".split()
)
@every_dtype
def test_tangent_is_the_stock_formula_on_exact_values_rounded_once(name, dtype):
    f = FUNCTIONS.get(name) or getattr(torch, name)
    x, t = numbers(dtype, 3, 3), numbers(dtype, 3, 3, seed=1)
    with forward_ad.dual_level():
        result, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, t)))
    # These run by casts alone where derivatives are needed.
    if name not in ("norm", "prod", "clamp", "det"):
        expect_same(result, f(x))
    _, exact = jvp(f, (x.double(),), (t.double(),))
    compute = torch.float32 if torch_dtypes.format_of(dtype).fits_float else torch.float64
    _, single = jvp(f, (x.to(compute),), (t.to(compute),))
    assert tangent.dtype is dtype
    if torch_dtypes.format_of(dtype).bits <= 16:  # float32's last bits are hidden by the rounding
        expect_near(tangent, exact, dtype, steps=1)
    expect_near(tangent, single, dtype, steps=1)


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
        product = forward_ad.make_dual(numbers(dtype, 3), numbers(dtype, 3, seed=1)) * torch.ones(
            3, dtype=torch.float64
        )
        result, tangent = forward_ad.unpack_dual(product)
    assert result.dtype is torch.float64 and tangent.tolist() == numbers(dtype, 3, seed=1).tolist()


def test_tangent_of_dropout_has_the_result_s_zeros():
    dtype = torch.posit16es2
    with forward_ad.dual_level():
        result, tangent = forward_ad.unpack_dual(
            F.dropout(
                forward_ad.make_dual(torch.ones(64, dtype=dtype), torch.ones(64, dtype=dtype))
            )
        )
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
        expect_near(
            torch.autograd.functional.jacobian(f, x, vectorize=True, strategy=strategy),
            jacrev(f)(x),
            dtype,
        )
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


# ---- all of them ----


@pytest.mark.parametrize("layer", [F.dropout, F.alpha_dropout, F.dropout1d])
def test_dropout_in_transformations(layer):
    x = torch.ones(4, 8, 8, dtype=torch.posit16es2)
    assert vmap(layer, randomness="different")(x).dtype is x.dtype
    assert grad(lambda x: layer(x).sum())(x).dtype is x.dtype
    assert vmap(layer, randomness="different")(x.float()).dtype is torch.float32


def test_functionalize():
    x = numbers(torch.posit16es2, 3)
    expect_same(
        torch.func.functionalize(lambda x: x.clone().add_(1).view(3, 1).mul_(2))(x),
        (x + 1).view(3, 1) * 2,
    )


WRITES = {
    "number": (0, 1.3),
    "integer": (1, 2),
    "slice": (slice(1, 3), 0.3),
    "mask": (None, 0.0),
    "list": ([0, 2], True),
    "tensor": (0, torch.ones(2)),
    "number of a tensor": (0, torch.tensor(0.3)),
}


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
    if index is not None:  # a mask has a dynamic shape, also in stock PyTorch
        expect_same(vmap(f)(x[None]), f(x)[None])
        expect_same(vmap(grad(lambda x: f(x).sum()))(x[None]), expected[None])
    expect_same(
        grad(lambda x: vmap(lambda r: torch.where(r > 0, r, 0.3))(x).sum())(x), (x > 0).to(dtype)
    )


# isclose warns in vmap, also in stock PyTorch.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@every_dtype
def test_which_numbers_are_finite(dtype):
    x = torch.tensor([[1.0, -2.0], [0.0, float("nan")]]).to(dtype)
    for f in (
        torch.isfinite,
        torch.isreal,
        torch.isnan,
        torch.isinf,
        lambda x: torch.isclose(x, 2 * x),
        torch.nan_to_num,
    ):
        expect_same(vmap(f)(x), f(x))
        assert grad(lambda x, f=f: (f(x) * x).sum())(x).dtype is dtype
        expect_same(
            jvp(lambda x, f=f: f(x).to(dtype), (x,), (torch.ones_like(x),))[0], f(x).to(dtype)
        )


def test_stock_transformations_are_as_before():
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    assert torch.equal(vmap(lambda x: x * x.sum())(x), torch.stack([r * r.sum() for r in x]))
    assert vmap(lambda x: x.half() * x.sum())(x).dtype is torch.float16
    assert torch.equal(vmap(lambda x: torch.fft.rfft(x))(x), torch.fft.rfft(x))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(F.dropout)(x)
