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
    check_clamped,
    check_dense,
    check_tensor,
    is_careful,
    is_eager,
    reshape_to_broadcast,
    scale_like,
    times,
)
from .gradients import straight_through
from .grid import round_to_grid

__all__ = ["IntegerFormat", "integer_format"]

_NAME = name_pattern(r"(u)?int(\d+)(_affine|_symmetric)?(_narrow)?(?:_axis(minus)?(\d+))?")

# Modes with a stock operator on float integers that keeps NaN.
_STOCK = {
    "nearest_even": torch.round_,
    "up": torch.ceil_,
    "down": torch.floor_,
    "toward_zero": torch.trunc_,
}


@dataclass(frozen=True, repr=False)
class IntegerFormat(Target):
    """Integers from ``lowest`` to ``largest``; the value of q is (q - zero_point) * scale.
    ``integer_format`` makes it."""

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
        """The dtype of ``encode``'s result: the smallest stock integer dtype that holds all
        integers and that operators take."""
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
        shifted, factor, inside = self._round_shifted(
            x, scale, zero_point, rounding, generator, cut
        )
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
        """Return the integers themselves, in ``storage``; NaN becomes the zero point. Arguments and
        errors are those of ``quantize``. No gradient."""
        shifted, _, _ = self._round_shifted(
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
        """Return (codes - zero_point) * scale, in float32: the result of ``quantize`` for the
        values that ``encode`` took."""
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

    def _round_shifted(self, x, scale, zero_point, rounding, generator, cut):
        """Return three tensors: the rounded integers less the zero point, as floats (NaN where x is
        NaN); the scale; and, if ``cut``, where nothing was clamped."""
        check_tensor(x, self)
        check_dense(x, f"quantise to {self.name}")
        if scale is None:
            raise ValueError(
                f"expected a scale for {self.name}, but got None; give scale=, for example the "
                f"tensor's absmax / {self.largest}, or the .scale of "
                f"torch_dtypes.calibration({self.name!r}) after it has seen tensors"
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
            # Integers are a float format's subnormals and first binade. The float codec is faster
            # than fixed point and keeps NaN. With as many fraction bits as the integers have bits,
            # it holds each of them less any zero point, and numbers out of range stay out of range.
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
        """Return the mode of this call; None where only the graph's run knows it."""
        if torch.compiler.is_dynamo_compiling():
            return rounding if rounding is not None and rounding in _STOCK else None
        return find_mode(rounding) or self.rounding

    def _zero_point(self, zero_point, x: torch.Tensor) -> int | torch.Tensor | None:
        """Return the zero point as a tensor that broadcasts to x, in x's compute dtype; None if it
        is 0."""
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
        return reshape_to_broadcast(zero_point, x, "zero_point", self.axis)

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
    """Build an integer format, a target for rules, ``chop`` and ``quantize``: integers of ``bits``
    bits with a scale and, if not symmetric, a zero point.

    ``quantize(x, scale=s, zero_point=z)`` is (clamp(round(x * (1/s)) + z) - z) * s, with reciprocal
    and products in float32. To nearest even, these are the bits of
    ``torch.fake_quantize_per_tensor_affine`` and ``fake_quantize_per_channel_affine`` of float32
    tensors. Where z is 0 they are also those of ``quantize_per_tensor`` and
    ``quantize_per_channel``, which add z before they round and so may differ by one next to ties.
    Infinities become the largest or lowest integer. NaN stays NaN, though no integer is NaN, so
    that divergence stays visible (PyTorch's fake quantisation gives the lowest integer). There is
    no minus zero.

    Names: ``"int8"``, ``"uint4"``, then ``_affine`` or ``_symmetric`` if that is not the default,
    ``_narrow``, ``_axis0``, a rounding mode. In ``"int4_group128"`` and ``"uint4_group128_axis0"``
    each 128 numbers along the last (or that) dimension have a scale of their own, which follows
    from them; these take no ``scale``.

    Args:
        bits: the bits of an integer, 2 to 16.
        signed: whether integers go from -2^(bits-1) to 2^(bits-1) - 1; else from 0 to 2^bits - 1.
        symmetric: whether the zero point is always 0. Default: as ``signed``.
        narrow: whether the lowest integer is the negative of the largest (-127 in 8 bits). Signed
            only.
        axis: the dimension of x along which 1-d scales and zero points lie (per channel); others
            broadcast to x.
        rounding: one of ``ROUNDING_MODES``, or Pychop's number.

    Raises:
        ValueError: a parameter out of range.
        TypeError: a parameter of another type.

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


def scale_of(
    target: Target, lows: torch.Tensor, highs: torch.Tensor, power_of_two: bool, margin: int = 0
):
    """Return the scale at which the numbers from lows to highs just fit, and the zero point of
    affine integers. The scale is NaN where a bound is infinite or NaN."""
    affine = isinstance(target, IntegerFormat) and not target.symmetric
    if affine:
        # The range includes 0.
        lows, highs = lows.double().clamp(max=0.0), highs.double().clamp(min=0.0)
        scale = (highs - lows) / (target.largest - target.lowest)
    else:
        scale = torch.maximum(highs, -lows).double() / target.full_scale
    zero_or_nan = scale - scale
    scale = torch.where(scale == 0, 1.0, scale)
    if margin:
        scale = scale * 2.0**margin
    limits = torch.finfo(torch.float32)
    scale = scale.clamp(limits.smallest_normal, 2.0**127 if power_of_two else limits.max)
    if power_of_two:
        fraction, exponent = torch.frexp(scale)
        scale = torch.ldexp(torch.ones_like(scale), exponent - (fraction == 0.5).int())
    scale = (scale + zero_or_nan).float()
    if not affine:
        return scale, None
    zero_point = (
        (target.lowest - (lows / scale).round())
        .nan_to_num(0.0)
        .clamp(target.lowest, target.largest)
    )
    return scale, zero_point.to(torch.int32)


def parse(name: str, mode: str) -> IntegerFormat | None:
    """Parse an integer format's name without rounding mode; None if it is no such name."""
    if not (match := _NAME.fullmatch(name)):
        return None
    unsigned, bits, kind, narrow, minus, axis = match.groups()
    symmetric = None if kind is None else kind == "_symmetric"
    where = None if axis is None else int(axis) * (-1 if minus else 1)
    return integer_format(
        int(bits), not unsigned, symmetric=symmetric, narrow=bool(narrow), axis=where, rounding=mode
    )
