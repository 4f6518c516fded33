"""Autograd: each gradient has the dtype of its tensor, through casts, views, copies, hooks and the
functions of torch.nn."""

import weakref

import pytest
import torch
from conftest import expect_tensor, parametrize_dtypes
from torch import nn
from torch.nn import functional as F

every_dtype = parametrize_dtypes("posit16es2 q43 e5m5 posit32es2 tf32 posit8es1 posit12es1 e11m30")
CONTAINER = {1: torch.float8_e5m2fnuz, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


def expect_grad(t, values=None, dtype=None):
    assert t.grad is not None
    expect_tensor(t.grad, dtype or t.dtype)
    if values is not None:
        assert t.grad.tolist() == values


def leaf(dtype, values=(1.0, -2.0, 0.5, 3.0)):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


@every_dtype
def test_leaf_and_non_leaf_gradients(dtype):
    x = leaf(dtype)
    y = x * 2
    y.retain_grad()
    z = (y * y).sum()
    expect_tensor(z, dtype)
    assert not x.grad_fn and y.grad_fn is not None and not y.is_leaf
    z.backward()
    expect_grad(y, [4.0, -8.0, 2.0, 12.0])
    expect_grad(x, [8.0, -16.0, 4.0, 24.0])
    x.grad = None
    (x * 3).backward(torch.tensor([1.0, 0.0, 2.0, -1.0], dtype=dtype))
    expect_grad(x, [3.0, 0.0, 6.0, -3.0])


@every_dtype
def test_gradients_accumulate(dtype):
    x = leaf(dtype)
    for times in (1, 2, 3):
        (x * 2).sum().backward()
        expect_grad(x, [2.0 * times] * 4)
    x.grad.zero_()
    expect_grad(x, [0.0] * 4)
    x.grad = None
    x.sum().backward(retain_graph=True)
    expect_grad(x, [1.0] * 4)
    x.grad = torch.full_like(x, 0.5)
    expect_grad(x, [0.5] * 4)
    for other in (torch.float16, torch.int64, CONTAINER[dtype.itemsize]):
        with pytest.raises((RuntimeError, TypeError), match="grad"):
            x.grad = torch.zeros(4, dtype=other)


@every_dtype
def test_torch_autograd_grad(dtype):
    x, w = leaf(dtype), leaf(dtype, (2.0, 1.0, -1.0, 0.5))
    gx, gw = torch.autograd.grad((x * w).sum(), (x, w))
    expect_tensor(gx, dtype)
    expect_tensor(gw, dtype)
    assert gx.tolist() == w.tolist() and gw.tolist() == x.tolist() and x.grad is None
    expect_tensor(torch.autograd.grad(x * 2, x, grad_outputs=torch.ones_like(x))[0], dtype)
    assert torch.autograd.grad(x.sum(), w, allow_unused=True) == (None,)
    expect_tensor(torch.autograd.grad(x.sum(), w, materialize_grads=True)[0], dtype)


@every_dtype
def test_double_backward(dtype):
    x = leaf(dtype)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    expect_tensor(first, dtype)
    assert first[:3].tolist() == [3.0, 12.0, 0.75]
    (second,) = torch.autograd.grad(first.sum(), x)
    expect_tensor(second, dtype)
    assert second.tolist() == torch.tensor([6.0, -12.0, 3.0, 18.0], dtype=dtype).tolist()
    (first,) = torch.autograd.grad(
        x.to(torch.float32).square().to(dtype).sum(), x, create_graph=True
    )
    first.sum().backward()
    expect_grad(x, [2.0] * 4)


@every_dtype
def test_no_grad_inference_mode_and_detach(dtype):
    x = leaf(dtype)
    with torch.no_grad():
        expect_tensor(x * 2, dtype)
        assert not (x * 2).requires_grad
        x.sub_(1)
    with torch.inference_mode():
        z = x * 2
        made = torch.zeros(2, dtype=dtype)
        assert z.is_inference() and made.is_inference()
        expect_tensor(z.to(torch.float32).to(dtype).view(2, 2).t(), dtype)
    assert not x.detach().requires_grad and x.detach().requires_grad_().is_leaf
    expect_tensor(x.detach(), dtype)


def test_the_gradient_of_a_cast_is_rounded_to_the_source():
    x = torch.ones(1, dtype=torch.bfloat16, requires_grad=True)
    x.to(torch.posit16es2).backward(torch.tensor([1 + 2.0**-11], dtype=torch.posit16es2))
    expect_grad(x, [1.0], torch.bfloat16)
    y = leaf(torch.posit16es2, (1.0,))
    y.double().backward(torch.tensor([1 + 2.0**-20], dtype=torch.float64))
    expect_grad(y, [1.0])


@every_dtype
def test_mixed_arithmetic_gives_each_leaf_a_gradient_of_its_dtype(dtype):
    stock = torch.ones(4)
    for operator in (
        lambda x: x.sum(dtype=torch.float32),
        lambda x: x.cumsum(0, dtype=torch.float64),
        lambda x: F.mse_loss(x, stock),
    ):
        x = leaf(dtype)
        operator(x).sum().backward()
        expect_grad(x)
    x, w = leaf(dtype), torch.tensor([2.0, 1.0, -1.0, 0.5], requires_grad=True)
    y = x * w + 1
    expect_tensor(y, torch.promote_types(dtype, torch.float32))
    y.sum().backward()
    expect_grad(x, [2.0, 1.0, -1.0, 0.5])
    expect_grad(w, [1.0, -2.0, 0.5, 3.0])
    weight, n = torch.ones(4, 4, requires_grad=True), leaf(dtype)
    (weight @ n.float()).to(dtype).sum().backward()
    expect_grad(n, [4.0] * 4)
    expect_grad(weight)


def test_the_gradient_of_a_stock_leaf_is_not_rounded_to_the_other_operand_s_format():
    w, x, cotangent = (
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.ones(2, dtype=torch.posit8es0),
        torch.tensor([1.234567, 0.001]),
    )
    (w * x).backward(cotangent)
    assert torch.equal(w.grad, cotangent)


@parametrize_dtypes("posit8es1 posit16es2 posit32es2 e11m30")
@pytest.mark.parametrize("asked", [torch.float64, torch.float32, torch.q43])
def test_operators_called_by_hand_sum_in_the_dtype_that_they_are_asked_for(asked, dtype):
    aten = torch.ops.aten
    for operator in (aten.sum.default, aten.nansum.default, aten.mean.default):
        x = leaf(dtype)
        y = operator(x, dtype=asked)
        assert y.dtype is asked  # holds for the storage dtype too
        y.backward()
        expect_grad(x)
    x = leaf(dtype)
    aten.cumsum.default(x, 0, dtype=asked).sum().backward()
    expect_grad(x, [4.0, 3.0, 2.0, 1.0])


def test_an_in_place_operator_does_not_grow_what_it_writes_to():
    x = leaf(torch.posit16es2)
    with pytest.raises(
        RuntimeError,
        match=r"le_: expected operands that broadcast to the sizes \[4\] .* but got \[2, 4\]",
    ):
        x.clone().le_(torch.ones(2, 4, dtype=torch.posit16es2))


@every_dtype
def test_a_given_gradient_of_another_dtype_is_cast(dtype):
    for operator in (lambda x: x, lambda x: x.clone(), lambda x: x * 1, lambda x: x.view(2, 2)):
        for given in (
            torch.ones(4),
            torch.ones(4, dtype=torch.float64),
            torch.ones(4, dtype=CONTAINER[dtype.itemsize]),
        ):
            x = leaf(dtype)
            y = operator(x)
            y.backward(given.view(y.shape))
            expect_grad(x, [1.0] * 4)
            (grad,) = torch.autograd.grad(operator(x), x, given.view(y.shape))
            expect_tensor(grad, dtype)


@every_dtype
def test_padded_sequences_and_complex_exponents_give_gradients_of_the_dtype(dtype):
    x = torch.ones(3, 2, 1, dtype=dtype, requires_grad=True)
    nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 1], device="cpu")).data.sum().backward()
    expect_grad(x)
    assert x.grad.flatten().tolist() == [1.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    for operator in (
        lambda x: x**1j,
        lambda x: 1j**x,
        lambda x: torch._foreach_mul([x], 1j)[0],
        lambda x: torch.ops.aten.mul.Scalar(x, 1j),
    ):
        x = leaf(dtype, (1.0, 2.0))
        operator(x).imag.sum().backward()
        expect_grad(x)


@every_dtype
def test_attention_called_by_hand_keeps_the_dtype(dtype):
    q = torch.ones(1, 2, 3, 2, dtype=dtype)
    for result in torch._scaled_dot_product_attention_math(q, q, q):
        expect_tensor(result, dtype)


@every_dtype
def test_in_place_on_non_leaves_and_their_views(dtype):
    x = leaf(dtype)
    y = x * 1
    y[:2].mul_(3)
    y[2] = 0.0
    y += 1
    y.view(2, 2).t()[1].neg_()
    y.sum().backward()
    expect_grad(x, [3.0, -3.0, 0.0, -1.0])


@every_dtype
def test_in_place_errors_are_stock_ones(dtype):
    x = leaf(dtype)
    with pytest.raises(
        RuntimeError,
        match="a leaf Variable that requires grad is being used in an in-place operation",
    ):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        x[0].mul_(2)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones((), dtype=dtype).backward()
    version = x._version
    with torch.no_grad():
        x.add_(1)
        x[0] = 2
        x.view(2, 2).zero_()
    assert x._version > version


@every_dtype
def test_hooks_see_gradients_of_the_dtype(dtype):
    seen = []
    x = leaf(dtype)
    y = x * 2
    x.register_hook(lambda g: seen.append(g) or g * 2)
    y.register_hook(lambda g: seen.append(g))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    layer = nn.Linear(4, 2).to(dtype)
    layer.register_forward_hook(lambda m, i, o: seen.extend((*i, o)))
    layer.register_full_backward_hook(lambda m, gi, go: seen.extend((*gi, *go)))
    layer(y).sum().backward()
    assert len(seen) == 7
    for g in seen:
        expect_tensor(g, dtype)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        expect_tensor(grad, ctx.saved_tensors[0].dtype)
        return 2 * ctx.saved_tensors[0] * grad


@every_dtype
def test_custom_function_and_saved_tensor_hooks(dtype):
    x, packed = leaf(dtype), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = Square.apply(x)
    y.sum().backward()
    expect_grad(x, [2.0, -4.0, 1.0, 6.0])
    assert packed and all(t.dtype is dtype for t in packed)
    with torch.autograd.graph.save_on_cpu():
        (leaf(dtype) ** 2).sum().backward()
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        (leaf(dtype) ** 2).sum().backward()


def test_a_given_gradient_is_cast_whatever_the_other_outputs_are():
    x, y = leaf(torch.posit16es2), leaf(torch.float32)
    seen = []
    x.register_hook(seen.append)
    torch.autograd.backward([y * 1, x * 1], [torch.ones(4), torch.full((4,), 1 + 2.0**-11)])
    expect_grad(x, [1 + 2.0**-11] * 4)
    expect_tensor(seen[0], torch.posit16es2)


class Scale(torch.autograd.Function):
    """Returns gradients of a stock dtype, as code written for stock dtypes may."""

    @staticmethod
    def forward(ctx, x, factor, other):
        ctx.factor = factor
        return x * factor + other

    @staticmethod
    def backward(ctx, gradient):
        return gradient.float() * (1 + 2.0**-11), None, gradient.double()


@every_dtype
@pytest.mark.parametrize("inner", [False, True])
def test_a_custom_function_s_stock_gradient_is_rounded_once_to_the_operand_s_dtype(dtype, inner):
    x, y = leaf(dtype), leaf(torch.float32)
    operand = x * 1 if inner else x
    seen = []
    operand.register_hook(seen.append)
    result = Scale.apply(operand, 2.0, y.to(dtype))
    expect_tensor(result, dtype)
    result.sum().backward()
    expect_tensor(seen[0], dtype)
    expect_grad(x, torch.full((4,), 1 + 2.0**-11).to(dtype).tolist())
    expect_grad(y, [1.0] * 4, torch.float32)


def test_a_custom_function_s_node_is_freed():
    node = weakref.ref(Scale.apply(leaf(torch.q43), 2.0, leaf(torch.q43)).grad_fn)
    assert node() is None
