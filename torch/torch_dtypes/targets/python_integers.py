"""Round Python's integers, which have any number of bits, to formats once."""

from __future__ import annotations

import math
import sys

import torch

from .. import _C
from ..formats.arguments import override_rounding
from ..formats.dtypes import format_of
from ..formats.naming import DRAWING_MODES

# Significands of at most 51 bits round from float64's 53, rounded to odd, as from the exact value.
_ODD_BITS = 51


def _cut(n: int, bits: int) -> tuple[int, int]:
    """Return the integer's leading bits and the power of two that they count. The last bit is 1
    where anything is cut off: rounded to odd."""
    size = abs(n)
    power = max(size.bit_length() - bits, 0)
    leading = size >> power
    leading |= leading << power != size
    return -leading if n < 0 else leading, power


def _odd(n: int) -> float:
    leading, power = _cut(n, 53)
    try:
        return math.ldexp(leading, power)
    except OverflowError:
        return math.copysign(sys.float_info.max, leading)


def _exactly(n: int, fmt: _C.Format, name: str, generator: torch.Generator | None) -> float:
    """Round an integer, by the codec, to a format with nearly as many significant bits as float64.
    The codec takes 64 bits."""
    leading, power = _cut(n, 63)
    word = None
    if fmt.rounding.name in DRAWING_MODES:
        seed = (
            _C.next_seed()
            if generator is None
            else int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))
        )
        word = _C.random_words(seed, 0, 1)
    codes = _C.encode_exact(fmt, torch.tensor([leading], dtype=torch.int64, device="cpu"), word)
    value = _C.decode_exact(fmt, codes).item()
    if power == 0:
        return value
    if (
        fmt.kind != _C.Kind.float
        or not math.isfinite(value)
        or abs(int(value)) << power >= 1 << (fmt.max_exponent + 1)
    ):
        raise ValueError(
            f"expected an integer from -2^63 to 2^63 - 1, or one within the range of {name}, but "
            f"got one of {n.bit_length()} bits; give chop a float"
        )
    return math.ldexp(value, power)


def before_rounding(
    n: int, name: object, mode: str | None, generator: torch.Generator | None
) -> tuple[float, str | None]:
    """Return a float64 that rounds as the integer does, and the mode to round it in."""
    try:
        if int(float(n)) == n:
            return float(n), mode
    except OverflowError:
        pass
    if not isinstance(name, str):  # blocks and integers with scales, of few bits
        return _odd(n), mode
    fmt = format_of(name)
    if mode is not None:
        override_rounding(fmt, mode)
    if fmt.overflow == _C.Overflow.wrap:  # fixed point, of at most 32 bits
        return float((n + (1 << 32)) % (1 << 33) - (1 << 32)), mode
    if fmt.significand_bits <= _ODD_BITS:
        return _odd(n), mode
    return _exactly(n, fmt, name, generator), "nearest_even"
