"""Hooks of functional collectives, whose pending results are a wrapper subclass that waits when
used.

The wrapper of a format tensor would have no memory, so its results are waited for at once.
"""

from __future__ import annotations

import torch

from ... import _C
from ..table import Kind, wait_for


def maybe_wrap_tensor(stock, self):
    """Wait for a pending result of a format dtype at once."""
    # Dynamo traces these functions, and its graphs have no format tensor.
    if torch.compiler.is_dynamo_compiling() or not _C.is_format_tensor(self):
        return stock(self)
    return torch.ops._c10d_functional.wait_tensor(self)


def maybe_wrap_tensors(stock, tensors):
    """Wait for pending results at once where one has a format dtype."""
    if torch.compiler.is_dynamo_compiling() or not any(map(_C.is_format_tensor, tensors)):
        return stock(tensors)
    return [maybe_wrap_tensor(lambda t: stock([t])[0], t) for t in tensors]


_MODULE = "torch.distributed._functional_collectives"

HOOKS = [
    wait_for(_MODULE, "_maybe_wrap_tensor", Kind.CALLED, maybe_wrap_tensor),
    wait_for(_MODULE, "_maybe_wrap_tensors", Kind.CALLED, maybe_wrap_tensors, first="2.15"),
]
