"""Elementary functions of the values of formats: exact by mpmath, and the codes of the results,
rounded once (oracle.py).

mpmath works at 200 bits, and at 1200 bits where the side of a boundary is still undecided. A result
that is undecided then is a tie. Ties of algebraic functions are exact. Transcendental functions
only have ties for arguments with exact results: log2(512) = 9 is between the numbers 8 and 10 of a
format with two fraction bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist

import numpy as np
import torch
import torch.nn.functional as F
from mpmath import mp, mpc, mpf
from oracle import Spec, table

PRECISION, MORE = 200, 1200
SLACK = 1e-12
NAN, INF = math.nan, math.inf


@dataclass(frozen=True, eq=False)
class Function:
    """One function of one operand: PyTorch's function, the exact one, and the cases outside the
    formula."""

    torch: Callable
    # Takes an mpf, which is finite. It is 0 only if the result at 0 follows from the formula.
    exact: Callable
    fast: Callable | None = None  # float64 by numpy or Python, a second library besides PyTorch's
    ends: tuple[float, float] = (NAN, NAN)  # at the infinities
    zeros: tuple[float, float] | None = None  # at -0 and 0, where the formula does not apply
    # At other poles; "integer<0" stands for all negative integers.
    special: dict = field(default_factory=dict)
    odd: bool = False  # f(-0) = -0
    # A result that rounds to 0 also has the argument's sign (IEEE 754-2019, section 5.9).
    keeps_sign: bool = False
    # Absolute error of `fast` in addition to the relative one, for functions that cross 0 where
    # their argument is not 0.
    near_zero: float = 0.0


def real(y):
    """Return an mpmath result as an mpf, or NaN where it is not real."""
    if isinstance(y, mpc):
        return y.real if y.imag == 0 else mpf("nan")
    return mpf(y)


@cache
def _exact(function: Function, x: float, precision: int):
    with mp.workprec(precision):
        try:
            return real(function.exact(mpf(x)))
        except (ValueError, ZeroDivisionError):  # outside the domain
            return mpf("nan")


def exact(function: Function, x: float, precision: int = PRECISION):
    """Return an mpf other than 0, or the float of a zero, an infinity or NaN."""
    if math.isnan(x):
        return NAN
    if math.isinf(x):
        return float(function.ends[x > 0])
    if x == 0 and (function.odd or function.zeros):
        return x if function.odd else float(function.zeros[math.copysign(1, x) > 0])
    known = function.special.get(
        "integer<0" if x < 0 and x == math.floor(x) and "integer<0" in function.special else x
    )
    if known is not None:
        return float(known)
    y = _exact(function, x, precision)
    if y == 0:
        return math.copysign(0.0, x) if function.keeps_sign else 0.0
    return float(y) if mp.isnan(y) or mp.isinf(y) else y


def as_float(y) -> float:
    """Return the nearest float64, infinite or 0 beyond its range."""
    if isinstance(y, float):
        return y
    exponent = int(mp.mag(y))
    return math.copysign(INF if exponent > 0 else 0.0, y) if abs(exponent) > 1020 else float(y)


def position(spec: Spec, m):
    """Return the place of a magnitude among the sorted values and its side of the boundary above,
    None if exact. An undecided case returns nothing."""
    t, near = table(spec), abs(as_float(m))
    at = int(np.searchsorted(t.values, near, side="right")) - 1
    if t.values[at] == near and m < mpf(near):
        at -= 1  # rounding to float64 has reached a value
    if at + 1 < len(t.values) and m >= mpf(t.values[at + 1]):
        at += 1
    if m == mpf(t.values[at]):
        return at, None
    b = t.boundaries[at]
    if b == 0 or np.isinf(b):
        return at, 1 if b == 0 else -1
    difference = m - mpf(b)
    if abs(difference) < mpf(b) * mpf(2) ** (40 - mp.prec):
        return at, (0 if mp.prec >= MORE else "unknown")
    return at, 1 if difference > 0 else -1


def code_of(spec: Spec, evaluate: Callable[[int], object]) -> int:
    """Return the code of evaluate(precision)."""
    for precision in (PRECISION, MORE):
        with mp.workprec(precision):
            y = evaluate(precision)
            if isinstance(y, float):
                return spec.encode(y)
            at, side = position(spec, abs(y))
        if side != "unknown":
            break
    return spec.encode_place(int(table(spec).codes[at]), side, y < 0, "nearest_even")


def expected_codes(function: Function, spec: Spec, x: np.ndarray) -> np.ndarray:
    """Return the codes of the exact function, rounded once, each by mpmath."""
    return np.array(
        [code_of(spec, lambda precision, v=v: exact(function, v, precision)) for v in x.tolist()]
    )


def filtered_codes(function: Function, spec: Spec, x: np.ndarray) -> np.ndarray:
    """Return the same codes, by mpmath only where the float64 function within SLACK does not
    decide, or is near the ends of its range."""
    if function.fast is None:
        return expected_codes(function, spec, x)
    with np.errstate(all="ignore"):
        y = np.asarray(function.fast(x), dtype=np.float64)
    codes, sure = decide_codes(spec, y, np.isfinite(x) & (x != 0), function.near_zero)
    codes[~sure] = expected_codes(function, spec, x[~sure])
    return codes


def decide_codes(
    spec: Spec, y: np.ndarray, sure: np.ndarray, near_zero: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of y, and where they are certain: all numbers within SLACK have the same
    code."""
    t, m = table(spec), abs(y)
    sure = sure & (m > 1e-290) & (m < 1e290) & (m * (1 - SLACK) > near_zero)
    codes = np.zeros(len(y), dtype=np.int64)
    y, m = y[sure], m[sure] * SLACK + near_zero
    codes[sure] = t.encode(y - m)
    sure[sure] = t.encode(y + m) == codes[sure]
    return codes, sure


