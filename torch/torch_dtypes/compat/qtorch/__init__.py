"""QPyTorch's names (qtorch 0.3.0, and the posits of qtorch_plus) over this package.

docs/tutorials/coming_from.py lists where results differ from QPyTorch's, and why.
"""

from . import auto_low, number, optim, quant
from .auto_low import lower, sequential_lower
from .number import BlockFloatingPoint, FixedPoint, FloatingPoint, Number, Posit
from .optim import OptimLP
from .quant import (
    Quantizer,
    block_quantize,
    fixed_point_quantize,
    float_quantize,
    posit_quantize,
    quantizer,
)

__all__ = [
    "BlockFloatingPoint",
    "FixedPoint",
    "FloatingPoint",
    "OptimLP",
    "Posit",
    "Quantizer",
    "block_quantize",
    "fixed_point_quantize",
    "float_quantize",
    "lower",
    "posit_quantize",
    "quantizer",
    "sequential_lower",
]
