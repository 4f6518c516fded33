"""Names of a package whose modules load at first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def attach(package: str, names: Mapping[str, str]) -> tuple[Callable, Callable]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: its ``__name__``.
        names: for each module, relative to the package, its public names, with blanks between
            them. A module with an empty text is itself a name.
    """
    places = {name: module for module, text in names.items() for name in text.split()}
    modules = {module.removeprefix(".") for module, text in names.items() if not text}

    def load(module: str):
        # ``package`` may be a module; __package__ is then the package around it.
        return importlib.import_module(module, sys.modules[package].__package__)

    def find(name: str):
        if name in places:
            value = getattr(load(places[name]), name)
        elif name in modules:
            value = load(f".{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places, *modules})

    return find, list_names
