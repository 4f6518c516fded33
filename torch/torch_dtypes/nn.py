"""Modules to place by hand in a network."""

from typing import TYPE_CHECKING

from .formats.lazy import attach

if TYPE_CHECKING:
    from .quantization.cast import Cast

__all__ = ["Cast"]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".quantization.cast": "Cast",
    },
)
