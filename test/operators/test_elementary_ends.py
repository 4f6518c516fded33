"""Elementary functions that exceed float64's range: in every rounding mode the result is the
rounded exact one."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import parametrize_dtypes
from representatives import thin_out

import torch_dtypes

HUGE, TINY = 1e308, 5e-324  # beyond every format here: these stand for e^1000 and e^-1000
NAMES = [
    "e5m10",
    "e8m23",
    "e8m7_propagate",
    "e4m7fn_saturate",
    "takum16_linear",
    "takum20_linear",
    "posit16es5_regime6",
    "posit8es2_regime3",
]
NAMES += [
    "posit16es2",
    "posit32es2",
    "posit16es2_underflow",
    "posit16es2_underflow_saturate",
    "fixed12_4",
]
MODES = ["nearest_even", "up", "down", "toward_zero", "to_odd"]


CASES = {
    "exp": (torch.exp, 1000, HUGE),
    "exp of less": (torch.exp, -1000, TINY),
    "exp2": (torch.exp2, -1200, TINY),
    "expm1": (torch.expm1, 1000, HUGE),
    "sinh": (torch.sinh, -1000, -HUGE),
    "cosh": (torch.cosh, -1000, HUGE),
    "erfc": (torch.erfc, 40, TINY),
    "sigmoid": (torch.sigmoid, -1000, TINY),
    "silu": (F.silu, -1000, -TINY),
    "gelu": (F.gelu, -1000, -TINY),
    "mish": (F.mish, -1000, -TINY),
    "softplus": (F.softplus, -1000, TINY),
    "logsigmoid": (F.logsigmoid, 1000, -TINY),
    "ndtr": (torch.special.ndtr, -100, TINY),
    "log_ndtr": (torch.special.log_ndtr, 100, -TINY),
    "i0": (torch.special.i0, 1000, HUGE),
    "i1": (torch.special.i1, -1000, -HUGE),
    "k0": (torch.special.modified_bessel_k0, 1000, TINY),
    "power": (lambda x: x**400, 1000, HUGE),
    "power of a negative number": (lambda x: x**401, -1000, -HUGE),
    "its inverse": (lambda x: x**-401, -1000, -TINY),
    "power in place": (lambda x: x.clone().pow_(400), 1000, HUGE),
    "power of two tensors": (lambda x: x ** (x / x * 400), 1000, HUGE),
    "power of a number": (lambda x: 0.25**x, 1000, TINY),
    "power of a larger number": (lambda x: 4.0**x, 1000, HUGE),
    "power of an integer tensor": (lambda x: torch.tensor([10]) ** x, 1000, HUGE),
    "power of a tensor without dimensions": (lambda x: torch.tensor(10.0) ** x, 1000, HUGE),
    "and of less": (lambda x: torch.tensor([10]) ** x, -1000, TINY),
    "ldexp": (lambda x: torch.ldexp(x, torch.tensor([2000])), -1000, -HUGE),
    "ldexp to less": (lambda x: torch.ldexp(x, torch.tensor([-2000])), -1000, -TINY),
    "ldexp in place": (lambda x: x.clone().ldexp_(torch.tensor([2000])), 1000, HUGE),
    "ldexp of an integer": (lambda x: torch.ldexp(torch.tensor([3]), x * 2), 1000, HUGE),
    "erfcx": (torch.special.erfcx, -1000, HUGE),
    "logaddexp": (lambda x: torch.logaddexp(x - x, x), -1000, TINY),
    "logaddexp2": (lambda x: torch.logaddexp2(x * 2, x - x), -1000, TINY),
}


def outermost(dtype, x):
    """Return the operand, or the format's last number before it."""
    return (
        torch.tensor([x], dtype=torch.float64)
        .clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
        .to(dtype)
    )


@pytest.mark.parametrize("name", thin_out(CASES, 3))
@parametrize_dtypes(NAMES)
def test_beyond_float64(dtype, name):
    f, x, exact = CASES[name]
    operand = outermost(dtype, x)
    if operand.double().item() != pytest.approx(x, rel=0.1):
        assert dtype in (
            torch_dtypes.dtype("posit8es2_regime3"),
            torch_dtypes.dtype("e4m7fn_saturate"),
        ), "a format without the operand"
        return
    for mode in MODES:
        with torch_dtypes.rounding("nearest_even"):
            operand = outermost(dtype, x)
        with torch_dtypes.rounding(mode):
            found, expected = f(operand), torch.tensor([exact], dtype=torch.float64).to(dtype)
        assert torch.equal(found, expected), (mode, found, expected)
        with torch_dtypes.rounding(mode):  # many elements: by a table, where there is one
            found = f(operand.expand(70000).contiguous() if dtype.itemsize < 4 else operand)
        assert found.eq(expected).all(), mode


INFINITE = {
    "exp": (lambda x: torch.exp(x), math.inf),
    "exp of less": (lambda x: torch.exp(-x), 0.0),
    "erfc": (lambda x: torch.erfc(x), 0.0),
    "power": (lambda x: x**3, math.inf),
    "inverse": (lambda x: x**-3, 0.0),
    "infinite exponents": (lambda x: torch.full_like(x, 2.0) ** x, math.inf),
    "and below": (lambda x: torch.full_like(x, 2.0) ** -x, 0.0),
    "infinite number as exponent": (lambda x: torch.full_like(x, 2.0) ** math.inf, math.inf),
    "of a number": (lambda x: 2.0**x, math.inf),
    "of a number, below": (lambda x: 2.0**-x, 0.0),
    "ldexp": (lambda x: torch.ldexp(torch.ones_like(x), x), math.inf),
    "ldexp, below": (lambda x: torch.ldexp(torch.ones_like(x), -x), 0.0),
    "erfcx": (lambda x: torch.special.erfcx(-x), math.inf),
    "logaddexp": (lambda x: torch.logaddexp(torch.zeros_like(x), -x), 0.0),
    "logaddexp, turned": (lambda x: torch.logaddexp(-x, torch.zeros_like(x)), 0.0),
}


@pytest.mark.parametrize("name", INFINITE)
@parametrize_dtypes(NAMES[:3])
def test_limits_are_exact(dtype, name):
    """For an infinite operand, an infinity or a zero is the exact result, which no mode moves."""
    f, exact = INFINITE[name]
    x = torch.tensor([math.inf]).to(dtype)
    for mode in MODES:
        with torch_dtypes.rounding(mode):
            assert f(x).double().tolist() == [exact], mode
