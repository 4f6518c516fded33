"""HiF4's scale: an E6M2 number for 64 numbers, an exponent bit for each 8 of them, and another for
each 4.

E6M2 is unsigned, with bias 48 and normal numbers alone: 2^-48 to 1.5 * 2^15, and a NaN. The value
of a 1 is E6M2 * 2^(E1_8 + E1_16).

Source: Luo et al., "HiFloat4 format for language model inference" (arXiv 2602.11287), section II:
equation 2 for the meaning of a block, algorithm 1 for its scales. Where the algorithm leaves the
rounding open, the authors' library decides (global-computing-consortium/HiFloat4).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

SIZE = 64
ELEMENT = "e1m2finite_bias1"  # S1P2: a sign, an integer bit and two fraction bits
SMALLEST, LARGEST = 2.0**-48, 49152.0
_NAN = 255
_BIAS = 48


class MicroExponents(NamedTuple):
    """Factors 1 or 2: for each 8 numbers, for each 4, and their product for each number."""

    eights: torch.Tensor  # (..., 8, 1, 1, ...), where the block's dimension was
    fours: torch.Tensor  # (..., 8, 2, 1, ...)
    steps: torch.Tensor  # of the blocks' shape


def _round_to_digits(x: torch.Tensor, digits: int) -> torch.Tensor:
    """Round positive numbers to ``digits`` significant bits, to nearest even, by stock operators,
    which no count of roundings sees."""
    fraction = torch.frexp(x).mantissa
    # The quotient is a power of two.
    return (fraction * (1 << digits)).round() * (x / fraction) * 2.0**-digits


def find_scales(absmax: torch.Tensor) -> torch.Tensor:
    """Find the E6M2 scales of blocks with largest magnitudes a: a * bfloat16(1/7), held within
    E6M2's range, rounded to bfloat16, then to E6M2, to nearest even. 7 is the largest number at
    scale 1."""
    ratio = (absmax * (73 / 512)).clamp(SMALLEST, LARGEST)
    return _round_to_digits(_round_to_digits(ratio, 8), 3)


def reciprocal(own: torch.Tensor) -> torch.Tensor:
    """Return 1 / E6M2, rounded to bfloat16 (hardware has a table of the four significands)."""
    return _round_to_digits(own.reciprocal(), 8)


def find_exponents(blocks: torch.Tensor, own: torch.Tensor, dim: int) -> MicroExponents:
    """Find the exponents of blocks along a dimension. That of 8 numbers is 1 if one of them reaches
    4 times the block's scale. That of 4 is 1 if one reaches 2 times the scale so far."""
    length = blocks.shape[dim]
    magnitudes = blocks.abs()
    if missing := -length % 8:
        magnitudes = torch.nn.functional.pad(
            magnitudes, [0, 0] * (blocks.dim() - 1 - dim) + [0, missing]
        )
    inverse = reciprocal(own).unsqueeze(dim).unsqueeze(dim)
    groups = magnitudes.unflatten(dim, (-1, 2, 4)).amax(dim + 2, keepdim=True)
    one = torch.ones((), dtype=blocks.dtype, device=blocks.device)
    eights = torch.where(groups.amax(dim + 1, keepdim=True) * inverse >= 4, 2 * one, one)
    fours = torch.where(groups * inverse / eights >= 2, 2 * one, one)
    steps = (eights * fours).expand(*groups.shape[: dim + 2], 4, *groups.shape[dim + 3 :])
    return MicroExponents(eights, fours, steps.flatten(dim, dim + 2).narrow(dim, 0, length))


def encode_scales(own: torch.Tensor, micro: MicroExponents | None, dim: int) -> torch.Tensor:
    """Encode scales as 32-bit codes, one per block. Bits 0 to 7 are E6M2, bits 8 to 15 E1_8, bits
    16 to 31 E1_16, the first numbers lowest."""
    fraction, exponent = torch.frexp(own.nan_to_num(1.0))
    code = (exponent.long() - 1 + _BIAS << 2) + (fraction.double() * 8).long() - 4
    if micro is not None:
        for bits, first in ((micro.eights, 8), (micro.fours, 16)):
            flat = (bits == 2).flatten(dim, dim + 2).long()
            place = torch.arange(first, first + flat.shape[dim], device=flat.device).view(
                -1, *[1] * (flat.dim() - 1 - dim)
            )
            code = code + (flat << place).sum(dim, keepdim=True)
    code = torch.where(own.isnan(), _NAN, code)
    return torch.where(code >= 1 << 31, code - (1 << 32), code).to(torch.int32)


def decode_factors(
    spread: torch.Tensor, axis: int, length: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the value of a 1 at each place along an axis, from codes in a shape that broadcasts to
    the numbers'."""
    code = spread.long() & 0xFFFFFFFF
    place = (torch.arange(length, device=spread.device) % SIZE).view(
        -1, *[1] * (spread.dim() - 1 - axis % spread.dim())
    )
    exponent = (
        (code >> 2 & 63) - _BIAS + (code >> 8 + place // 8 & 1) + (code >> 16 + place // 4 & 1)
    )
    values = (1 + (code & 3).double() / 4) * torch.exp2(exponent.double())
    return torch.where(code & 255 == _NAN, torch.nan, values).to(dtype)
