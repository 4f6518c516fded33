"""Matrices of format dtypes, and the expected codes of results."""

import torch
from sums import assert_codes, dtype_of, values_of


def matrix(name, m, n, seed=0):
    """Return a random matrix around 1, whose sums round in every format."""
    torch.manual_seed(seed)
    return torch.randn(m, n, dtype=torch.float64).to(dtype_of(name))


def table(t, spec):
    values = values_of(t, spec)
    return [values[i : i + t.shape[1]] for i in range(0, len(values), t.shape[1])]


def assert_table(found, expected, spec, note=""):
    mode = "nearest_even"  # the values are the format's
    assert_codes(found, [spec.encode(x, mode) for row in expected for x in row], spec, note)


def gradients(function, *operands):
    """Return the gradients of a weighted sum of the function's results."""
    operands = [x.clone().requires_grad_() for x in operands]
    result = function(*operands)
    weight = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
    (result * weight).sum().backward()
    return [x.grad for x in operands]
