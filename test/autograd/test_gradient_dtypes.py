"""The engine cannot tell a format tensor from a stock tensor of its storage dtype. Beside each
other, each still gets a gradient of its own dtype."""

import pytest
import torch
from conftest import parametrize_dtypes
from test_autograd import CONTAINER
from torch.autograd import forward_ad

from torch_dtypes import _C

each_dtype = parametrize_dtypes("posit16es2 posit32es2 tf32 q43 e11m30")
X, S = [1.5, -2.0, 0.75], [0.5, 1.25, -3.0]


def leaf(values, dtype):
    return torch.tensor(values).to(dtype).requires_grad_()


def expect_own(*tensors):
    for t in tensors:
        assert t.grad.dtype is t.dtype and _C.is_format_tensor(t.grad) is _C.is_format_tensor(t)


def stock_dtypes(dtype):
    """Return the storage dtype, which the engine confuses with the format dtype, and a dtype that
    it does not."""
    return CONTAINER[dtype.itemsize], torch.float64 if dtype.itemsize < 8 else torch.float32


def expect_alike(dtype, pairs):
    """Compare as float64 the results and gradients beside the two stock dtypes."""
    error = 4 * max(torch.finfo(d).eps for d in (dtype, *stock_dtypes(dtype)))
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=error, atol=error)


# Operators whose result has the format dtype: with a stock tensor without dimensions, or in place.
MIXED = {
    "mul": lambda x, s: x * s[0],
    "rmul": lambda x, s: s[1] * x,
    "add": lambda x, s: x + s[0],
    "sub": lambda x, s: torch.sub(s[0], x, alpha=2),
    "div": lambda x, s: x / s[1],
    "pow": lambda x, s: x.abs() ** s[0],
    "pow of a number": lambda x, s: s[0] ** x,
    "where": lambda x, s: torch.where(x > 0, x, s[0]),
    "lerp": lambda x, s: x.lerp(x.flip(0), s[0]),
    "atan2": lambda x, s: torch.atan2(x, s[0]),
    "maximum": lambda x, s: torch.maximum(x, s[0]),
    "masked_fill": lambda x, s: x.masked_fill(x > 0, s[0]),
    "addcmul": lambda x, s: x.addcmul(x, s[0]),
    "hypot": lambda x, s: torch.hypot(x, s[0]),
    "clamp": lambda x, s: x.clamp(min=s[0]),
    "fmod": lambda x, s: x.fmod(s[1]),
    "add_": lambda x, s: x.clone().add_(s),
    "sub_": lambda x, s: x.clone().sub_(s, alpha=0.5),
    "mul_": lambda x, s: x.clone().mul_(s),
    "div_": lambda x, s: x.clone().div_(s),
    "pow_": lambda x, s: x.abs().pow_(s),
    "fill_": lambda x, s: x.clone().fill_(s[0]),
    "addcmul_": lambda x, s: x.clone().addcmul_(s, x),
    "addcdiv_": lambda x, s: x.clone().addcdiv_(x, s),
    "lerp_": lambda x, s: x.clone().lerp_(x.flip(0), s[0]),
    "clamp_": lambda x, s: x.clone().clamp_(min=s),
    "copy_": lambda x, s: x.clone().copy_(s),
    "mul_ of a view": lambda x, s: view(x, s),
    "index_copy_": lambda x, s: x.clone().index_copy_(0, torch.tensor([2, 0]), s[:2].to(x.dtype)),
    "setitem": lambda x, s: put(x, s),
    "masked_scatter_": lambda x, s: x.clone().masked_scatter_(x > 0, s.to(x.dtype)),
    "foreach": lambda x, s: torch._foreach_mul([x], s[0])[0],
    "foreach_": lambda x, s: foreach(x, s),
    "atan2_": lambda x, s: x.clone().atan2_(s),
    "copysign_": lambda x, s: x.clone().copysign_(s),
}


def view(x, s):
    y = x.clone()
    y[1:].mul_(s[1:])
    return y


def put(x, s):
    y = x.clone()
    y[1:] = s[1:]
    return y


def foreach(x, s):
    y = x.clone()
    torch._foreach_add_([y], [s])
    return y


