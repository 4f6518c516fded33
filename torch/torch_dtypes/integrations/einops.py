"""einops (0.6 to 0.8): its means accept only listed floating types, which lack format dtypes."""

from __future__ import annotations

import torch

from ..formats.dtypes import is_format_dtype


def is_float_type(stock, self, x):
    """Count format dtypes as floating types."""
    # Dynamo traces einops, and its graphs have no format tensor.
    return stock(self, x) or (not torch.compiler.is_dynamo_compiling() and is_format_dtype(x.dtype))
