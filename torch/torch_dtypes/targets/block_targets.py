"""Block formats: targets of numbers that share a scale in blocks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from .. import _C
from ..formats import naming
from ..formats.arguments import find_mode, set_rounding
from ..formats.dtypes import format_of
from ..formats.patterns import name_pattern
from . import block_shapes, micro_exponents
from .base import (
    COMPUTED,
    INDIFFERENT_IN_NARROW,
    Target,
    check_clamped,
    check_dense,
    check_tensor,
    full_scale_of,
    is_careful,
    is_eager,
    refuse_zero_point,
    scale_like,
    times,
)
from .block_scales import (
    CHOOSING_RULES,
    FLOAT_RULES,
    POWER_RULES,
    ScaleFormat,
    brought_to,
    choose_scale,
    factor_of,
    float_scale,
    mantissa_threshold,
    power_scale,
    scale_format,
    tensor_scale,
)
from .block_shapes import BlockShape
from .gradients import straight_through
from .grid import round_to_grid

# Element, scale, size, and whether the tensor has a scale on top.
PRESETS = {
    "mxfp8_e4m3": ("e4m3fn_saturate", "e8m0", 32, False),
    "mxfp8_e5m2": ("e5m2_saturate", "e8m0", 32, False),
    "mxfp6_e3m2": ("e3m2finite", "e8m0", 32, False),
    "mxfp6_e2m3": ("e2m3finite", "e8m0", 32, False),
    "mxfp4": ("e2m1finite", "e8m0", 32, False),
    "mxint8": ("fixed1_6_symmetric", "e8m0", 32, False),
    "mxint4": ("fixed1_2_symmetric", "e8m0", 32, False),
    "nvfp4": ("e2m1finite", "e4m3fn_saturate", 16, True),
    "nvfp4_16x16": ("e2m1finite", "e4m3fn_saturate", "16x16", True),
    "nvint4": ("fixed3_0_symmetric", "e4m3fn_saturate", 16, True),
    "amdfp4": ("e2m1finite", "ue5m3fn_saturate", 16, False),
    "hif4": (micro_exponents.ELEMENT, "hif4", micro_exponents.SIZE, False),
}
_LARGEST_BLOCK = 1024  # numbers along one dimension that the kernel takes
_BLOCK_FLOAT = name_pattern(r"fixed1_(\d+)_symmetric")


def largest_exponent(fmt: _C.Format) -> int:
    """Return the exponent of a format's largest power of two; for posits, of the largest with the
    shortest regime."""
    return math.frexp(full_scale_of(fmt))[1] - 1


def _one_scale(scale: object, x: torch.Tensor) -> torch.Tensor:
    """Return the scale of a whole tensor without dimensions, in x's compute dtype."""
    above = scale_like(scale, x)
    if above.numel() != 1:
        raise ValueError(
            "expected one number as the scale of the whole tensor, but got a tensor of "
            f"shape {tuple(above.shape)}"
        )
    return above.reshape(())


def default_rule(scale: ScaleFormat) -> str:
    return POWER_RULES[0] if scale.powers else FLOAT_RULES[0]


class Cut(NamedTuple):
    """A tensor cut into blocks, with their scales."""

    blocks: torch.Tensor
    own: torch.Tensor  # the scale of each block, NaN where a block is NaN
    above: torch.Tensor | None  # the scale of the tensor
    joins: list[tuple[int, int]]  # arguments of BlockShape.join
    micro: micro_exponents.MicroExponents | None = None  # of HiF4 alone
    dim: int = 0  # the dimension of the blocks

    @property
    def factor(self) -> torch.Tensor:
        """The value of a 1 in each block, or at each place of a block with micro-exponents."""
        return (
            factor_of(self.own, self.above) if self.micro is None else self.own * self.micro.steps
        )

    @property
    def inverse(self) -> torch.Tensor:
        """The factor of numbers before they are rounded."""
        return (
            self.factor.reciprocal()
            if self.micro is None
            else micro_exponents.reciprocal(self.own) / self.micro.steps
        )