def same_codes(spec: Spec, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Tell where codes agree; any NaN equals any other."""
    if spec.posit or spec.nan_code is None:
        return found == expected
    top = spec.largest + (spec.specials == "ieee")
    nan = [(c & (spec.sign_code - 1)) > top for c in (found, expected)]
    return (found == expected) | (nan[0] & nan[1])


# ---- the functions ----


def _newton(value, slope, start):
    """Return the root of `value` near `start`, which is correct to some digits."""
    t = mpf(start)
    for _ in range(60):
        step = value(t) / slope(t)
        t -= step
        if step == 0 or abs(step) < abs(t) * mpf(2) ** (-mp.prec // 2 - 8):
            return t - value(t) / slope(t)
    raise ArithmeticError(f"expected Newton's method to end, but at {t} the step is {step}")


def ndtri(p):
    """Invert the normal distribution function at p, by its logarithm since tails are thin."""
    if not 0 < p < 1:
        return mpf("nan")
    if p == 0.5:
        return mpf(0)
    if p > 0.5:
        return -ndtri(1 - p)  # exact: p is a number of a format
    start = NormalDist().inv_cdf(float(p))
    if p > 0.49:
        start = float((p - 0.5) * mp.sqrt(2 * mp.pi))
    root2 = mp.sqrt(2)
    with mp.extraprec(2 * abs(int(mp.mag(p))) + 2 * abs(int(mp.mag(p - 0.5)))):
        target = mp.log(p)
        return _newton(
            lambda t: mp.log(mp.erfc(-t / root2) / 2) - target,
            lambda t: 2 * mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi) / mp.erfc(-t / root2),
            start,
        )


def erfinv(x):
    if abs(x) >= 1:
        return mpf("nan")
    if x < 0:
        return -erfinv(-x)
    if x > 0.5:
        return -ndtri((1 - x) / 2) / mp.sqrt(2)
    if x == 0:
        return x
    return _newton(
        lambda t: mp.erf(t) - x,
        lambda t: 2 * mp.exp(-t * t) / mp.sqrt(mp.pi),
        x * mp.sqrt(mp.pi) / 2,
    )


def log_ndtr(x):
    return mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x > 0 else mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def gelu_tanh(x):
    # x/2 (1 + tanh u) = x / (1 + exp(-2u)): no cancellation
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mpf(0.044715) * x**3)))


def near(x, f):
    """Return f with twice the digits that a small or large x may cost."""
    with mp.extraprec(3 * abs(int(mp.mag(x))) if x else 0):
        return f(x)


def signed_like(f):
    return lambda x: -f(-x) if x < 0 else f(x)


SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
each = np.vectorize
erf, erfc = each(math.erf, otypes=[float]), each(math.erfc, otypes=[float])


@each
def _lgamma(x):
    return math.lgamma(x) if math.isfinite(x) and (x > 0 or x != math.floor(x)) else NAN


@each
def _ndtri(p):
    return NormalDist().inv_cdf(p) if 0 < p < 1 else NAN


def _logit(x):
    return np.log(x) - np.log1p(-x)


FUNCTIONS = {
    "sin": Function(torch.sin, mp.sin, np.sin, odd=True),
    "cos": Function(torch.cos, mp.cos, np.cos),
    "tan": Function(torch.tan, mp.tan, np.tan, odd=True),
    "asin": Function(torch.asin, mp.asin, np.arcsin, odd=True),
    "acos": Function(torch.acos, mp.acos, np.arccos),
    "atan": Function(torch.atan, mp.atan, np.arctan, (-math.pi / 2, math.pi / 2), odd=True),
    "sinh": Function(torch.sinh, mp.sinh, np.sinh, (-INF, INF), odd=True),
    "cosh": Function(torch.cosh, mp.cosh, np.cosh, (INF, INF)),
    "tanh": Function(torch.tanh, mp.tanh, np.tanh, (-1, 1), odd=True),
    "asinh": Function(torch.asinh, signed_like(mp.asinh), np.arcsinh, (-INF, INF), odd=True),
    "acosh": Function(torch.acosh, mp.acosh, np.arccosh, (NAN, INF)),
    "atanh": Function(torch.atanh, mp.atanh, np.arctanh, special={1.0: INF, -1.0: -INF}, odd=True),
    "exp": Function(torch.exp, mp.exp, np.exp, (0, INF)),
    "exp2": Function(torch.exp2, lambda x: mpf(2) ** x, np.exp2, (0, INF)),
    "expm1": Function(torch.expm1, mp.expm1, np.expm1, (-1, INF), odd=True),
    "log": Function(torch.log, mp.log, np.log, (NAN, INF), (-INF, -INF)),
    "log2": Function(torch.log2, lambda x: mp.log(x, 2), np.log2, (NAN, INF), (-INF, -INF)),
    "log10": Function(torch.log10, mp.log10, np.log10, (NAN, INF), (-INF, -INF)),
    "log1p": Function(torch.log1p, mp.log1p, np.log1p, (NAN, INF), {-1.0: -INF}, odd=True),
    "sqrt": Function(torch.sqrt, mp.sqrt, np.sqrt, (NAN, INF), odd=True),
    "rsqrt": Function(
        torch.rsqrt, lambda x: 1 / mp.sqrt(x), lambda x: 1 / np.sqrt(x), (NAN, 0), (-INF, INF)
    ),
    "reciprocal": Function(
        torch.reciprocal, lambda x: 1 / x, lambda x: 1 / x, (-0.0, 0.0), (-INF, INF)
    ),
    "square": Function(torch.square, lambda x: x * x, np.square, (INF, INF)),
    "erf": Function(torch.erf, mp.erf, erf, (-1, 1), odd=True),
    "erfc": Function(torch.erfc, mp.erfc, erfc, (2, 0)),
    "erfinv": Function(torch.erfinv, erfinv, special={1.0: INF, -1.0: -INF}, odd=True),
    "lgamma": Function(
        torch.lgamma,
        lambda x: mp.re(mp.loggamma(x)),
        _lgamma,
        (INF, INF),
        (INF, INF),
        {"integer<0": INF},
        near_zero=1e-12,
    ),
    "digamma": Function(
        torch.digamma, lambda x: mp.psi(0, x), None, (NAN, INF), (INF, -INF), {"integer<0": NAN}
    ),
    "sigmoid": Function(
        torch.sigmoid, lambda x: 1 / (1 + mp.exp(-x)), lambda x: 1 / (1 + np.exp(-x)), (0, 1)
    ),
    "logit": Function(
        torch.logit,
        lambda x: mp.log(x / (1 - x)),
        _logit,
        zeros=(-INF, -INF),
        special={1.0: INF},
        near_zero=1e-14,
    ),
    "silu": Function(
        F.silu, lambda x: x / (1 + mp.exp(-x)), lambda x: x / (1 + np.exp(-x)), (NAN, INF), odd=True
    ),
    "gelu": Function(
        F.gelu,
        lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
        lambda x: x * erfc(-x / 2**0.5) / 2,
        (NAN, INF),
        odd=True,
    ),
    "gelu_tanh": Function(
        lambda x: F.gelu(x, approximate="tanh"),
        gelu_tanh,
        lambda x: x / (1 + np.exp(-2 * (2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))),
        (NAN, INF),
        odd=True,
    ),
    "softplus": Function(
        F.softplus,
        lambda x: x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x)),
        lambda x: np.logaddexp(0, x),
        (0, INF),
    ),
    "elu": Function(
        F.elu,
        lambda x: x if x > 0 else mp.expm1(x),
        lambda x: np.where(x > 0, x, np.expm1(x)),
        (-1, INF),
        odd=True,
    ),
    "selu": Function(
        F.selu,
        lambda x: mpf(SELU_SCALE) * (x if x > 0 else mpf(SELU_ALPHA) * mp.expm1(x)),
        lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)),
        (-SELU_SCALE * SELU_ALPHA, INF),
        odd=True,
    ),
    "celu": Function(
        lambda x: F.celu(x, 2.0),
        lambda x: x if x > 0 else 2 * mp.expm1(x / 2),
        lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)),
        (-2, INF),
        odd=True,
    ),
    "mish": Function(
        F.mish,
        lambda x: x * mp.tanh(mp.log1p(mp.exp(x))),
        lambda x: x * np.tanh(np.logaddexp(0, x)),
        (NAN, INF),
        odd=True,
    ),
    "logsigmoid": Function(
        F.logsigmoid,
        lambda x: -mp.log1p(mp.exp(-x)) if x > 0 else x - mp.log1p(mp.exp(x)),
        lambda x: -np.logaddexp(0, -x),
        (-INF, 0),
    ),
    "softsign": Function(
        F.softsign, lambda x: x / (1 + abs(x)), lambda x: x / (1 + abs(x)), odd=True
    ),
    "tanhshrink": Function(
        F.tanhshrink, lambda x: near(x, lambda v: v - mp.tanh(v)), None, (-INF, INF), odd=True
    ),
    "i0": Function(torch.i0, lambda x: mp.besseli(0, x), None, (INF, INF)),
    "i0e": Function(torch.special.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), None, (0, 0)),
    "i1": Function(torch.special.i1, lambda x: mp.besseli(1, x), None, (-INF, INF), odd=True),
    "i1e": Function(
        torch.special.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), None, (-0.0, 0), odd=True
    ),
    "ndtr": Function(
        torch.special.ndtr,
        lambda x: mp.erfc(-x / mp.sqrt(2)) / 2,
        lambda x: erfc(-x / 2**0.5) / 2,
        (0, 1),
    ),
    "ndtri": Function(
        torch.special.ndtri, ndtri, _ndtri, zeros=(-INF, -INF), special={1.0: INF}, near_zero=1e-14
    ),
    "log_ndtr": Function(torch.special.log_ndtr, log_ndtr, None, (-INF, 0)),
    "entr": Function(
        torch.special.entr,
        lambda x: -x * mp.log(x) if x > 0 else -INF,
        lambda x: -x * np.log(x),
        (-INF, -INF),
        (0, 0),
    ),
    "sinc": Function(torch.sinc, lambda x: mp.sincpi(x), None, (0, 0)),
    "ceil": Function(torch.ceil, mp.ceil, np.ceil, (-INF, INF), odd=True, keeps_sign=True),
    "floor": Function(torch.floor, mp.floor, np.floor, (-INF, INF), odd=True, keeps_sign=True),
    "round": Function(torch.round, mp.nint, np.rint, (-INF, INF), odd=True, keeps_sign=True),
    "trunc": Function(
        torch.trunc, signed_like(mp.floor), np.trunc, (-INF, INF), odd=True, keeps_sign=True
    ),
    "frac": Function(torch.frac, signed_like(lambda x: x - mp.floor(x)), None, odd=True),
    "abs": Function(torch.abs, abs, np.abs, (INF, INF)),
    "neg": Function(torch.neg, lambda x: -x, np.negative, (INF, -INF), (0.0, -0.0)),
    "sign": Function(torch.sign, mp.sign, np.sign, (-1, 1)),
    "deg2rad": Function(
        torch.deg2rad, lambda x: x * mp.pi / 180, np.deg2rad, (-INF, INF), odd=True
    ),
    "rad2deg": Function(
        torch.rad2deg, lambda x: x * 180 / mp.pi, np.rad2deg, (-INF, INF), odd=True
    ),
    "pow_2": Function(
        lambda x: torch.pow(x, 2), lambda x: x**2, lambda x: np.power(x, 2.0), (INF, INF)
    ),
    "pow_half": Function(
        lambda x: torch.pow(x, 0.5), mp.sqrt, lambda x: np.power(x, 0.5), (INF, INF)
    ),
    "pow_-1.5": Function(
        lambda x: torch.pow(x, -1.5),
        lambda x: x ** mpf(-1.5),
        lambda x: np.power(x, -1.5),
        (0, 0),
        (INF, INF),
    ),
    "pow_3": Function(
        lambda x: torch.pow(x, 3), lambda x: x**3, lambda x: np.power(x, 3.0), (-INF, INF), odd=True
    ),
}


# ---- functions of two tensors ----


@dataclass(frozen=True, eq=False)
class Function2:
    """One function of two operands. numpy (C99, Annex F) decides for infinities, NaN and, without
    `zeros`, zeros."""

    torch: Callable
    exact: Callable
    fast: Callable
    zeros: bool = False  # the formula holds for zeros too
    near_zero: float = 0.0


def c_library(function: Function2, x: float, y: float) -> float:
    # Arrays, because numpy's power takes other ways with a number as exponent.
    with np.errstate(all="ignore"):
        return float(function.fast(np.array([x]), np.array([y]))[0])


def exact2(function: Function2, x: float, y: float, precision: int = PRECISION):
    """Return the exact result in the types of exact()."""
    if not (math.isfinite(x) and math.isfinite(y)) or (not function.zeros and 0 in (x, y)):
        return c_library(function, x, y)
    with mp.workprec(precision):
        z = real(function.exact(mpf(x), mpf(y)))
        if z == 0:
            return math.copysign(0.0, c_library(function, x, y))
        return float(z) if mp.isnan(z) or mp.isinf(z) else z


def expected_codes2(function: Function2, spec: Spec, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the codes, by mpmath where numpy within SLACK does not decide."""
    with np.errstate(all="ignore"):
        z = function.fast(x, y)
    codes, sure = decide_codes(
        spec, z, np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0), function.near_zero
    )
    pairs = zip(x[~sure].tolist(), y[~sure].tolist(), strict=True)
    codes[~sure] = [
        code_of(spec, lambda precision, v=v, w=w: exact2(function, v, w, precision))
        for v, w in pairs
    ]
    return codes


