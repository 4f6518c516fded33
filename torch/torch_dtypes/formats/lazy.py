"""Names of a package that load their modules at first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def attach(package: str, names: Mapping[str, str]) -> tuple[Callable, Callable]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: its ``__name__``.
        names: for each module, relative to the package, the public names in it, with blanks between
            them; an empty text for a module that is itself the name.
    """
    places = {name: module for module, text in names.items() for name in text.split()}
    modules = {module.removeprefix(".") for module, text in names.items() if not text}

    def load(module: str):
        # Of a module that is no package, the package is the one around it.
        return importlib.import_module(module, sys.modules[package].__package__)

    def find(name: str):
        if name in places:
            found = getattr(load(places[name]), name)
        elif name in modules:
            found = load(f".{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places, *modules})

    return find, listing
