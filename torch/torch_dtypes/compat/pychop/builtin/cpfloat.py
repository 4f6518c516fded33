"""A number whose operations round."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..set_backend import get_backend

__all__ = ["CPFloat"]


class CPFloat:
    """A number rounded by ``chopper``. Python's arithmetic and NumPy's functions round their
    results; the numbers beside it are not rounded.

    Raises:
        ValueError: two choppers in an operation.
    """

    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]  # as of numbers that may be changed

    def __init__(self, value: Any, chopper: Callable) -> None:
        self.chopper = chopper
        number = np.asarray(value)
        exact = number if number.dtype.kind in "fc" else number.astype(np.float64)
        as_tensor = get_backend() == "torch"
        self.value = chopper(torch.from_numpy(exact.copy()) if as_tensor else exact).item()

    def _value_of(self, other: Any) -> Any:
        if isinstance(other, CPFloat):
            expect_one_chopper(self.chopper, other.chopper)
            return other.value
        return other if isinstance(other, complex) else float(other)

    def __neg__(self) -> CPFloat:
        return CPFloat(-self.value, self.chopper)

    def __pos__(self) -> CPFloat:
        return self

    def __abs__(self) -> CPFloat:
        return CPFloat(abs(self.value), self.chopper)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def item(self) -> Any:
        return self.value

    def astype_precision(self, chopper: Callable) -> CPFloat:
        """Round to another precision."""
        return CPFloat(self.value, chopper)

    def to_numpy(self, dtype: Any = None) -> np.ndarray:
        return np.asarray(self.value, dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.to_numpy(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, np.ndarray) and type(x) is not np.ndarray for x in inputs):
            return NotImplemented  # an array's own type decides
        values = [self._value_of(x) if isinstance(x, CPFloat) else x for x in inputs]
        result = getattr(ufunc, method)(*values, **kwargs)
        if isinstance(result, tuple):
            return tuple(self._wrap(part) for part in result)
        return self._wrap(result)

    def _wrap(self, result: Any) -> Any:
        kind = getattr(result, "dtype", np.dtype(object)).kind
        if kind not in "fc":
            return result
        return CPFloat(result, self.chopper) if np.ndim(result) == 0 else self.chopper(result)

    def __repr__(self) -> str:
        return f"CPFloat({self.value}, {describe(self.chopper)})"


def is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex, CPFloat)) or getattr(x, "ndim", None) == 0


def expect_one_chopper(*choppers: Any) -> None:
    if any(chopper is not choppers[0] for chopper in choppers):
        raise ValueError("expected operands of one chopper, but got two; use astype_precision")


def describe(chopper: Any) -> str:
    """Return the bits of a chopper, if it has some."""
    if not hasattr(chopper, "exp_bits"):
        return type(chopper).__name__
    return f"exp_bits={chopper.exp_bits}, sig_bits={chopper.sig_bits}"


def _define(name: str) -> None:
    """Define an operator and, where it rounds, its reflected form."""
    compute = getattr(operator, name)
    if name in ("eq", "ne", "lt", "le", "gt", "ge"):

        def compare(a, b):
            return compute(a.value, a._value_of(b)) if is_number(b) else NotImplemented

        setattr(CPFloat, f"__{name}__", compare)
        return

    def forward(a, b):
        if not is_number(b):
            return NotImplemented  # NumPy's operators take arrays
        return CPFloat(compute(a.value, a._value_of(b)), a.chopper)

    def reflected(a, b):
        if not is_number(b):
            return NotImplemented
        return CPFloat(compute(a._value_of(b), a.value), a.chopper)

    setattr(CPFloat, f"__{name}__", forward)
    setattr(CPFloat, f"__r{name}__", reflected)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _define(_name)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _define(_name)
