"""Hooks of type promotion and of the default dtype.

A format dtype with bool, an integer or a Python number gives the format dtype. With a stock
floating dtype it gives that one, or a wider one that has all numbers of both. Two formats do not
mix.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_leaves, tree_map

from ... import _C
from ...formats.code_types import compute_type
from ..table import Hook, Kind
from .trampolines import When


def promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    formats = [d for d in (a, b) if _C.format_of(d) is not None]
    if len(formats) == 2:
        if a is b:
            return a
        raise TypeError(
            f"expected dtypes that promote to one, but got two number formats, {a} and {b}; "
            "convert one tensor first"
        )
    own = formats[0]
    other = b if own is a else a
    if not (other.is_floating_point or other.is_complex):
        return own
    if _C.has_numbers_of(other, _C.format_of(own)):
        return other
    return torch.promote_types(other, compute_type(own))


_PYTHONS_TYPES = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


def _dtypes(stock, a, b):
    """Return two dtypes, each of which may be given as Python's type, or raise PyTorch's error."""
    a, b = (_PYTHONS_TYPES.get(x, x) if isinstance(x, type) else x for x in (a, b))
    if not (isinstance(a, torch.dtype) and isinstance(b, torch.dtype)):
        stock(a, b)
    return a, b


def promote_types(stock, type1, type2):
    """Promote two dtypes, of which PyTorch's table lacks format dtypes."""
    return promote(*_dtypes(stock, type1, type2))


def can_cast(stock, from_, to=None, **kwargs):
    """Return whether promotion's rules allow a cast.

    They do not from floating to integers or bool, nor from complex to real.
    """
    from_ = kwargs.get("from_", from_)
    to = kwargs.get("to", to)
    from_, to = _dtypes(stock, from_, to)
    if from_.is_complex and not to.is_complex:
        return False
    return not (from_.is_floating_point and not (to.is_floating_point or to.is_complex))


# Python's numbers; a subclass is before its base class.
_CATEGORIES = {
    **dict.fromkeys((bool, torch.SymBool), torch.bool),
    **dict.fromkeys((int, torch.SymInt), torch.int64),
    **dict.fromkeys((float, torch.SymFloat), torch.float64),
    complex: None,  # depends on the other operand
}


def result_type(stock, *args, **kwargs):
    """Return the dtype of an operation on two operands.

    The higher category (bool, integer, floating, complex) wins. Within one category a tensor with
    dimensions outranks one without, which outranks a Python number.
    """
    numpys = getattr(sys.modules.get("numpy"), "generic", ())
    operands = [x.item() if isinstance(x, numpys) else x for x in (*args, *kwargs.values())]
    if len(operands) != 2 or not all(isinstance(x, (torch.Tensor, *_CATEGORIES)) for x in operands):
        return stock(*args, **kwargs)  # for its error
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    own = next((x.dtype for x in tensors if _C.format_of(x.dtype)), None)
    if own is None:  # a format dtype is the default, which a fraction beside integers has
        result = stock(*args, **kwargs)
        return (
            _C.get_default_format()
            if result.is_floating_point and not any(x.is_floating_point() for x in tensors)
            else result
        )
    complex_dtype = compute_type(own).to_complex()  # of a Python number: as torch.complex(x, x)

    def describe(x):
        if isinstance(x, torch.Tensor):
            return x.dtype, 2 if x.dim() else 1
        dtype = next(dtype for kind, dtype in _CATEGORIES.items() if isinstance(x, kind))
        return dtype or complex_dtype, 0

    def category(d):
        if d.is_complex:
            return 3
        if d.is_floating_point:
            return 2
        return 0 if d is torch.bool else 1

    (a, rank_a), (b, rank_b) = map(describe, operands)
    if category(a) == category(b) and rank_a != rank_b:
        return a if rank_a > rank_b else b
    return promote(a, b)