@each_dtype
@pytest.mark.parametrize("name", MIXED)
def test_operators_on_a_format_tensor_and_a_tensor_of_its_storage_dtype(name, dtype):
    found = []
    for stock in stock_dtypes(dtype):
        # Stock PyTorch cannot add up the gradients of views of float8 tensors, so each element is a
        # leaf with a cast.
        x, s = leaf(X, dtype), leaf(S, stock)
        wide = s if stock is not torch.float8_e5m2fnuz else [leaf(v, stock) for v in S]
        if isinstance(wide, list) and name not in ("mul", "rmul", "add", "sub", "div"):
            pytest.skip("stock has no derivative through views of float8 tensors")
        y = MIXED[name](x, wide)
        assert y.dtype is dtype
        y.backward(torch.tensor([1.0, 0.5, -1.0]).to(dtype))
        if x.grad is not None:
            expect_own(x)
        leaves = [v for v in wide if v.grad is not None] if isinstance(wide, list) else [s]
        expect_own(*leaves)
        found.append(
            [t.detach().double() for t in (y, x.grad, *(v.grad for v in leaves)) if t is not None]
        )
    # An in-place operator beside a stock tensor with dimensions computes in that tensor's dtype.
    pairs = zip(found[0], found[1][: len(found[0])], strict=True)
    expect_alike(dtype, ((a, b) if a.shape == b.shape else (a.sum(), b.sum()) for a, b in pairs))


@each_dtype
def test_a_given_gradient(dtype):
    container = CONTAINER[dtype.itemsize]
    own, stock = torch.tensor(X).to(dtype), torch.tensor(X).to(container)
    for t, given in ((leaf(S, container), own), (leaf(S, dtype), stock)):
        t.clone().backward(given)
        expect_own(t)
        expected = given.to(t.dtype).double()
        assert torch.equal(t.grad.double(), expected)
        (grad,) = torch.autograd.grad(t.clone(), t, given)
        assert grad.dtype is t.dtype and torch.equal(grad.double(), expected)


@each_dtype
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_the_copy_that_triangular_solve_returns(dtype):
    b, a = leaf([[1.0], [2.0]], dtype), leaf([[2.0, 1.0], [0.0, 4.0]], dtype)
    torch.triangular_solve(b, a)[1].sum().backward()
    expect_own(a, *([b] if b.grad is not None else []))


def test_in_place_on_a_stock_tensor_with_format_bounds():
    s, low = leaf([1.0, 3.0], torch.float32), leaf([2.0, 2.0], torch.posit16es2)
    y = s.clone()
    assert y.clamp_(min=low) is y
    y.sum().backward()
    assert s.grad.tolist() == [0.0, 1.0] and low.grad.tolist() == [1.0, 0.0]
    expect_own(s, low)


@each_dtype
def test_in_place_powers_with_exponents_of_float32(dtype):
    for exponent in (leaf([2.0, 0.5], torch.float32), leaf(2.0, torch.float32)):
        x = leaf([1.5, 4.0], dtype)
        x.clone().pow_(exponent).sum().backward()
        expect_own(x, exponent)
        reference, e = leaf([1.5, 4.0], torch.float64), leaf(exponent.tolist(), torch.float64)
        (reference**e).sum().backward()
        torch.testing.assert_close(x.grad.double(), reference.grad, rtol=0.07, atol=0)
        torch.testing.assert_close(exponent.grad.double(), e.grad, rtol=0.07, atol=0)


def test_a_gradient_is_of_the_dtype_that_grad_dtype_asks_for():
    x = torch.nn.Parameter(torch.ones(3).to(torch.q52))
    with pytest.raises(RuntimeError, match=r"own dtype, torch\.q52, but got torch\.float32"):
        x.grad = torch.ones(3)
    x.grad_dtype = torch.float32
    x.grad = torch.ones(3)
    assert x.grad.dtype is torch.float32
    with pytest.raises(
        RuntimeError, match=r"a gradient of grad_dtype, torch\.float32, but got torch\.float64"
    ):
        x.grad = torch.ones(3).double()
    with pytest.raises(
        RuntimeError, match=r"a gradient of grad_dtype, torch\.float32, but got torch\.q52"
    ):
        x.grad = torch.ones(3).to(torch.q52)
    x.grad_dtype = None  # accepts any dtype
    for dtype in (torch.float64, torch.q52):
        x.grad = torch.ones(3).to(dtype)
        assert x.grad.dtype is dtype


