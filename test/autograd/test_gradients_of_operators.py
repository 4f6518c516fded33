"""Derivatives of single operators that depend on more than the operands: on an intermediate
rounding, or on a dtype without a gradient."""

import math

import pytest
import torch
from conftest import parametrize_dtypes

NAMES = ["q43", "posit16es2", "e5m7", "posit32es2"]
every_dtype = parametrize_dtypes(NAMES)


def gradients(distance, *operands):
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    distance(*leaves).sum().backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
@every_dtype
def test_distances_have_the_gradient_of_the_exact_ones(dtype, p):
    """PyTorch's formulas divide differences by the distance. For format tensors that distance is
    rounded."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(n, 3, generator=generator).to(dtype) for n in (5, 4))
    calls = [
        (lambda a, b: torch.cdist(a, b, p=p), a, b),
        (lambda a: torch.nn.functional.pdist(a, p=p), a),
    ]
    for call, *operands in calls:
        for found, exact in zip(
            gradients(call, *operands),
            gradients(call, *(x.double() for x in operands)),
            strict=True,
        ):
            assert found.dtype is dtype and (exact != 0).any() == (p != 0)
            torch.testing.assert_close(
                found.double(), exact.to(dtype).double(), rtol=2 * torch.finfo(dtype).eps, atol=1e-5
            )


def test_the_largest_difference_has_the_gradient():
    a, b = torch.tensor([[1.0, 0.1]]).to(torch.q43), torch.tensor([[-7.3, 0.0]]).to(torch.q43)
    assert [g.tolist() for g in gradients(lambda a, b: torch.cdist(a, b, p=math.inf), a, b)] == [
        [[1.0, 0.0]],
        [[-1.0, 0.0]],
    ]


@every_dtype
def test_bincount_has_no_derivative(dtype):
    weights = torch.ones(3, dtype=dtype, requires_grad=True)
    counted = torch.bincount(torch.tensor([0, 1, 1]), weights=weights)
    assert counted.requires_grad and counted.tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="derivative for aten::bincount is not implemented"):
        counted.sum().backward()
    assert not torch.bincount(torch.tensor([0, 1, 1]), weights=weights.detach()).requires_grad


@pytest.mark.parametrize(
    "name", ["pow_", "clamp_", "clamp_min_", "clamp_max_", "clip_", "copysign_", "nextafter_"]
)
@every_dtype
def test_integers_are_not_written_to_by_operands_with_a_gradient(dtype, name):
    operand = torch.tensor([1.5, 0.5, 2.0]).to(dtype)
    for other in (operand, operand.clone().requires_grad_()):
        x = torch.arange(3)
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
            getattr(x, name)(other)
        assert x.tolist() == [0, 1, 2]
    masks = torch.arange(3)
    # a mask may be written in place
    assert masks.lt_(operand.clone().requires_grad_()).tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "cumsum", "cumprod"])
@every_dtype
def test_sums_of_integers_have_no_gradient(dtype, name):
    x = torch.tensor([1.5, 2.0]).to(dtype)
    along = (0,) if name.startswith("cum") else ()
    calls = [
        lambda x: getattr(x, name)(*along, dtype=torch.int64),
        lambda x: getattr(torch, name)(x, *along, dtype=torch.int64),
    ]
    if name == "sum":
        calls.append(lambda x: torch.ops.aten.sum(x, dtype=torch.int64))
    for call in calls:
        whole = call(x)
        assert whole.dtype is torch.int64
        with pytest.raises(
            RuntimeError, match="expected a floating dtype for a tensor that requires grad, but got"
        ):
            call(x.clone().requires_grad_())
        with torch.no_grad():
            assert torch.equal(call(x.clone().requires_grad_()), whole)
