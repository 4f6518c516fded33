"""Integers with a scale and a zero point: affine and symmetric quantisation of 2 to 16 bits.

Source: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference" (arXiv 1712.05877), section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..formats.arguments import boolean, dimension, find_mode, integer, mode_name, outline
from ..formats.patterns import name_pattern
from .base import (
    INDIFFERENT_IN_NARROW,
    Target,
    broadcasting,
    check_clamped,
    check_dense,
    check_tensor,
    is_careful,
    is_eager,
    scale_like,
    times,
)
from .gradients import straight_through
from .grid import round_to_grid

__all__ = ["IntegerFormat", "integer_format"]

_NAME = name_pattern(r"(u)?int(\d+)(_affine|_symmetric)?(_narrow)?(?:_axis(minus)?(\d+))?")

# Modes that are stock operators on float integers; they keep NaN.
_STOCK = {
    "nearest_even": torch.round_,
    "up": torch.ceil_,
    "down": torch.floor_,
    "toward_zero": torch.trunc_,
}


@dataclass(frozen=True, repr=False)
class IntegerFormat(Target):
    """Integers from ``lowest`` to ``largest``: q stands for (q - zero_point) * scale. Made by
    ``integer_format``."""

    bits: int
    signed: bool
    symmetric: bool
    narrow: bool
    axis: int | None
    rounding: str
    lowest: int = field(init=False, compare=False)
    largest: int = field(init=False, compare=False)
    full_scale: int = field(init=False, compare=False)

    def __post_init__(self):
        low, high = (
            (-(1 << self.bits - 1) + self.narrow, (1 << self.bits - 1) - 1)
            if self.signed
            else (0, (1 << self.bits) - 1)
        )
        object.__setattr__(self, "lowest", low)
        object.__setattr__(self, "largest", high)
        object.__setattr__(self, "full_scale", high)

    @property
    def name(self) -> str:
        name = f"{'' if self.signed else 'u'}int{self.bits}"
        if self.symmetric != self.signed:
            name += "_symmetric" if self.symmetric else "_affine"
        name += "_narrow" if self.narrow else ""
        if self.axis is not None:
            name += f"_axis{self.axis}".replace("-", "minus")
        return name if self.rounding == "nearest_even" else f"{name}_{self.rounding}"

    @property
    def needs_scale(self) -> bool:
        return True

    @property
    def storage(self) -> torch.dtype:
        """The smallest stock integer dtype that holds them all and that operators take: of
        ``encode``'s result."""
        if self.bits <= 8:
            return torch.int8 if self.signed else torch.uint8
        return torch.int16 if self.signed or self.bits < 16 else torch.int32

    def with_rounding(self, mode: str | int) -> IntegerFormat:
        return IntegerFormat(
            self.bits, self.signed, self.symmetric, self.narrow, self.axis, mode_name(mode)
        )

    def quantize(
        self, x, *, scale=None, zero_point=None, rounding=None, generator=None, clamped="pass"
    ):
        cut = check_clamped(clamped)
        shifted, factor, inside = self._shifted(x, scale, zero_point, rounding, generator, cut)
        return straight_through(x, shifted.mul_(factor), inside)

    def encode(
        self,
        x: torch.Tensor,
        *,
        scale: float | torch.Tensor,
        zero_point: int | torch.Tensor | None = None,
        rounding: str | int | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """The integers themselves, in ``storage``; NaN becomes the zero point. Arguments and errors
        as ``quantize``'s. No gradient."""
        shifted, _, _ = self._shifted(
            x.detach() if isinstance(x, torch.Tensor) else x,
            scale,
            zero_point,
            rounding,
            generator,
            False,
        )
        point = self._zero_point(zero_point, x)
        return (shifted.nan_to_num(nan=0.0) + (0 if point is None else point)).to(self.storage)

    def decode(
        self,
        codes: torch.Tensor,
        *,
        scale: float | torch.Tensor,
        zero_point: int | torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(codes - zero_point) * scale, in float32: what ``quantize`` gives for the values that
        ``encode`` took."""
        if (
            not isinstance(codes, torch.Tensor)
            or codes.dtype.is_floating_point
            or codes.dtype.is_complex
            or codes.is_quantized
        ):
            raise TypeError(
                f"expected a tensor of integers to decode from {self.name}, but got "
                f"{outline(codes)}"
            )
        check_dense(codes, f"decode from {self.name}")
        values = codes.float()
        point = self._zero_point(zero_point, values)
        return (values if point is None else values - point) * scale_like(scale, values, self.axis)

    def _shifted(self, x, scale, zero_point, rounding, generator, cut):
        """The integers less the zero point, as floats (NaN where x is); the scale; where nothing
        was clamped (if that is asked for)."""
        check_tensor(x, self)
        check_dense(x, f"quantise to {self.name}")
        if scale is None:
            raise ValueError(
                f"expected a scale for {self.name}, but got None: integers alone say no "
                f"magnitude. Give scale=, for example the tensor's absmax / {self.largest}, or "
                f"let torch_dtypes.calibration({self.name!r}) see tensors and take its .scale"
            )
        factor = scale_like(scale, x, self.axis)
        point = self._zero_point(zero_point, x)
        y = times(
            x.detach().to(factor.dtype),
            factor.reciprocal(),
            is_careful(False, self.rounding, rounding, INDIFFERENT_IN_NARROW),
        )
        if self._mode(rounding) in _STOCK:
            whole = _STOCK[self._mode(rounding)](y)
        else:
            # Integers are a float format's subnormals and first binade: it rounds them faster than
            # fixed point and keeps NaN. With as many fraction bits as they have, it holds each of
            # them less any zero point, and what is beyond stays beyond.
            wide = f"e2m{self.bits}_biasminus{self.bits - 1}" + (
                "" if self.rounding == "nearest_even" else f"_{self.rounding}"
            )
            whole = round_to_grid(y, wide, rounding, generator)
        low, high = (
            (self.lowest, self.largest)
            if point is None
            else (self.lowest - point, self.largest - point)
        )
        inside = ~((whole < low) | (whole > high)) if cut else None
        if isinstance(low, torch.Tensor) or not is_eager():
            whole = torch.clamp(whole, low, high)
        else:
            whole.clamp_(low, high)
        return whole.add_(0.0), factor, inside  # no integer is -0

    def _mode(self, rounding: str | int | None) -> str | None:
        """The mode of this call; None where only the graph's run knows it."""
        if torch.compiler.is_dynamo_compiling():
            return rounding if rounding is not None and rounding in _STOCK else None
        return find_mode(rounding) or self.rounding

    def _zero_point(self, zero_point, x: torch.Tensor) -> int | torch.Tensor | None:
        """None if it is 0; a tensor in a shape that broadcasts to x, in x's compute type."""
        if zero_point is None:
            return None
        if self.symmetric and not (isinstance(zero_point, int) and zero_point == 0):
            raise ValueError(
                f"expected no zero_point with {self.name}, which is symmetric, but got "
                f"{zero_point!r}; {self._affine()} has one"
            )
        if not isinstance(zero_point, torch.Tensor):
            return integer("zero_point", zero_point, self.lowest, self.largest) or None
        if (
            zero_point.dtype.is_floating_point
            or zero_point.dtype.is_complex
            or zero_point.dtype == torch.bool
        ):
            raise TypeError(
                "expected zero_point as an integer or a tensor of integers, but got one of "
                f"{zero_point.dtype}"
            )
        return broadcasting(zero_point, x, "zero_point", self.axis)

    def _affine(self) -> str:
        return IntegerFormat(
            self.bits, self.signed, False, self.narrow, self.axis, self.rounding
        ).name


def integer_format(
    bits: int,
    signed: bool = True,
    *,
    symmetric: bool | None = None,
    narrow: bool = False,
    axis: int | None = None,
    rounding: str | int = "nearest_even",
) -> IntegerFormat:
    """Integers of ``bits`` bits with a scale and, if not symmetric, a zero point: a target for
    rules, ``chop`` and ``quantize``.

    ``quantize(x, scale=s, zero_point=z)`` is (clamp(round(x * (1/s)) + z) - z) * s, with reciprocal
    and products in float32: to nearest even the bits of ``torch.fake_quantize_per_tensor_affine``
    and ``fake_quantize_per_channel_affine`` of float32 tensors, and where z is 0 those of
    ``quantize_per_tensor`` and ``quantize_per_channel`` (which add z before they round, so that
    beside ties they may differ by one). Infinities become the largest or lowest integer. NaN, which
    no integer is, stays NaN, so that what diverges is seen (stock's fake quantisation gives the
    lowest integer). There is no minus zero.

    Names: ``"int8"``, ``"uint4"``; ``_affine`` or ``_symmetric`` where that is not the default,
    ``_narrow``, ``_axis0``, a rounding mode.

    Args:
        bits: 2 to 16.
        signed: -2^(bits-1) to 2^(bits-1) - 1; else 0 to 2^bits - 1.
        symmetric: the zero point is 0 always. Default: as ``signed``.
        narrow: the lowest integer is the largest one's negative (-127 in 8 bits). Signed only.
        axis: scales and zero points of one dimension lie along this dimension of x (per channel);
            others broadcast to x.
        rounding: one of ``ROUNDING_MODES``, or Pychop's number.

    Raises:
        ValueError: a parameter out of range.
        TypeError: one of another type.

    Example::

        >>> torch_dtypes.integer_format(8).quantize(torch.tensor([0.12, 3.0]), scale=0.02)
        tensor([0.1200, 2.5400])
    """
    bits = integer("bits", bits, 2, 16)
    symmetric = boolean("signed", signed) if symmetric is None else boolean("symmetric", symmetric)
    if boolean("narrow", narrow) and not signed:
        raise ValueError(
            "expected narrow=True with signed=True only: it leaves out the lowest integer, which "
            "has no negative"
        )
    axis = None if axis is None else dimension("axis", axis)
    return IntegerFormat(bits, signed, symmetric, narrow, axis, mode_name(rounding))


def parse(name: str, mode: str) -> IntegerFormat | None:
    """The integers of a name without rounding mode; None: no such name."""
    if not (match := _NAME.fullmatch(name)):
        return None
    unsigned, bits, kind, narrow, minus, axis = match.groups()
    symmetric = None if kind is None else kind == "_symmetric"
    where = None if axis is None else int(axis) * (-1 if minus else 1)
    return integer_format(
        int(bits), not unsigned, symmetric=symmetric, narrow=bool(narrow), axis=where, rounding=mode
    )