@each_dtype
def test_what_an_operator_returned_takes_a_gradient(dtype):
    x = leaf(X, dtype).clone()  # a result, which has no grad_dtype
    x.grad = given = torch.ones_like(x, requires_grad=True)
    assert x.grad is given
    with pytest.raises(RuntimeError, match=f"own dtype, {dtype}, but got torch.float64"):
        x.grad = given.double()


@each_dtype
def test_grad_dtype_names_our_dtype(dtype):
    x, container = leaf(X, dtype), CONTAINER[dtype.itemsize]
    assert x.grad_dtype is dtype and torch.ones(1, dtype=container).grad_dtype is container
    for refused in (container, torch.e5m5):
        with pytest.raises(TypeError, match=f"grad_dtype: expected {dtype}, .* but got {refused}"):
            x.grad_dtype = refused
    with pytest.raises(TypeError, match=f"grad_dtype: expected {container}, .* but got {dtype}"):
        leaf(X, container).grad_dtype = dtype
    x.grad_dtype = torch.float16
    x.clone().backward(torch.ones(3, dtype=dtype))
    assert x.grad_dtype is x.grad.dtype is torch.float16
    x.grad, x.grad_dtype = None, dtype
    x.clone().backward(torch.ones(3, dtype=dtype))
    expect_own(x)
    x.grad_dtype = None
    with torch.device("cpu"):  # a mode, which is called first and sees the dtype
        x.grad_dtype = dtype
        assert x.grad_dtype is dtype
        with pytest.raises(
            TypeError, match=f"grad_dtype: expected {dtype}, .* but got {container}"
        ):
            x.grad_dtype = container


# The opposite case: a stock tensor beside a format tensor decides the dtype, or is written to.
STOCK_RESULTS = {
    "mul": lambda x, s: x * s,
    "where": lambda x, s: torch.where(s > 0, x, s),
    "cat": lambda x, s: torch.cat([x, s])[1:4],
    "pow": lambda x, s: x.abs() ** s,
    "stack": lambda x, s: torch.stack([x, s])[0],
    "mul_": lambda x, s: s.clone().mul_(x),
    "add_": lambda x, s: s.clone().add_(x, alpha=2),
    "clamp_": lambda x, s: s.clone().clamp_(min=x),
    "copy_": lambda x, s: s.clone().copy_(x),
    "setitem": lambda x, s: put(s, x),
    "fill_": lambda x, s: s.clone().fill_(x[0]),
    "div_ of a view": lambda x, s: view(s, x),
    "addcmul_": lambda x, s: s.clone().addcmul_(x, s),
    "lerp": lambda x, s: s.lerp(s.flip(0), x[0]),
    "pow_": lambda x, s: s.abs().pow_(x),
    "foreach_": lambda x, s: foreach(s, x),
    "masked_fill": lambda x, s: s.masked_fill(s > 0, x[0]),
    "slice_scatter": lambda x, s: s.slice_scatter(x[1:], 0, 1),
    "bounds": lambda x, s: torch.clamp(s, x, x + 1),
}
# The other operators write into the stock tensor.
PROMOTED = ("mul", "where", "cat", "pow", "stack", "bounds")


# Stock PyTorch computes nothing in its float8 types.
@parametrize_dtypes("posit16es2 posit32es2 tf32 e11m30")
@pytest.mark.parametrize("name", STOCK_RESULTS)
def test_operators_whose_result_is_of_the_container_s_dtype(name, dtype):
    found = []
    for stock in stock_dtypes(dtype):
        x, s = leaf(X, dtype), leaf(S, stock)
        y = STOCK_RESULTS[name](x, s)
        assert y.dtype is (torch.promote_types(dtype, stock) if name in PROMOTED else stock)
        y.backward(torch.tensor([1.0, 0.5, -1.0], dtype=y.dtype))
        expect_own(*(t for t in (x, s) if t.grad is not None))
        found.append([t.detach().double() for t in (y, x.grad, s.grad) if t is not None])
    expect_alike(dtype, zip(*found, strict=True))


