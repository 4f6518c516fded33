"""Doors for users of QPyTorch, microxcaling and Pychop: packages with their names, modules and
defaults, over ``chop``, ``Cast`` and ``quantize_``.

``from torch_dtypes.compat import qtorch`` opens one door in a script.
``python -m torch_dtypes.compat qtorch script.py`` runs a script whose imports stay as they are.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType

__all__ = ["DOORS", "install"]

# The original's name, and the door that takes its place.
DOORS = {
    "qtorch": "torch_dtypes.compat.qtorch",
    "qtorch_plus": "torch_dtypes.compat.qtorch",  # QPyTorch with posits
    "mx": "torch_dtypes.compat.mx",
    "pychop": "torch_dtypes.compat.pychop",
}


def install(name: str) -> ModuleType:
    """Put a door under its original name, so that this process's ``import qtorch`` and ``from
    qtorch.quant import ...`` find it. Return the door.

    Args:
        name: ``"qtorch"``, ``"qtorch_plus"``, ``"mx"`` (microxcaling) or ``"pychop"``.

    Raises:
        ValueError: another name.
        ImportError: the original is imported already.
    """
    if name not in DOORS:
        raise ValueError(f"expected one of {', '.join(map(repr, DOORS))}, but got {name!r}")
    door = importlib.import_module(DOORS[name])
    if sys.modules.get(name, door) is not door:
        raise ImportError(
            f"expected install({name!r}) before the first import of {name}, but got "
            f"{sys.modules[name].__file__} imported already; call it at the top of the script",
            name=name,
        )
    # Each module has one copy: the original's path would otherwise import a second one.
    modules = [part.name for part in pkgutil.walk_packages(door.__path__, f"{DOORS[name]}.")]
    for module in (DOORS[name], *modules):
        sys.modules[name + module.removeprefix(DOORS[name])] = importlib.import_module(module)
    return door
