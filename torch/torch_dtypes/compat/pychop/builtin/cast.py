"""Conversion to the types whose operations round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .cparray import CPArray
from .cpfloat import CPFloat
from .cptensor import CPTensor

__all__ = ["cast", "cast_precision"]


def cast_precision(x: Any, chopper: Callable) -> CPArray | CPFloat | CPTensor:
    """Round x by ``chopper``: a number to a CPFloat, a tensor to a CPTensor, a NumPy array to a
    CPArray.

    Raises:
        TypeError: x is none of these. Pychop has a type for JAX arrays too.
    """
    if isinstance(x, (CPFloat, CPArray, CPTensor)):
        return x.astype_precision(chopper)
    if isinstance(x, torch.Tensor):
        return CPTensor(x, chopper)
    if isinstance(x, np.ndarray):
        return CPArray(x, chopper)
    if isinstance(x, (int, float, complex, np.number)):
        return CPFloat(x, chopper)
    raise TypeError(
        f"expected a number, a tensor or a NumPy array, but got {type(x).__name__}; call the "
        "chopper itself"
    )


cast = cast_precision