def _log_sum(x, y, base):
    return max(x, y) + mp.log1p(base ** -abs(x - y)) / mp.log(base)


def _fmod(x, y):
    """Return x - n y, where n is the truncated quotient. Integers are used, since quotients of
    2^200 and more lose digits."""
    (a, e), (b, g) = abs(x).man_exp, abs(y).man_exp
    low = min(e, g)
    rest = mpf(((a << (e - low)) % (b << (g - low)), low))
    return -rest if x < 0 else rest


def _remainder(x, y):
    rest = _fmod(x, y)
    if rest != 0 and (rest < 0) != (y < 0):
        with mp.workprec(MORE):
            rest = rest + y
    return rest


FUNCTIONS2 = {
    "hypot": Function2(torch.hypot, mp.hypot, np.hypot),
    "atan2": Function2(torch.atan2, mp.atan2, np.arctan2),
    "pow": Function2(torch.pow, mp.power, np.power),
    "logaddexp": Function2(
        torch.logaddexp, lambda x, y: _log_sum(x, y, mp.e), np.logaddexp, True, 1e-14
    ),
    "logaddexp2": Function2(
        torch.logaddexp2, lambda x, y: _log_sum(x, y, mpf(2)), np.logaddexp2, True, 1e-14
    ),
    "fmod": Function2(torch.fmod, _fmod, np.fmod),
    "remainder": Function2(torch.remainder, _remainder, np.remainder),
    "copysign": Function2(torch.copysign, lambda x, y: abs(x) if y > 0 else -abs(x), np.copysign),
}
