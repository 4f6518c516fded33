"""Pychop's rounding to fixed point."""

from __future__ import annotations

from ...formats.arguments import integer
from .chopper import Chopper, find_mode

__all__ = ["Chopf"]


class Chopf(Chopper):
    """Rounds arrays to two's complement with ``ibits`` bits before the point, the sign one of them,
    and ``fbits`` after it.

    Numbers beyond the range and infinities become the outermost numbers. NaN becomes 0, since fixed
    point has no NaN. Random modes draw from torch's generator (``torch.manual_seed``).

    Args:
        ibits, fbits: at most 32 bits in all.
        rmode: as in ``Chop``.

    Raises:
        TypeError: a number of bits is no integer.
        ValueError: an argument out of range.
    """

    def __init__(self, ibits: int = 4, fbits: int = 4, rmode: int = 1) -> None:
        self._mode = find_mode(rmode)
        whole = integer("ibits", ibits, -63, 65) - 1
        fraction = integer("fbits", fbits, -64, 64)
        if not 2 <= ibits + fbits <= 32:
            raise ValueError(f"expected ibits + fbits from 2 to 32, but got {ibits + fbits}")
        self._target = f"fixed{whole}_{fraction}".replace("-", "minus")
        self.ibits, self.fbits, self.rmode = ibits, fbits, rmode
        self.total_bits, self.resolution = ibits + fbits, 2.0**-fbits
        self.min_value, self.max_value = -(2.0**whole), 2.0**whole - self.resolution

    def get_format_info(self) -> dict:
        """Return the format's name, bits, range and step."""
        return {
            "format": f"Q{self.ibits}.{self.fbits}",
            "total_bits": self.total_bits,
            "range": (self.min_value, self.max_value),
            "resolution": self.resolution,
        }
