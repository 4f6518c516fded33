"""Hooks of factories that get a format dtype.

Every value is exact (float64 or integers) until the one rounding to the format.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ... import _C
from ...formats.code_types import bits_dtype
from ..table import Hook, Kind
from .trampolines import When


def _blank(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a format tensor over zero or arbitrary codes.

    TorchScript has no operator for a view in another dtype, and a wrapper (DTensor) has no memory.
    Both are cast instead.
    """
    cast = torch._C._get_tracing_state() or (
        type(codes) is not torch.Tensor and is_traceable_wrapper_subclass(codes)
    )
    return codes.to(dtype) if cast else codes.view(dtype)


def _fill_uninitialised(tensor: torch.Tensor) -> None:
    """Fill with NaN in deterministic mode, where PyTorch has filled with the largest integer."""
    if (
        torch.are_deterministic_algorithms_enabled()
        and torch.utils.deterministic.fill_uninitialized_memory
    ):
        tensor.fill_(float("nan"))


def take(kwargs: dict) -> tuple[torch.dtype, bool, torch.Tensor | None]:
    """Remove the arguments that PyTorch must not see: (format dtype, requires_grad, out).

    Without dtype= the dtype is that of out=, else the default dtype. Without device= the numbers
    are made on the device of out=, by its generator.
    """
    dtype, requires_grad, out = (
        kwargs.pop("dtype", None),
        kwargs.pop("requires_grad", False),
        kwargs.pop("out", None),
    )
    if dtype is None:
        dtype = out.dtype if out is not None else _C.get_default_format()
    if out is not None and kwargs.get("device") is None:
        kwargs["device"] = out.device
    elif out is not None and torch.device(kwargs["device"]).type != out.device.type:
        raise RuntimeError(
            f"expected out= on {kwargs['device']}, but got one on {out.device}; give the same "
            "device=, or none"
        )
    layout = kwargs.get("layout")
    # PyTorch would fill integers, but some layouts hold floats only.
    if layout not in (None, torch.strided):
        raise NotImplementedError(
            f"expected the strided layout for a tensor of {dtype}, but got {layout}; make it in a "
            "stock dtype, or leave layout= out"
        )
    return dtype, requires_grad, out


def take_all(kwargs: dict) -> tuple[torch.dtype, bool, torch.Tensor | None, bool | None]:
    """Remove pin_memory too, where the stock factory makes numbers of another dtype.

    The results after the format dtype are the last arguments of finish().
    """
    return *take(kwargs), kwargs.pop("pin_memory", False)


def finish(
    values: torch.Tensor,
    dtype: torch.dtype,
    requires_grad: bool,
    out: torch.Tensor | None,
    pinned: bool | None = False,
) -> torch.Tensor:
    result = values if values.dtype is dtype else values.to(dtype)
    if pinned and out is None:
        result = result.pin_memory()
    if out is not None:
        if out.dtype is not dtype:
            raise RuntimeError(
                f"expected out= of dtype {dtype}, but got {out.dtype}; leave out= out"
            )
        if out.shape != result.shape:
            out.resize_(result.shape)
        result = out.copy_(result)
    return result.requires_grad_() if requires_grad else result


def for_stock(kwargs: dict) -> bool:
    """Return whether a call by the default dtype or out= has a stock dtype= or a stock out=."""
    dtype, out = kwargs.get("dtype"), kwargs.get("out")
    own_out = out is not None and _C.is_format_tensor(out)
    if dtype is not None and _C.format_of(dtype) is None:
        if own_out:
            raise RuntimeError(
                f"expected out= of dtype {dtype}, but got {out.dtype}; leave out= out"
            )
        return True
    return dtype is None and out is not None and not own_out


def bits(name: str):
    """Make zeros, empty or empty_strided as integers of the same width.

    The code of 0 is 0 in every format but tables of values.
    """

    def factory(stock, *args, **kwargs):
        if for_stock(kwargs):
            return stock(*args, **kwargs)
        dtype, requires_grad, out = take(kwargs)
        result = _blank(stock(*args, dtype=bits_dtype(dtype), **kwargs), dtype)
        if name.startswith("empty"):
            _fill_uninitialised(result)
        elif name == "zeros" and not _C.zero_is_code_zero(dtype):
            result.zero_()
        return finish(result, dtype, requires_grad, out)

    factory.__name__ = name
    return factory


def ones(stock, *args, **kwargs):
    """Make integers of the same width and fill them with ones."""
    if for_stock(kwargs):
        return stock(*args, **kwargs)
    dtype, requires_grad, out = take(kwargs)
    return finish(
        _blank(stock(*args, dtype=bits_dtype(dtype), **kwargs), dtype).fill_(1),
        dtype,
        requires_grad,
        out,
    )


