"""Exact sums by stock matrix products, where float64 loses nothing, against sums of their terms one
by one."""

import pytest
import torch
from conftest import codes_of

import torch_dtypes
from torch_dtypes import accumulate, rounding


@pytest.mark.parametrize("mode", ["nearest_even", "stochastic"])
@pytest.mark.parametrize("name", ["q43", "q52", "posit16es2", "e8m7", "posit32es2", "e8m23"])
def test_exact_sums_by_matrix_products_are_those_of_the_terms(name, mode):
    """A NaN in another row, or column, makes all sums go term by term."""
    dtype = torch_dtypes.dtype(name)
    g = torch.Generator().manual_seed(7)

    def numbers(spread, *shape):
        x = torch.randn(shape, generator=g, dtype=torch.float64) * torch.exp2(
            torch.randint(*spread, shape, generator=g).double()
        )
        x = x.to(dtype)
        return x.where(x.isfinite(), torch.ones((), dtype=dtype))

    def drawn(function, *operands):
        torch.manual_seed(5)
        return function(*operands)

    for spread in ((0, 1), (-8, 8), (-40, 40)):
        for k in (1, 41, 401):
            a, b, start = numbers(spread, 3, k), numbers(spread, k, 5), numbers(spread, 3, 5)
            half = k // 2  # a row in which all but the last term cancel
            a[0, half : 2 * half], b[half : 2 * half] = -a[0, :half], b[:half]
            nan = torch.full((1, k), torch.nan).to(dtype)
            below, right, more = (
                torch.cat([a, nan]),
                torch.cat([b, nan.t()], 1),
                torch.cat([start, start[:1]]),
            )
            with accumulate("exact"), rounding(mode):
                pairs = [
                    (drawn(torch.mm, a, b), drawn(torch.mm, below, b)[:-1]),
                    (drawn(torch.addmm, start, a, b), drawn(torch.addmm, more, below, b)[:-1]),
                    (drawn(torch.sum, b, 0), drawn(torch.sum, right, 0)[:-1]),
                    (drawn(torch.mean, b, 0), drawn(torch.mean, right, 0)[:-1]),
                ]
            for found, expected in pairs:
                assert torch.equal(codes_of(found), codes_of(expected)), (spread, k)


@pytest.mark.parametrize("n", [20, 30, 60, 100, 200, 1000])
def test_exact_sums_at_the_end_of_float64s_digits(n):
    """Products with all digits cancel, except one in the last digit. float64 loses it where the sum
    of the others needs 54 digits."""
    x, last = 2 - 2.0**-23, 2.0**-23
    a, b = torch.tensor([[x] * n + [-x] * n + [last]]), torch.tensor([x] * 2 * n + [last])
    dtype = torch_dtypes.dtype("e8m23")
    with accumulate("exact"):
        found = (a.to(dtype) @ b.to(dtype).view(-1, 1)).item()
        first = torch.addmm(
            torch.full((1, 1), 2.0**-60).to(dtype), a.to(dtype), b.to(dtype).view(-1, 1)
        ).item()
    assert found == 2.0**-46
    assert first == 2.0**-46 + 2.0**-60
