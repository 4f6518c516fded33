"""torch.testing with our dtypes: tolerances of assert_close, its comparison, and the types that make_tensor takes."""

from __future__ import annotations

import functools

import torch
from torch.testing import _comparison, _creation  # `import torch` has imported them

from .. import _C
from .table import Registered, Replaced


def tolerances(dtype: torch.dtype) -> tuple[float, float]:
    """(rtol, atol) for a dtype of ours: two steps of the numbers from 1 on, and one step of those from 0 on or stock's 1e-5.

    Stock's rtol are 1 eps (float16), 2 (bfloat16) and 11 (float32), its atol 1e-5. Formats without a fraction, or one bit of it, get
    rtol = 1/2, as do tables without a neighbour of 1: twice their eps would let 0 pass for any number.
    Fixed point's numbers lie equally far apart: two steps, rtol = 0.
    """
    info, fmt = torch.finfo(dtype), _C.format_of(dtype)
    if fmt.kind == _C.Kind.table:
        return min(2 * info.eps, 0.5) if info.eps == info.eps else 0.5, max(1e-5, info.tiny)
    if fmt.kind == _C.Kind.fixed:
        return 0.0, max(1e-5, 2 * info.eps)
    subnormal = fmt.kind == _C.Kind.float and fmt.subnormals == _C.Subnormals.gradual
    return min(2 * info.eps, 0.5), max(1e-5, info.tiny * info.eps if subnormal else info.tiny)


def add(dtype: torch.dtype) -> None:
    """Makes a new dtype known to assert_close and make_tensor, whose lists of types are modules' data."""
    _comparison._DTYPE_PRECISIONS[dtype] = tolerances(dtype)
    _creation._FLOATING_OR_COMPLEX_TYPES.append(dtype)


def remove(dtype: torch.dtype) -> None:
    """Undoes ``add``."""
    _comparison._DTYPE_PRECISIONS.pop(dtype, None)
    if dtype in _creation._FLOATING_OR_COMPLEX_TYPES:
        _creation._FLOATING_OR_COMPLEX_TYPES.remove(dtype)


def known_tolerances(table: dict) -> None:
    """The tolerances of assert_close, for the built-in dtypes; ``add`` has the others."""
    table.update({dtype: tolerances(dtype) for dtype in _C.builtin_dtypes()})


def known_types(types: list) -> None:
    """What make_tensor takes: the built-in dtypes; ``add`` has the others."""
    types.extend(_C.builtin_dtypes())


def by_value(stock):
    """assert_close compares ours in float64, exactly: stock's comparison would round in them, refuses tolerances for types of one byte, and
    finds no common type of two formats (check_dtype=False)."""

    @functools.wraps(stock)
    def equalize(self, actual, expected):
        if torch.compiler.is_dynamo_compiling():  # no tensor of ours is in a graph of Dynamo's
            return stock(self, actual, expected)
        return stock(self, *(t.double() if _C.is_format_tensor(t) else t for t in (actual, expected)))

    return equalize


HOOKS = [
    Registered("torch.testing._comparison", "_DTYPE_PRECISIONS", known_tolerances),
    Registered("torch.testing._creation", "_FLOATING_OR_COMPLEX_TYPES", known_types),
    Replaced("torch.testing._comparison.TensorLikePair", "_equalize_attributes", by_value),
]
