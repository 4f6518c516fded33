"""Costs of a cell's formats in bits, from their definitions: stored, moved, and in a multiplier."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ...formats.dtypes import format_of
from ...targets.block_targets import BlockFormat
from ...targets.lookup import FormatTarget, target
from ...targets.quantisers import QuantiserTarget
from ..training.recipes import THROUGHOUT
from .cells import Cell

_FLOAT32_BITS, _FLOAT32_DIGITS = 32.0, 24
COST_COLUMNS = ("bits_stored", "bits_moved", "product_bits")


@dataclass(frozen=True)
class Cost:
    """Bits of a cell's numbers, each with its share of its block's scale.

    Attributes:
        stored: the bits of a parameter between steps, or after rounding: those of the masters if
            there are some, 32 for the layers of ``mixed`` and ``qat``, else the format's.
        moved: the bits of an operand of a layer's forward product, on average of weight and
            activation.
        product: the width of a product of two significands, the leading bits included.
    """

    stored: float
    moved: float
    product: int


def find_cost(cell: Cell) -> Cost | None:
    """Return the costs of a cell; None where a file of rules gives the formats, or where only a
    user's quantiser knows its significands."""
    if cell.has_rules or isinstance(target(cell.format), QuantiserTarget):
        return None
    bits, digits = _measure(cell.format)
    if cell.recipe == "weights":  # activations are float32
        return Cost(bits, (bits + _FLOAT32_BITS) / 2, digits + _FLOAT32_DIGITS)
    stored = bits
    if cell.recipe == "master" and cell.settings.master != "none":
        stored = _measure(cell.settings.master)[0]
    elif cell.recipe not in THROUGHOUT and not cell.is_after_training:
        stored = _FLOAT32_BITS
    return Cost(stored, bits, 2 * digits)


@functools.lru_cache(maxsize=256)
def _measure(name: str) -> tuple[float, int]:
    """Return a number's bits and its significand's; an integer's significand is all its bits."""
    found = target(name)
    if isinstance(found, FormatTarget):
        digits = found.format.significand_bits
    elif isinstance(found, BlockFormat):
        digits = format_of(found.element).significand_bits
    else:
        digits = found.bits
    return found.bits_per_value, digits
