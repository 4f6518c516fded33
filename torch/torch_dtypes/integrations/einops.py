"""einops (0.6 to 0.8): its means take what it lists as floating types, which ours are not among."""

from __future__ import annotations

import torch

from ..formats.dtypes import is_format_dtype


def is_float_type(stock, self, x):
    """The test for floating types, which format dtypes pass."""
    # Dynamo traces einops, and nothing of ours is in its graphs.
    return stock(self, x) or (not torch.compiler.is_dynamo_compiling() and is_format_dtype(x.dtype))
