"""Takums by their definition, in exact rationals: the value of a string of bits. The module shares
no code with the implementation.

Source: Hunhold, "Beating posits at their own game: takum arithmetic" (CoNGA 2024), definitions 2
and 6, and its section on rounding. The boundary between two strings is the string that is one bit
longer."""

from __future__ import annotations

from rationals import Fraction


def value(bits: int, code: int) -> Fraction | None:
    """Return the value of a code, or None for NaR."""
    if code == 0:
        return Fraction(0)
    if code == 1 << bits - 1:
        return None
    if code >> bits - 1:
        return -value(bits, (1 << bits) - code)
    c, fraction = fields(bits, code)
    return (1 + fraction) * Fraction(2) ** c


def fields(bits: int, code: int) -> tuple[int, Fraction]:
    """Return the characteristic and the fraction of a positive code."""
    text = format(code, f"0{bits}b").ljust(12, "0")
    r = int(text[2:5], 2) if text[1] == "1" else 7 - int(text[2:5], 2)
    characteristic = int(text[5 : 5 + r] or "0", 2)
    c = 2**r - 1 + characteristic if text[1] == "1" else 1 - 2 ** (r + 1) + characteristic
    fraction = text[5 + r :]
    return c, Fraction(int(fraction or "0", 2), 2 ** len(fraction))