class _FractionsOfIntegers(TorchFunctionMode):
    """While the default dtype is a format dtype, computes fractions of integers in it.

    Examples are a quotient, a root and a mean of integers. PyTorch decides their dtype in C++, by a
    default that cannot be a format dtype. So a result in that default shows such a call, and the
    call is made again with operands in the format. This is safe, since no stock function that makes
    fractions of integers draws random numbers or writes to an operand.

    As with torch.set_default_device, a mode belongs to its thread. It is below the user's modes,
    whose `with` blocks remove the top one. If another thread has reset the default, it changes
    nothing.
    """

    explicit = frozenset(
        getattr(torch.Tensor, name)
        for name in "float double half bfloat16 to type type_as view".split()
    )
    # Tuples, not sets: a builtin's hash depends on its C function, which hooks exchange.
    # These give float64 with any default.
    doubles = (torch.float_power, torch.Tensor.float_power, torch.bincount, torch.Tensor.bincount)
    factories = (torch.Tensor, torch.sparse_coo_tensor)  # nothing is computed
    where = (torch.where, torch.Tensor.where)
    counts = ("fweights",)  # operands that must be integers

    def __init__(self, stock_default: torch.dtype):
        super().__init__()
        self.stock_default = stock_default
        # The dtype's name in the error of a missing kernel. float32 and float64 lack none.
        self.may_lack = {torch.float16: "Half", torch.bfloat16: "BFloat16"}.get(stock_default)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        own = _C.get_default_format()
        if own is None or func in self.explicit:
            return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            return self._write_out(own, func, args, **kwargs)
        result = None
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if not (self._is_lacking(error) and self._decides(func, args, kwargs)):
                raise
        else:
            if not (self._is_default(result) and self._decides(func, args, kwargs)):
                return result
            if func in self.factories:
                return self._cast(own, result)
        args, kwargs = self._operands(own, func, args, kwargs)
        again = self._with_integers(result, func(*args, **kwargs))
        # Modes are off within functions in Python, which may themselves make fractions of
        # integers. A list may hold a user's float32 tensors.
        return again if self._is_of_lists(func) else self._cast(own, again)

    def _is_of_lists(self, func) -> bool:
        return getattr(func, "__name__", "").startswith("_foreach_")

    def _with_integers(self, first, again):
        """Return the results of the second call, but the first call's where they were no fractions.

        In a list each result has its own dtype.
        """
        if type(first) not in (tuple, list):
            return again
        return type(first)(
            new if self._is_default(old) else old for old, new in zip(first, again, strict=True)
        )

    def _write_out(self, own, func, args, out, **kwargs):
        """Run a call with out=. Its dtype does not show fractions; a call without out= does."""
        if self._decides(func, args, kwargs):
            try:
                fractions = self._is_default(func(*args, **kwargs))
            except RuntimeError as error:
                fractions = self._is_lacking(error)
            if fractions:
                args, kwargs = self._operands(own, func, args, kwargs)
        return func(*args, out=out, **kwargs)

    def _is_default(self, result) -> bool:
        several = result if type(result) in (tuple, list) else (result,)
        return any(isinstance(t, torch.Tensor) and t.dtype is self.stock_default for t in several)

    def _is_lacking(self, error: RuntimeError) -> bool:
        return self.may_lack is not None and self.may_lack in str(error)

    def _decides(self, func, args, kwargs) -> bool:
        """Return whether the default dtype decides the dtype of a call's stock result.

        It does for integers alone, without dtype=.
        """
        leaves = tree_leaves((args, kwargs))
        if func in self.doubles or any(isinstance(v, torch.dtype) for v in leaves):
            return False
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        fractions = any(v.is_floating_point() or v.is_complex() or v.is_quantized for v in tensors)
        if self._is_of_lists(func):  # each element of a list decides for itself
            return not all(v.is_floating_point() or v.is_complex() for v in tensors)
        return func is torch.Tensor or (not fractions and (bool(tensors) or func in self.factories))

    def _cast(self, own, result):
        several = result if type(result) in (tuple, list) else (result,)
        cast = [
            t.to(own) if isinstance(t, torch.Tensor) and t.dtype is self.stock_default else t
            for t in several
        ]
        return cast[0] if several is not result else type(result)(cast)

    def _operands(self, own, func, args, kwargs) -> tuple:
        """Cast integers among the arguments to the format, and bools where there are only bools.

        Beside integers, bools promote or are masks.
        """
        if func in self.where:  # the condition stays, and there may be numbers alone
            place = self.where.index(func)
            cast = [v if i == place else torch.as_tensor(v).to(own) for i, v in enumerate(args)]
            return cast, {
                k: v if k == "condition" else torch.as_tensor(v).to(own) for k, v in kwargs.items()
            }
        whole = any(
            v.dtype is not torch.bool
            for v in tree_leaves((args, kwargs))
            if isinstance(v, torch.Tensor)
        )

        def operand(v):
            stays = (
                not isinstance(v, torch.Tensor)
                or v.is_floating_point()
                or v.is_complex()
                or (whole and v.dtype is torch.bool)
            )
            return v if stays else v.to(own)

        return tree_map(operand, args), {
            k: v if k in self.counts else tree_map(operand, v) for k, v in kwargs.items()
        }


