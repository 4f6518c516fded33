"""Functional collectives give what is under way as a wrapper subclass, which waits when it is used.
Of our dtypes there are none (they would be tensors without memory), so that results of ours are
waited for at once."""

from __future__ import annotations

import torch

from ... import _C
from ..table import Kind, wait_for


def maybe_wrap_tensor(stock, self):
    """A result under way: one of a format is waited for at once."""
    # Dynamo traces these functions, and nothing of ours is in its graphs.
    if torch.compiler.is_dynamo_compiling() or not _C.is_format_tensor(self):
        return stock(self)
    return torch.ops._c10d_functional.wait_tensor(self)


def maybe_wrap_tensors(stock, tensors):
    """The same of a list."""
    if torch.compiler.is_dynamo_compiling() or not any(map(_C.is_format_tensor, tensors)):
        return stock(tensors)
    return [maybe_wrap_tensor(lambda t: stock([t])[0], t) for t in tensors]


_MODULE = "torch.distributed._functional_collectives"

HOOKS = [
    wait_for(_MODULE, "_maybe_wrap_tensor", Kind.CALLED, maybe_wrap_tensor),
    wait_for(_MODULE, "_maybe_wrap_tensors", Kind.CALLED, maybe_wrap_tensors, first="2.15"),
]
