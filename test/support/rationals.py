"""Rational numbers for exact results: quicktions' where it is installed, which is Python's, ten
times as fast."""

try:
    from quicktions import Fraction
except ImportError:
    from fractions import Fraction

__all__ = ["Fraction"]
