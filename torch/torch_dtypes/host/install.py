"""The list of all hooks of PyTorch, and their installation, once per process.

Inside PyTorch's own tree another module takes this one's place.
"""

from __future__ import annotations

import functools
import pkgutil

import torch

from .. import _C
from ..targets import grid
from . import table
from .distributed import dtensor, fsdp, functional_collectives, wrappers
from .hooks import (
    attention,
    autocast,
    buffers,
    checkpoints,
    composed,
    conversion,
    factories,
    from_data,
    functions,
    gradients,
    graphs,
    interop,
    linear_cross_entropy,
    numpy_functions,
    operators,
    optimizers,
    printing,
    promotion,
    random_factories,
    scripts,
    serialization,
    testing,
)
from .table import Hook, Kind

# The modules with a list HOOKS.
MODULES = (
    factories,
    random_factories,
    from_data,
    conversion,
    interop,
    numpy_functions,
    promotion,
    autocast,
    attention,
    buffers,
    printing,
    functions,
    composed,
    linear_cross_entropy,
    optimizers,
    gradients,
    checkpoints,
    operators,
    scripts,
    graphs,
    wrappers,
    fsdp,
    functional_collectives,
    dtensor,
    testing,
    serialization,
)


def list_patches() -> list[Hook]:
    """Return the rows of torch/csrc/formats/hooks/Patches.cpp, with the functions here that they
    run."""
    rows = []
    for target, how, why, file, runs, first, last in _C.patches():
        function = pkgutil.resolve_name(f"{__package__}.hooks.{runs}") if runs else None
        names = {"how": how, "reason": why, "file": file, "first": first, "last": last}
        rows.append(Hook(target, Kind.CPP, function, **names))
    return rows


def list_hooks() -> list[Hook]:
    """Return the rows in Python of all modules."""
    return [row for module in MODULES for row in module.HOOKS]


def install() -> None:
    """Install all rows: first those in C++, since the rows in Python use format dtypes."""
    patches = list_patches()
    _C.install_patches({row.target: row.replacement for row in patches if row.replacement})
    _C.set_searched_classes(torch.nn.Module, torch.optim.Optimizer, functools.partial)
    table.install(list_hooks())
    grid.install()
