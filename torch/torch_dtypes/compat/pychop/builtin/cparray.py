"""A NumPy array whose operations round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .cpfloat import CPFloat, describe, expect_one_chopper

__all__ = ["CPArray"]


class CPArray(np.ndarray):
    """An array rounded by ``chopper``. NumPy's functions and operators round the floating-point
    arrays and numbers that they return, and what they write; arrays beside it are not rounded.

    Raises:
        ValueError: no chopper, or two in an operation.
    """

    chopper: Callable | None

    def __new__(cls, input_array: Any, chopper: Callable | None = None) -> CPArray:
        if chopper is None:
            raise ValueError("expected a chopper, but got None; give one, Chop(5, 10)")
        array = np.asarray(chopper(np.asarray(input_array))).view(cls)
        array.chopper = chopper
        return array

    def __array_finalize__(self, obj: Any) -> None:
        self.chopper = getattr(obj, "chopper", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        chopper = _find_chopper(inputs, kwargs)
        out = kwargs.pop("out", None)
        result = getattr(ufunc, method)(*_unwrap(inputs), **_unwrap(kwargs))
        if out is None:
            return _wrap(result, chopper)
        parts = result if isinstance(result, tuple) else (result,)
        for target, part in zip(out, parts, strict=True):
            if target is not None:
                np.copyto(np.asarray(target), np.asarray(_wrap(part, chopper)))
        return out if isinstance(result, tuple) else out[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(t, np.ndarray) for t in types):
            return NotImplemented
        result = func(*_unwrap(args), **_unwrap(kwargs))
        if result is None:  # a function that writes, as np.copyto
            for x in _leaves((args, kwargs)):
                if isinstance(x, CPArray):
                    x[...] = np.asarray(x)
        return _wrap(result, _find_chopper(args, kwargs))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.to_regular()[key] = _round(np.asarray(value), self.chopper)

    # NumPy computes these without its functions.
    def dot(self, b: Any, out: Any = None) -> Any:
        return np.dot(self, b) if out is None else np.dot(self, b, out)

    def fill(self, value: Any) -> None:
        self[...] = value

    def to_regular(self) -> np.ndarray:
        """Return a plain array of the same memory."""
        return np.asarray(self)

    def astype_precision(self, chopper: Callable) -> CPArray:
        """Round to another precision."""
        return CPArray(self, chopper)

    def __reduce__(self) -> tuple:
        return CPArray, (np.array(self), self.chopper)

    def __str__(self) -> str:
        return f"CPArray({np.array2string(np.asarray(self))}, {describe(self.chopper)})"

    __repr__ = __str__


def _leaves(tree: Any):
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree


def _find_chopper(*trees: Any) -> Callable:
    choppers = [x.chopper for x in _leaves(trees) if isinstance(x, (CPArray, CPFloat))]
    expect_one_chopper(*choppers)
    return choppers[0]


def _unwrap(tree: Any) -> Any:
    if isinstance(tree, (tuple, list)):
        return type(tree)([_unwrap(part) for part in tree])
    if isinstance(tree, dict):
        return {name: _unwrap(part) for name, part in tree.items()}
    if isinstance(tree, CPFloat):
        return tree.value
    return np.asarray(tree) if isinstance(tree, CPArray) else tree


def _wrap(result: Any, chopper: Callable) -> Any:
    """Round the floating-point arrays and numbers of a result."""
    if isinstance(result, (tuple, list)):
        parts = [_wrap(part, chopper) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    if getattr(result, "dtype", np.dtype(object)).kind not in "fc":
        return result
    if isinstance(result, np.ndarray) and result.ndim:
        return CPArray(result, chopper)
    return chopper(np.asarray(result)).item()


def _round(values: np.ndarray, chopper: Callable) -> np.ndarray:
    return chopper(values) if values.dtype.kind in "fciu" else values