@each_dtype
def test_gradients_of_gradients(dtype):
    container = CONTAINER[dtype.itemsize]
    if container is torch.float8_e5m2fnuz:
        pytest.skip("stock computes nothing in its float8 types")
    for of, with_respect_to in ((0, 1), (1, 0), (1, 1)):
        leaves = leaf(X, dtype), leaf(2.0, container)
        x, s = leaves
        (first,) = torch.autograd.grad((x * s * s * x).sum(), leaves[of], create_graph=True)
        assert first.dtype is leaves[of].dtype
        (second,) = torch.autograd.grad(first.sum(), leaves[with_respect_to])
        assert second.dtype is leaves[with_respect_to].dtype
        if of == with_respect_to:
            expected = 2 * sum(v * v for v in X)
        else:
            expected = 8 * sum(X) if with_respect_to else [8 * v for v in X]
        assert second.tolist() == expected


# The first tangent of a process warns.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")
@each_dtype
def test_a_tangent_has_its_tensor_s_dtype(dtype):
    container = CONTAINER[dtype.itemsize]
    for own, other in ((dtype, container), (container, dtype)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.tensor(X).to(own), torch.ones(3).to(other))
            assert forward_ad.unpack_dual(dual).tangent.dtype is own
        result, tangent = torch.func.jvp(
            lambda t: t.clone(), (torch.tensor(X).to(own),), (torch.ones(3).to(other),)
        )
        assert result.dtype is tangent.dtype is own


@each_dtype
@pytest.mark.parametrize("number_first", [True, False])
# for the gradient, as in stock PyTorch
@pytest.mark.filterwarnings("ignore:Casting complex values to")
def test_where_with_a_complex_number_has_a_real_gradient(dtype, number_first):
    def select(x):
        return torch.where(x > 0, 0.5j, x) if number_first else torch.where(x > 0, x, 0.5j)

    grads = []
    for own in (dtype, torch.float32):
        x = leaf(X, own)
        y = select(x)
        assert y.is_complex() and not y.isnan().any()
        torch.view_as_real(y).mul(
            torch.tensor([2.0, 3.0], dtype=y.dtype.to_real())
        ).sum().backward()
        expect_own(x)
        grads.append(x.grad.double())
    assert torch.equal(*grads)
    assert grads[0].tolist() == [0.0 if (value > 0) == number_first else 2.0 for value in X]
    inside = torch.func.grad(lambda x: select(x).real.sum())(leaf(X, dtype).detach())
    assert inside.dtype is dtype and torch.equal(inside.double(), grads[0] / 2)


@each_dtype
@pytest.mark.parametrize("way", ["to", "copy_"])
def test_a_cast_to_complex_numbers_takes_the_real_part_without_a_warning(dtype, way):
    """Stock casts do the same: a user loses nothing by dropping the imaginary part of the
    gradient."""
    x = leaf(X, dtype)
    y = x.to(torch.complex128) if way == "to" else torch.empty(3, dtype=torch.complex128).copy_(x)
    torch.set_warn_always(True)
    try:
        (y * torch.tensor([2 + 1j, 1j, -1])).sum().abs().backward()
    finally:
        torch.set_warn_always(False)
    expect_own(x)
    reference = leaf(X, dtype).detach().double().requires_grad_()
    (reference * torch.tensor([2 + 1j, 1j, -1])).sum().abs().backward()
    assert torch.equal(x.grad, reference.grad.to(dtype))


@each_dtype
def test_second_derivatives_of_group_norm(dtype):
    """Since 2.14 the stock formula returns zeros where a result has no gradient; before, None."""
    x, w, b, direction = (
        torch.randn(*size).to(dtype).requires_grad_() for size in ((2, 4, 3), (4,), (4,), (2, 4, 3))
    )

    def first(x, w, b):
        return torch.autograd.grad(
            torch.nn.functional.group_norm(x, 2, w, b), (x, w, b), direction, create_graph=True
        )

    for gradient in first(x, w, b)[:2]:
        seconds = torch.autograd.grad(
            gradient.sum(), (x, w, b), retain_graph=True, allow_unused=True
        )
        assert seconds[0] is not None
        assert {second.dtype for second in seconds if second is not None} == {dtype}
        for second in seconds[2:]:  # the gradients do not depend on the bias
            assert second is None or not second.any()

    def twice(x, w, b):
        inner = torch.func.grad(
            lambda x, w, b: (torch.nn.functional.group_norm(x, 2, w, b) ** 3).sum(),
            argnums=(0, 1, 2),
        )
        return sum((gradient * gradient).sum() for gradient in inner(x, w, b))

    seconds = torch.func.grad(twice, argnums=(0, 1, 2))(*(t.detach() for t in (x, w, b)))
    assert [second.dtype for second in seconds] == [dtype] * 3
