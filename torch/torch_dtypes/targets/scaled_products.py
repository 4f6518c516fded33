"""Products of two block tensors as the block-scaled instructions of chips make them.

Source: Xie et al., "MMA-Sim", arXiv 2511.10909, version 2.1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from ..formats.dtypes import format_of

if TYPE_CHECKING:
    from ..policies.accumulation import Accumulation
    from .block_tensors import BlockTensor

_CHIPS = ("nvidia-b200", "nvidia-rtx-blackwell")
_ELEMENTS = ((4, 3), (5, 2), (3, 2), (2, 3), (2, 1))  # widths of exponent and fraction
_FP4 = (2, 1)
_NO_EXPONENT = -10_000  # of zeros; twice that is an int16
_TERMS_AT_ONCE = 1 << 18  # so that they stay in the cache


@dataclass(frozen=True)
class Instruction:
    """The adder of an instruction. It cuts terms towards zero at 2^(largest exponent - bits)."""

    name: str
    products: int  # that are added to the register at once
    scaled: int  # products of one scale
    groups: bool  # Whether the products of one scale are added exactly, and are one term.
    bits: int
    least: int  # the smallest exponent for alignment


_MXF8F6F4 = Instruction("mxf8f6f4", 32, 32, False, 25, -133)
_MXF4NVF4 = Instruction("mxf4nvf4", 64, 16, True, 35, -139)


class _Operand(NamedTuple):
    """One factor: a column of k numbers for each row or column of the result, so that loops run
    over results."""

    values: torch.Tensor  # [..., k, results]
    exponents: torch.Tensor
    scales: torch.Tensor  # the scales' significands, one for each ``scaled`` values
    powers: torch.Tensor  # the scales' exponents


def multiply_scaled(a: BlockTensor, b: BlockTensor, policy: Accumulation) -> torch.Tensor:
    """Return ``a b`` in float32 by the block-scaled instruction of the policy's chip.

    Infinities and NaN are IEEE 754's. The sign of an E4M3 scale is ignored. The finished sums are
    multiplied by the product of the tensors' own scales, each in float32.

    Args:
        a: ``[..., m, k]`` or ``[k]``.
        b: ``[..., k, n]`` or ``[k]``; its dimensions before the last two broadcast with a's.
        policy: a chip, or ``chunked`` with a chip: sums of chunks are added in float32.

    Raises:
        RuntimeError: a chip without a published model, or operands that it does not multiply.
    """
    kind = _find_instruction(a, b, policy)
    x, y = _prepare(a, kind, a.ndim - 1), _prepare(b, kind, max(b.ndim - 2, 0))
    batch = torch.broadcast_shapes(x.values.shape[:-2], y.values.shape[:-2])
    x, y = (_Operand(*(_flatten(t, batch) for t in operand)) for operand in (x, y))
    result = x.values.new_empty((batch.numel(), x.values.shape[2], y.values.shape[2]))
    terms = (kind.products // kind.scaled if kind.groups else kind.products) * result.shape[2]
    rows = max(1, _TERMS_AT_ONCE // max(terms, 1))
    for i in range(result.shape[0]):
        for row in range(0, result.shape[1], rows):
            some = _Operand(*(t[i, :, row : row + rows] for t in x))
            result[i, row : row + rows] = _add_products(
                kind, policy.chunk, some, _Operand(*(t[i] for t in y))
            )
    above = [t.tensor_scale.float() for t in (a, b) if t.tensor_scale is not None]
    for scale in [above[0] * above[1]] if len(above) == 2 else above:
        result = result * scale
    return result.view(*batch, *result.shape[1:])


def _flatten(t: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    sizes = t.shape[-2:]
    return t.expand(*batch, *sizes).reshape(batch.numel(), *sizes)


def _find_instruction(a: BlockTensor, b: BlockTensor, policy: Accumulation) -> Instruction:
    if policy.chip not in _CHIPS:
        raise RuntimeError(
            f"accumulate: expected {' or '.join(_CHIPS)} for a product of block tensors, but got "
            f"{policy.chip}, whose block-scaled instructions have no published model"
        )
    left, right = _kind_of(a, a.ndim - 1), _kind_of(b, max(b.ndim - 2, 0))
    if left == right and left in ((_FP4, "e8m0", 32), (_FP4, "e8m0", 16), (_FP4, "e4m3", 16)):
        kind = _MXF4NVF4
    elif all(t is not None and t[1:] == ("e8m0", 32) for t in (left, right)):
        kind = _MXF8F6F4
    else:
        raise RuntimeError(
            f"accumulate: expected block tensors that {policy.chip} multiplies (mxfp8, mxfp6 and "
            "mxfp4, or nvfp4 twice, with blocks along the sum's index), but got "
            f"{a.format.name} of shape {tuple(a.shape)} and {b.format.name} of shape "
            f"{tuple(b.shape)}"
        )
    if policy.chunk is not None and policy.chunk % kind.products:
        raise RuntimeError(
            f"accumulate: expected chunks of a multiple of {kind.products} products for "
            f"{kind.name}, but got {policy.chunk}"
        )
    return kind


def _kind_of(t: BlockTensor, dim: int) -> tuple | None:
    """Return widths of the element, scale and size of a tensor with float elements in blocks along
    one dimension; None for others."""
    fmt, shape = format_of(t.format.element), t.format.shape
    if fmt.kind.name != "float" or len(shape.axis) != 1 or not t.ndim:
        return None
    widths, scale = (fmt.exp_bits, fmt.man_bits), t.format.scale
    if widths not in _ELEMENTS or shape.axis[0] % t.ndim != dim:
        return None
    return widths, "e4m3" if scale == "e4m3fn_saturate" else scale, shape.size[0]


def _prepare(t: BlockTensor, kind: Instruction, dim: int) -> _Operand:
    """Bring the sum's index of an operand before the last, padded with zeros to whole
    instructions."""
    values = t.elements.to(torch.float32).movedim(dim, -1)
    scales = t._own_scales(torch.float64).movedim(dim, -1).abs()
    missing = -values.shape[-1] % kind.products
    values = torch.nn.functional.pad(values, (0, missing))
    scales = scales.repeat_interleave(t.format.shape.size[0] // kind.scaled, -1)
    missing = values.shape[-1] // kind.scaled - scales.shape[-1]
    scales = torch.nn.functional.pad(scales, (0, missing), value=1.0)
    if t.ndim == 1:
        values, scales = values[None], scales[None]
    exponents = _exponents(values, format_of(t.format.element).min_exponent)
    powers = _exponents(scales, -127 if t.format.scale == "e8m0" else -6).clamp_min(-127)
    significands = (scales * _power(-powers)).to(torch.float32)
    fields = (values, exponents.to(torch.int16), significands, powers.to(torch.int16))
    return _Operand(*(t.mT.contiguous() for t in fields))


def _exponents(x: torch.Tensor, low: int) -> torch.Tensor:
    """Return exponents as hardware sees them: subnormal numbers have the smallest one."""
    exponents = torch.frexp(x).exponent.sub(1).clamp_min(low)
    return exponents.masked_fill((x == 0) | ~x.isfinite(), _NO_EXPONENT)


def _power(exponents: torch.Tensor) -> torch.Tensor:
    """Return 2^exponents in float64, exact on every device."""
    return ((exponents.long() + 1023) << 52).view(torch.float64)


def _add_products(kind: Instruction, chunk: int | None, x: _Operand, y: _Operand) -> torch.Tensor:
    """Return [m, n] from x of [k, m] and y of [k, n]."""
    register = x.values.new_zeros((x.values.shape[1], y.values.shape[1]))
    total = torch.zeros_like(register)
    for first in range(0, x.values.shape[0], kind.products):
        if chunk is not None and first and first % chunk == 0:
            total, register = total + register, torch.zeros_like(register)
        places = slice(first, first + kind.products)
        blocks = slice(first // kind.scaled, (first + kind.products) // kind.scaled)
        scales = x.scales[blocks, :, None] * y.scales[blocks, None]
        powers = x.powers[blocks, :, None] + y.powers[blocks, None]
        if kind.groups:
            # float64, which autocast leaves alone
            left, right = (
                t.values[places].double().unflatten(0, (-1, kind.scaled)) for t in (x, y)
            )
            terms = (left.mT @ right).float()
            # Products that cancel still count for the alignment.
            nothing = (left.abs().mT @ right.abs()) * scales == 0
            tops = powers.masked_fill(nothing, _NO_EXPONENT)
        else:
            terms = x.values[places, :, None] * y.values[places, None]
            tops = powers + (x.exponents[places, :, None] + y.exponents[places, None]).amax(0)
        top = torch.maximum(tops.amax(0), _exponents(register, -126)).clamp_min(kind.least)
        unit = kind.bits - top
        # Beyond the clamp, terms are 0 already or cut to 0.
        factor = (scales * _power((powers + unit).clamp(-100, 100))).float()
        # ten times as fast as trunc()
        terms = terms.mul_(factor).div_(1, rounding_mode="trunc")
        aligned = terms.sum(0, dtype=torch.float64)
        aligned += (register * _power(unit)).trunc_()
        register = _cut_to_float32(aligned * _power(-unit))
    return register if chunk is None else total + register


def _cut_to_float32(x: torch.Tensor) -> torch.Tensor:
    """Cut towards zero. From 2^128 on, numbers are infinite, and zeros are positive."""
    y = x.to(torch.float32)
    above = (y.abs() > x.abs()) & (x.abs() < 2.0**128)
    return torch.where(above, y.nextafter(torch.zeros_like(y)), y) + 0.0
