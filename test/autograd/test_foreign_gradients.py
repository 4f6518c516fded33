"""C++ code may return a gradient in a dtype other than its operand's. It is rounded once, to the
operand's dtype, as between stock dtypes."""

import pytest
import torch
from test_gradient_dtypes import each_dtype, leaf, stock_dtypes
from torch import nn
from torch.utils import cpp_extension


def accumulator(tensor):
    """Return a leaf's gradient node. Calling it imitates the engine after C++ code returned a
    gradient."""
    return tensor.view_as(tensor).grad_fn.next_functions[0][0]


FINE = torch.tensor([1 + 2.0**-20, -3e-4, 1.1])


@each_dtype
def test_a_leaf_rounds_once_to_its_own_dtype(dtype):
    for stock in stock_dtypes(dtype):
        x = leaf([1.0, 2.0, 3.0], dtype)
        accumulator(x)(FINE.to(stock))
        assert torch.equal(x.grad, FINE.to(stock).to(dtype)) and x.grad.dtype is dtype
        accumulator(x)(FINE.to(stock))
        assert torch.equal(x.grad, FINE.to(stock).to(dtype) * 2) and x.grad.dtype is dtype
        stock_leaf = leaf([1.0, 2.0, 3.0], stock)
        accumulator(stock_leaf)(FINE.to(dtype))
        assert (
            torch.equal(stock_leaf.grad, FINE.to(dtype).to(stock))
            and stock_leaf.grad.dtype is stock
        )


@each_dtype
def test_a_leaf_takes_what_grad_dtype_asks_for(dtype):
    x = leaf([1.0, 2.0, 3.0], dtype)
    assert x.grad_dtype is dtype
    x.grad_dtype = None
    accumulator(x)(FINE)
    assert torch.equal(x.grad, FINE) and x.grad.dtype is torch.float32
    x = leaf([1.0, 2.0, 3.0], dtype)
    other = torch.float16 if dtype.itemsize != 2 else torch.float32
    x.grad_dtype = other
    (x * 3).sum().backward()
    assert x.grad.dtype is other and x.grad_dtype is other


@each_dtype
def test_what_a_leaf_has_been_told_stays(dtype):
    x = leaf([1.0, 2.0, 3.0], dtype)
    graph = x * 1
    x.grad_dtype = dtype  # its former value
    (found,) = torch.autograd.grad(graph.sum(), x, retain_graph=True)
    assert found.dtype is dtype and x.grad_dtype is dtype
    with pytest.raises(RuntimeError, match="leaf"):
        graph.grad_dtype = dtype
    edge = torch.autograd.graph.get_gradient_edge(graph)
    found = torch.autograd.grad(graph.sum(), [x, edge])
    assert [g.dtype for g in found] == [dtype, dtype]


SOURCE = r"""
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
using namespace torch::autograd;
struct Scales : Function<Scales> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x + x; }
  static variable_list backward(AutogradContext*, const variable_list& g) {
    return {g[0].to(at::kDouble) * (1 + 0x1p-20)};
  }
};
at::Tensor scales(const at::Tensor& x) { return Scales::apply(x); }
TORCH_LIBRARY(foreign_gradients, m) { m.def("scales(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(foreign_gradients, Autograd, m) { m.impl("scales", scales); }
"""


@pytest.mark.slow  # runs a C++ compiler
def test_the_backward_of_a_cpp_function(tmp_path):
    cpp_extension.load_inline(
        "foreign_gradients", SOURCE, build_directory=tmp_path, is_python_module=False
    )
    scales = torch.ops.foreign_gradients.scales
    fine = 1 + 2.0**-20
    for dtype in (torch.posit16es2, torch.q43, torch.posit32es2):
        x = leaf([1.0, 2.0, 3.0], dtype)
        expected = torch.full((3,), fine, dtype=torch.float64).to(dtype)
        scales(x).sum().backward()
        assert torch.equal(x.grad, expected) and x.grad.dtype is dtype
        (found,) = torch.autograd.grad(scales(x).sum(), x)
        assert torch.equal(found, expected) and found.dtype is dtype
        middle = x * 1
        (found,) = torch.autograd.grad(scales(middle).sum(), middle)
        assert torch.equal(found, expected) and found.dtype is dtype
        (found,) = torch.autograd.grad(scales(x).float().sum(), x)  # the loss is a stock tensor
        assert torch.equal(found, expected) and found.dtype is dtype
        middle = x * 1
        square = (scales(middle) * scales(middle)).sum()
        with torch.no_grad():
            assert torch.autograd.grad(square, middle, create_graph=True)[0].requires_grad
        # A tensor that is passed with a gradient edge gets its own dtype.
        edge = torch.autograd.graph.get_gradient_edge(x)
        assert torch.autograd.grad(scales(x).sum(), [x, edge])[0].dtype is dtype
        graph, x.grad = scales(x), None
        x.grad_dtype = dtype
        graph.sum().backward()
        assert torch.equal(x.grad, expected)
        x.grad = None
        # In the middle of a graph the gradient is not rounded: the product receives all digits.
        scales(x * x).sum().backward()
        assert torch.equal(
            x.grad, (torch.tensor([2.0, 4.0, 6.0], dtype=torch.float64) * fine).to(dtype)
        )
    layers = [
        (nn.Linear(3, 3), (2, 3)),
        (nn.Conv2d(1, 2, 3), (1, 1, 5, 5)),
        (nn.LayerNorm(3), (2, 3)),
        (nn.BatchNorm1d(3), (2, 3)),
        (nn.GRU(3, 3), (2, 2, 3)),
    ]
    for layer, shape in layers:
        layer.to(torch.posit16es2)
        x = torch.randn(shape, dtype=torch.posit16es2, requires_grad=True)
        y = layer(x)
        scales(y[0] if isinstance(y, tuple) else y).sum().backward()
        assert {t.grad.dtype for t in (x, *layer.parameters())} == {torch.posit16es2}, layer
