"""Linear takums by their definition, in exact rationals: what a string of bits means, and which string a number gets. Shares no code with what it
tests.

Source: Hunhold, "Beating posits at their own game: takum arithmetic" (CoNGA 2024), definitions 2 and 6, and its section on rounding: the boundary
between two strings is the string that is one bit longer.
"""

from __future__ import annotations

import functools
import math

from rationals import Fraction


def value(bits: int, code: int) -> Fraction | None:
    """None: NaR."""
    if code == 0:
        return Fraction(0)
    if code == 1 << bits - 1:
        return None
    if code >> bits - 1:
        return -value(bits, (1 << bits) - code)
    c, fraction = fields(bits, code)
    return (1 + fraction) * Fraction(2) ** c


def fields(bits: int, code: int) -> tuple[int, Fraction]:
    """The characteristic and the fraction of a positive code."""
    text = format(code, f"0{bits}b").ljust(12, "0")
    r = int(text[2:5], 2) if text[1] == "1" else 7 - int(text[2:5], 2)
    characteristic = int(text[5 : 5 + r] or "0", 2)
    c = 2**r - 1 + characteristic if text[1] == "1" else 1 - 2 ** (r + 1) + characteristic
    fraction = text[5 + r :]
    return c, Fraction(int(fraction or "0", 2), 2 ** len(fraction))


def encode(bits: int, x: float | Fraction, mode: str = "nearest_even", word: int = 0) -> int:
    """The code of a number."""
    return search(bits, functools.partial(value, bits), lambda k: value(bits + 1, 2 * k + 1), x, mode, word)


def search(bits: int, of, boundary, x: float | Fraction, mode: str, word: int) -> int:
    """The code of a number in a format of strings of bits, by bisection over the positive codes. of(k): a code's value; boundary(k): the string that
    is one bit longer, between k and k + 1."""
    if isinstance(x, float):
        if not math.isfinite(x):
            return 1 << bits - 1
        x = Fraction(x)
    if x == 0:
        return 0
    magnitude, negative, most = abs(x), x < 0, (1 << bits - 1) - 1
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if of(middle) <= magnitude:
            low = middle
        else:
            high = middle - 1
    code = low
    if low == 0:
        code = 1
    elif low < most and of(low) != magnitude:
        code += _goes_up(magnitude, low, (of(low), of(low + 1), boundary(low)), mode, negative, word)
    if mode == "up_down":
        code = min(max(code + (1 if word >> 63 else -1), 1), most)
    return (1 << bits) - code if negative else code


def _goes_up(magnitude: Fraction, code: int, near: tuple[Fraction, Fraction, Fraction], mode: str, negative: bool, word: int) -> bool:
    lower, upper, boundary = near
    if mode in ("up", "down"):
        return negative == (mode == "down")
    if mode == "toward_zero":
        return False
    if mode == "to_odd":
        return code % 2 == 0
    if mode == "stochastic":
        return math.floor((magnitude - lower) / (upper - lower) * 2**64) + word >= 2**64
    if mode == "stochastic_equal":
        return word >> 63 == 1
    if magnitude != boundary:
        return magnitude > boundary
    if mode == "nearest_up":
        return not negative
    return mode == "nearest_away" or (mode != "nearest_zero" and code % 2 == 1)
