"""Pychop's block floating point: two's complement under one power of two for a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...formats.arguments import integer
from .block_arrays import BlockSpec, BlockTensor, convert, print_table, round_blocks

__all__ = [
    "BFP_FORMATS",
    "BFPSpec",
    "BFPTensor",
    "bfp_quantize",
    "create_bfp_spec",
    "print_bfp_format_table",
]


@dataclass
class BFPSpec(BlockSpec):
    """Blocks of ``block_size`` integers of ``mantissa_bits`` bits (2 to 32) under a power of two of
    ``exponent_bits`` exponent bits (from 2 on; above 8 for numbers from 2^-100 to 2^100).

    ``has_sign`` and ``use_subnormals`` change nothing.
    """

    name: str
    mantissa_bits: int
    block_size: int
    exponent_bits: int = 8
    has_sign: bool = True
    use_subnormals: bool = False

    @property
    def element(self) -> str:
        return f"fixed0_{integer('mantissa_bits', self.mantissa_bits, 2, 32) - 1}"

    @property
    def scale_exponent_bits(self) -> int:
        return self.exponent_bits

    @property
    def total_bits_per_block(self) -> int:
        return self.exponent_bits + self.mantissa_bits * self.block_size


BFP_FORMATS = {
    name: BFPSpec(name, *numbers)
    for name, numbers in {
        "bfp16": (16, 16),
        "bfp12": (12, 16),
        "bfp8": (8, 32),
        "bfp6": (6, 32),
        "bfp4": (4, 32),
        "bfp3": (3, 64),
        "bfp2": (2, 128),
        "flexpoint16": (16, 16, 5),
        "flexpoint8": (8, 32, 5),
    }.items()
}


def create_bfp_spec(
    mantissa_bits: int, block_size: int, exponent_bits: int = 8, name: str | None = None
) -> BFPSpec:
    """Return a spec; its name is ``custom_bfp<bits>`` unless given."""
    return BFPSpec(name or f"custom_bfp{mantissa_bits}", mantissa_bits, block_size, exponent_bits)


def _find_spec(format: str | BFPSpec | tuple[int, int]) -> BFPSpec:
    if isinstance(format, BFPSpec):
        return format
    if isinstance(format, tuple) and len(format) == 2:
        return create_bfp_spec(*format)
    if not isinstance(format, str):
        raise TypeError(f"expected format as a name, a BFPSpec or a pair, but got {format!r}")
    if format.lower() not in BFP_FORMATS:
        raise ValueError(f"expected format as one of {', '.join(BFP_FORMATS)}, but got {format!r}")
    return BFP_FORMATS[format.lower()]


def bfp_quantize(
    data: Any, format: str | BFPSpec | tuple[int, int] = "bfp8", backend: str | None = None
) -> Any:
    """Round an array to block floating point, its elements in the order in which they lie.

    A block's power of two is the least with which nothing is clamped. A block with an infinity or
    NaN is NaN throughout. The gradient passes straight through.

    Args:
        format: a name of ``BFP_FORMATS``, a spec, or (bits, block size).
        backend: the library to whose arrays ``data`` is converted; default: the chosen one.

    Raises:
        TypeError: ``format`` of another type.
        ValueError: an unknown name, or a number of bits out of range.
    """
    return round_blocks(convert(data, backend), _find_spec(format), "rceil")


class BFPTensor(BlockTensor):
    """The result of ``bfp_quantize``, with statistics."""

    def __init__(
        self,
        data: Any,
        format: str | BFPSpec | tuple[int, int] = "bfp8",
        backend: str | None = None,
    ) -> None:
        super().__init__(data, _find_spec(format), bfp_quantize(data, format, backend))

    def _fields(self) -> dict:
        return {
            "mantissa_bits": self.spec.mantissa_bits,
            "exponent_bits": self.spec.exponent_bits,
        }


def print_bfp_format_table() -> None:
    """Print the formats of ``BFP_FORMATS``."""
    rows = [
        (s.name, s.mantissa_bits, s.block_size, s.exponent_bits, s.total_bits_per_block)
        for s in BFP_FORMATS.values()
    ]
    print_table(
        "Block floating point", [("name", "bits", "block", "exponent bits", "bits a block"), *rows]
    )
