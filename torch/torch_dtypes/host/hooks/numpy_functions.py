"""NumPy's functions of format tensors. NumPy computes with the exact values, in float32 or float64,
and would return a result that no format rounded. So PyTorch's function of the same name computes
the result, or the call raises, as for bfloat16."""

from __future__ import annotations

import functools
import operator
import threading
import types
import weakref
from collections.abc import Callable

import torch

from ... import _C
from ..table import Hook, Kind

# Functions behind Python's operators, which take numbers as they are.
_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "matmul": operator.matmul,
}
# Elementwise functions that PyTorch has under another name. Others have NumPy's.
_NAMES = {
    "conjugate": "conj",
    "degrees": "rad2deg",
    "fabs": "abs",
    "radians": "deg2rad",
    "rint": "round",
}

# Functions of NumPy that convert a tensor and then compute, by the names of their frames.
_COMPUTING = frozenset(
    """_replace_nan _ureduce angle average convolve correlate cov cross diff ediff1d einsum gradient
    i0 interp kron nanmedian nanpercentile nanquantile outer percentile polyval quantile sinc
    tensordot trace trapezoid trapz unwrap vander""".split()
)
_COMPUTING_MODULES = "numpy.linalg", "numpy.fft", "numpy.polynomial"


def check_caller(frame: types.FrameType, dtype: torch.dtype) -> None:
    """Raise if a function of NumPy that computes asks for a tensor's values."""
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
    if not module.startswith("numpy."):
        return
    if module.startswith(_COMPUTING_MODULES) or name in _COMPUTING:
        raise TypeError(_refuse(dtype))


def _refuse(dtype: torch.dtype, function: str = "function") -> str:
    return (
        f"expected a tensor of a stock dtype for NumPy's {function}, but got {dtype}; use "
        "PyTorch's function, or np.asarray(x) to compute in NumPy's float arithmetic"
    )


class _Refused(threading.local):
    """The last result that was refused on this thread, as a weak reference. NumPy takes a TypeError
    for one about arguments, and calls again with fewer, at last without the operands."""

    array: Callable = staticmethod(lambda: None)
    text: str = ""


def extend_array_wrap(stock):
    """Return the result of a NumPy function as PyTorch's function of that name rounds it, or raise.

    Comparisons and integers stay NumPy's arrays. ``x * array``, which Python hands to NumPy, raises
    as for bfloat16.
    """
    refused = _Refused()

    @functools.wraps(stock)
    def wrap(self, array, *context):
        if not _C.is_format_tensor(self):
            return stock(self, array, *context)
        call, returns_scalar = (*context, None, False)[:2]
        if array.dtype.kind not in "fc":
            return array[()] if returns_scalar else array
        if call is not None:
            result = _compute(*call)
            if isinstance(result, torch.Tensor) and _C.is_format_tensor(result):
                return result
        if call is not None or refused.array() is not array:
            refused.array, refused.text = weakref.ref(array), _explain(self.dtype, call)
        raise TypeError(refused.text)

    return wrap


def _compute(function, operands, index=0):
    """Return PyTorch's result of an elementwise function of NumPy; None if PyTorch has none, or an
    operand is an array."""
    import numpy

    if any(isinstance(v, numpy.ndarray) for v in operands):
        return None
    name = function.__name__
    operands = [v.item() if isinstance(v, numpy.generic) else v for v in operands]
    own = _OPERATORS.get(name)
    if own is None:
        own = getattr(torch, _NAMES.get(name, name), None)
        like = next(v for v in operands if isinstance(v, torch.Tensor) and _C.is_format_tensor(v))
        operands = [v if isinstance(v, torch.Tensor) else like.new_tensor(v) for v in operands]
    result = None if own is None else own(*operands)
    return result[index] if isinstance(result, tuple) else result


def _explain(dtype, call) -> str:
    import numpy

    if call is not None and any(isinstance(v, numpy.ndarray) for v in call[1]):
        return (
            f"expected tensors and numbers beside a tensor of {dtype}, but got a NumPy array; "
            "convert it with torch.as_tensor(array).to(x), or compute in NumPy with np.asarray(x)"
        )
    return _refuse(dtype) if call is None else _refuse(dtype, call[0].__name__)


HOOKS = [Hook("torch.Tensor.__array_wrap__", Kind.REPLACED, extend_array_wrap)]
