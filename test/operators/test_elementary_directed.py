"""Elementary functions in the modes that notice every rest: where float64 returns 1 or the operand
itself, the exact result decides."""

import itertools
import math
import re

import numpy as np
import oracle
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes
from mpmath import mp, mpf
from oracle_elementary import FUNCTIONS, MORE, as_float, exact
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.usefixtures("one_thread")

MODES = ["up", "down", "toward_zero", "to_odd"]
FORMATS = BUILTIN | {"e5m10": oracle.binary(5, 10)}
NAMES = {re.sub("^special_", "", name): name for name in _C.functions_with_limits()}
SHARES = {1.0: (1, 1), 0.5: (1, 2), 0.6: (3, 5)}  # shares of the operand that a function approaches
# Cancellation costs these digits far below 0 (test_elementary.py).
FROM = {"gelu": -4.0, "ndtr": -4.0}


def on_its_side(function, x: float) -> float:
    """Return a float64 number between the same two numbers of a narrow format as the exact
    result."""
    r = exact(function, x, MORE)
    if isinstance(r, float):
        return r
    y = as_float(r)
    if math.isinf(y) or y == 0:
        return math.copysign(1e308 if y else 5e-324, r)
    if not (math.frexp(y)[0] * 2**40).is_integer():
        return y
    above = r > y
    if r == y and (x == 0 or (function is FUNCTIONS["exp2"] and abs(x) >= 1)):
        return y  # an integer result is exact
    # The functions are known to 1200 bits. Further from the limit, where these tell, the result is
    # on the same side of it.
    if r == y:
        nearer = math.copysign(min(max(abs(x), 2.0**-60), 20.0), x)
        with mp.workprec(MORE):
            p, q = SHARES.get(y / x, (0, 1))
            above = function.exact(mpf(nearer)) > (mpf(nearer) * p / q if p else y)
    return math.nextafter(y, math.inf if above else -math.inf)


def operands(name, spec, count):
    codes = torch.arange(1 << spec.bits)
    if count < len(codes):
        rng = np.random.default_rng(4)
        one = spec.encode(1.0)
        some = [
            rng.integers(0, spec.sign_code, count // 2),
            one + rng.integers(-(one >> 3), one >> 3, count // 4),
            np.arange(10),
        ]
        codes = torch.from_numpy(np.concatenate([*some, *(spec.sign_code + s for s in some[:2])]))
    values = torch.tensor([float(spec.decode(int(c))) for c in codes], dtype=torch.float64)
    return codes[~values.isinf() & (values > FROM.get(name, -math.inf))]


def check(name, format_name, count):
    spec, dtype = FORMATS[format_name], torch_dtypes.dtype(format_name)
    x = from_codes(operands(name, spec, count), dtype)
    function = FUNCTIONS["logsigmoid" if name == "log_sigmoid_forward" else name]
    sides = np.array([on_its_side(function, v) for v in x.double().tolist()])
    for mode in MODES:
        with torch_dtypes.rounding(mode):
            found = codes_of(function.torch(x)).numpy()
        numbers = [
            np.array([float(spec.decode(int(c))) for c in codes])
            for codes in (found, oracle.table(spec).encode(sides, mode))
        ]
        bad = np.flatnonzero(~np.equal(*numbers) & ~np.isnan(numbers).all(0))
        assert not len(bad), [
            (mode, x.double()[i].item(), sides[i], numbers[0][i], numbers[1][i]) for i in bad[:4]
        ]


@pytest.mark.parametrize(
    ("name", "format_name"),
    thin_out(
        itertools.product(
            [n for n in NAMES if not n.startswith("logaddexp")],
            ["q43", "e8m4", "e5m10", "posit16es2"],
        ),
        5,
    ),
)
def test_functions(name, format_name):
    check(name, format_name, 150)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["e8m4", "e5m10", "posit16es2"])
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("logaddexp")])
def test_every_operand(name, format_name):
    check(name, format_name, 1 << 16)


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_sums_of_powers(name):
    """The result is above the larger operand, however small the other one's power is."""
    f = getattr(torch, name)
    a = torch.tensor([3.0, -3.0, 0.0, 64.0]).to(torch.e8m4)
    b = torch.tensor([-200.0, -300.0, -1000.0, -64.0]).to(torch.e8m4)
    for x, y in ((a, b), (b, a)):
        with torch_dtypes.rounding("up"):
            assert torch.equal(f(x, y), torch.nextafter(a, torch.full_like(a, math.inf)))
        with torch_dtypes.rounding("down"):
            assert torch.equal(f(x, y), a)
            assert torch.equal(f(a, torch.full_like(a, -math.inf)), a), "exactly"
    with torch_dtypes.rounding("up"):
        assert torch.equal(f(a, torch.full_like(a, -math.inf)), a), "exactly"


def test_rows_and_limits_agree():
    assert {name for name, _, facts, _ in _C.operator_facts() if "ComesNear" in facts} == set(
        _C.functions_with_limits()
    )


def test_wide_formats():
    """The operator's loop computes these without a table, also in place."""
    dtype = torch_dtypes.dtype("e8m23")
    one = torch.ones(3, dtype=dtype)
    below = torch.nextafter(one, torch.zeros_like(one))
    with torch_dtypes.rounding("toward_zero"):
        assert torch.equal(torch.tanh(one * 30), below) and torch.equal((one * 30).tanh_(), below)
        assert torch.equal(torch.tanh(one * math.inf), one) and torch.equal(torch.cos(one * 0), one)
    assert torch.equal(torch.tanh(one * 30), one)
