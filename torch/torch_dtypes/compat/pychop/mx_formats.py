"""Pychop's microscaling formats: OCP's, and others of their kind.

Source: OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...formats.arguments import integer
from .block_arrays import BlockSpec, BlockTensor, convert, print_table, round_blocks

__all__ = [
    "MX_FORMATS",
    "MXSpec",
    "MXTensor",
    "compare_mx_formats",
    "create_mx_spec",
    "mx_quantize",
    "print_mx_format_table",
]

# Elements with codes that are no numbers; by name, as in Pychop. All codes of others are finite.
_WITH_SPECIALS = {"MXFP8_E5M2": "e5m2", "MXFP8_E4M3": "e4m3fn"}


@dataclass
class MXSpec(BlockSpec):
    """Blocks of ``block_size`` floats of ``exp_bits`` and ``sig_bits`` under a power of two of
    ``scale_exp_bits`` exponent bits (from 2 on; above 8 for numbers from 2^-100 to 2^100). Without
    ``exp_bits`` elements are integers.

    ``scale_sig_bits`` counts in sizes alone.
    """

    name: str
    exp_bits: int
    sig_bits: int
    block_size: int = 32
    scale_exp_bits: int = 8
    scale_sig_bits: int = 0

    @property
    def element(self) -> str:
        if self.exp_bits == 0:
            return f"fixed1_{integer('sig_bits of integers', self.sig_bits, 1, 31) - 1}"
        known = _WITH_SPECIALS.get(self.name.upper())
        return known or f"e{self.exp_bits}m{self.sig_bits}finite"

    @property
    def scale_exponent_bits(self) -> int:
        return self.scale_exp_bits

    @property
    def element_bits(self) -> int:
        return 1 + self.exp_bits + self.sig_bits

    @property
    def total_bits_per_block(self) -> int:
        return self.element_bits * self.block_size + self.scale_exp_bits + self.scale_sig_bits


MX_FORMATS = {
    name: MXSpec(name.upper(), *bits)
    for name, bits in {
        "mxfp8_e5m2": (5, 2),
        "mxfp8_e4m3": (4, 3),
        "mxfp6_e3m2": (3, 2),
        "mxfp6_e2m3": (2, 3),
        "mxfp4_e2m1": (2, 1),
        "mxint8": (0, 7),
    }.items()
}


def create_mx_spec(
    exp_bits: int,
    sig_bits: int,
    block_size: int = 32,
    scale_exp_bits: int = 8,
    name: str | None = None,
) -> MXSpec:
    """Return a spec; its name follows from the bits unless given."""
    name = name or f"CUSTOM_MX{1 + exp_bits + sig_bits}_E{exp_bits}M{sig_bits}"
    return MXSpec(name, exp_bits, sig_bits, block_size, scale_exp_bits)


def _find_spec(
    format: str | MXSpec | tuple[int, int],
    block_size: int,
    scale_exp_bits: int | None,
    scale_sig_bits: int | None,
) -> MXSpec:
    if isinstance(format, MXSpec):
        spec = format
    elif isinstance(format, tuple) and len(format) == 2:
        spec = create_mx_spec(*format, block_size)
    elif not isinstance(format, str):
        raise TypeError(f"expected format as a name, an MXSpec or a pair, but got {format!r}")
    elif format.lower() not in MX_FORMATS:
        raise ValueError(f"expected format as one of {', '.join(MX_FORMATS)}, but got {format!r}")
    else:
        spec = MX_FORMATS[format.lower()]
        if spec.block_size != block_size:
            spec = replace(spec, block_size=block_size)
    if scale_exp_bits is None and scale_sig_bits is None:
        return spec  # a copy takes 5 microseconds, as long as 8,000 roundings
    given = {"scale_exp_bits": scale_exp_bits, "scale_sig_bits": scale_sig_bits}
    return replace(spec, **{name: bits for name, bits in given.items() if bits is not None})


def mx_quantize(
    data: Any,
    format: str | MXSpec | tuple[int, int] = "mxfp8_e4m3",
    block_size: int = 32,
    scale_exp_bits: int | None = None,
    scale_sig_bits: int | None = None,
    backend: str | None = None,
) -> Any:
    """Round an array to a microscaling format, its elements in the order in which they lie.

    A block's power of two is OCP's (section 6.3), and elements saturate. A block with an infinity
    or NaN is NaN throughout. The gradient passes straight through.

    Args:
        format: a name of ``MX_FORMATS``, a spec, or (exponent bits, fraction bits).
        block_size: of a name or bits; a spec has its own.
        scale_exp_bits, scale_sig_bits: in the place of the format's.
        backend: the library to whose arrays ``data`` is converted; default: the chosen one.

    Raises:
        TypeError: ``format`` of another type.
        ValueError: an unknown name, or a number of bits out of range.
    """
    spec = _find_spec(format, block_size, scale_exp_bits, scale_sig_bits)
    return round_blocks(convert(data, backend), spec, "floor")


class MXTensor(BlockTensor):
    """The result of ``mx_quantize``, with statistics."""

    def __init__(
        self,
        data: Any,
        format: str | MXSpec | tuple[int, int] = "mxfp8_e4m3",
        block_size: int = 32,
        scale_exp_bits: int | None = None,
        scale_sig_bits: int | None = None,
        backend: str | None = None,
    ) -> None:
        spec = _find_spec(format, block_size, scale_exp_bits, scale_sig_bits)
        super().__init__(data, spec, mx_quantize(data, spec, backend=backend))

    def _fields(self) -> dict:
        names = ("exp_bits", "sig_bits", "scale_exp_bits")
        return {name: getattr(self.spec, name) for name in names}


def compare_mx_formats(data: Any, formats: list[str] | None = None, block_size: int = 32) -> None:
    """Print the mean and the largest error of each format on the data."""
    rows: list[tuple] = [("format", "mean error", "largest error", "bits a number")]
    for name in formats or MX_FORMATS:
        rounded = MXTensor(data, name, block_size)
        error = np.abs(np.asarray(rounded.dequantize()) - np.asarray(data))
        bits = rounded.statistics()["bits_per_element"]
        rows.append((name, f"{error.mean():.3e}", f"{error.max():.3e}", f"{bits:.3f}"))
    print_table("Microscaling formats", rows)


def print_mx_format_table() -> None:
    """Print the formats of ``MX_FORMATS``."""
    rows = [
        (s.name, s.exp_bits, s.sig_bits, s.block_size, s.total_bits_per_block)
        for s in MX_FORMATS.values()
    ]
    heading = ("name", "exponent bits", "fraction bits", "block", "bits a block")
    print_table("Microscaling formats", [heading, *rows])
