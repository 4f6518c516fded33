"""Pychop's functions of NumPy, torch and JAX arrays: the arguments are rounded, the array's library
computes in the array's own precision, and the result is rounded.

``sin(x, chop)`` is ``chop.sin(x)``. A number beside a tensor has the tensor's type, others
NumPy's float64.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .arrays import library

FUNCTIONS: dict[str, Function] = {}
# The names of one, two and three arrays.
_ARGUMENTS = {1: ("x",), 2: ("x", "y"), 3: ("x", "a_min", "a_max")}


class Function:
    """A function of ``count`` rounded arrays, of the chopper, and of options."""

    def __init__(
        self, name: str, count: int, compute: Callable | None, check: Callable | None, domain: str
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"Round the arguments, compute {name}, and round the result."
        self.count, self._compute, self._check, self._domain = count, compute, check, domain

    def __call__(self, *args: Any, **options: Any) -> Any:
        if "chop" in options:
            return self.apply(options.pop("chop"), args, options)
        if len(args) <= self.count:
            raise TypeError(
                f"expected {self.count} array(s) and a chopper for {self.__name__}, but got "
                f"{len(args)} argument(s)"
            )
        return self.apply(args[self.count], (*args[: self.count], *args[self.count + 1 :]), options)

    def apply(self, chop: Callable, args: tuple, options: dict) -> Any:
        """Compute with arguments by position, the arrays first, and by name."""
        given = [*args[: self.count]]
        for name in _ARGUMENTS[self.count][len(given) :]:
            if name not in options:
                raise TypeError(f"expected an array {name} for {self.__name__}, but got none")
            given.append(options.pop(name))
        xp = library(*given)
        arrays = [chop(_as_array(x, xp, given)) for x in given]
        self._expect_domain(arrays[-1])
        compute = self._compute or _find(xp, self.__name__)
        result = compute(*arrays, *args[self.count :], **options)
        if not isinstance(result, tuple):
            return chop(result)
        # The integers of frexp are no numbers of the format.
        return tuple(part if "int" in str(part.dtype) else chop(part) for part in result)

    def _expect_domain(self, x: Any) -> None:
        """Raise ValueError where the last argument is outside the domain, NaN included."""
        if self._check is None:
            return
        flat = x.reshape(-1)
        outside = flat[~self._check(flat)]
        if len(outside):
            raise ValueError(
                f"expected {self._domain} for {self.__name__}, but got {float(outside[0])} among "
                "the rounded numbers"
            )

    def __repr__(self) -> str:
        return f"<function {self.__name__} of rounded arrays>"


def _as_array(x: Any, xp: Any, arrays: list) -> Any:
    """Return x as an array of the library, a number in the type of the arrays beside it."""
    if xp is not torch:
        return np.asarray(x) if isinstance(x, (int, float, complex, list)) else x
    if isinstance(x, torch.Tensor):
        return x
    like = next(y for y in arrays if isinstance(y, torch.Tensor))
    return torch.as_tensor(x, dtype=like.dtype, device=like.device)


def _find(xp: Any, name: str) -> Callable:
    """Return the library's function of NumPy's name."""
    if name in _EVERYWHERE:
        return lambda *arrays, **options: _EVERYWHERE[name](xp, *arrays, **options)
    if xp is torch:
        return _TORCH.get(name) or getattr(torch, name)
    return getattr(xp, name)


def _reduce(stock: Callable) -> Callable:
    def reduce(x: torch.Tensor, axis: int | None = None) -> torch.Tensor:
        return stock(x.reshape(-1), 0) if axis is None else stock(x, axis)

    return reduce


def _compute_cbrt(x: torch.Tensor) -> torch.Tensor:
    a = x.double().abs()
    root = a ** (1 / 3)
    # One step of Newton's method removes the error of the rounded exponent 1/3.
    step = torch.where((a > 0) & a.isfinite(), (root - a / root / root) / 3, 0.0)
    return (root - step).copysign(x).to(x.dtype)


def _split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.where(x.isinf(), torch.zeros_like(x).copysign(x), x.frac()), x.trunc()


def _through_torch(compute: Callable) -> Callable:
    """Return a function of any array by one of torch tensors."""

    def call(xp, x, *others):
        if xp is torch:
            return compute(x, *others)
        values = [torch.from_numpy(np.array(y, ndmin=1)) for y in (x, *others)]
        return xp.asarray(compute(*values).numpy().reshape(np.shape(x)))

    return call


def _compute_gamma(x: torch.Tensor) -> torch.Tensor:
    values = [_gamma(value) for value in x.double().reshape(-1).tolist()]
    return torch.tensor(values, dtype=torch.float64).reshape(x.shape).to(x)


def _gamma(value: float) -> float:
    if value == 0:
        return math.copysign(math.inf, value)
    try:
        return math.gamma(value)
    except OverflowError:
        return math.inf
    except ValueError:  # -1, -2, ... and -infinity
        return math.nan


def _of_integers(name: str) -> Callable:
    def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return getattr(torch, name)(x.long(), y.long()).to(x.dtype)

    return _through_torch(compute)


# Functions that NumPy lacks or has of integers alone, and JAX's in another module.
_EVERYWHERE = {
    "erf": _through_torch(torch.erf),
    "erfc": _through_torch(torch.erfc),
    "gamma": _through_torch(_compute_gamma),
    **{name: _of_integers(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
}
# Functions that torch has under another name, or lacks.
_TORCH = {
    "cbrt": _compute_cbrt,
    "degrees": torch.rad2deg,
    "dot": torch.matmul,
    "fabs": torch.abs,
    "imag": lambda x: x.imag if x.is_complex() else torch.zeros_like(x),
    "mod": torch.remainder,
    "modf": _split,
    "power": torch.pow,
    "radians": torch.deg2rad,
    **{
        name: _reduce(getattr(torch, name))
        for name in ("sum", "prod", "mean", "std", "var", "cumsum", "cumprod")
    },
}


def _define(
    name: str,
    count: int = 1,
    check: Callable | None = None,
    domain: str = "",
    compute: Callable | None = None,
) -> Function:
    FUNCTIONS[name] = Function(name, count, compute, check, domain)
    return FUNCTIONS[name]


def _scale(x: Any, i: Any) -> Any:
    xp = library(x)
    return xp.ldexp(x, torch.as_tensor(i, device=x.device) if xp is torch else xp.asarray(i))


_WITHIN_ONE = (lambda x: builtins.abs(x) <= 1, "numbers from -1 to 1")
_ABOVE_ZERO = (lambda x: x > 0, "numbers above 0")
_NOT_ZERO = (lambda y: y != 0, "a divisor other than 0")

sin = _define("sin")
cos = _define("cos")
tan = _define("tan")
arcsin = _define("arcsin", 1, *_WITHIN_ONE)
arccos = _define("arccos", 1, *_WITHIN_ONE)
arctan = _define("arctan")
sinh = _define("sinh")
cosh = _define("cosh")
tanh = _define("tanh")
arcsinh = _define("arcsinh")
arccosh = _define("arccosh", 1, lambda x: x >= 1, "numbers of at least 1")
arctanh = _define("arctanh", 1, lambda x: builtins.abs(x) < 1, "numbers between -1 and 1")
exp = _define("exp")
expm1 = _define("expm1")
log = _define("log", 1, *_ABOVE_ZERO)
log10 = _define("log10", 1, *_ABOVE_ZERO)
log2 = _define("log2", 1, *_ABOVE_ZERO)
log1p = _define("log1p", 1, lambda x: x > -1, "numbers above -1")
sqrt = _define("sqrt", 1, lambda x: x >= 0, "numbers of at least 0")
cbrt = _define("cbrt")
square = _define("square")
abs = _define("abs")
fabs = _define("fabs")
reciprocal = _define("reciprocal", 1, *_NOT_ZERO)
sign = _define("sign")
floor = _define("floor")
ceil = _define("ceil")
round = _define("round")
frexp = _define("frexp")
modf = _define("modf")
ldexp = _define("ldexp", compute=_scale)
diff = _define("diff")
angle = _define("angle")
real = _define("real")
imag = _define("imag")
conj = _define("conj")
erf = _define("erf")
erfc = _define("erfc")
gamma = _define("gamma")
degrees = _define("degrees")
radians = _define("radians")
hypot = _define("hypot", 2)
power = _define("power", 2)
maximum = _define("maximum", 2)
minimum = _define("minimum", 2)
add = _define("add", 2)
subtract = _define("subtract", 2)
multiply = _define("multiply", 2)
divide = _define("divide", 2, *_NOT_ZERO)
floor_divide = _define("floor_divide", 2, *_NOT_ZERO)
mod = _define("mod", 2, *_NOT_ZERO)
logaddexp = _define("logaddexp", 2)
bitwise_and = _define("bitwise_and", 2)
bitwise_or = _define("bitwise_or", 2)
bitwise_xor = _define("bitwise_xor", 2)
dot = _define("dot", 2)
matmul = _define("matmul", 2)
clip = _define("clip", 3)
sum = _define("sum")
prod = _define("prod")
mean = _define("mean")
std = _define("std")
var = _define("var")
cumsum = _define("cumsum")
cumprod = _define("cumprod")

__all__ = list(FUNCTIONS)
