"""Hooks of NumPy, DLPack, buffers and storages, which read or hand in raw memory."""

from __future__ import annotations

import functools
import sys
import threading

import torch
from torch.utils._pytree import tree_leaves

from ... import _C
from ...formats import naming
from ...formats.code_types import bits_dtype
from ...formats.dtypes import dtype as dtype_of
from ...storage.stock_values import values_in_numpy
from ...targets.chop import chop
from ..table import Hook, Kind
from .conversion import find_format_dtype
from .trampolines import When

# Types of ml_dtypes by canonical names of formats with the same value for every code.
_ML_DTYPES = {
    "q43": "float8_e4m3",
    "q52": "float8_e5m2",
    "e3m4": "float8_e3m4",
    "e4m3fn": "float8_e4m3fn",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "e4m3fnuz_bias11": "float8_e4m3b11fnuz",
    "e2m3finite": "float6_e2m3fn",
    "e3m2finite": "float6_e3m2fn",
    "e2m1finite": "float4_e2m1fn",
    "e8m7": "bfloat16",
}
_FORMATS = {ml_name: name for name, ml_name in _ML_DTYPES.items()}


def _numpy_dtype(dtype: torch.dtype):
    """Return ml_dtypes' type for a format, or None where it is missing.

    Rounding and overflow change no code's value.
    """
    try:
        import ml_dtypes
    except ImportError:
        return None
    name = naming.split_rounding(_C.name_of(dtype))[0].removesuffix("_saturate")
    return getattr(ml_dtypes, _ML_DTYPES.get(name, ""), None)


def numpy(stock, self, *, force=False):
    """Return an array of ml_dtypes' type with the same codes, on the same memory."""
    if force:
        self = self.detach().cpu()
    elif self.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    # np.asarray, and so matplotlib, pandas, SciPy and scikit-learn, needs numbers to compute with,
    # not this memory. Tensor.__array__ passes on nothing that would tell the two apart. NumPy
    # computes little with types of ml_dtypes: no histogram, no group of pandas, no image. The frame
    # between looks at classes (Kind.ASKING).
    if sys._getframe(2).f_code is torch.Tensor.__array__.__code__:
        return values_in_numpy(self)
    numpy_dtype = _numpy_dtype(self.dtype)
    if numpy_dtype is None:
        raise TypeError(
            f"expected a dtype that NumPy has a type for, but got {self.dtype}; use "
            "x.double().numpy() for the values, or torch_dtypes.codes(x).numpy() for the codes "
            f"({bits_dtype(self.dtype)})"
        )
    return self.view(bits_dtype(self.dtype)).numpy().view(numpy_dtype)


# NumPy's functions behind Python's operators.
_OPERATORS = frozenset(
    "add subtract multiply divide floor_divide remainder divmod power matmul".split()
)


def extend_array_wrap(stock):
    """Return NumPy's result as a rounded array, and raise for ``x * array``, as for bfloat16.

    NumPy computes with a tensor's exact values, and the tensor's dtype rounds the result. PyTorch
    would make a tensor of the result, of another dtype than the operand's. Python hands ``x *
    array`` to NumPy too.
    """
    # NumPy takes a TypeError for one about arguments. It calls again with fewer, at last without
    # the operands.
    refused = threading.local()

    @functools.wraps(stock)
    def wrap(self, array, *context):
        if not _C.is_format_tensor(self):
            return stock(self, array, *context)
        import numpy

        call, returns_scalar = (*context, None, False)[:2]
        if call is not None:
            of_operator = call[0].__name__ in _OPERATORS and any(
                isinstance(v, numpy.ndarray) for v in call[1]
            )
            refused.array = id(array) if of_operator else None
        if getattr(refused, "array", None) == id(array):
            raise TypeError(
                f"expected tensors and numbers beside a tensor of {self.dtype}, but got a NumPy "
                "array; convert it with torch.as_tensor(array).to(x), or compute in NumPy with "
                "np.asarray(x)"
            )
        if array.dtype.kind in "fc":
            array = numpy.asarray(chop(array, self.dtype))
        return array[()] if returns_scalar else array

    return wrap


