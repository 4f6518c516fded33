"""Functional collectives give what is under way as a wrapper subclass, which waits when it is used. Of our dtypes there are none (they would be
tensors without memory), so that results of ours are waited for at once."""

from __future__ import annotations

import torch

from .. import _C
from .._exchange import exchange_code
from .._overlay.releases import COLLECTIVES_WRAP_LISTS


def _maybe_wrap_tensor(self):
    return _torch_dtypes_maybe_wrap_tensor(self)  # noqa: F821


def maybe_wrap_tensor(stock, self):
    # Dynamo traces these functions, and nothing of ours is in its graphs.
    if torch.compiler.is_dynamo_compiling() or not _C.is_format_tensor(self):
        return stock(self)
    return torch.ops._c10d_functional.wait_tensor(self)


def _maybe_wrap_tensors(tensors):
    return _torch_dtypes_maybe_wrap_tensors(tensors)  # noqa: F821


def maybe_wrap_tensors(stock, tensors):
    if torch.compiler.is_dynamo_compiling() or not any(map(_C.is_format_tensor, tensors)):
        return stock(tensors)
    return [maybe_wrap_tensor(lambda t: stock([t])[0], t) for t in tensors]


def install(module) -> None:
    exchange_code(module._maybe_wrap_tensor, _maybe_wrap_tensor, "_torch_dtypes_maybe_wrap_tensor", maybe_wrap_tensor)
    if COLLECTIVES_WRAP_LISTS:
        exchange_code(module._maybe_wrap_tensors, _maybe_wrap_tensors, "_torch_dtypes_maybe_wrap_tensors", maybe_wrap_tensors)
