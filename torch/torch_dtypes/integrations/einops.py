"""einops (0.6 to 0.8): its means take what it lists as floating types, which ours are not among."""

from __future__ import annotations

import torch

from .._exchange import exchange_code
from ..formats import is_format_dtype


def _is_float_type(self, x):
    return _torch_dtypes_is_float_type(self, x)  # noqa: F821


def is_float_type(stock, self, x):
    # Dynamo traces einops, and nothing of ours is in its graphs.
    return stock(self, x) or (not torch.compiler.is_dynamo_compiling() and is_format_dtype(x.dtype))


def install(module) -> None:
    exchange_code(module.TorchBackend.is_float_type, _is_float_type, "_torch_dtypes_is_float_type", is_float_type)
