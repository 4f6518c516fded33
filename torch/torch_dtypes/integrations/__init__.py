"""What other libraries need of us: one module each, loaded and installed when that library is imported."""

from __future__ import annotations

import importlib

from ._imports import when_imported

# The library's module, and ours with an install(module).
_ADAPTERS = {"safetensors.torch": "safetensors"}


def _installer(adapter: str):
    return lambda module: importlib.import_module(f".{adapter}", __name__).install(module)


def install() -> None:
    """Called once, at import."""
    when_imported({name: _installer(adapter) for name, adapter in _ADAPTERS.items()})
