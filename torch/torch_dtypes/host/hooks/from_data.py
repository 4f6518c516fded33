"""Hooks of factories from data that get a format dtype, or data in one.

Data are numbers, lists, arrays, tensors and storages. Conversion is exact until the one rounding to
the format.
"""

from __future__ import annotations

import functools

import torch

from ... import _C
from ...formats.code_types import bits_dtype
from ..table import Hook, Kind
from . import interop
from .factories import finish, take, take_all
from .trampolines import When


def _make_exact(make, data: object, *args, real: bool = False, **kwargs) -> torch.Tensor:
    """Make a stock tensor of data without loss.

    Python floats become float64, and integers int64. Arrays and tensors keep their dtype. With
    `real`, complex numbers raise PyTorch's error.
    """
    try:
        values = make(data, *args, **kwargs)
    except (RuntimeError, ValueError, OverflowError):  # integers beyond int64
        return make(data, *args, **{**kwargs, "dtype": torch.float64})
    if (values.is_floating_point() or (real and values.is_complex())) and _from_python(data):
        values = make(data, *args, **{**kwargs, "dtype": torch.float64})
    return values


def _replace_infinities(values: torch.Tensor, data: object, dtype: torch.dtype) -> torch.Tensor:
    """Replace infinities of Python numbers by the format's numbers for them (infinities.py)."""
    if (
        not _from_python(data)
        or not values.is_floating_point()
        or values.is_meta
        or not _C.format_of(dtype).infinity_is_nan
    ):
        return values
    for infinity in (float("inf"), float("-inf")):
        # A test on which no graph of the result depends.
        with torch._C._DisableTorchDispatch():
            has_infinity = bool((values == infinity).any())
        if has_infinity:
            values = torch.where(values == infinity, _C.fill_number(infinity, dtype), values)
    return values


def _from_python(data: object) -> bool:
    """Return whether data are Python numbers or lists of them, and no tensor or array.

    NumPy's float64 is a Python float too.
    """
    return isinstance(data, float) or not _brings_dtype(data)


def _brings_dtype(data: object) -> bool:
    """Return whether data have a dtype: a tensor, a NumPy array or number, or a DLPack object.

    A DLPack capsule can be read only once.
    """
    return (
        isinstance(data, torch.Tensor)
        or hasattr(data, "__array_interface__")
        or hasattr(data, "__dlpack__")
        or type(data).__name__ == "PyCapsule"
    )


def _wants_default(values: torch.Tensor, data: object) -> bool:
    """Return whether PyTorch gave values the default dtype: they are fractions from Python."""
    return values.is_floating_point() and not _brings_dtype(data)


def _wrap_data(data: object, asked: torch.dtype | None) -> object:
    """Return a tensor on the memory of data that PyTorch refuses, or data as they are.

    Refused are arrays of ml_dtypes and typed storages of format dtypes. Untyped storages with
    dtype= a format dtype hold codes.
    """
    if isinstance(data, torch.TypedStorage):
        if _C.format_of(data.dtype) is not None:
            return interop.of_storage(data._untyped_storage, data.dtype)  # its public name warns
        if asked is not None and _C.format_of(asked) is not None:
            raise RuntimeError(
                f"expected a storage of {asked} or an untyped one, but got one of {data.dtype}; "
                f"make a tensor of it first and convert that with x.to({asked})"
            )
        return data
    if (
        isinstance(data, torch.UntypedStorage)
        and asked is not None
        and _C.format_of(asked) is not None
    ):
        return interop.of_storage(data, asked)
    return data if isinstance(data, torch.Tensor) else interop.adopt(data, asked)


def _from_tensor(data: torch.Tensor, kwargs: dict, *, copy: bool) -> torch.Tensor:
    wanted, device = kwargs.get("dtype") or data.dtype, kwargs.get("device")
    result = data.to(device=device, dtype=wanted, copy=copy)
    if kwargs.get("pin_memory"):
        result = result.pin_memory()
    return result.requires_grad_() if kwargs.get("requires_grad") else result


def _from_data(stock, data, args, kwargs, *, copies: bool):
    asked, pinned = kwargs.get("dtype"), kwargs.get("pin_memory")
    dtype, requires_grad, _ = take(kwargs)
    if copies and isinstance(data, torch.Tensor):
        data = data.detach()
        values = data.to(device=kwargs.get("device"), copy=True)
    else:
        values = _make_exact(stock, data, *args, real=asked is not None, **kwargs)
    if asked is None and not _wants_default(values, data):
        return values.requires_grad_() if requires_grad else values
    return finish(_replace_infinities(values, data, dtype), dtype, requires_grad, None, pinned)


