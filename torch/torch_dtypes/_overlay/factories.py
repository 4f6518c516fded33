"""Factories given one of our dtypes. Every value is exact (float64 or integers) until the one rounding to the format."""

from __future__ import annotations

import torch

from .. import _C
from ..rounding import rounding
from . import interop
from .interop import _bits_dtype


def _blank(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of ours over zero or arbitrary codes. TorchScript has no operator for a view in another dtype, so a trace gets a cast."""
    return codes.to(dtype) if torch._C._get_tracing_state() else codes.view(dtype)


def _uninitialised(made: torch.Tensor) -> None:
    """Fills it in deterministic mode, where stock has filled the codes with the largest integer."""
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:
        made.fill_(float("nan"))


def _take(kwargs: dict) -> tuple[torch.dtype, bool, torch.Tensor | None]:
    """Removes what we handle ourselves: (our dtype, requires_grad, out). out= decides where no dtype= is given, else the default dtype."""
    dtype, requires_grad, out = kwargs.pop("dtype", None), kwargs.pop("requires_grad", False), kwargs.pop("out", None)
    if dtype is None:
        dtype = out.dtype if out is not None else _C.get_default_format()
    layout = kwargs.get("layout")
    if layout not in (None, torch.strided):  # before stock fills integers of a layout that it knows floats in only
        raise NotImplementedError(
            f"expected the strided layout for a tensor of {dtype}, but got {layout}. Make it in a stock dtype, or without layout=."
        )
    return dtype, requires_grad, out


def _finish(values: torch.Tensor, dtype: torch.dtype, requires_grad: bool, out: torch.Tensor | None) -> torch.Tensor:
    result = values if values.dtype is dtype else values.to(dtype)
    if out is not None:
        if out.dtype is not dtype:
            raise RuntimeError(f"expected out= of dtype {dtype}, but got {out.dtype}")
        if out.shape != result.shape:
            out.resize_(result.shape)
        result = out.copy_(result)
    return result.requires_grad_() if requires_grad else result


def _for_stock(kwargs: dict) -> bool:
    """A call that comes here for the default dtype or out= but that is not ours: a stock dtype=, or out= of a stock dtype."""
    dtype, out = kwargs.get("dtype"), kwargs.get("out")
    own_out = out is not None and _C.is_format_tensor(out)
    if dtype is not None and _C.format_of(dtype) is None:
        if own_out:
            raise RuntimeError(f"expected out= of dtype {dtype}, but got {out.dtype}")
        return True
    return dtype is None and out is not None and not own_out


def bits(name: str):
    """zeros, empty, empty_strided: made as integers of the same width. The code of 0 is 0 in every format."""

    def factory(stock, *args, **kwargs):
        if _for_stock(kwargs):
            return stock(*args, **kwargs)
        dtype, requires_grad, out = _take(kwargs)
        made = _blank(stock(*args, dtype=_bits_dtype(dtype), **kwargs), dtype)
        if name.startswith("empty"):
            _uninitialised(made)
        return _finish(made, dtype, requires_grad, out)

    factory.__name__ = name
    return factory


def ones(stock, *args, **kwargs):
    if _for_stock(kwargs):
        return stock(*args, **kwargs)
    dtype, requires_grad, out = _take(kwargs)
    return _finish(_blank(stock(*args, dtype=_bits_dtype(dtype), **kwargs), dtype).fill_(1), dtype, requires_grad, out)


def full(stock, *args, **kwargs):
    given = dict(zip(("size", "fill_value"), args, strict=False)) | {k: kwargs[k] for k in ("size", "fill_value") if k in kwargs}
    value = given.get("fill_value")
    is_float = isinstance(value, float) or (isinstance(value, torch.Tensor) and value.is_floating_point())
    for_default = kwargs.get("dtype") is None and kwargs.get("out") is None  # the default dtype is for fractions, as stock has it
    if _for_stock(kwargs) or (for_default and not is_float):
        return stock(*args, **kwargs)
    if len(given) != 2 or isinstance(value, complex):
        return stock(*args, **kwargs | {"dtype": torch.float32})  # for its error
    dtype, requires_grad, out = _take(kwargs)
    rest = {k: v for k, v in kwargs.items() if k not in given}
    return _finish(_blank(stock(given["size"], 0, dtype=_bits_dtype(dtype), **rest), dtype).fill_(value), dtype, requires_grad, out)


def _exact(make, data: object, *args, real: bool = False, **kwargs) -> torch.Tensor:
    """A stock tensor of data without loss: float64 for Python floats, int64 for integers, arrays and tensors as they are. Where they must be
    real, complex numbers are stock's error."""
    try:
        values = make(data, *args, **kwargs)
    except (RuntimeError, ValueError, OverflowError):  # integers beyond int64
        return make(data, *args, **{**kwargs, "dtype": torch.float64})
    if (values.is_floating_point() or (real and values.is_complex())) and _from_python(data):
        values = make(data, *args, **{**kwargs, "dtype": torch.float64})
    return values


def _filled(values: torch.Tensor, data: object, dtype: torch.dtype) -> torch.Tensor:
    """Values of Python numbers for a tensor of ours: infinities as other numbers that are put into a tensor (see infinities.py)."""
    if not _from_python(data) or not values.is_floating_point() or values.is_meta or not _C.format_of(dtype).infinity_is_nan:
        return values
    for infinity in (float("inf"), float("-inf")):
        if (at := values == infinity).any():
            values = torch.where(at, _C.fill_number(infinity, dtype), values)
    return values


def _from_python(data: object) -> bool:
    """Whether data are numbers (NumPy's float64, which is Python's, too), or lists of them, and no tensor or array."""
    if isinstance(data, float):
        return True
    return not (isinstance(data, torch.Tensor) or hasattr(data, "__array_interface__") or hasattr(data, "__dlpack__"))


def _wants_default(values: torch.Tensor, data: object) -> bool:
    """Whether stock would have given values the default dtype: fractions from Python."""
    return values.is_floating_point() and not isinstance(data, torch.Tensor) and not hasattr(data, "__array_interface__")


def _given_tensor(data: object, asked: torch.dtype | None) -> object:
    """Data that stock refuses, arrays of ml_dtypes and typed storages of ours, as a tensor on their memory; others as they are."""
    if isinstance(data, torch.TypedStorage):
        return interop.of_storage(data) if _C.format_of(data.dtype) is not None else data
    return data if isinstance(data, torch.Tensor) else interop.adopt(data, asked)


def _from_tensor(data: torch.Tensor, kwargs: dict, *, copy: bool) -> torch.Tensor:
    wanted, device = kwargs.get("dtype") or data.dtype, kwargs.get("device")
    result = data.to(device=device, dtype=wanted, copy=copy)
    return result.requires_grad_() if kwargs.get("requires_grad") else result


def _from_data(stock, data, args, kwargs, *, copies: bool):
    asked = kwargs.get("dtype")
    dtype, requires_grad, _ = _take(kwargs)
    if copies and isinstance(data, torch.Tensor):
        data = data.detach()
        values = data.to(device=kwargs.get("device"), copy=True)
    else:
        values = _exact(stock, data, *args, real=asked is not None, **kwargs)
    if asked is None and not _wants_default(values, data):
        return values.requires_grad_() if requires_grad else values
    return _finish(_filled(values, data, dtype), dtype, requires_grad, None)


def _dtype_of_elements(data: object) -> torch.dtype | None:
    """Our dtype, if a nested list begins with a tensor of it: stock would infer the container's."""
    first = interop.first_of(data)
    return first.dtype if isinstance(first, torch.Tensor) and _C.is_format_tensor(first) else None


def tensor(stock, data, *args, **kwargs):
    if (given := _given_tensor(data, kwargs.get("dtype"))) is not data:
        return _from_tensor(given, kwargs, copy=True)
    if kwargs.get("dtype") is None and isinstance(data, (list, tuple)) and (found := _dtype_of_elements(data)):
        kwargs["dtype"] = found
    if kwargs.get("dtype") is not None and _C.format_of(kwargs["dtype"]) is None:
        return stock(data, *args, **kwargs)  # a stock dtype, for tensors of ours in a list
    return _from_data(stock, data, args, kwargs, copies=True)


def as_tensor(stock, data, *args, **kwargs):
    kwargs.update(zip(("dtype", "device"), args, strict=False))
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    if (given := _given_tensor(data, kwargs.get("dtype"))) is not data:
        return _from_tensor(given, kwargs, copy=False)
    if "dtype" not in kwargs and (found := _dtype_of_elements(data)):
        kwargs["dtype"] = found
    if "dtype" in kwargs and _C.format_of(kwargs["dtype"]) is None:
        return stock(data, **kwargs)
    return _from_data(stock, data, (), kwargs, copies=False)


def asarray(stock, data, *args, **kwargs):
    copy = kwargs.pop("copy", None)
    asked = kwargs.get("dtype")
    data = _given_tensor(data, asked)
    if isinstance(data, torch.Tensor) and (_C.is_format_tensor(data) or asked is not None):
        wanted = kwargs.pop("dtype", None) or data.dtype
        if wanted is not data.dtype:
            if copy is False:
                raise ValueError(f"expected data that can become {wanted} without a copy (copy=False), but got {data.dtype}")
            data, copy = data.to(wanted), None
        return stock(data, *args, copy=copy, **kwargs)  # which knows what becomes of its graph
    if asked is None and isinstance(data, (list, tuple)):
        asked = kwargs["dtype"] = _dtype_of_elements(data)
    if asked is not None and _C.format_of(asked) is None:
        return stock(data, *args, copy=copy, **kwargs)
    dtype, requires_grad, _ = _take(kwargs)
    if asked is not None and interop.is_buffer(data):
        return _finish(stock(data, *args, dtype=_bits_dtype(dtype), copy=copy, **kwargs).view(dtype), dtype, requires_grad, None)
    values = _exact(stock, data, *args, real=asked is not None, **kwargs)
    if asked is None and not _wants_default(values, data):
        return values.requires_grad_() if requires_grad else values
    if copy is False:
        raise ValueError(f"expected data that can become {dtype} without a copy (copy=False), but got {values.dtype}")
    return _finish(_filled(values, data, dtype), dtype, requires_grad, None)


def scalar_tensor(stock, value, *args, **kwargs):
    dtype, requires_grad, _ = _take(kwargs)
    exact = torch.int64 if isinstance(value, int) else torch.float64
    return _finish(_filled(stock(value, *args, dtype=exact, **kwargs), value, dtype), dtype, requires_grad, None)


def arange(stock, *args, **kwargs):
    numbers = [*args, *(kwargs[k] for k in ("start", "end", "step") if k in kwargs)]
    floats = any(isinstance(n, float) or (isinstance(n, torch.Tensor) and n.is_floating_point()) for n in numbers)
    if _for_stock(kwargs) or (kwargs.get("dtype") is None and kwargs.get("out") is None and not floats):
        return stock(*args, **kwargs)
    dtype, requires_grad, out = _take(kwargs)
    return _finish(stock(*args, dtype=torch.float64 if floats else torch.int64, **kwargs), dtype, requires_grad, out)


def through_float64(name: str):
    """linspace, windows, ...: the stock result in float64, rounded once."""

    def factory(stock, *args, **kwargs):
        if _for_stock(kwargs):
            return stock(*args, **kwargs)
        dtype, requires_grad, out = _take(kwargs)
        return _finish(stock(*args, dtype=torch.float64, **kwargs), dtype, requires_grad, out)

    factory.__name__ = name
    return factory


def between(factory):
    """linspace and logspace: ends that are tensors say nothing of the result's dtype, which is the one asked for or the default."""

    def number(x):
        return x.double() if isinstance(x, torch.Tensor) and _C.is_format_tensor(x) else x

    def made(stock, *args, **kwargs):
        args = [number(x) for x in args]
        kwargs = {k: x if k == "out" else number(x) for k, x in kwargs.items()}
        dtype, out = kwargs.get("dtype"), kwargs.get("out")
        asked = [d for d in (dtype, None if out is None else out.dtype) if d is not None] or [torch.get_default_dtype()]
        ours = any(_C.format_of(d) is not None for d in asked)
        return factory(stock, *args, **kwargs) if ours else stock(*args, **kwargs)

    return made


def drawn(name: str):
    """rand, randn, randint, ...: what stock draws from the same seed in the type that _drawing_type says, rounded once."""

    def factory(stock, *args, **kwargs):
        if _for_stock(kwargs):
            return stock(*args, **kwargs)
        dtype, requires_grad, out = _take(kwargs)
        values = stock(*args, dtype=_drawing_type(dtype), **kwargs)
        return _finish(_below_one(values, dtype) if name == "rand" else values, dtype, requires_grad, out)

    factory.__name__ = name
    return factory


def _drawing_type(dtype: torch.dtype) -> torch.dtype:
    """float32, so that a run in a narrow format and one in float32 draw the same numbers; float64 for formats with more digits."""
    return torch.float32 if _C.format_of(dtype).significand_bits <= 24 else torch.float64


def _below_one(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Uniform on [0, 1), rounded toward zero, so that 1 never comes; below a posit's smallest number that is 0, against posits' own rule."""
    fmt = _C.format_of(dtype)
    if fmt.kind == _C.Kind.posit and 2.0**fmt.min_exponent > torch.finfo(values.dtype).eps / 2:  # of which all values are multiples
        values = torch.where(values < 2.0**fmt.min_exponent, 0.0, values)
    with rounding("toward_zero"):
        return values.to(dtype)


def normal(stock, *args, **kwargs):
    """Given tensors it is an operator like any other, which takes no dtype=; given numbers and a size it is a factory."""
    if any(isinstance(x, torch.Tensor) for x in (*args[:2], kwargs.get("mean"), kwargs.get("std"))):
        return stock(*args, **kwargs)
    return drawn("normal")(stock, *args, **kwargs)


def linspace(stock, start, end, steps, **kwargs):
    """Interpolated with whole-number weights, so that what is exact in the middle (0 of -1 to 1) stays exact."""
    if _for_stock(kwargs):
        return stock(start, end, steps, **kwargs)
    dtype, requires_grad, out = _take(kwargs)
    i = torch.arange(int(steps), dtype=torch.float64, **kwargs)
    start, end, last = float(start), float(end), max(int(steps) - 1, 1)
    return _finish((start * (last - i) + end * i) / last, dtype, requires_grad, out)


_FILL = {"zeros": 0, "ones": 1}


def like(name: str):
    """*_like of a tensor (stock or ours) given one of our dtypes."""

    def factory(stock, *args, **kwargs):
        self, *args = (kwargs.pop("input"), *args) if "input" in kwargs else args
        dtype, requires_grad, _ = _take(kwargs)
        kind = name.removesuffix("_like")
        if kind in ("rand", "randn", "randint"):
            drawing = _drawing_type(dtype)
            shaped = torch.empty_like(self, dtype=drawing) if _C.is_format_tensor(self) else self
            values = stock(shaped, *args, dtype=drawing, **kwargs)
            return _finish(_below_one(values, dtype) if kind == "rand" else values, dtype, requires_grad, None)
        value = args[0] if args else kwargs.pop("fill_value", None)
        result = _blank(torch.empty_like(self, dtype=_bits_dtype(dtype), **kwargs), dtype)
        if kind == "empty":
            _uninitialised(result)
        else:
            result.fill_(value if kind == "full" else _FILL[kind])
        return result.requires_grad_() if requires_grad else result

    factory.__name__ = name
    return factory


def new(name: str):
    """Tensor.new_* (of a stock tensor or ours) given one of our dtypes."""

    def factory(stock, self, *args, **kwargs):
        dtype, requires_grad, _ = _take(kwargs)
        kind = name.removeprefix("new_")
        if kind == "full":
            size, value = (*args, *(kwargs.pop(k) for k in ("size", "fill_value") if k in kwargs))
            result = _blank(self.new_empty(size, dtype=_bits_dtype(dtype), **kwargs), dtype).fill_(value)
            return result.requires_grad_() if requires_grad else result
        make = self.new_empty_strided if kind == "empty_strided" else self.new_empty
        result = _blank(make(*args, dtype=_bits_dtype(dtype), **kwargs), dtype)
        if kind in _FILL:
            result.fill_(_FILL[kind])
        else:
            _uninitialised(result)
        return result.requires_grad_() if requires_grad else result

    factory.__name__ = name
    return factory


def new_tensor(stock, self, data, **kwargs):
    if torch.overrides.has_torch_function_unary(self):
        return stock(data, **kwargs)  # which asks the subclass, and comes back here
    kwargs["dtype"] = kwargs.get("dtype") or self.dtype
    kwargs["device"] = kwargs.get("device") or self.device
    return torch.tensor(data, **kwargs)


def legacy_tensor(*args, **kwargs):
    """torch.Tensor(...) while the default dtype is ours."""
    return legacy_new(None, torch.empty(0, dtype=_C.get_default_format()), *args, **kwargs)


def legacy_new(stock, self, *args, **kwargs):
    """Tensor.new: the old constructor, which stock utilities (the DataLoader's collate) still use."""
    if stock is not None and torch.overrides.has_torch_function_unary(self):
        return stock(*args, **kwargs)  # which asks the subclass, and comes back here
    device = kwargs.pop("device", None) or self.device
    if kwargs:
        raise TypeError(f"new: expected no other keyword than device, but got {sorted(kwargs)}")
    if not args:
        return torch.empty(0, dtype=self.dtype, device=device)
    first = args[0]
    if isinstance(first, (torch.UntypedStorage, torch.TypedStorage)):
        storage = first._untyped_storage if isinstance(first, torch.TypedStorage) else first
        return torch.empty(0, dtype=self.dtype, device=device).set_(storage)
    if isinstance(first, torch.Tensor):
        return first.detach() if first.dtype is self.dtype else torch.tensor(first, dtype=self.dtype, device=device)
    if all(isinstance(n, int) for n in args) or isinstance(first, torch.Size):
        return torch.empty(*args, dtype=self.dtype, device=device)
    return torch.tensor(first, dtype=self.dtype, device=device)
