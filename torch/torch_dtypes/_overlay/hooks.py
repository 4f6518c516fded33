"""Installs every table of hooks, once a process."""

from __future__ import annotations

import functools

import torch

from .. import _C
from ..quantization import grid
from . import (
    attention,
    autocast,
    buffers,
    checkpoints,
    composed,
    conversion,
    distributed,
    factories,
    from_data,
    functions,
    gradients,
    graphs,
    interop,
    linear_cross_entropy,
    operators,
    optimizers,
    printing,
    promotion,
    scripts,
    serialization,
    testing,
)
from .table import Native

# Each has HOOKS; LATER_HOOKS, where there are some, it installs itself when PyTorch imports what they are for.
MODULES = (
    factories, from_data, conversion, interop, promotion, autocast, attention, buffers, printing, functions, composed, linear_cross_entropy,
    optimizers, gradients, checkpoints, operators, scripts, graphs, distributed, testing, serialization,
)  # fmt: skip


def install() -> None:
    """First what is patched in C++, since the rows in Python use our dtypes."""
    rows = [row for module in MODULES for row in module.HOOKS]
    _C.install_patches({row.name: row.implementation for row in rows if isinstance(row, Native)})
    _C.set_searched_classes(torch.nn.Module, torch.optim.Optimizer, functools.partial)
    for row in rows:
        if not isinstance(row, Native):
            row.install()
    grid.install()
