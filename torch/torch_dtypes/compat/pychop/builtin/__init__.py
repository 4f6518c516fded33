"""Pychop's numbers, arrays and tensors whose results stay rounded."""

from .cast import cast, cast_precision
from .cparray import CPArray
from .cpfloat import CPFloat
from .cptensor import CPTensor

__all__ = ["CPArray", "CPFloat", "CPTensor", "cast", "cast_precision"]
