"""Published formats that are lists of values or have fields of variable length.

Sources: Dettmers et al., "QLoRA", NeurIPS 2023, appendix E (nf4). Dotzel et al., "Learning from
students: applying t-distributions to explore accurate and efficient formats for LLMs", ICML 2024,
algorithm 1 (sf4). Luo et al., "Ascend HiFloat8 format for deep learning", 2024 (hif8).
"""

from __future__ import annotations

import math

from .definition import Definition, End
from .making import named

# Quantiles of the normal distribution, the float32 numbers of bitsandbytes.
_NF4 = (
    -1.0,                 -0.6961928009986877,  -0.5250730514526367,  -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534,  0.16093020141124725,  0.24611230194568634,  0.33791524171829224,
    0.44070982933044434,  0.5626170039176941,   0.7229568362236023,   1.0,
)  # fmt: skip


# Quantiles of Student's t-distribution with 5 degrees of freedom, divided by the largest one, as
# float32 numbers.
_SF4 = (
    -1.0,                 -0.627780556678772,   -0.45473599433898926, -0.3343307375907898,
    -0.23743437230587006, -0.15289871394634247, -0.07498246431350708, 0.0,
    0.06551307439804077,  0.13296473026275635,  0.20466101169586182,  0.28383469581604004,
    0.3758048415184021,   0.4910755753517151,   0.6567811369895935,   1.0,
)  # fmt: skip


@named("nf4")
def nf4() -> Definition:
    return Definition(_NF4, 7)


@named("sf4")
def sf4() -> Definition:
    return Definition(_SF4, 7)


def _hif8_magnitude(code: int) -> float:
    """Decode a magnitude of 7 bits. The dot field, a prefix code, gives the number of exponent bits
    that follow: the sign, then the digits without the leading one."""
    dots = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))
    matches = [
        (length, exponent_bits)
        for prefix, length, exponent_bits in dots
        if code >> (7 - length) == prefix
    ]
    if not matches:  # powers of two below all others
        return math.ldexp(1, code - 23) if code else 0.0
    length, exponent_bits = matches[0]
    fraction_bits = 7 - length - exponent_bits
    field, fraction = (
        code >> fraction_bits & ((1 << exponent_bits) - 1),
        code & ((1 << fraction_bits) - 1),
    )
    exponent = 0
    if exponent_bits:
        leading = 1 << (exponent_bits - 1)
        exponent = (leading | field & (leading - 1)) * (-1 if field & leading else 1)
    return math.ldexp((1 << fraction_bits) + fraction, exponent - fraction_bits)


@named("hif8")
def hif8() -> Definition:
    """Define HiFloat8. The largest code is infinity, that of minus zero is NaN, and ties round away
    from 0."""
    infinity, nan_code = 0b1101111, 0b10000000
    values = [math.inf if c == infinity else _hif8_magnitude(c) for c in range(128)]
    values += [math.nan, *(-v for v in values[1:])]
    following = _hif8_magnitude(infinity)
    high, low = (
        End(infinity, infinity, following),
        End(infinity | nan_code, infinity | nan_code, -following),
    )
    return Definition(tuple(values), nan_code, "away", high=high, low=low)
