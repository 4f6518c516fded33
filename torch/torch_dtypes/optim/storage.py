"""How an optimizer keeps values between steps: in tensors of a dtype, as floats rounded to a format, or as they were computed."""

from __future__ import annotations

import functools
import math

import torch

from .. import _C
from ..chopping import chop
from ..formats import format_of
from ..rounding import rounding as rounding_block

# Stock dtypes as formats, for the modes that a stock cast lacks.
_STOCK = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float8_e5m2: "q52", torch.float8_e4m3fn: "e4m3fn",
    torch.float8_e5m2fnuz: "e5m2fnuz", torch.float8_e4m3fnuz: "e4m3fnuz",
}  # fmt: skip
_EXACT = (torch.float32, torch.float64)


class Storage:
    """Where values of one kind are kept.

    Attributes:
        dtype: of the tensors, or ``None``: that of the values.
        format: of the values, or ``None`` where they are kept as they were computed.
        is_given: whether there is a dtype or a format at all.
    """

    def __init__(self, name: str, given: object) -> None:
        self.dtype = given if isinstance(given, torch.dtype) else None
        if self.dtype is not None and not self.dtype.is_floating_point:
            raise ValueError(f"expected {name} in a floating-point dtype or another number format, but got {given}")
        self._arguments = name, given
        self.is_given = given is not None
        self.format, self._target = None, None
        if self.is_given and self.dtype not in _EXACT:
            self._target = _STOCK.get(self.dtype, given)
            try:
                self.format = self._target if isinstance(self._target, _C.Format) else format_of(self._target)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from error

    @property
    def is_exact(self) -> bool:
        """Whether floats are kept as they are."""
        return self.format is None

    def __repr__(self) -> str:
        return str(self._arguments[1])

    def __reduce__(self):
        return Storage, self._arguments

    def kept(self, values: torch.Tensor, mode: str | None) -> torch.Tensor:
        """What is kept of float values: rounded once, by ``mode`` or the format's own. Values that are exact may be given back themselves."""
        if self.dtype is not None and _C.format_of(self.dtype) is not None:
            if mode is None:
                return values.to(self.dtype)
            with rounding_block(mode):
                return values.to(self.dtype)
        if self._target is not None:
            values = chop(values, self._target, mode)
        return values if self.dtype is None else values.to(self.dtype)

    def values(self, values: torch.Tensor, mode: str | None = None) -> torch.Tensor:
        """Float values after they were kept."""
        return self.kept(values, mode).to(values.dtype)

    def overflow_limit(self) -> float | None:
        """See :func:`overflow_limit`."""
        return overflow_limit(self.format)


@functools.cache
def of_dtype(dtype: torch.dtype) -> Storage:
    """Where a parameter of a dtype keeps its values."""
    return Storage("weight", dtype)


@functools.lru_cache(maxsize=256)
def overflow_limit(fmt: _C.Format | None) -> float | None:
    """The magnitude from which on a value counts as overflow, beside infinities and NaN: infinity where overflow gives those, the largest
    number where the format saturates (a posit, fixed point, a float that does); ``None`` where it wraps and leaves no trace."""
    if fmt is None:
        return math.inf
    if fmt.overflow == _C.Overflow.wrap:
        return None
    if fmt.kind == _C.Kind.float and fmt.overflow != _C.Overflow.saturate:
        return math.inf
    return _C.decode_exact(fmt, torch.tensor([fmt.max_code])).item()


def compute_dtype(*dtypes: torch.dtype | None) -> torch.dtype:
    """The dtype in which a step computes: float32, or float64 where a value of one of the dtypes is not in it."""
    for dtype in dtypes:
        fmt = _C.format_of(dtype) if dtype is not None else None
        if dtype is torch.float64 or (fmt is not None and not fmt.fits_float):
            return torch.float64
    return torch.float32
