"""The grid of a format: the operator ``chop`` on tensors, for callers that check their
arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import _C
from ..formats.arguments import find_mode, mode_name, override_rounding
from ..formats.dtypes import format_of, name_of_format

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
_NAMES: dict[_C.Format, str] = {}
MAX_NAMES = 4096  # so that a sweep over formats goes on


def name_of(D: torch.dtype | str | _C.Format) -> str:
    """Return a format's name by which the operator finds it, in another process too."""
    if isinstance(D, str):
        return D
    if not isinstance(D, _C.Format):
        return _C.name_of(D) if _C.format_of(D) is not None else name_of(format_of(D))
    if (known := _NAMES.get(D)) is not None:
        return known
    fmt = _C.Format(D)  # callers never change it
    name = name_of_format(fmt)
    if len(_NAMES) >= MAX_NAMES:
        _NAMES.clear()
    _NAMES[fmt] = name
    return name


def _constant_name(D: torch.dtype | str) -> str | None:
    """Return the format's name for a graph; None if it has none, and eager code raises the
    error."""
    try:
        if isinstance(D, torch.dtype):
            return _C.name_of(D)
        return D if format_of(D) else None
    except (TypeError, ValueError):
        return None


def _constant_mode(rounding: str | int | None) -> str | None:
    try:
        return "" if rounding is None else mode_name(rounding)
    except ValueError:
        return None


def mark_constant(function: Callable) -> Callable:
    """Tell dynamo to call a function while it traces, and to take the result as a constant.

    ``torch._dynamo.assume_constant_result`` sets the same mark, but imports all of dynamo.
    """
    function._dynamo_marked_constant = True
    return function


mark_constant(_constant_name)
mark_constant(_constant_mode)


def by_parts(x: torch.Tensor, rounded: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Round the real and the imaginary part of a complex tensor by ``rounded``."""
    parts = rounded(torch.view_as_real(x.resolve_conj()))
    return torch.view_as_complex(parts if parts.stride(-1) == 1 else parts.contiguous())


def check_generator(generator: object, x: object) -> None:
    """Refuse an object that is no generator of the CPU or of x's device.

    Raises:
        TypeError: another object, or a generator of another device.
    """
    if generator is None or _may_draw(generator, x):
        return
    is_one = isinstance(generator, torch.Generator)
    got = f"one of {generator.device}" if is_one else repr(generator)
    raise TypeError(f"expected a torch.Generator of the CPU, or of x's device, but got {got}")


def _may_draw(generator: object, x: object) -> bool:
    if not isinstance(generator, torch.Generator):
        return False
    if generator.device.type == "cpu" or not isinstance(x, torch.Tensor):
        return generator.device.type == "cpu"
    if generator.device.type != x.device.type:
        return False
    return generator.device.index in (None, x.device.index)  # torch.Generator("cuda") is any GPU's


def floats_of(x):
    """Convert a tensor's or an array's integers to float64."""
    if x.itemsize == 8 and 0 not in x.shape:
        expect_within_float64(int(x.min()), int(x.max()))
    return x.double() if isinstance(x, torch.Tensor) else x.astype(float)


def expect_within_float64(lowest: int, highest: int) -> None:
    """Refuse integers that float64 cannot hold exactly."""
    if max(-lowest, highest) > 2**53:
        raise ValueError(
            f"expected integers of at most 2**53 in an array or list, which float64 has exactly, "
            f"but got {lowest if -lowest > highest else highest}; "
            "chop each as a Python integer, or convert them to float64"
        )


def has_integers(x: torch.Tensor) -> bool:
    """Whether a tensor's integers are rounded as float64."""
    return x.dtype in _INTEGERS


def round_tensor(
    x: torch.Tensor,
    name: str,
    mode: str | None,
    flip_prob: float = 0.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Round a tensor in eager code. The mode is checked, or None for the format's own."""
    if x.dtype.is_complex and not x.is_nested:
        return by_parts(x, lambda parts: round_tensor(parts, name, mode, flip_prob, generator))
    if has_integers(x):
        x = floats_of(x)
    if x.dtype not in FLOATS:
        raise TypeError(
            f"expected a tensor of floating-point numbers or integers to chop, but got {x.dtype}"
        )
    try:
        return _C.chop(x, name, mode, flip_prob, generator)
    except NotImplementedError:
        if x.is_nested:
            raise NotImplementedError(
                "expected a dense tensor to chop, but got a nested one; chop each of x.unbind()"
            ) from None
        raise


def record(
    x: torch.Tensor,
    D: torch.dtype | str | _C.Format,
    rounding: str | int | None,
    generator: torch.Generator | None,
    flip_prob: float,
    eager: Callable,
) -> torch.Tensor:
    """Round a tensor while dynamo traces: one operator, with constants for format and mode.

    The operator looks up the mode of a block when it runs. Calls that no graph takes go to
    ``eager``.
    """
    # A graph would not see later changes of a format.
    name = _constant_name(D) if isinstance(D, (str, torch.dtype)) else None
    mode = _constant_mode(rounding)
    if name is None or mode is None:
        torch._dynamo.graph_break(
            msg="chop in a graph takes a dtype of a number format or a name, and a name of a "
            "rounding mode"
        )
        return eager(x, D, rounding, generator, flip_prob)
    return torch.ops.torch_dtypes.chop.default(
        x, name, mode or None, flip_prob, generator=generator
    )


def round_to_grid(
    x: torch.Tensor,
    D: torch.dtype | str,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> torch.Tensor:
    """Round a dense tensor of floats to a format, as ``chop`` does, in graphs too.

    Args:
        x: a tensor of float16, bfloat16, float32 or float64.
        D: a dtype of this package or the name of a format, not of blocks or integers.
        rounding: a mode, as in ``chop``; default: the mode of a block, else the format's own.
        generator: a generator of the CPU or of x's device; default: torch's.
        flip_prob: as in ``chop``.
    """
    if torch.compiler.is_dynamo_compiling():
        return record(x, D, rounding, generator, flip_prob, round_to_grid)
    check_generator(generator, x)
    return round_tensor(x, name_of(D), find_mode(rounding), flip_prob, generator)


def parse_call(name: str, rounding: str | None) -> _C.Format:
    """Return the format of the operator's arguments, cached by the operator."""
    fmt = format_of(name)
    if rounding is not None:
        override_rounding(fmt, rounding)
    return fmt


def _fake(x, format, rounding=None, flip_prob=0.0, *, generator=None):
    """Return an empty tensor of the operator's result, for fake tensors."""
    parse_call(format, rounding)  # to raise its errors
    if x.dtype not in FLOATS:
        raise TypeError(
            f"expected a tensor of float16, bfloat16, float32 or float64 to chop, but got {x.dtype}"
        )
    return torch.empty_like(x)  # whose dimensions are in the kernel's order


def _fake_blocks(x, element, rounding, size, axis, scale, rule, *, above=None, generator=None):
    """Return an empty tensor of the result of chop_blocks, for fake tensors."""
    parse_call(element, rounding)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def install() -> None:
    """Register the operator's grammar of names and its fake kernels.

    The kernels: aten/src/ATen/native/formats/chop/ChopOperator.cpp.
    """
    _C.set_format_parser(parse_call)
    torch.library.register_fake("torch_dtypes::chop", _fake)
    torch.library.register_fake(
        "torch_dtypes::draw_seed", lambda like: torch.empty((), dtype=torch.int64)
    )
    torch.library.register_fake("torch_dtypes::chop_blocks", _fake_blocks)
