"""fuzzy: a float32 program run with another rounding, operation by operation."""

from .blocks import Fuzzy, fuzzy

__all__ = ["Fuzzy", "fuzzy"]