def _dtype_of_number(number: object) -> torch.dtype | None:
    """Return the dtype of a tensor, a complex number, or a NumPy number or array in a list."""
    if isinstance(number, torch.Tensor):
        return number.dtype
    if isinstance(number, complex) and not hasattr(number, "__array_interface__"):
        return torch.complex64
    type_ = (
        getattr(getattr(number, "dtype", None), "type", None)
        if hasattr(number, "__array_interface__")
        else None
    )
    return torch.as_tensor(type_(0)).dtype if type_ is not None else None


def _dtype_of_elements(data: object) -> torch.dtype | None:
    """Return the dtype that tensors and NumPy numbers in a nested list promote to, or None.

    PyTorch would infer the storage dtype of format tensors. As in PyTorch, Python's numbers beside
    a format tensor do not count; beside others, fractions count as the default dtype.
    """
    if not isinstance(data, (list, tuple)) or isinstance(interop.first_of(data), (list, tuple)):
        return None
    dtypes: dict[torch.dtype, None] = {}
    fractions = False
    lists, seen = [data], {id(data)}  # a list may hold itself
    while lists:
        for element in lists.pop():
            if isinstance(element, (list, tuple)):
                if id(element) not in seen:
                    seen.add(id(element))
                    lists.append(element)
            elif type(element) is float:
                fractions = True
            elif (
                type(element) is not int
                and (dtype := _dtype_of_number(element))
                and (dtype.is_floating_point or dtype.is_complex)
            ):
                dtypes[dtype] = None
    default = _C.get_default_format()
    if dtypes and fractions and default is not None and not any(map(_C.format_of, dtypes)):
        dtypes[default] = None
    return functools.reduce(torch.promote_types, dtypes) if dtypes else None


def tensor(stock, data, *args, **kwargs):
    """Make a new tensor of the exact values of data, rounded once."""
    if (wrapped := _wrap_data(data, kwargs.get("dtype"))) is not data:
        return _from_tensor(wrapped, kwargs, copy=True)
    if (
        kwargs.get("dtype") is None
        and isinstance(data, (list, tuple))
        and (dtype := _dtype_of_elements(data))
    ):
        kwargs["dtype"] = dtype
    if kwargs.get("dtype") is not None and _C.format_of(kwargs["dtype"]) is None:
        return stock(data, *args, **kwargs)  # a stock dtype, for format tensors in a list
    return _from_data(stock, data, args, kwargs, copies=True)


def as_tensor(stock, data, *args, **kwargs):
    """Make a tensor of data, rounded once where they have another dtype."""
    kwargs.update(zip(("dtype", "device"), args, strict=False))
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    if (wrapped := _wrap_data(data, kwargs.get("dtype"))) is not data:
        return _from_tensor(wrapped, kwargs, copy=False)
    if "dtype" not in kwargs and (dtype := _dtype_of_elements(data)):
        kwargs["dtype"] = dtype
    if "dtype" in kwargs and _C.format_of(kwargs["dtype"]) is None:
        return stock(data, **kwargs)
    return _from_data(stock, data, (), kwargs, copies=False)


def asarray(stock, data, *args, **kwargs):
    """Make a tensor on the memory of data that are codes, or of their exact values, rounded once.

    Tensors, arrays of ml_dtypes and buffers are codes.
    """
    copy = kwargs.pop("copy", None)
    asked = kwargs.get("dtype")
    data = _wrap_data(data, asked)
    if isinstance(data, torch.Tensor) and (_C.is_format_tensor(data) or asked is not None):
        wanted = kwargs.pop("dtype", None) or data.dtype
        if wanted is not data.dtype:
            if copy is False:
                raise ValueError(
                    f"expected data that can become {wanted} without a copy (copy=False), but got "
                    f"{data.dtype}; leave copy= out"
                )
            data, copy = data.to(wanted), None
        return stock(data, *args, copy=copy, **kwargs)  # decides what becomes of the graph
    if asked is None and isinstance(data, (list, tuple)):
        asked = kwargs["dtype"] = _dtype_of_elements(data)
    if _C.format_of(asked) is None if asked is not None else _brings_dtype(data):
        return stock(data, *args, copy=copy, **kwargs)
    dtype, requires_grad, _ = take(kwargs)
    if interop.is_buffer(data):
        return finish(
            stock(data, *args, dtype=bits_dtype(dtype), copy=copy, **kwargs).view(dtype),
            dtype,
            requires_grad,
            None,
        )
    if copy is False and asked is None:
        raise ValueError(
            "expected a tensor, an array or a buffer to share memory with (copy=False), but got "
            f"{type(data).__name__}; leave copy= out"
        )
    values = _make_exact(stock, data, *args, real=asked is not None, **kwargs)
    if copy is False:
        raise ValueError(
            f"expected data that can become {dtype} without a copy (copy=False), but got "
            f"{values.dtype}; leave copy= out"
        )
    if asked is None and not _wants_default(values, data):
        return values.requires_grad_() if requires_grad else values
    return finish(_replace_infinities(values, data, dtype), dtype, requires_grad, None)


