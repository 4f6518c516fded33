"""fuzzy: run a float32 program with another rounding, operation by operation."""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .blocks import Fuzzy, fuzzy

__all__ = ["Fuzzy", "fuzzy"]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".blocks": "Fuzzy fuzzy",
    },
)
