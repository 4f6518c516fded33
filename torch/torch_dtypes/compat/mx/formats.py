"""microxcaling's element formats and rounding modes, and their targets of this package."""

from __future__ import annotations

import functools
from enum import Enum, IntEnum

import torch

from ...targets.blocks import block_format
from ...targets.chop import chop
from ...targets.lookup import Target, target

__all__ = ["FP32_EXPONENT_BIAS", "FP32_MIN_NORMAL", "ElemFormat", "RoundingMode"]

FP32_EXPONENT_BIAS, FP32_MIN_NORMAL = 127, 2.0**-126


class RoundingMode(IntEnum):
    """Modes by number. "nearest" rounds ties away from zero, "floor" rounds toward zero."""

    nearest = 0
    floor = 1
    even = 2

    @staticmethod
    def string_enums() -> list[str]:
        return [mode.name for mode in RoundingMode]


class ElemFormat(Enum):
    """Formats of a block's elements."""

    int8 = 1
    int4 = 2
    int2 = 3
    fp8_e5m2 = 4
    fp8_e4m3 = 5
    fp6_e3m2 = 6
    fp6_e2m3 = 7
    fp4 = 8
    fp4_e2m1 = fp4
    float16 = 9
    fp16 = float16
    bfloat16 = 10
    bf16 = bfloat16

    @staticmethod
    def from_str(s: str) -> ElemFormat:
        try:
            return ElemFormat[s.lower()]
        except KeyError:
            names = ", ".join(ElemFormat.__members__)
            raise ValueError(f"expected an element format of {names}, but got {s!r}") from None


_ELEMENTS = {
    ElemFormat.int8: "fixed1_6_symmetric",
    ElemFormat.int4: "fixed1_2_symmetric",
    ElemFormat.int2: "fixed1_0_symmetric",
    ElemFormat.fp8_e5m2: "e5m2",
    ElemFormat.fp8_e4m3: "e4m3fn",
    ElemFormat.fp6_e3m2: "e3m2finite",
    ElemFormat.fp6_e2m3: "e2m3finite",
    ElemFormat.fp4: "e2m1finite",
    ElemFormat.float16: "e5m10",
    ElemFormat.bfloat16: "e8m7",
}
# Bits of the exponent, bits of the sign and the significand, the largest exponent
_SIZES = {
    ElemFormat.int8: (0, 8, 0),
    ElemFormat.int4: (0, 4, 0),
    ElemFormat.int2: (0, 2, 0),
    ElemFormat.fp8_e5m2: (5, 4, 15),
    ElemFormat.fp8_e4m3: (4, 5, 8),
    ElemFormat.fp6_e3m2: (3, 4, 4),
    ElemFormat.fp6_e2m3: (2, 5, 2),
    ElemFormat.fp4: (2, 3, 2),
    ElemFormat.float16: (5, 12, 15),
    ElemFormat.bfloat16: (8, 9, 127),
}
_MODES = {
    "nearest": "nearest_away",
    "even": "nearest_even",
    "floor": "toward_zero",
    "dither": "stochastic",
}


def _get_min_norm(ebits: int) -> float:
    """Return the smallest normal number of a float, 0 for integers."""
    return 2.0 ** (2 - 2 ** (ebits - 1)) if ebits else 0.0


def _get_max_norm(ebits: int, mbits: int) -> float:
    """Return the largest number of a float with infinities. ``mbits`` count the sign, too."""
    return 2.0 ** (2 ** (ebits - 1) - 1) * (2.0 - 2.0 ** (2 - mbits))


def _get_format_params(fmt: str | ElemFormat) -> tuple[int, int, int, float, float]:
    """Return the bits of the exponent, those of the sign and the significand, the largest exponent,
    the largest number and the smallest normal one.

    Raises:
        ValueError: an unknown name.
    """
    element = ElemFormat.from_str(fmt) if isinstance(fmt, str) else fmt
    ebits, mbits, emax = _SIZES[element]
    largest = 2.0**emax * (1.75 if element is ElemFormat.fp8_e4m3 else 2.0 - 2.0 ** (2 - mbits))
    return ebits, mbits, emax, largest, _get_min_norm(ebits)


def find_mode(round: str) -> str:
    """Return this package's mode for microxcaling's name.

    Raises:
        ValueError: an unknown name.
    """
    if round not in _MODES:
        raise ValueError(f"expected round of {', '.join(_MODES)}, but got {round!r}")
    return _MODES[round]


@functools.cache
def find_blocks(
    element: ElemFormat | None, scale_bits: int, size: int | None, axes: tuple[int, ...]
) -> Target:
    """Return the target of blocks of ``size`` numbers (None: all) along each of the axes. Without
    an element it has a block's largest power of two where a number is not 0."""
    name = "fixed1_0_symmetric_up" if element is None else _ELEMENTS[element]
    sizes = size if len(axes) == 1 else (size,) * len(axes)
    return block_format(name, f"e{scale_bits}m0", sizes, axes if len(axes) > 1 else axes[0])


class Flushing:
    """A quantiser to floats that takes numbers below the smallest normal one as 0 before it
    rounds."""

    def __init__(self, name: str, exp_bits: int) -> None:
        self.name = f"{name}_without_subnormals"
        self._format, self._tiny = name, _get_min_norm(exp_bits)

    def quantize(self, x, *, axis=-1, generator=None, rounding="nearest_even"):
        rounded = chop(x, self._format, rounding, generator)
        return torch.where(x.abs() < self._tiny, torch.zeros_like(x), rounded)


@functools.cache
def find_vector_format(bfloat: int, fp: int, subnormals: bool) -> Target | None:
    """Return the target of elementwise operators; None if they do not round.

    Raises:
        ValueError: both options, or too few bits for a fraction.
    """
    if bfloat and fp:
        raise ValueError(f"expected bfloat or fp in mx specs, but got {bfloat} and {fp}")
    for name, bits, least in (("bfloat", bfloat, 10), ("fp", fp, 7)):
        if 0 < bits < least:
            raise ValueError(f"expected {name} of 0, or of at least {least}, but got {bits}")
    if bfloat in (0, 32) and not fp:
        return None
    name, exp_bits = (f"e5m{fp - 6}", 5) if fp else (f"e8m{bfloat - 9}", 8)
    return target(name if subnormals else Flushing(name, exp_bits))
