"""Autograd through functions of torch and torch.nn: gradients are near float64's, and results and
gradients have the format dtype."""

import pytest
import torch
from conftest import parametrize_dtypes

# The functions of torch.nn


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.q43], ids=str)
def test_the_backward_operator_casts_a_given_gradient(given):
    x = torch.ones(3, dtype=torch.posit16es2, requires_grad=True)
    torch.ops.aten._backward((x * 2) * x, [x], torch.ones(3, dtype=given))
    assert x.grad.dtype is torch.posit16es2 and x.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    "operator", [torch.ops.aten._softmax_backward_data, torch.ops.aten._log_softmax_backward_data]
)
@pytest.mark.parametrize("asked", [torch.posit16es2, torch.q43, torch.float32], ids=str)
def test_softmax_backward_by_hand_to_another_dtype(operator, asked):
    grad, out = (torch.rand(2, 3).to(torch.posit16es2).requires_grad_() for _ in range(2))
    result = operator(grad, out, 1, asked)
    result.sum().backward()
    assert (
        result.dtype is asked
        and grad.grad.dtype is torch.posit16es2
        and out.grad.dtype is torch.posit16es2
    )


@parametrize_dtypes("posit16es2 tf32 posit32es2")
def test_a_stock_operand_of_an_in_place_operator_keeps_its_gradient_s_dtype(dtype):
    x, y = torch.ones(3, dtype=dtype), torch.full((3,), 0.5, requires_grad=True)
    x.sub_(y, alpha=2).mul_(y)
    x.sum().backward()
    assert (
        x.dtype is dtype and y.grad.dtype is torch.float32 and y.grad.tolist() == [-1.0, -1.0, -1.0]
    )


def test_cosine_similarity_beside_integers_is_of_the_dtype():
    x, y = torch.ones(3, dtype=torch.e5m5, requires_grad=True), torch.ones(3, 3, dtype=torch.int32)
    found = torch.cosine_similarity(y, x)
    found.sum().backward()
    assert found.dtype is torch.e5m5 and found.tolist() == [1, 1, 1] and x.grad.dtype is torch.e5m5
