"""How an optimizer keeps values between steps: in tensors of a dtype, as floats rounded to a
format, or as they were computed."""

from __future__ import annotations

import functools
import math

import torch

from .. import _C
from ..formats.caches import clearable_cache
from ..policies.rounding import rounding_block
from ..quantization import BlockFormat, FormatTarget, target
from ..targets.base import saturates

_EXACT = (torch.float32, torch.float64)


class Storage:
    """Where values of one kind are kept.

    Attributes:
        dtype: of the tensors, or ``None``: that of the values.
        target: what values are rounded to, or ``None`` where they are kept as they were computed.
        is_given: whether there is a dtype or a format at all.
    """

    def __init__(self, name: str, given: object) -> None:
        self.dtype = given if isinstance(given, torch.dtype) else None
        if self.dtype is not None and not self.dtype.is_floating_point:
            raise ValueError(
                f"expected {name} in a floating-point dtype or another number format, but got "
                f"{given}"
            )
        self.is_given = given is not None
        self.target = None
        if self.is_given and self.dtype not in _EXACT:
            try:
                self.target = target(given)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from error
        self._is_ours = self.dtype is not None and _C.format_of(self.dtype) is not None

    @property
    def is_exact(self) -> bool:
        """Whether floats are kept as they are."""
        return self.target is None

    @property
    def format(self) -> _C.Format | None:
        """The format of each value by itself; ``None`` where there is none (blocks, integers) or
        values are exact."""
        return self.target.format if isinstance(self.target, FormatTarget) else None

    def __repr__(self) -> str:
        return str(self.dtype if self.dtype is not None else self.target and self.target.name)

    def keep(self, values: torch.Tensor, mode: str | None) -> torch.Tensor:
        """What is kept of float values: rounded once, by ``mode`` or the format's own. Values that
        are exact may be given back themselves."""
        return self._round_values(values, mode, self._scale(values))

    def keep_positive(self, values: torch.Tensor, mode: str | None) -> torch.Tensor:
        """Keeps float values as ``kept`` does, but a value above 0 never as 0: it becomes the
        smallest number at its place.

        That is the format's smallest positive number, times the scale of the value's block or
        tensor where there is one.
        """
        if self.is_exact:
            return self.keep(values, mode)
        scale = self._scale(values)
        kept = self._round_values(values, mode, scale)
        # A GPU would be waited for, and the ranks of a DTensor must go the same way.
        if (
            values.is_cpu
            and not hasattr(values, "device_mesh")
            and kept.numel()
            and kept.amin() > 0
        ):
            return kept
        lost = (kept == 0) & (values > 0)
        return torch.where(lost, self._round_values(values, "up", scale), kept)

    def _round_values(
        self, values: torch.Tensor, mode: str | None, scale: torch.Tensor | None
    ) -> torch.Tensor:
        """Rounds and keeps values, by the scale that ``_scale`` gave for them."""
        if self._is_ours:
            if mode is None:
                return values.to(self.dtype)
            with rounding_block(mode):
                return values.to(self.dtype)
        if self.target is not None:
            made = (
                self.target.fitting(values.dim())
                if isinstance(self.target, BlockFormat)
                else self.target
            )
            values = made.quantize(values, scale=scale, rounding=mode)
        return self.store(values)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError where the format cuts blocks, does not pad, and a tensor of this shape
        would end in a shorter one."""
        if isinstance(self.target, BlockFormat):
            self.target.fitting(len(shape)).check_shape(shape)

    def _scale(self, values: torch.Tensor) -> torch.Tensor | None:
        """Returns the scale of the tensor's largest magnitude for integers, ``None`` for other
        formats."""
        if self.target is None or not self.target.needs_scale:
            return None
        largest = (
            torch.linalg.vector_norm(values, math.inf) if values.numel() else values.new_zeros(())
        )
        scale = largest / self.target.full_scale
        return torch.where(scale > 0, scale, torch.ones_like(scale))

    def holds(self, values: torch.Tensor) -> bool:
        """Whether values would be kept as they are."""
        if self.is_exact:
            return True
        kept = self.values(values, "toward_zero")
        return bool(((kept == values) | (kept.isnan() & values.isnan())).all())

    def store(self, values: torch.Tensor) -> torch.Tensor:
        """What is kept of values that are rounded already."""
        return values if self.dtype is None else values.to(self.dtype)

    def values(self, values: torch.Tensor, mode: str | None = None) -> torch.Tensor:
        """Float values after they were kept."""
        return self.keep(values, mode).to(values.dtype)

    def overflow_limit(self) -> float | None:
        """See :func:`overflow_limit`."""
        return overflow_limit(self.format)


@clearable_cache
def of_dtype(dtype: torch.dtype) -> Storage:
    """Where a parameter of a dtype keeps its values."""
    return Storage("weight", dtype)


@functools.lru_cache(maxsize=256)
def overflow_limit(fmt: _C.Format | None) -> float | None:
    """The magnitude from which on a value counts as overflow, beside infinities and NaN: infinity
    where overflow gives those, the largest number where the format saturates (a posit, a takum,
    fixed point, a float that does); ``None`` where it wraps and leaves no trace."""
    if fmt is None:
        return math.inf
    if fmt.overflow == _C.Overflow.wrap:
        return None
    if fmt.kind == _C.Kind.table and not saturates(fmt):
        return math.inf
    if fmt.kind == _C.Kind.float and fmt.overflow != _C.Overflow.saturate:
        return math.inf
    return fmt.largest
