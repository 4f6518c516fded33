"""Storage of an optimizer's values between steps: in tensors of a dtype, as floats rounded to a
format, or unchanged."""

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
    """Rounds and stores the values of one kind: weights, gradients, masters or a state.

    Attributes:
        dtype: the dtype of the stored tensors, or ``None``: the values' own.
        target: values are rounded to it, or ``None``: they are stored unchanged.
        is_given: False if the user gave neither a dtype nor a format.
    """

    def __init__(self, name: str, value: object) -> None:
        self.dtype = value if isinstance(value, torch.dtype) else None
        if self.dtype is not None and not self.dtype.is_floating_point:
            raise ValueError(
                f"expected {name} as a floating-point dtype or another number format, but got "
                f"{value}"
            )
        self.is_given = value is not None
        self.target = None
        if self.is_given and self.dtype not in _EXACT:
            try:
                self.target = target(value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from error
        self._has_format = self.dtype is not None and _C.format_of(self.dtype) is not None

    @property
    def is_exact(self) -> bool:
        """Whether values are stored unchanged."""
        return self.target is None

    @property
    def format(self) -> _C.Format | None:
        """The format of each single value. ``None`` for blocks, integers and exact values."""
        return self.target.format if isinstance(self.target, FormatTarget) else None

    def __repr__(self) -> str:
        return str(self.dtype if self.dtype is not None else self.target and self.target.name)

    def keep(self, values: torch.Tensor, mode: str | None) -> torch.Tensor:
        """Round float values once, by ``mode`` or the format's own, to tensors for storage. Exact
        values may be returned themselves."""
        return self._round_values(values, mode, self._scale(values))

    def keep_positive(self, values: torch.Tensor, mode: str | None) -> torch.Tensor:
        """Round as ``keep`` does, but never a value above 0 to 0: it becomes at least the smallest
        number at its place.

        That is the format's smallest positive number, times the scale of the value's block or
        tensor if it has one.
        """
        if self.is_exact:
            return self.keep(values, mode)
        scale = self._scale(values)
        kept = self._round_values(values, mode, scale)
        # A test would wait for a GPU, and the ranks of a DTensor must all take the same branch.
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
        """Round values by the scale that ``_scale`` returned for them."""
        if self._has_format:
            if mode is None:
                return values.to(self.dtype)
            with rounding_block(mode):
                return values.to(self.dtype)
        if self.target is not None:
            fitted = (
                self.target.adapt_to(values.dim())
                if isinstance(self.target, BlockFormat)
                else self.target
            )
            values = fitted.quantize(values, scale=scale, rounding=mode)
        return self.store(values)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if a tensor of this shape would end in a block too short for a format
        that does not pad."""
        if isinstance(self.target, BlockFormat):
            self.target.adapt_to(len(shape)).check_shape(shape)

    def _scale(self, values: torch.Tensor) -> torch.Tensor | None:
        """Return the scale of an integer format from the tensor's largest magnitude, ``None`` for
        other formats."""
        if self.target is None or not self.target.needs_scale:
            return None
        largest = (
            torch.linalg.vector_norm(values, math.inf) if values.numel() else values.new_zeros(())
        )
        scale = largest / self.target.full_scale
        return torch.where(scale > 0, scale, torch.ones_like(scale))

    def holds(self, values: torch.Tensor) -> bool:
        """Return whether the format holds all values exactly."""
        if self.is_exact:
            return True
        kept = self.values(values, "toward_zero")
        return bool(((kept == values) | (kept.isnan() & values.isnan())).all())

    def store(self, values: torch.Tensor) -> torch.Tensor:
        """Convert values that are already rounded to the dtype for storage."""
        return values if self.dtype is None else values.to(self.dtype)

    def values(self, values: torch.Tensor, mode: str | None = None) -> torch.Tensor:
        """Round values as ``keep`` does, and return them in their own dtype."""
        return self.keep(values, mode).to(values.dtype)

    def overflow_limit(self) -> float | None:
        """See :func:`overflow_limit`."""
        return overflow_limit(self.format)


@clearable_cache
def of_dtype(dtype: torch.dtype) -> Storage:
    """Return the storage of weights in parameters of a dtype."""
    return Storage("weight", dtype)


@functools.lru_cache(maxsize=256)
def overflow_limit(fmt: _C.Format | None) -> float | None:
    """Return the magnitude from which a value counts as overflow, as infinities and NaN always do.

    A format whose overflow gives infinities or NaN has infinity. One that saturates (a posit, a
    takum, fixed point, some floats) has its largest number. One that wraps, where overflow leaves
    no trace, has ``None``.
    """
    if fmt is None:
        return math.inf
    if fmt.overflow == _C.Overflow.wrap:
        return None
    if fmt.kind == _C.Kind.table and not saturates(fmt):
        return math.inf
    if fmt.kind == _C.Kind.float and fmt.overflow != _C.Overflow.saturate:
        return math.inf
    return fmt.largest
