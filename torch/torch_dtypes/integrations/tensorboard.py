"""torch.utils.tensorboard: scalars, histograms and images hold exact values in float32 or float64.

PyTorch makes NumPy arrays of them (and casts bfloat16 to float16 first). NumPy has no type for most
formats, and histograms in ml_dtypes' types round their edges.
"""

from __future__ import annotations

from .. import _C
from ..storage.stock_values import values_in_numpy


def prepare(stock, x):
    """Return a format tensor's exact values as an array."""
    return values_in_numpy(x.detach().cpu()) if _C.is_format_tensor(x) else stock(x)