def full(stock, *args, **kwargs):
    """Make integers of the same width and fill them with the number, rounded once."""
    arguments = dict(zip(("size", "fill_value"), args, strict=False)) | {
        k: kwargs[k] for k in ("size", "fill_value") if k in kwargs
    }
    value = arguments.get("fill_value")
    is_float = isinstance(value, float) or (
        isinstance(value, torch.Tensor) and value.is_floating_point()
    )
    # As in PyTorch, the default dtype is for fractions.
    for_default = kwargs.get("dtype") is None and kwargs.get("out") is None
    if for_stock(kwargs) or (for_default and not is_float):
        return stock(*args, **kwargs)
    if len(arguments) != 2 or isinstance(value, complex):
        return stock(*args, **kwargs | {"dtype": torch.float32})  # for its error
    dtype, requires_grad, out = take(kwargs)
    rest = {k: v for k, v in kwargs.items() if k not in arguments}
    return finish(
        _blank(stock(arguments["size"], 0, dtype=bits_dtype(dtype), **rest), dtype).fill_(value),
        dtype,
        requires_grad,
        out,
    )


def _round_stock(stock, args: tuple, kwargs: dict, wide: torch.dtype) -> torch.Tensor:
    """Round the stock result in a wider dtype once.

    The stock function decides how out= is shaped: whether one with as many elements keeps its
    shape, whether it is resized, and with which warning.
    """
    dtype, requires_grad, out, pinned = take_all(kwargs)
    there = (
        {"dtype": wide}
        if out is None
        else {"out": torch.empty(out.shape, dtype=wide, device=out.device)}
    )
    return finish(stock(*args, **there, **kwargs), dtype, requires_grad, out, pinned)


def arange(stock, *args, **kwargs):
    """Round the stock result in float64 once, or in int64 where all numbers are integers."""
    numbers = [*args, *(kwargs[k] for k in ("start", "end", "step") if k in kwargs)]
    floats = any(
        isinstance(n, float) or (isinstance(n, torch.Tensor) and n.is_floating_point())
        for n in numbers
    )
    if for_stock(kwargs) or (
        kwargs.get("dtype") is None and kwargs.get("out") is None and not floats
    ):
        return stock(*args, **kwargs)
    return _round_stock(stock, args, kwargs, torch.float64 if floats else torch.int64)


def through_float64(name: str):
    """Round the stock result in float64 once, for range, linspace, windows and others."""

    def factory(stock, *args, **kwargs):
        if for_stock(kwargs):
            return stock(*args, **kwargs)
        return _round_stock(stock, args, kwargs, torch.float64)

    factory.__name__ = name
    return factory


def accept_tensor_ends(factory):
    """Take the ends of linspace and logspace from tensors.

    As in PyTorch, their dtype does not decide the result's dtype, which is dtype= or the default.
    But complex ends make the result complex.
    """

    def number(x):
        return x.double() if isinstance(x, torch.Tensor) and _C.is_format_tensor(x) else x

    def is_complex(x):
        return x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex)

    def make(stock, *args, **kwargs):
        args = [number(x) for x in args]
        kwargs = {k: x if k == "out" else number(x) for k, x in kwargs.items()}
        dtype, out = kwargs.get("dtype"), kwargs.get("out")
        asked = [d for d in (dtype, None if out is None else out.dtype) if d is not None] or [
            torch.get_default_dtype()
        ]
        formats = [d for d in asked if _C.format_of(d) is not None]
        ends = [*args[:2], *(kwargs[k] for k in ("start", "end") if k in kwargs)]
        if formats and any(map(is_complex, ends)):
            if dtype is not None or out is not None:
                raise RuntimeError(
                    f"expected real ends for a result of {formats[0]}, but got {ends[0]} and "
                    f"{ends[1]}; use a complex dtype"
                )
            formats = []
        return factory(stock, *args, **kwargs) if formats else stock(*args, **kwargs)

    return make


def linspace(stock, start, end, steps, **kwargs):
    """Interpolate with whole-number weights, so that an exact middle (0 of -1 to 1) stays exact."""
    if for_stock(kwargs):
        return stock(start, end, steps, **kwargs)
    dtype, requires_grad, out, pinned = take_all(kwargs)
    i = torch.arange(int(steps), dtype=torch.float64, **kwargs)
    on_meta = i.is_meta  # a meta tensor as an end has no value
    start, end = (
        0.0 if on_meta and isinstance(x, torch.Tensor) and x.is_meta else float(x)
        for x in (start, end)
    )
    last = max(int(steps) - 1, 1)
    return finish(
        _shaped_as((start * (last - i) + end * i) / last, out), dtype, requires_grad, out, pinned
    )


