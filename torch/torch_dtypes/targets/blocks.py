"""Blocks of numbers that share a scale: OCP's MX formats, NVFP4, HiF4, block floating point.

Sources: OCP Microscaling Formats (MX) Specification 1.0 (2023), sections 5 and 6; NVIDIA,
"Pretraining large language models with NVFP4" (arXiv 2509.25149), appendix C; Zhang et al.,
"QPyTorch" (arXiv 1910.04540), for block floating point.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from .. import _C
from ..formats import naming
from ..formats.arguments import boolean, choice, integer, mode_said, set_rounding
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
    saturating,
    scale_like,
    straight_through,
    times,
)
from .block_scales import (
    FLOAT_RULES,
    POWER_RULES,
    ScaleFormat,
    brought_to,
    float_scale,
    mantissa_threshold,
    power_scale,
    scale_format,
    tensor_scale,
)
from .block_shapes import BlockShape
from .grid import round_to_grid

__all__ = ["BlockFormat", "block_float", "block_format"]

# Element, scale, size, and whether a tensor's scale lies above.
PRESETS = {
    "mxfp8_e4m3": ("e4m3fn_saturate", "e8m0", 32, False),
    "mxfp8_e5m2": ("e5m2_saturate", "e8m0", 32, False),
    "mxfp6_e3m2": ("e3m2finite", "e8m0", 32, False),
    "mxfp6_e2m3": ("e2m3finite", "e8m0", 32, False),
    "mxfp4": ("e2m1finite", "e8m0", 32, False),
    "mxint8": ("fixed1_6_symmetric", "e8m0", 32, False),
    "nvfp4": ("e2m1finite", "e4m3fn_saturate", 16, True),
    "hif4": (micro_exponents.ELEMENT, "hif4", micro_exponents.SIZE, False),
}
_ALIASES = {"mxfp4_e2m1": "mxfp4"}
# Microsoft floating point: 8 bits of exponent, of which 16 numbers share one, and sign and
# significand in the rest (Rouhani et al., NeurIPS 2020).
_MSFP = re.compile(r"msfp(1[1-6])")
_BLOCK_FLOAT = name_pattern(r"fixed1_(\d+)_symmetric")
_NAME = name_pattern(
    r"(?:block<([^,<>]+),([^,<>]+),([^,<>]+)>|bfp(\d+)(?:_size((?:all|\d+)(?:x(?:all|\d+))*))?|"
    r"([a-z0-9]+(?:_e[0-9]m[0-9])?))(_axis[minusx0-9]+|_dim(?:minus)?\d+|_tensor)?(?:_emax(minus)"
    r"?(\d+))?(?:_(floor|ceil|even|rceil|nearest))?(_scaled)?(_nopad)?"
)


class Cut(NamedTuple):
    """A tensor cut into blocks, and their scales."""

    blocks: torch.Tensor
    own: torch.Tensor  # one number a block, NaN where a block is
    above: torch.Tensor | None  # the tensor's
    joins: list[tuple[int, int]]  # how blocks become the tensor again
    micro: micro_exponents.MicroExponents | None = None  # HiF4's
    dim: int = 0  # along which they lie

    @property
    def factor(self) -> torch.Tensor:
        """What a 1 in each block stands for, or at each place of one that has micro-exponents."""
        return (
            factor_of(self.own, self.above) if self.micro is None else self.own * self.micro.steps
        )

    @property
    def inverse(self) -> torch.Tensor:
        """By which numbers are multiplied before they are rounded."""
        return (
            self.factor.reciprocal()
            if self.micro is None
            else micro_exponents.reciprocal(self.own) / self.micro.steps
        )


def factor_of(own: torch.Tensor, above: torch.Tensor | None) -> torch.Tensor:
    """The blocks' scales times the tensor's, at least the smallest normal number; NaN stays."""
    return own if above is None else (own * above).clamp_min(torch.finfo(own.dtype).smallest_normal)


@dataclass(frozen=True, repr=False)
class BlockFormat(Target):
    """Numbers of an element format times a scale that a block shares. Made by ``block_format``,
    ``block_float`` and names."""

    element: str
    scale: str
    shape: BlockShape
    scale_rule: str
    tensor_scale: bool
    emax: int
    pad: bool = True
    # What these say, for code that torch.compile traces.
    bits: int = field(init=False, compare=False)
    largest: float = field(init=False, compare=False)
    full_scale: float = field(init=False, compare=False)
    rounding: str = field(init=False, compare=False)
    _largest_element: float = field(init=False, compare=False)
    _full_element: float = field(init=False, compare=False)
    # Has numbers next to 0 that are no multiple of 2^-64, or never rounds to 0.
    _reaches_far: bool = field(init=False, compare=False)
    _scale: ScaleFormat = field(init=False, compare=False)
    _threshold: tuple[float, bool] = field(init=False, compare=False)
    _is_fixed: bool = field(init=False, compare=False)
    name: str = field(init=False, compare=False)
    # Whether chop_blocks serves: the same results in one pass over memory.
    _in_one_pass: bool = field(init=False, compare=False)

    def __post_init__(self):
        fmt, scale = format_of(self.element), scale_format(self.scale)
        largest, full = fmt.largest, full_scale_of(fmt)
        above, brought = (
            (scale.largest, brought_to(full, scale)) if self.tensor_scale else (1.0, full)
        )
        runs = (
            self.shape.axis == (-1,)
            and self.shape.size[0] is not None
            and self.shape.size[0] <= 1024
        )
        for name, value in {
            "bits": fmt.bits,
            "rounding": naming.mode_of_format(fmt),
            "largest": largest * above,
            "full_scale": brought,
            "_largest_element": largest,
            "_full_element": full,
            "_scale": scale,
            "_reaches_far": fmt.keeps_minpos or fmt.min_exponent - fmt.man_bits < -64,
            "_threshold": mantissa_threshold(self.scale_rule, fmt) if scale.powers else (1.0, True),
            "_is_fixed": fmt.kind == _C.Kind.fixed,
            "_in_one_pass": runs and scale.powers and not self.tensor_scale,
        }.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "name", self._name())

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
        if self.emax != _exponent(fmt):
            name += f"_emax{self.emax}".replace("-", "minus")
        if self.scale_rule != _default_rule(self._scale):
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

    def fitting(self, dims: int) -> BlockFormat:
        """The format for a tensor of so many dimensions, of which it may lack one: a bias among
        weights."""
        if self.shape.missing(max(dims, 1)) is None:
            return self
        shape = self.shape.along_last()
        return dataclasses.replace(self, shape=shape, pad=self.pad or not shape.has_size)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError for the shape of a tensor whose last blocks would be shorter, where the
        format does not pad."""
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
            one_pass = (
                self._in_one_pass
                and scale is None
                and not cut
                and x.dtype == torch.float32
                and x.dim()
                and x.is_contiguous()
                and is_eager()
                and _C.backend(x) == "kernels"
            )
        except RuntimeError:  # what has no shape or strides
            check_dense(x, f"quantise to {self.name}")
            raise
        if one_pass:
            mode = mode_said(rounding)  # a block's too, as in chop
            # For which chop has a faster way.
            if not (self._is_fixed and (mode or self.rounding) in ("stochastic", "up_down")):
                own = self._scale
                return _C.chop_blocks(
                    x,
                    self.element,
                    mode,
                    self.shape.size[0],
                    self.emax,
                    *self._threshold,
                    own.lowest_exponent,
                    own.highest_exponent,
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

    def scales(self, x: torch.Tensor, *, scale: float | torch.Tensor | None = None) -> torch.Tensor:
        """The scale of each block of x, the tensor's scale included: of the shape that x has when
        each block's dimensions are one entry long (of blocks of 32 in the last dimension:
        ``(..., ceil(n / 32), 1)``, and ``(..., 1)`` where the one block is the whole dimension, n
        <= 32); of HiF4, in which 4 numbers share one, of x's shape."""
        check_tensor(x, self)
        check_dense(x, f"quantise to {self.name}")
        self.check_shape(x.shape)
        if x.numel() == 0:  # as quantize(x) has them: a whole tensor may be a block
            sizes = x.shape if self._scale.micro else self.shape.grid_shape(x.shape)
            return torch.ones(sizes, dtype=COMPUTED[x.dtype], device=x.device)
        made = self._cut(x.detach(), scale)
        return (
            made.factor
            if made.micro is None
            else self.shape.join(made.factor, made.joins).view(x.shape)
        )

    def _elements(self, made: Cut, rounding, generator) -> tuple[torch.Tensor, torch.Tensor]:
        """The elements of blocks, as numbers of the compute type; and what was rounded to them."""
        careful = is_careful(self._reaches_far, self.rounding, rounding, INDIFFERENT_IN_NARROW)
        y = times(made.blocks, made.inverse, careful)
        return round_to_grid(y, self.element, rounding, generator), y

    def _cut(self, x: torch.Tensor, outer: object) -> Cut:
        """x cut into blocks, in the compute type, with their scales."""
        x = x.to(COMPUTED[x.dtype])
        if x.dim() == 0:
            x = x.view(1)
        blocks, dims, joins = self.shape.split(x)
        # Of no dimensions, amax would take all.
        absmax = blocks.abs().amax(dims, keepdim=True) if dims else blocks.abs()
        inverse = above = None
        if self._scale.micro:
            if outer is not None:
                raise ValueError(
                    f"expected no scale with {self.name}, whose blocks have their own, but got "
                    f"{outer!r}: multiply the tensor by it"
                )
            own = torch.where(absmax < math.inf, micro_exponents.shared(absmax), math.nan)
            return Cut(
                blocks, own, None, joins, micro_exponents.find(blocks, own, dims[0]), dims[0]
            )
        if outer is not None:
            above = scale_like(outer, x)
            if above.numel() != 1:
                raise ValueError(
                    "expected the scale of a whole tensor beside the blocks' own, one number, "
                    f"but got shape {tuple(above.shape)}"
                )
            above = above.reshape(())
            inverse = above.reciprocal()
        elif self.tensor_scale:
            inverse, above = tensor_scale(absmax, self.full_scale)
        if self._scale.powers:
            # In float64, since the product may be beyond float32's numbers.
            a = absmax if inverse is None else absmax.double() * inverse.double()
            own = power_scale(a, self.emax, self._threshold, self._scale).to(x.dtype)
        else:
            own = float_scale(absmax, self._full_element, inverse, self.scale_rule, self._scale)
        return Cut(blocks, torch.where(absmax < math.inf, own, math.nan), above, joins)


def _exponent(fmt: _C.Format) -> int:
    """The exponent of the largest power of two that a format has; of posits, of the largest with
    the shortest regime."""
    return math.frexp(full_scale_of(fmt))[1] - 1


def _default_rule(scale: ScaleFormat) -> str:
    return POWER_RULES[0] if scale.powers else FLOAT_RULES[0]


def block_format(
    element: torch.dtype | str | _C.Format,
    scale: torch.dtype | str | _C.Format,
    size: int | tuple[int | None, ...] | None,
    axis: int | tuple[int, ...] | None = -1,
    *,
    dim: int | None = None,
    scale_rule: str | None = None,
    emax: int | None = None,
    tensor_scale: bool | str | torch.dtype | None = None,
    rounding: str | int | None = None,
    pad: bool = True,
) -> BlockFormat:
    """Numbers of an element format times a scale that each block shares: a target for rules,
    ``chop`` and ``quantize``.

    A block with largest magnitude a gets the scale d, and each of its numbers x becomes round(x *
    (1/d)) * d, in float32 (float64 for float64 tensors), rounded by any of the ten modes. The
    elements saturate, whatever their format does alone. Scales that are powers of two make both
    products exact, so that each number is rounded once; a result below float32's normal numbers
    rounds to them.

    - Power-of-two scales (``"e8m0"``: 2^-127 to 2^127), E the exponent of the element's largest
      power of two (of posits, 2^es - 1, the largest in their finest range; or ``emax``), by
      ``scale_rule``: ``"floor"`` (OCP, section 6.3; default) 2^(floor(log2 a) - E); ``"ceil"``
      2^(ceil(log2 a) - E); ``"even"`` the floor's after a is rounded to the element's significand;
      ``"rceil"`` the least power of two with which a does not exceed the element's largest number
      (of posits ``target(element).full_scale``, as in what follows).
    - Another format as scale: a / largest element, rounded to it; ``"nearest"`` (even; default) or
      ``"ceil"`` (up, so that nothing is clamped); at least the format's smallest positive number.
    - ``"hif4"``, with elements ``"e1m2finite_bias1"`` and size 64 (that is HiF4, S1P2 elements):
      s = a * bfloat16(1/7), in float32, held within 2^-48 and 49152, rounded to bfloat16 and to 3
      significant bits; r = bfloat16(1 / s). Each 8 numbers x have a step of 2 where one of |x| r is
      at least 4, else 1; each 4 another one where one of |x| r / step is at least 2. x becomes
      round(x r / steps) * steps * s.
    - ``tensor_scale``, in float32: e = largest scale * largest element (2^126 if that is more) /
      (largest magnitude of the tensor), t = 1/e; the blocks' scales are (a / largest element) * e
      rounded to the scale's format, times t. That is NVFP4's. (t is at least 2^-117, for magnitudes
      below 1e-31.) ``quantize(x, scale=t)`` takes another t.

    Zeros keep their sign; a block of zeros has the least scale. A block with an infinity or NaN is
    NaN throughout (OCP's NaN scale), and has no part in a tensor's scale. A last block may be
    shorter: it is rounded as if zeros followed (they are counted where stochastic modes draw), as
    microxcaling has it. With ``pad=False`` it is an error, as in torchao and in hardware that loads
    whole blocks.

    Names: ``"mxfp8_e4m3"``, ``"mxfp8_e5m2"``, ``"mxfp6_e3m2"``, ``"mxfp6_e2m3"``, ``"mxfp4"``,
    ``"mxint8"`` (-127/64 to 127/64; OCP's -2, which may be left out, is in
    ``block_format("fixed1_6", "e8m0", 32)``), ``"nvfp4"``, ``"hif4"``, ``"msfp12"`` (``"msfp11"``
    to ``"msfp16"``), ``"block<e5m2,e8m0,64>"``; behind them ``_axis0``, ``_dim0`` or ``_tensor``,
    ``_emax0``, the rule, ``_scaled`` (a tensor scale), ``_nopad``, a rounding mode:
    ``"mxfp4_axis0_rceil_nopad_stochastic"``.

    Args:
        element: a dtype of this package, a format or its name.
        scale: ``"e<k>m0"``, powers of two with k from 2 to 8 exponent bits; ``"hif4"``; or any
            format whose values float32 has, and float32, float16 or bfloat16 themselves.
        size: how many numbers make a block along ``axis``; None: all that there are. A tuple for
            blocks of more dimensions, as (16, 16).
        axis: the dimension that is cut into blocks, or a tuple of them (default: the last, or the
            last ones of a tuple's sizes); None: the whole tensor is one block.
        dim: one block for each index of this dimension (QPyTorch's ``dim``), with size=None,
            instead of axis.
        scale_rule: as above.
        emax: the exponent to which a block's largest magnitude is brought, by power-of-two scales;
            default: E.
        tensor_scale: ``"float32"`` (or True): a scale of the whole tensor lies above those of the
            blocks; None (or False): there is none.
        rounding: of the elements; default: the element's own mode.
        pad: whether a dimension may be no multiple of ``size``; False: a tensor with such a one is
            refused before any work.

    Raises:
        ValueError: a parameter out of range, or some that contradict.
        TypeError: one of another type.

    Source: OCP Microscaling Formats 1.0, sections 5 and 6; NVIDIA, arXiv 2509.25149, appendix C;
    Luo et al., "HiFloat4 format for language model inference" (arXiv 2602.11287), section II,
    equation 2 and algorithm 1, whose products are float32's here, as in its authors' library (which
    rounds elements to nearest, ties away: ``"hif4_nearest_away"``).

    Example::

        >>> x = torch.tensor([0.1, 5.0, -70.0, 33.0])
        >>> torch_dtypes.block_format("e2m1finite", "e8m0", 4).quantize(x)
        tensor([  0.,   8., -64.,  32.])
    """
    fmt = saturating(_C.Format(element) if isinstance(element, _C.Format) else format_of(element))
    if not fmt.fits_float:
        raise ValueError(
            "expected elements with float32's exponents and at most 24 significant bits, but got "
            f"{naming.name_of_format(fmt)!r}"
        )
    if rounding is not None:
        set_rounding(fmt, rounding)
    kind = scale_format(scale)
    rules = POWER_RULES if kind.powers else FLOAT_RULES
    rule = _default_rule(kind) if scale_rule is None else choice("scale_rule", scale_rule, rules)
    if rule == "even" and (fmt.is_tapered or fmt.kind == _C.Kind.table):
        kind_name = "a posit's" if fmt.is_tapered else "a table's"
        raise ValueError(
            f"expected scale_rule='even' with float or fixed-point elements: {kind_name} "
            "significand has no length of its own"
        )
    if emax is not None and not kind.powers:
        raise ValueError(
            f"expected emax with power-of-two scales only, but got emax={emax!r} with "
            f"scale={kind.name!r}"
        )
    if emax is not None and rule in ("even", "rceil"):
        raise ValueError(
            f"expected scale_rule 'floor' or 'ceil' with emax, but got {rule!r}, which goes by "
            "the element's largest number"
        )
    made = block_shapes.make(size, axis, dim)
    if not boolean("pad", pad) and not made.has_size:
        raise ValueError(
            f"expected a size with pad=False, but got size={size!r}: a block of all that there is "
            "needs no padding"
        )
    tensor_scale = tensor_scale in ("float32", torch.float32) or (
        tensor_scale is not None and boolean("tensor_scale", tensor_scale)
    )
    if kind.micro:
        element_name = naming.name_of_format(naming.to_nearest(fmt))
        if (
            element_name != micro_exponents.ELEMENT
            or made.size != (micro_exponents.SIZE,)
            or rule != FLOAT_RULES[0]
            or tensor_scale
        ):
            what = (
                f"elements {micro_exponents.ELEMENT!r} in blocks of {micro_exponents.SIZE} along "
                "one axis, without scale_rule or tensor_scale"
            )
            raise ValueError(
                f"expected {what}, for scale='hif4', but got {naming.name_of_format(fmt)!r}, "
                f"size={size!r}, axis={axis!r}, dim={dim!r}, scale_rule={scale_rule!r}, "
                f"tensor_scale={tensor_scale!r}"
            )
    exponent = _exponent(fmt) if emax is None else integer("emax", emax, -64, 64)
    return BlockFormat(
        naming.name_of_format(fmt), kind.name, made, rule, tensor_scale, exponent, pad
    )


def block_float(
    bits: int,
    dim: int | None = None,
    *,
    size: int | None = None,
    axis: int = -1,
    rounding: str | int = "nearest_even",
    pad: bool = True,
) -> BlockFormat:
    """Block floating point: integers of ``bits`` bits with a sign, times a power of two that a
    block shares.

    With a the block's largest magnitude, the step is 2^(floor(log2 a) - bits + 2) and integers go
    from -(2^(bits-1) - 1) to 2^(bits-1) - 1. NaN, infinities and the rest as ``block_format`` says;
    ``block_float(8, size=32)`` is ``target("mxint8")``.

    Args:
        bits: 2 to 24.
        dim: one exponent for each index of this dimension, as QPyTorch's ``dim`` says; None: see
            size.
        size: blocks of so many numbers along ``axis``; None (and no dim): one exponent for the
            whole tensor.
        axis: with size, the dimension that is cut into blocks.
        rounding: one of ``ROUNDING_MODES``, or Pychop's number.
        pad: with size, whether the last block may be shorter, as in ``block_format``.

    Raises:
        ValueError: a parameter out of range, or dim and size both.
        TypeError: one of another type.

    Source: Zhang et al., "QPyTorch" (arXiv 1910.04540); Wilkinson, "Rounding Errors in Algebraic
    Processes" (1963), chapter 1.

    Example::

        >>> torch_dtypes.block_float(4, size=2).quantize(torch.tensor([1.0, 0.1, 100.0, 3.0]))
        tensor([ 1.,  0., 96.,  0.])
    """
    bits = integer("bits", bits, 2, 24)
    where = None if dim is None and size is None else axis
    if dim is not None and size is not None:
        raise ValueError(f"expected dim or size, but got dim={dim!r} and size={size!r}")
    return block_format(
        f"fixed1_{bits - 2}_symmetric", "e8m0", size, where, dim=dim, rounding=rounding, pad=pad
    )


def parse(name: str, mode: str) -> BlockFormat | None:
    """The block format of a name without rounding mode; None: no such name."""
    match = _NAME.fullmatch(
        _MSFP.sub(lambda found: f"bfp{int(found[1]) - 8}_size16", name, count=1)
    )
    if match is None:
        return None
    element, scale, size, bits, bfp_size, preset, place, minus, emax, rule, scaled, no_pad = (
        match.groups()
    )
    if preset is not None and (preset := _ALIASES.get(preset, preset)) not in PRESETS:
        return None
    tensor = bool(scaled)
    if preset is not None:
        element, scale, size, above = PRESETS[preset]
        tensor = tensor or above
    elif bits is not None:
        made = block_float(int(bits))
        element, scale, size = made.element, made.scale, bfp_size or "all"
        place = place or ("" if bfp_size else "_tensor")
    shape = block_shapes.parse(str(size), place or "")
    exponent = None if emax is None else int(emax) * (-1 if minus else 1)
    sizes = shape.size if shape.axis else None
    return block_format(
        element,
        scale,
        sizes,
        shape.axis or None,
        dim=shape.dim,
        scale_rule=rule,
        emax=exponent,
        tensor_scale=tensor,
        rounding=None if mode == "nearest_even" else mode,
        pad=not no_pad,
    )