def scalar_tensor(stock, value, *args, **kwargs):
    """Round a number in float64 or int64 once."""
    dtype, *rest = take_all(kwargs)
    exact = torch.int64 if isinstance(value, int) else torch.float64
    values = stock(value, *args, dtype=exact, **kwargs)
    return finish(_replace_infinities(values, value, dtype), dtype, *rest)


def new_tensor(stock, self, data, **kwargs):
    """Make a new tensor of data in dtype=, or else in the tensor's own dtype."""
    if torch.overrides.has_torch_function_unary(self):
        return stock(data, **kwargs)  # asks the subclass, and comes back here
    kwargs["dtype"] = kwargs.get("dtype") or self.dtype
    kwargs["device"] = kwargs.get("device") or self.device
    return torch.tensor(data, **kwargs)


def legacy_tensor(*args, **kwargs):
    """Run torch.Tensor(...) while the default dtype is a format dtype."""
    return legacy_new(None, torch.empty(0, dtype=_C.get_default_format()), *args, **kwargs)


def legacy_new(stock, self, *args, **kwargs):
    """Run the old constructor Tensor.new, which the DataLoader's collate still uses."""
    if stock is not None and torch.overrides.has_torch_function_unary(self):
        return stock(*args, **kwargs)  # asks the subclass, and comes back here
    device = kwargs.pop("device", None) or self.device
    if (
        not args
        and len(kwargs) == 1
        and (name := next(iter(kwargs))) in ("size", "other", "storage", "data")
    ):
        args = (torch.Size(kwargs.pop(name)) if name == "size" else kwargs.pop(name),)
    if kwargs:
        raise TypeError(
            "new: expected one of size, other, storage and data, and device, but got "
            f"{sorted(kwargs)} and {len(args)} without a name; give one of them"
        )
    if not args:
        return torch.empty(0, dtype=self.dtype, device=device)
    first = args[0]
    if isinstance(first, (torch.UntypedStorage, torch.TypedStorage)):
        storage = first._untyped_storage if isinstance(first, torch.TypedStorage) else first
        return torch.empty(0, dtype=self.dtype, device=device).set_(storage)
    if isinstance(first, torch.Tensor):
        if stock is not None and first.dtype is not self.dtype:
            raise TypeError(
                f"new: expected a tensor of {self.dtype}, but got one of {first.dtype}; convert "
                f"it first with x.to({self.dtype})"
            )
        return torch.Tensor(first)  # an alias, which has a gradient
    if all(isinstance(n, int) for n in args) or isinstance(first, torch.Size):
        return torch.empty(*args, dtype=self.dtype, device=device)
    return torch.tensor(first, dtype=self.dtype, device=device)


_FROM_DATA = (
    When.DTYPE_KEYWORD | When.DEFAULT_DTYPE | When.OWN_NESTED | When.GUARD_KEYWORD | When.OWN_DATA
)

HOOKS = [
    Hook("torch.tensor", Kind.BUILTIN, tensor, _FROM_DATA),
    Hook("torch.scalar_tensor", Kind.BUILTIN, scalar_tensor, _FROM_DATA),
    Hook("torch.asarray", Kind.BUILTIN, asarray, _FROM_DATA | When.OWN_SELF),
    Hook(
        "torch.as_tensor",
        Kind.BUILTIN,
        as_tensor,
        _FROM_DATA | When.DTYPE_ANYWHERE | When.GUARD_ANYWHERE,
    ),
    Hook(
        "torch._C.TensorBase.new_tensor",
        Kind.BUILTIN,
        new_tensor,
        When.DTYPE_KEYWORD | When.OWN_SELF | When.OWN_ARGUMENT,
    ),
    Hook("torch._C.TensorBase.new", Kind.BUILTIN, legacy_new, When.OWN_SELF),
]