def frequencies(stock, *args, **kwargs):
    """Compute fftfreq or rfftfreq, in the shape of out= if it has as many elements.

    PyTorch writes an out= of several dimensions wrongly, and partly outside it.
    """
    if for_stock(kwargs):
        return stock(*args, **kwargs)
    dtype, requires_grad, out, pinned = take_all(kwargs)
    return finish(
        _shaped_as(stock(*args, dtype=torch.float64, **kwargs), out),
        dtype,
        requires_grad,
        out,
        pinned,
    )


def _shaped_as(values: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Return the numbers in the shape of out= if it has as many elements, as PyTorch does."""
    return values if out is None or out.numel() != values.numel() else values.view(out.shape)


_FILL = {"zeros": 0, "ones": 1}


def like(name: str):
    """Make zeros_like and its kin of a stock or format tensor in a format dtype."""

    def factory(stock, *args, **kwargs):
        self, *args = (kwargs.pop("input"), *args) if "input" in kwargs else args
        dtype, requires_grad, _ = take(kwargs)
        kind = name.removesuffix("_like")
        value = args[0] if args else kwargs.pop("fill_value", None)
        result = _blank(torch.empty_like(self, dtype=bits_dtype(dtype), **kwargs), dtype)
        if kind == "empty":
            _fill_uninitialised(result)
        else:
            result.fill_(value if kind == "full" else _FILL[kind])
        return result.requires_grad_() if requires_grad else result

    factory.__name__ = name
    return factory


def new(name: str):
    """Make new_zeros and its kin of a stock or format tensor in a format dtype."""

    def factory(stock, self, *args, **kwargs):
        dtype, requires_grad, _ = take(kwargs)
        kind = name.removeprefix("new_")
        if kind == "full":
            size, value = (*args, *(kwargs.pop(k) for k in ("size", "fill_value") if k in kwargs))
            result = _blank(self.new_empty(size, dtype=bits_dtype(dtype), **kwargs), dtype).fill_(
                value
            )
            return result.requires_grad_() if requires_grad else result
        make = self.new_empty_strided if kind == "empty_strided" else self.new_empty
        result = _blank(make(*args, dtype=bits_dtype(dtype), **kwargs), dtype)
        if kind in _FILL:
            result.fill_(_FILL[kind])
        else:
            _fill_uninitialised(result)
        return result.requires_grad_() if requires_grad else result

    factory.__name__ = name
    return factory


FROM_NOTHING = When.DTYPE_KEYWORD | When.DEFAULT_DTYPE | When.OWN_OUT
FROM_TENSOR = When.DTYPE_KEYWORD | When.GUARD_KEYWORD
_ENDS = FROM_NOTHING | When.OWN_SELF | When.OWN_ARGUMENT
_ASKING_NOBODY = (
    "range bartlett_window blackman_window hamming_window hann_window kaiser_window empty_permuted"
).split()
_LIKE = "zeros_like ones_like empty_like full_like".split()
_NEW = "new_zeros new_ones new_empty new_full new_empty_strided".split()

HOOKS = [
    *(Hook(f"torch.{name}", Kind.ASKING, bits(name), FROM_NOTHING) for name in ("zeros", "empty")),
    *(
        Hook(f"torch.{name}", Kind.BUILTIN, bits(name), FROM_NOTHING)
        for name in ("empty_strided", "from_file")
    ),
    Hook("torch.ones", Kind.ASKING, ones, FROM_NOTHING),
    Hook("torch.full", Kind.ASKING, full, FROM_NOTHING),
    Hook("torch.arange", Kind.ASKING, arange, FROM_NOTHING),
    Hook("torch.linspace", Kind.ASKING, accept_tensor_ends(linspace), _ENDS),
    Hook("torch.logspace", Kind.ASKING, accept_tensor_ends(through_float64("logspace")), _ENDS),
    Hook("torch.eye", Kind.ASKING, through_float64("eye"), FROM_NOTHING),
    *(
        Hook(f"torch.{name}", Kind.BUILTIN, through_float64(name), FROM_NOTHING)
        for name in _ASKING_NOBODY
    ),
    *(
        Hook(f"torch._C._fft.{name}", Kind.ASKING, frequencies, FROM_NOTHING)
        for name in ("fft_fftfreq", "fft_rfftfreq")
    ),
    *(Hook(f"torch.{name}", Kind.ASKING, like(name), FROM_TENSOR) for name in _LIKE),
    *(Hook(f"torch._C.TensorBase.{name}", Kind.ASKING, new(name), FROM_TENSOR) for name in _NEW),
]