@dataclass(frozen=True, repr=False)
class BlockFormat(Target):
    """Numbers of an element format times a scale that a block shares. ``block_format``,
    ``block_float`` and names make it."""

    element: str
    scale: str
    shape: BlockShape
    scale_rule: str
    tensor_scale: bool
    emax: int
    pad: bool = True
    # Derived from the fields above, and stored for code that torch.compile traces.
    bits: int = field(init=False, compare=False)
    largest: float = field(init=False, compare=False)
    full_scale: float = field(init=False, compare=False)
    rounding: str = field(init=False, compare=False)
    _largest_element: float = field(init=False, compare=False)
    _full_element: float = field(init=False, compare=False)
    # Whether the element has numbers next to 0 that are no multiple of 2^-64, or never rounds to 0.
    _reaches_far: bool = field(init=False, compare=False)
    _scale: ScaleFormat = field(init=False, compare=False)
    _threshold: tuple[float, bool] = field(init=False, compare=False)
    _is_fixed: bool = field(init=False, compare=False)
    name: str = field(init=False, compare=False)
    # The rule for scales, as _C.chop_blocks takes it: a name and numbers. None: stock operators
    # compute this format.
    _kernel_rule: tuple[str, tuple[float, ...]] | None = field(init=False, compare=False)

    def __post_init__(self):
        fmt, scale = format_of(self.element), scale_format(self.scale)
        largest, full = fmt.largest, full_scale_of(fmt)
        above, brought = (
            (scale.largest, brought_to(full, scale, self.scale_rule))
            if self.tensor_scale
            else (1.0, full)
        )
        for name, value in {
            "bits": fmt.bits,
            "rounding": naming.mode_of_format(fmt),
            "largest": largest * above,
            "full_scale": brought,
            "_largest_element": largest,
            "_full_element": full,
            "_scale": scale,
            "_reaches_far": fmt.keeps_minpos or fmt.lsb_exponent < -64,
            "_threshold": mantissa_threshold(self.scale_rule, fmt) if scale.powers else (1.0, True),
            "_is_fixed": fmt.kind == _C.Kind.fixed,
        }.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "name", self._name())
        object.__setattr__(self, "_kernel_rule", self._find_kernel_rule())

    def _find_kernel_rule(self) -> tuple[str, tuple[float, ...]] | None:
        scale, sizes = self._scale, self.shape.size
        is_plane = len(self.shape.axis) == 1 or self.shape.axis == (-2, -1)
        if not is_plane or not all(n is not None and n <= _LARGEST_BLOCK for n in sizes):
            return None
        if scale.micro:
            return scale.name, ()
        if scale.powers:
            limits = scale.lowest_exponent, scale.highest_exponent
            return None if self.tensor_scale else ("", (self.emax, *self._threshold, *limits))
        if self.scale_rule in CHOOSING_RULES:
            return None
        brought = self.full_scale if self.tensor_scale else 0
        ceil = self.scale_rule == "ceil"
        return scale.name, (self._full_element, scale.smallest, brought, ceil)

    def _name(self) -> str:
        fmt = format_of(self.element)
        mode = naming.mode_of_format(fmt)
        fmt = naming.to_nearest(fmt)
        element, size = naming.name_of_format(fmt), block_shapes.size_name(self.shape)
        known = {(e, s, str(n), t): preset for preset, (e, s, n, t) in PRESETS.items()}
        preset = known.get((element, self.scale, size, self.tensor_scale))
        match = _BLOCK_FLOAT.fullmatch(element) if preset is None and self.scale == "e8m0" else None
        if match:
            name = f"bfp{int(match[1]) + 2}" + (f"_size{size}" if self.shape.axis else "")
        else:
            name = preset or f"block<{element},{self.scale},{size}>"
        if not (match and self.shape.is_tensor):
            name += block_shapes.place_name(self.shape)
        if self.emax != largest_exponent(fmt):
            name += f"_emax{self.emax}".replace("-", "minus")
        if self.scale_rule != default_rule(self._scale):
            name += f"_{self.scale_rule}"
        if self.tensor_scale and not preset:
            name += "_scaled"
        if not self.pad:
            name += "_nopad"
        return name if mode == "nearest_even" else f"{name}_{mode}"

    @property
    def bits_per_value(self) -> float:
        sizes = self.shape.size
        return self.bits + (
            self._scale.bits / math.prod(sizes) if sizes and None not in sizes else 0.0
        )

    def with_rounding(self, mode: str | int) -> BlockFormat:
        fmt = format_of(self.element)
        set_rounding(fmt, mode)
        return dataclasses.replace(self, element=naming.name_of_format(fmt))

    def adapt_to(self, dims: int) -> BlockFormat:
        """Return the format for a tensor with ``dims`` dimensions, which may lack the blocks' axis,
        such as a bias."""
        if self.shape.find_missing_axis(max(dims, 1)) is None:
            return self
        shape = self.shape.along_last()
        return dataclasses.replace(self, shape=shape, pad=self.pad or not shape.has_size)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if the last block of such a shape would be shorter and the format does
        not pad."""
        if not self.pad:
            self.shape.check_whole(shape, self.name)

    def quantize(
        self, x, *, scale=None, zero_point=None, rounding=None, generator=None, clamped="pass"
    ):
        check_tensor(x, self)
        refuse_zero_point(zero_point, self)
        cut = check_clamped(clamped)
        try:
            self.check_shape(x.shape)
            in_kernel = (
                not cut and is_eager() and self._is_in_kernel(x, scale) and x.is_contiguous()
            )
        except RuntimeError:  # a tensor without a shape or strides
            check_dense(x, f"quantise to {self.name}")
            raise
        if in_kernel:
            mode = find_mode(rounding)  # or the mode of a block, as in chop
            # For these, the way of chop is faster.
            if not (self._is_fixed and (mode or self.rounding) in ("stochastic", "up_down")):
                return _C.chop_blocks(
                    x,
                    self.element,
                    mode,
                    self.shape.size,
                    self.shape.axis,
                    *self._kernel_rule,
                    None if scale is None else _one_scale(scale, x),
                    generator,
                )
        check_dense(x, f"quantise to {self.name}")
        if x.numel() == 0:
            return straight_through(x, x.detach().clone())
        cut_up = self._cut(x.detach(), scale)
        factor = cut_up.factor
        values, y = self._elements(cut_up, rounding, generator)
        values = self.shape.join(
            values.mul_(factor) if is_eager() else values * factor, cut_up.joins
        ).view(x.shape)
        return straight_through(
            x,
            values,
            self.shape.join(~(y.abs() > self._largest_element), cut_up.joins).view(x.shape)
            if cut
            else None,
        )

    def _is_in_kernel(self, x: torch.Tensor, scale: object) -> bool:
        """Whether a kernel computes this format for x, if x is contiguous. A GPU's takes powers of
        two along the last dimension."""
        if (
            self._kernel_rule is None
            or x.dtype != torch.float32
            or self.shape.find_missing_axis(x.dim()) is not None
            or _C.backend(x) != "kernels"
        ):
            return False
        if x.device.type != "cpu" or _C.gpu_on_host():
            return self._scale.powers and self.shape.axis == (-1,) and scale is None
        return scale is None or not (self._scale.powers or self._scale.micro)

    def scales(self, x: torch.Tensor, *, scale: float | torch.Tensor | None = None) -> torch.Tensor:
        """Return the scale of each block of x, times the tensor's scale. Its shape is x's with one
        entry for each block. For blocks of 32 in the last dimension that is ``(..., ceil(n / 32),
        1)``, or ``(..., 1)`` if n <= 32. For HiF4, where each 4 numbers share a scale, the shape is
        x's."""
        check_tensor(x, self)
        check_dense(x, f"quantise to {self.name}")
        self.check_shape(x.shape)
        if x.numel() == 0:  # as for quantize(x): a whole tensor may be one block
            sizes = x.shape if self._scale.micro else self.shape.grid_shape(x.shape)
            return torch.ones(sizes, dtype=COMPUTED[x.dtype], device=x.device)
        cut = self._cut(x.detach(), scale)
        return (
            cut.factor
            if cut.micro is None
            else self.shape.join(cut.factor, cut.joins).view(x.shape)
        )

    def _elements(self, cut: Cut, rounding, generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Round blocks to elements in the compute dtype. Return them, and the quotients before
        rounding."""
        careful = is_careful(self._reaches_far, self.rounding, rounding, INDIFFERENT_IN_NARROW)
        y = times(cut.blocks, cut.inverse, careful)
        return round_to_grid(y, self.element, rounding, generator), y

    def _cut(self, x: torch.Tensor, outer: object) -> Cut:
        """Cut x into blocks in the compute dtype and find their scales."""
        x = x.to(COMPUTED[x.dtype])
        if x.dim() == 0:
            x = x.view(1)
        blocks, dims, joins = self.shape.split(x)
        # Without dimensions, amax would take the maximum of all.
        absmax = blocks.abs().amax(dims, keepdim=True) if dims else blocks.abs()
        inverse = above = None
        if self._scale.micro:
            if outer is not None:
                raise ValueError(
                    f"expected no scale with {self.name}, whose blocks have their own, but got "
                    f"{outer!r}: multiply the tensor by it"
                )
            own = torch.where(absmax < math.inf, micro_exponents.find_scales(absmax), math.nan)
            return Cut(
                blocks,
                own,
                None,
                joins,
                micro_exponents.find_exponents(blocks, own, dims[0]),
                dims[0],
            )
        if outer is not None:
            above = _one_scale(outer, x)
            inverse = above.reciprocal()
        elif self.tensor_scale:
            inverse, above = tensor_scale(absmax, self.full_scale)
        if self._scale.powers:
            # In float64, because the product may exceed float32's range.
            a = absmax if inverse is None else absmax.double() * inverse.double()
            own = power_scale(a, self.emax, self._threshold, self._scale).to(x.dtype)
        else:
            options = (absmax, self._full_element, inverse, self.scale_rule, self._scale)
            own = float_scale(*options)
            if self.scale_rule in CHOOSING_RULES:
                four = float_scale(*options, expansion=1.5)
                own = choose_scale(blocks, dims, own, four, above, self.scale_rule)
        return Cut(blocks, torch.where(absmax < math.inf, own, math.nan), above, joins)
