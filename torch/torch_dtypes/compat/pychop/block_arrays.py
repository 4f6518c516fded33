"""Rounding of an array's elements, in the order in which they lie, in blocks."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from ...targets.blocks import block_format
from ...targets.chop import chop
from ...targets.lookup import Target
from .arrays import take


def round_blocks(data: Any, spec: Any, rule: str) -> Any:
    """Round the flattened array in blocks of a spec's element and scale."""
    x = take(data)
    bits = spec.scale_exponent_bits
    if bits > 8:
        _expect_moderate(x, bits)
        bits = 8
    target = _find_target(spec.element, bits, spec.block_size, rule)
    if isinstance(x, torch.Tensor):  # as chop does, with less for Python to look up
        return target.quantize(x.ravel(), rounding="nearest_even").view_as(x)
    return chop(x.reshape(-1), target, "nearest_even").reshape(x.shape)


def _expect_moderate(x: Any, bits: int) -> None:
    """Raise unless scales of 8 exponent bits are those of more bits."""
    magnitudes = np.abs(x.numpy(force=True) if isinstance(x, torch.Tensor) else np.asarray(x))
    if ((magnitudes > 2.0**100) | ((magnitudes > 0) & (magnitudes < 2.0**-100))).any():
        raise ValueError(
            f"expected numbers from 2^-100 to 2^100 with scales of {bits} exponent bits, but got "
            "others; scale them before"
        )


@functools.cache
def _find_target(element: str, exponent_bits: int, size: int, rule: str) -> Target:
    return block_format(element, f"e{exponent_bits}m0", size, scale_rule=rule)


def convert(data: Any, backend: str | None) -> Any:
    """Return the data as an array of a backend that a call names."""
    if backend is None or backend == "auto":
        return data
    if backend == "torch":
        return torch.as_tensor(data)
    if backend == "jax":
        import jax.numpy

        return jax.numpy.asarray(data)
    if backend == "numpy":
        return np.asarray(data)
    raise ValueError(f"expected backend as 'numpy', 'torch' or 'jax', but got {backend!r}")


class BlockSpec:
    """The sizes of a format of blocks."""

    block_size: int
    total_bits_per_block: int

    @property
    def compression_vs_fp32(self) -> float:
        return 32 * self.block_size / self.total_bits_per_block

    @property
    def compression_vs_fp16(self) -> float:
        return 16 * self.block_size / self.total_bits_per_block


class BlockTensor:
    """An array rounded in blocks, with the bits that its codes would take."""

    def __init__(self, data: Any, spec: Any, rounded: Any) -> None:
        self.spec, self._rounded = spec, rounded
        self.original_shape = tuple(np.shape(data))

    def dequantize(self) -> Any:
        """Return the rounded numbers."""
        return self._rounded

    def statistics(self) -> dict:
        """Return the numbers of elements, blocks and bits."""
        elements = math.prod(self.original_shape)
        blocks = -(-elements // self.spec.block_size)
        bits = blocks * self.spec.total_bits_per_block
        return {
            "format": self.spec.name,
            **self._fields(),
            "block_size": self.spec.block_size,
            "original_shape": self.original_shape,
            "num_blocks": blocks,
            "total_elements": elements,
            "compression_ratio_fp32": 32 * elements / bits,
            "compression_ratio_fp16": 16 * elements / bits,
            "bits_per_element": bits / elements,
        }

    def _fields(self) -> dict:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.original_shape}, format={self.spec.name})"


def print_table(title: str, rows: list[tuple]) -> None:
    """Print rows under a title, the first row as heading."""
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    print(title)
    for row in rows:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)))
