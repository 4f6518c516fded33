"""Values at the limits of a format or of the compute dtype."""

import math

import pytest
import torch
from torch.nn import functional as F

import torch_dtypes


@pytest.mark.parametrize(
    "name", ["e5m5", "q52", "q43", "e8m4", "e5m10", "posit16es2", "fixed4_3", "fp64"]
)
def test_nan_to_num_goes_to_the_format_s_limits(name):
    dtype = torch_dtypes.dtype(name)
    info, x = torch.finfo(dtype), torch.tensor([math.inf, -math.inf, math.nan, 1.0]).to(dtype)
    has_infinity = bool(x[0].isinf())
    expected = [info.max, info.min, 0.0, 1.0] if has_infinity else x.double().nan_to_num().tolist()
    assert x.nan_to_num().tolist() == expected and x.clone().nan_to_num_().tolist() == expected
    assert torch.nan_to_num(x, out=torch.empty_like(x)).tolist() == expected
    assert x.nan_to_num(posinf=2.0)[0] == (2.0 if has_infinity else expected[0])


@pytest.mark.parametrize("name", ["posit16es3", "posit8es4"])
def test_products_of_wide_posits_stay_in_range(name):
    dtype = torch_dtypes.dtype(name)
    large = torch.full((4,), torch.finfo(dtype).max, dtype=dtype)
    small = 1 / large
    assert large @ large == torch.finfo(dtype).max and small @ small == small[0]
    assert (
        F.mse_loss(large, -large) == torch.finfo(dtype).max
        and large.norm() == torch.finfo(dtype).max
    )
    with (
        pytest.raises(RuntimeError, match="whose values and products fit float32"),
        torch_dtypes.accumulate("float32"),
    ):
        large @ large


NOTHING = {
    "trapezoid": lambda e: torch.trapezoid(e),
    "with a step": lambda e: torch.trapezoid(e, dx=0.5),
    "with places": lambda e: torch.trapezoid(e, e),
    "trapz": lambda e: torch.trapz(e),
    "trapz with places": lambda e: torch.trapz(e, e),
    "of lines": lambda e: torch.trapezoid(e.view(2, 0)),
    "cond": lambda e: torch.linalg.cond(e.view(0, 0)),
    "cond by name": lambda e: torch.linalg.cond(e.view(0, 0), "fro"),
    "cond of none": lambda e: torch.linalg.cond(e.view(0, 3, 3), 1),
    "cond of two": lambda e: torch.linalg.cond(e.view(2, 0, 0), 2),
}


@pytest.mark.parametrize("call", NOTHING)
@pytest.mark.parametrize("name", ["posit16es2", "q43", "posit32es2"])
def test_integrals_and_condition_numbers_of_nothing(name, call):
    d = torch_dtypes.dtype(name)
    for e in (torch.zeros(0, dtype=d), torch.zeros(0, dtype=d, requires_grad=True)):
        made, expected = NOTHING[call](e), NOTHING[call](torch.zeros(0))
        assert (
            made.dtype is d and made.shape == expected.shape and made.tolist() == expected.tolist()
        )
    with pytest.raises(IndexError):
        torch.trapezoid(torch.zeros(0, dtype=d), dim=1)
