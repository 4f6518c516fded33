"""Modules to place by hand in a network."""

from .quantization import Cast

__all__ = ["Cast"]
