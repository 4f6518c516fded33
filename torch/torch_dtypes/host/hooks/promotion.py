"""Type promotion and the default dtype.

One of ours with bool, an integer or a Python number is ours; with a stock floating dtype, the stock
one, or a wider one that has all numbers of both; two formats do not mix.
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


def promoted(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    ours = [d for d in (a, b) if _C.format_of(d) is not None]
    if len(ours) == 2:
        if a is b:
            return a
        raise TypeError(
            f"expected dtypes that promote to one, but got two number formats, {a} and {b}. "
            "Convert one tensor first."
        )
    other = b if ours[0] is a else a
    if not (other.is_floating_point or other.is_complex):
        return ours[0]
    return (
        other
        if _C.has_numbers_of(other, _C.format_of(ours[0]))
        else torch.promote_types(other, compute_type(ours[0]))
    )


_PYTHONS_TYPES = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


def _dtypes(stock, a, b):
    """Two dtypes, each of which may be said by Python's type, as in stock; else stock's error."""
    a, b = (_PYTHONS_TYPES.get(x, x) if isinstance(x, type) else x for x in (a, b))
    if not (isinstance(a, torch.dtype) and isinstance(b, torch.dtype)):
        stock(a, b)
    return a, b


def promote_types(stock, type1, type2):
    """torch.promote_types, whose table ends before our dtypes."""
    return promoted(*_dtypes(stock, type1, type2))


def can_cast(stock, from_, to=None, **kwargs):
    """Whether a cast is allowed under promotion's rules: not from floating to integers or bool, nor
    from complex to real."""
    from_ = kwargs.get("from_", from_)
    to = kwargs.get("to", to)
    from_, to = _dtypes(stock, from_, to)
    if from_.is_complex and not to.is_complex:
        return False
    return not (from_.is_floating_point and not (to.is_floating_point or to.is_complex))


# Python's numbers, a subclass of another before it.
_CATEGORIES = {
    **dict.fromkeys((bool, torch.SymBool), torch.bool),
    **dict.fromkeys((int, torch.SymInt), torch.int64),
    **dict.fromkeys((float, torch.SymFloat), torch.float64),
    complex: None,  # by the other operand
}


def result_type(stock, *args, **kwargs):
    """The dtype of an operation on the two: the higher category (bool, integer, floating, complex)
    wins; within one category a tensor with dimensions outranks one without, and that outranks a
    Python number."""

    numpys = getattr(sys.modules.get("numpy"), "generic", ())
    operands = [x.item() if isinstance(x, numpys) else x for x in (*args, *kwargs.values())]
    if len(operands) != 2 or not all(isinstance(x, (torch.Tensor, *_CATEGORIES)) for x in operands):
        return stock(*args, **kwargs)  # for its error
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    ours = next((x.dtype for x in tensors if _C.format_of(x.dtype)), None)
    if ours is None:  # here for the default dtype, which is that of a fraction beside integers
        made = stock(*args, **kwargs)
        return (
            _C.get_default_format()
            if made.is_floating_point and not any(x.is_floating_point() for x in tensors)
            else made
        )
    complex_dtype = compute_type(ours).to_complex()  # of a Python number: as torch.complex(x, x)

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
    return promoted(a, b)


class _FractionsOfIntegers(TorchFunctionMode):
    """While one of ours is the default dtype: what operators make fractions of from integers (a
    quotient, a root, a mean) is computed in it.

    Stock decides that in C++, by a default that cannot be one of ours. What it made says that a
    call was such a one, and the call is made again, of operands in ours: no stock function that
    makes fractions of integers draws random numbers or writes to an operand. As with
    torch.set_default_device, a mode belongs to its thread, and lies beneath the user's, whose
    `with` blocks take the top one off. Where another thread has set the default back, it lets all
    pass.
    """

    explicit = frozenset(
        getattr(torch.Tensor, name)
        for name in "float double half bfloat16 to type type_as view".split()
    )
    # No sets, since a builtin's hash goes by its C function, which hooks exchange.
    # float64, whatever the default
    doubles = (torch.float_power, torch.Tensor.float_power, torch.bincount, torch.Tensor.bincount)
    made = (torch.Tensor, torch.sparse_coo_tensor)  # of numbers, or of a size: nothing was computed
    where = (torch.where, torch.Tensor.where)
    counts = ("fweights",)  # operands that have to be integers

    def __init__(self, stock_default: torch.dtype):
        super().__init__()
        self.stock_default = stock_default
        # The dtype as errors name it where PyTorch has no kernel for it, which it has for float32
        # and float64.
        self.may_lack = {torch.float16: "Half", torch.bfloat16: "BFloat16"}.get(stock_default)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ours = _C.get_default_format()
        if ours is None or func in self.explicit:
            return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            return self._into(ours, func, args, **kwargs)
        result = None
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if not (self._is_lacking(error) and self._decides(func, args, kwargs)):
                raise
        else:
            if not (self._is_default(result) and self._decides(func, args, kwargs)):
                return result
            if func in self.made:
                return self._cast(ours, result)
        args, kwargs = self._operands(ours, func, args, kwargs)
        again = self._with_integers(result, func(*args, **kwargs))
        # Functions in Python, within which modes are off, may make fractions of integers of their
        # own. A list may hold float32's of a user's.
        return again if self._is_of_lists(func) else self._cast(ours, again)

    def _is_of_lists(self, func) -> bool:
        return getattr(func, "__name__", "").startswith("_foreach_")

    def _with_integers(self, first, again):
        """Several results of a call that was made again, with those of its first run that were no
        fractions: a list's are each of their own dtype."""
        if type(first) not in (tuple, list):
            return again
        return type(first)(
            new if self._is_default(old) else old for old, new in zip(first, again, strict=True)
        )

    def _into(self, ours, func, args, out, **kwargs):
        """A call with out=, whose dtype does not say what was computed: what comes without it
        does."""
        if self._decides(func, args, kwargs):
            try:
                fractions = self._is_default(func(*args, **kwargs))
            except RuntimeError as error:
                fractions = self._is_lacking(error)
            if fractions:
                args, kwargs = self._operands(ours, func, args, kwargs)
        return func(*args, out=out, **kwargs)

    def _is_default(self, result) -> bool:
        several = result if type(result) in (tuple, list) else (result,)
        return any(isinstance(t, torch.Tensor) and t.dtype is self.stock_default for t in several)

    def _is_lacking(self, error: RuntimeError) -> bool:
        return self.may_lack is not None and self.may_lack in str(error)

    def _decides(self, func, args, kwargs) -> bool:
        """Whether the default dtype does, in a call whose result is of stock's: of integers alone,
        and without a dtype that was asked for."""
        given = tree_leaves((args, kwargs))
        if func in self.doubles or any(isinstance(v, torch.dtype) for v in given):
            return False
        tensors = [v for v in given if isinstance(v, torch.Tensor)]
        fractions = any(v.is_floating_point() or v.is_complex() or v.is_quantized for v in tensors)
        if self._is_of_lists(func):  # for each of a list's places by itself
            return not all(v.is_floating_point() or v.is_complex() for v in tensors)
        return func is torch.Tensor or (not fractions and (bool(tensors) or func in self.made))

    def _cast(self, ours, result):
        several = result if type(result) in (tuple, list) else (result,)
        cast = [
            t.to(ours) if isinstance(t, torch.Tensor) and t.dtype is self.stock_default else t
            for t in several
        ]
        return cast[0] if several is not result else type(result)(cast)

    def _operands(self, ours, func, args, kwargs) -> tuple:
        """The arguments, with integers in ours; with bools too, where there is nothing else: beside
        integers they promote, or are masks."""
        if func in self.where:  # the condition stays, and there may be numbers alone
            place = self.where.index(func)
            chosen = [v if i == place else torch.as_tensor(v).to(ours) for i, v in enumerate(args)]
            return chosen, {
                k: v if k == "condition" else torch.as_tensor(v).to(ours) for k, v in kwargs.items()
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
            return v if stays else v.to(ours)

        return tree_map(operand, args), {
            k: v if k in self.counts else tree_map(operand, v) for k, v in kwargs.items()
        }


_mode: _FractionsOfIntegers | None = None  # that of the default dtype of ours, in every thread


def fractions_of_integers() -> AbstractContextManager:
    """For a block of a user's code that PyTorch runs within a call of its own, where modes are off:
    hooks, and Functions in the backward pass."""
    mode = None if _C.get_default_format() is None else _mode
    on = any(
        isinstance(m, _FractionsOfIntegers) for m in overrides._get_current_function_mode_stack()
    )
    return nullcontext() if mode is None or on else mode


def _exchange_mode(mode: _FractionsOfIntegers | None) -> None:
    """Takes this thread's mode out of the stack of modes, wherever it lies, and puts a new one
    beneath the user's; torch.set_default_device's mode must stay the lowest."""
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
    """torch.set_default_dtype to one of ours, and back."""
    ours = _C.format_of(dtype) is not None
    if not ours:
        stock(dtype)  # which raises where it is no floating dtype
    _exchange_default(dtype if ours else None)


def _exchange_default(dtype: torch.dtype | None) -> None:
    global _mode
    _C.set_default_format(None)
    _mode = None if dtype is None else _FractionsOfIntegers(torch.get_default_dtype())
    _exchange_mode(_mode)
    if dtype is not None:
        _C.set_default_format(dtype)


def set_default_tensor_type(stock, kind):
    """torch.set_default_tensor_type, whose types are stock ones: it ends a default dtype of
    ours."""
    stock(kind)
    _exchange_default(None)


def get_default_dtype(stock):
    """torch.get_default_dtype while it is one of ours."""
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