def is_foreign(data: object) -> bool:
    """Return whether data are a NumPy array, or one number, of a type of ml_dtypes."""
    kind = getattr(getattr(data, "dtype", None), "type", None)
    return getattr(kind, "__module__", None) == "ml_dtypes" and hasattr(data, "__array_interface__")


def _format_of_array(array, asked: torch.dtype | None) -> torch.dtype:
    name = array.dtype.type.__name__
    if name not in _FORMATS:
        raise TypeError(
            "expected an array of a type with a number format of the same codes, but got "
            f"{array.dtype}; convert it first, for example with array.astype(numpy.float32)"
        )
    if (
        asked is not None
        and _C.format_of(asked) is not None
        and _numpy_dtype(asked) is array.dtype.type
    ):
        return asked
    if name == "bfloat16" and asked is None:
        raise TypeError(
            "expected an array of a type that is one dtype, but got bfloat16, which is "
            "torch.bfloat16 and the number format e8m7; choose one, for example with "
            "torch.as_tensor(array, dtype=torch.bfloat16), which shares memory"
        )
    return dtype_of(_FORMATS[name])


_MOST_DIMENSIONS = 128  # PyTorch's limit for nested lists


def first_of(data: object) -> object:
    """Return the first element of a nested list.

    At PyTorch's limit of depth it is a list, so that a list that holds itself gets PyTorch's error.
    """
    for _ in range(_MOST_DIMENSIONS):
        if not isinstance(data, (list, tuple)) or not data:
            break
        data = data[0]
    return data


def adopt(data: object, asked: torch.dtype | None = None) -> object:
    """Return an array of ml_dtypes as a tensor on its memory, or data as they are.

    The tensor has the dtype in `asked` if that has the same codes. Nested lists of arrays and
    numbers of ml_dtypes become one array first.
    """
    if not is_foreign(first_of(data)):
        return data
    import numpy

    array = numpy.asarray(data)
    if not is_foreign(array):  # a list of several types
        return data
    if asked is torch.bfloat16 and array.dtype.type.__name__ == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    dtype = _format_of_array(array, asked)
    return torch.from_numpy(array.view({1: "uint8", 2: "int16"}[dtype.itemsize])).view(dtype)


def from_numpy(stock, array):
    """Make a tensor on the memory of an array of ml_dtypes."""
    import numpy

    return adopt(array) if isinstance(array, numpy.ndarray) and is_foreign(array) else stock(array)


def to_dlpack(stock, *args, **kwargs):
    """Raise: DLPack has no types for formats, and would describe the storage dtype."""
    tensor = next(v for v in [*args, *kwargs.values()] if isinstance(v, torch.Tensor))
    raise BufferError(
        f"expected a dtype that DLPack has a type for, but got {tensor.dtype}; export "
        "torch_dtypes.codes(x) for the codes, or x.float() for the values"
    )


# Buffers and files of codes


def frombuffer(stock, *args, dtype, requires_grad=False, **kwargs):
    """Read a buffer's bytes as codes."""
    return stock(*args, dtype=bits_dtype(dtype), **kwargs).view(dtype).requires_grad_(requires_grad)


def from_buffer_of_storage(stock, *args, **kwargs):
    """Read a buffer by the width of a format's elements, which PyTorch needs to swap bytes."""
    args = [bits_dtype(v) if _C.format_of(v) is not None else v for v in args]
    return stock(
        *args, **{k: bits_dtype(v) if _C.format_of(v) is not None else v for k, v in kwargs.items()}
    )


def is_buffer(data: object) -> bool:
    """Return whether torch.asarray reads data as a buffer of elements.

    It does, by PyTorch's rule, for data with the buffer protocol that are no array and not
    DLPack's.
    """
    if (
        isinstance(data, torch.Tensor)
        or hasattr(data, "__array_interface__")
        or hasattr(data, "__dlpack__")
    ):
        return False
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


