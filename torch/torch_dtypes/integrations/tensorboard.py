"""torch.utils.tensorboard: scalars, histograms and images of our dtypes are their exact values, in
float32 or float64.

Stock makes them NumPy arrays (and casts bfloat16 to float16 first), for which most formats have no
type, and histograms of ml_dtypes' types round their edges.
"""

from __future__ import annotations

from .. import _C
from ..storage.stock_values import values_in_numpy


def prepare(stock, x):
    """The array of a tensor: of a format tensor its exact values."""
    return values_in_numpy(x.detach().cpu()) if _C.is_format_tensor(x) else stock(x)