_mode: _FractionsOfIntegers | None = None  # while the default is a format dtype, in every thread


def fractions_of_integers() -> AbstractContextManager:
    """Restore the mode for user code that PyTorch runs within a call, where modes are off.

    Such code are hooks, and Functions in the backward pass.
    """
    mode = None if _C.get_default_format() is None else _mode
    on = any(
        isinstance(m, _FractionsOfIntegers) for m in overrides._get_current_function_mode_stack()
    )
    return nullcontext() if mode is None or on else mode


def _exchange_mode(mode: _FractionsOfIntegers | None) -> None:
    """Remove this thread's mode from the stack of modes, and put a new one below the user's.

    The mode of torch.set_default_device must stay the lowest.
    """
    users = []
    while overrides._len_torch_function_stack():
        if not isinstance(top := overrides._pop_mode(), _FractionsOfIntegers):
            users.append(top)
    if users and isinstance(users[-1], DeviceContext):
        overrides._push_mode(users.pop())
    if mode is not None:
        overrides._push_mode(mode)
    for user in reversed(users):
        overrides._push_mode(user)


def set_default_dtype(stock, dtype):
    """Set the default dtype to a format dtype, or back to a stock one."""
    is_format = _C.format_of(dtype) is not None
    if not is_format:
        stock(dtype)  # raises for a dtype that is not floating
    _exchange_default(dtype if is_format else None)


def _exchange_default(dtype: torch.dtype | None) -> None:
    global _mode
    _C.set_default_format(None)
    _mode = None if dtype is None else _FractionsOfIntegers(torch.get_default_dtype())
    _exchange_mode(_mode)
    if dtype is not None:
        _C.set_default_format(dtype)


def set_default_tensor_type(stock, kind):
    """End a format dtype's time as default: these types are stock types."""
    stock(kind)
    _exchange_default(None)


def get_default_dtype(stock):
    """Return the default dtype while it is a format dtype."""
    return _C.get_default_format()


HOOKS = [
    Hook("torch.promote_types", Kind.BUILTIN, promote_types, When.DTYPE_ANYWHERE),
    Hook("torch.can_cast", Kind.BUILTIN, can_cast, When.DTYPE_ANYWHERE),
    Hook(
        "torch.result_type",
        Kind.ASKING,
        result_type,
        When.OWN_SELF | When.OWN_ARGUMENT | When.DEFAULT_DTYPE,
    ),
    Hook(
        "torch._C._set_default_dtype",
        Kind.BUILTIN,
        set_default_dtype,
        When.DTYPE_ANYWHERE | When.DEFAULT_DTYPE,
    ),
    Hook(
        "torch._C._set_default_tensor_type",
        Kind.BUILTIN,
        set_default_tensor_type,
        When.DEFAULT_DTYPE,
    ),
    Hook("torch.get_default_dtype", Kind.BUILTIN, get_default_dtype, When.DEFAULT_DTYPE),
]
