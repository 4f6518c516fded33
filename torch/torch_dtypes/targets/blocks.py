"""Blocks of numbers that share a scale: OCP's MX formats, NVFP4, HiF4, block floating point.

Sources: OCP Microscaling Formats (MX) Specification 1.0 (2023), sections 5 and 6; NVIDIA,
"Pretraining large language models with NVFP4" (arXiv 2509.25149), appendix C; Zhang et al.,
"QPyTorch" (arXiv 1910.04540), for block floating point.
"""

from __future__ import annotations

import re

import torch

from .. import _C
from ..formats import naming
from ..formats.arguments import boolean, choice, integer, set_rounding
from ..formats.dtypes import format_of
from ..formats.patterns import name_pattern
from . import block_shapes, micro_exponents
from .base import saturate_format
from .block_scales import (
    CHOOSING_ELEMENT,
    CHOOSING_RULES,
    FLOAT_RULES,
    POWER_RULES,
    RULE_ALIASES,
    scale_format,
)
from .block_targets import PRESETS, BlockFormat, default_rule, largest_exponent

__all__ = ["block_float", "block_format"]

_ALIASES = {"mxfp4_e2m1": "mxfp4"}
# Microsoft floating point: 16 numbers share an exponent of 8 bits; the other bits of each are sign
# and significand (Rouhani et al., NeurIPS 2020).
_MSFP = re.compile(r"msfp(1[1-6])")
_NAME = name_pattern(
    r"(?:block<([^,<>]+),([^,<>]+),([^,<>]+)>|bfp(\d+)(?:_size((?:all|\d+)(?:x(?:all|\d+))*))?|"
    r"([a-z0-9]+(?:_e[0-9]m[0-9])?(?:_[0-9]+x[0-9]+)?))(_axis[minusx0-9]+|_dim(?:minus)?\d+|_tensor)?(?:_emax(minus)"
    r"?(\d+))?(?:_(floor|ceil|even|rceil|nearest|four_over_six(?:_max)?))?(_scaled)?(_nopad)?"
)


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
    """Build a block format, a target for rules, ``chop`` and ``quantize``: numbers of an element
    format times a scale that each block shares.

    A block with largest magnitude a gets the scale d, and each of its numbers x becomes round(x *
    (1/d)) * d. It is computed in float32 (float64 for float64 tensors), in any of the ten modes.
    The elements always saturate. Scales that are powers of two make both products exact, so that
    each number is rounded once; a result below float32's normal numbers rounds to them.

    - Power-of-two scales (``"e8m0"``: 2^-127 to 2^127). E is the exponent of the element's largest
      power of two (for posits 2^es - 1, the largest in their finest range), or ``emax``.
      ``scale_rule`` is one of four. ``"floor"`` (OCP, section 6.3; default) gives 2^(floor(log2 a)
      - E). ``"ceil"`` gives 2^(ceil(log2 a) - E). ``"even"`` is floor's, after a is rounded to the
      element's significand. ``"rceil"`` gives the least power of two with which a does not exceed
      the element's largest number (for posits ``target(element).full_scale``, also below).
    - Another format as scale: a / largest element, rounded to that format. ``scale_rule`` is
      ``"nearest"`` (even; default) or ``"ceil"`` (up, so that nothing is clamped). The scale is at
      least the format's smallest positive number.
    - ``"four_over_six"``, for e2m1 elements and such a scale: each block takes a / 6 or a / 4,
      whichever gives the smaller sum of squared errors, or with ``"four_over_six_max"`` the smaller
      largest error; a / 6 if they are equal. Both errors are those of rounding to nearest, also
      where the elements are then rounded in another mode. A tensor's scale brings the largest block
      scale to a power of two p with 3/2 p in the format (256 in e4m3), so e = 6 * 256 / (largest
      magnitude of the tensor), and the scale of a / 4 is 3/2 * (a / 6) * e, rounded.
    - ``"hif4"``, with elements ``"e1m2finite_bias1"`` and size 64 (together HiF4, with S1P2
      elements): s = a * bfloat16(1/7), in float32, held within 2^-48 and 49152, rounded to bfloat16
      and to 3 significant bits. r = bfloat16(1 / s). Each 8 numbers x have a step of 2 if one of
      |x| r is at least 4, else 1. Each 4 have another one if one of |x| r / step is at least 2. x
      becomes round(x r / steps) * steps * s.
    - ``tensor_scale``, in float32: e = largest scale * largest element (at most 2^126) / (largest
      magnitude of the tensor), t = 1/e. The blocks' scales are (a / largest element) * e, rounded
      to the scale's format, times t. NVFP4 has such a scale. (t is at least 2^-117, for magnitudes
      below 1e-31.) ``quantize(x, scale=t)`` takes another t.

    Zeros keep their sign; a block of zeros has the least scale. A block with an infinity or NaN is
    NaN throughout (OCP's NaN scale), and does not count for a tensor's scale. A last block may be
    shorter: it is rounded as if zeros followed (stochastic modes draw for them too), as in
    microxcaling. With ``pad=False`` it is an error, as in torchao and in hardware that loads whole
    blocks.

    Names: ``"mxfp8_e4m3"``, ``"mxfp8_e5m2"``, ``"mxfp6_e3m2"``, ``"mxfp6_e2m3"``, ``"mxfp4"``,
    ``"mxint8"`` (-127/64 to 127/64; ``block_format("fixed1_6", "e8m0", 32)`` has OCP's optional -2
    too), ``"mxint4"``, ``"nvfp4"``, ``"nvfp4_16x16"`` (squares), ``"nvint4"`` (-7 to 7),
    ``"amdfp4"``, ``"hif4"``, ``"msfp12"`` (``"msfp11"`` to ``"msfp16"``),
    ``"block<e5m2,e8m0,64>"``. Suffixes follow in this order: ``_axis0``, ``_dim0`` or ``_tensor``,
    ``_emax0``, the rule, ``_scaled`` (a tensor scale), ``_nopad``, a rounding mode:
    ``"mxfp4_axis0_rceil_nopad_stochastic"``.

    Args:
        element: a dtype of this package, a format or its name.
        scale: ``"e<k>m0"``, powers of two with k from 2 to 8 exponent bits; ``"hif4"``; or any
            format whose values float32 has, and float32, float16 or bfloat16 themselves.
        size: the numbers of a block along ``axis``; None: all of them. A tuple for blocks of more
            dimensions, as (16, 16).
        axis: the dimension that is cut into blocks, or a tuple of them (default: the last, or the
            last ones of a tuple's sizes); None: the whole tensor is one block.
        dim: one block for each index of this dimension (QPyTorch's ``dim``), with size=None,
            instead of axis.
        scale_rule: the rule for scales, as above. PyTorch's ``"rceil_e8m0"`` and ``"nvfp4_e4m3"``
            mean ``"rceil"`` and ``"nearest"``.
        emax: the exponent to which power-of-two scales bring a block's largest magnitude; default:
            E.
        tensor_scale: ``"float32"`` (or True): the tensor has a scale on top of the blocks'; None
            (or False): it has none.
        rounding: the mode of the elements; default: the element's own.
        pad: whether a dimension may be no multiple of ``size``. False: such a tensor is refused
            before any work.

    Raises:
        ValueError: a parameter out of range, or parameters that contradict each other.
        TypeError: a parameter of another type.

    Source: OCP Microscaling Formats 1.0, sections 5 and 6; NVIDIA, arXiv 2509.25149, appendix C;
    Cook et al., "Four over six" (arXiv 2512.02010);
    Luo et al., "HiFloat4 format for language model inference" (arXiv 2602.11287), section II,
    equation 2 and algorithm 1. Its products are float32's here, as in the authors' library (which
    rounds elements to nearest, ties away: ``"hif4_nearest_away"``).

    Example::

        >>> x = torch.tensor([0.1, 5.0, -70.0, 33.0])
        >>> torch_dtypes.block_format("e2m1finite", "e8m0", 4).quantize(x)
        tensor([  0.,   8., -64.,  32.])
    """
    fmt = saturate_format(
        _C.Format(element) if isinstance(element, _C.Format) else format_of(element)
    )
    if not fmt.fits_float:
        raise ValueError(
            "expected elements with float32's exponents and at most 24 significant bits, but got "
            f"{naming.name_of_format(fmt)!r}"
        )
    if rounding is not None:
        set_rounding(fmt, rounding)
    kind = scale_format(scale)
    rules = POWER_RULES if kind.powers else FLOAT_RULES
    if isinstance(scale_rule, str):
        scale_rule = RULE_ALIASES.get(scale_rule, scale_rule)
    rule = default_rule(kind) if scale_rule is None else choice("scale_rule", scale_rule, rules)
    element_name = naming.name_of_format(naming.to_nearest(fmt))
    if rule in CHOOSING_RULES and element_name != CHOOSING_ELEMENT:
        raise ValueError(
            f"expected elements {CHOOSING_ELEMENT!r}, whose largest numbers are 4 and 6, with "
            f"scale_rule={rule!r}, but got {element_name!r}; take 'nearest' or 'ceil'"
        )
    if rule == "even" and (fmt.is_tapered or fmt.kind == _C.Kind.table):
        raise ValueError(
            "expected float or fixed-point elements with scale_rule='even', but got "
            f"{naming.name_of_format(fmt)!r}, whose significand has no fixed length; take another "
            "rule"
        )
    if emax is not None and not kind.powers:
        raise ValueError(
            f"expected emax with power-of-two scales only, but got emax={emax!r} with "
            f"scale={kind.name!r}"
        )
    if emax is not None and rule in ("even", "rceil"):
        raise ValueError(
            f"expected scale_rule 'floor' or 'ceil' with emax, but got {rule!r}, which depends on "
            "the element's largest number"
        )
    shape = block_shapes.make(size, axis, dim)
    if not boolean("pad", pad) and not shape.has_size:
        raise ValueError(
            f"expected a size with pad=False, but got size={size!r}: without a size nothing "
            "is padded"
        )
    tensor_scale = tensor_scale in ("float32", torch.float32) or (
        tensor_scale is not None and boolean("tensor_scale", tensor_scale)
    )
    if kind.micro:
        if (
            element_name != micro_exponents.ELEMENT
            or shape.size != (micro_exponents.SIZE,)
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
    exponent = largest_exponent(fmt) if emax is None else integer("emax", emax, -64, 64)
    return BlockFormat(
        naming.name_of_format(fmt), kind.name, shape, rule, tensor_scale, exponent, pad
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
    """Build a block floating point format: signed integers of ``bits`` bits, times a power of two
    that a block shares.

    With a the block's largest magnitude, the step is 2^(floor(log2 a) - bits + 2), and integers go
    from -(2^(bits-1) - 1) to 2^(bits-1) - 1. ``block_format`` defines NaN, infinities and the rest.
    ``block_float(8, size=32)`` is ``target("mxint8")``.

    Args:
        bits: the bits of an integer, 2 to 24.
        dim: one exponent for each index of this dimension, as in QPyTorch; None: see size.
        size: the numbers of a block along ``axis``; None (and no dim): one exponent for the whole
            tensor.
        axis: with size, the dimension that is cut into blocks.
        rounding: one of ``ROUNDING_MODES``, or Pychop's number.
        pad: with size, whether the last block may be shorter, as in ``block_format``.

    Raises:
        ValueError: a parameter out of range, or both dim and size.
        TypeError: a parameter of another type.

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
    """Parse a block format's name without rounding mode; None if it is no such name."""
    match = _NAME.fullmatch(_MSFP.sub(lambda msfp: f"bfp{int(msfp[1]) - 8}_size16", name, count=1))
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
        base = block_float(int(bits))
        element, scale, size = base.element, base.scale, bfp_size or "all"
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