# Storages


def of_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor whose codes are on a storage's memory."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage)


# A Python function on each element.


def refuse_python_function(stock, *args, **kwargs):
    """Raise: PyTorch reads and writes elements by the storage dtype."""
    raise NotImplementedError(
        f"{stock.__name__}: expected tensors of a stock dtype, but got "
        f"{find_format_dtype(args, kwargs)}; use x.copy_(x.double().{stock.__name__}(...))"
    )


# Kinds of tensors that format tensors cannot be


def refuse_nested(stock, *args, **kwargs):
    """Raise: format tensors cannot be nested."""
    raise NotImplementedError(
        f"{stock.__name__}: expected tensors of a stock dtype, but got "
        f"{find_format_dtype(args, kwargs)}, which has no nested tensors; convert them first, "
        "for example with x.float(), or pad them (torch.nn.utils.rnn.pad_sequence)"
    )


def nested_tensor(stock, data, *args, **kwargs):
    """Raise where the nested tensor would have a format dtype.

    It would by dtype=, by its parts or, for lists of numbers, by the default dtype.
    """
    asked, leaves = kwargs.get("dtype"), tree_leaves(data)
    has_format = (
        _C.format_of(asked) is not None
        if asked is not None
        else any(isinstance(v, torch.Tensor) and _C.is_format_tensor(v) for v in leaves)
    )
    by_default = asked is None and _C.get_default_format() is not None
    if has_format or (by_default and any(type(v) is float for v in leaves)):
        refuse_nested(stock, data, *args, **kwargs)
    result = stock(data, *args, **kwargs)
    if by_default and not leaves and result.is_floating_point():  # an empty list
        refuse_nested(stock, data, *args, **kwargs)
    return result


def refuse_wrapper(stock, *args, **kwargs):
    """Raise: a tensor without memory of its own has no codes."""
    asked = next(v for v in [*args, *kwargs.values()] if isinstance(v, torch.dtype))
    raise NotImplementedError(
        f"{stock.__name__}: expected a stock dtype, but got {asked}, which needs a tensor with "
        "memory of its own, not a nested tensor or a wrapper subclass, such as quantising "
        "libraries make; convert first, for example with x.float()"
    )


_TENSOR = "torch._C.TensorBase"
_NESTED = When.DTYPE_ANYWHERE | When.OWN_NESTED

HOOKS = [
    Hook(f"{_TENSOR}.numpy", Kind.ASKING, numpy, When.OWN_SELF),
    Hook("torch.Tensor.__array_wrap__", Kind.REPLACED, extend_array_wrap),
    Hook("torch.from_numpy", Kind.BUILTIN, from_numpy, When.OWN_DATA),
    Hook("torch.frombuffer", Kind.BUILTIN, frombuffer, When.DTYPE_KEYWORD),
    Hook(
        "torch._C.StorageBase.from_buffer",
        Kind.BUILTIN,
        from_buffer_of_storage,
        When.DTYPE_ANYWHERE,
    ),
    *(
        Hook(
            f"{_TENSOR}.{name}",
            Kind.BUILTIN,
            refuse_python_function,
            When.OWN_SELF | When.OWN_ARGUMENT,
        )
        for name in ("apply_", "map_", "map2_")
    ),
    *(
        Hook(f"torch._C.{name}", Kind.BUILTIN, to_dlpack, When.OWN_SELF)
        for name in ("_to_dlpack", "_to_dlpack_versioned")
    ),
    Hook(
        "torch._C._nested.nested_tensor", Kind.BUILTIN, nested_tensor, _NESTED | When.DEFAULT_DTYPE
    ),
    *(
        Hook(f"torch.{name}", Kind.BUILTIN, refuse_nested, _NESTED | When.OWN_SELF)
        for name in ("_nested_tensor_from_tensor_list", "_nested_view_from_buffer")
    ),
    Hook(f"{_TENSOR}._make_wrapper_subclass", Kind.BUILTIN, refuse_wrapper, When.DTYPE_ANYWHERE),
]
