"""Operators of other libraries (torch.library): their kernels get format tensors, or their exact
values, and results have the format dtype."""

import pytest
import torch
from conftest import parametrize_dtypes

import torch_dtypes

every_dtype = parametrize_dtypes("posit16es2 q43 posit32es2 e11m30")


@pytest.fixture(scope="module")
def ops():
    library = torch.library.Library("td_test", "DEF")
    seen = []

    def see(result, *tensors):
        seen[:] = [t.dtype for t in tensors]
        return result

    def writes(x):
        see(x.add_(1), x)

    device = torch.zeros(()).device.type  # the kernels are for the device of the tests' tensors
    library.define("on_device(Tensor x, Tensor? y=None) -> Tensor")
    library.impl(
        "on_device", lambda x, y=None: see(x.exp() if y is None else x / y, x), device.upper()
    )
    library.define("of_list(Tensor[] xs) -> (Tensor, Tensor)")
    library.impl(
        "of_list", lambda xs: see((torch.cat(xs), torch.cat(xs).argsort()), *xs), device.upper()
    )
    library.define("writes(Tensor(a!) x) -> ()")
    library.impl("writes", writes, device.upper())
    library.define("everywhere(Tensor x) -> Tensor")
    library.impl("everywhere", lambda x: see(x + x, x), "CompositeExplicitAutograd")
    library.define("view(Tensor(a) x) -> Tensor(a)")
    library.impl("view", lambda x: x.view(-1), device.upper())

    @torch.library.custom_op("td_test::cubed", mutates_args=(), device_types=device)
    def cube(x: torch.Tensor) -> torch.Tensor:
        return see(x * x * x, x)

    cube.register_autograd(
        lambda ctx, g: 3 * ctx.x * ctx.x * g,
        setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
    )
    yield torch.ops.td_test, seen
    library._destroy()


def sample(dtype):
    return torch.tensor([1.5, -0.5, 3.0]).to(dtype)


@every_dtype
def test_kernels_for_a_device_compute_on_exact_values(ops, dtype):
    ops, seen = ops
    x = sample(dtype)
    stock = torch_dtypes.format_of(dtype).bits > 32 or dtype is torch.posit32es2
    values = x.double() if stock else x.float()
    for found, expected in (
        (ops.on_device(x), values.exp()),
        (ops.on_device(x, x * 3), values / (x * 3).to(values.dtype)),
    ):
        assert found.dtype is dtype and torch.equal(found.double(), expected.to(dtype).double())
    assert seen == [values.dtype]
    joined, order = ops.of_list([x, x])
    assert (
        joined.dtype is dtype and joined.tolist() == x.tolist() * 2 and order.dtype is torch.int64
    )
    ops.writes(x)
    assert x.dtype is dtype and x.tolist() == [2.5, 0.5, 4.0]


@every_dtype
def test_kernels_for_all_backends_get_our_tensors(ops, dtype):
    ops, seen = ops
    found = ops.everywhere(sample(dtype))
    assert seen == [dtype] and found.dtype is dtype and found.tolist() == [3.0, -1.0, 6.0]


@every_dtype
def test_derivatives(ops, dtype):
    ops, _ = ops
    x = sample(dtype).requires_grad_()
    y = ops.cubed(x)
    y.sum().backward()
    assert y.dtype is dtype and x.grad.dtype is dtype and x.grad.tolist() == (3 * x * x).tolist()
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        ops.on_device(x).sum().backward()


def test_what_cannot_be_called_with_values(ops):
    ops, _ = ops
    with pytest.raises(
        NotImplementedError,
        match="td_test::view: expected tensors of stock dtypes, but got one of a number format",
    ):
        ops.view(sample(torch.posit16es2))


def test_stock_tensors_are_seen_as_they_are(ops):
    ops, seen = ops
    x = torch.tensor([1.5, -0.5], dtype=torch.bfloat16)
    assert torch.equal(ops.on_device(x), x.exp()) and seen == [torch.bfloat16]


@every_dtype
def test_stock_operands_beside_format_tensors_are_an_error(ops, dtype):
    ops = ops[0]
    x, other = sample(dtype), torch.ones(3, dtype=torch.float64)
    with pytest.raises(
        RuntimeError,
        match=r"td_test::on_device: expected floating tensors of torch\.\w+ alone, but got "
        r"argument y with torch.float64",
    ):
        ops.on_device(x, other)
    assert ops.on_device(x, torch.ones(3, dtype=torch.int32)).dtype is dtype


@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
@every_dtype
def test_a_kernel_of_differentiable_operators_has_their_gradient(ops, dtype):
    ops = ops[0]
    x, y = sample(dtype).requires_grad_(), sample(dtype)
    ops.on_device(x, y).backward(torch.ones(3).to(dtype))
    assert x.grad.dtype is dtype and torch.equal(
        x.grad.double(), (1 / y.double()).to(dtype).double()
    )
    ops.writes(x.detach())
