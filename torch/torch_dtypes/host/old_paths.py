"""Finds modules by their former names: one finder, for one release.

Files of torch.save name two of them, which load for ever. The others warn, and go in the next
release.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings

from ..storage.pickling import IN_FILES_BEFORE

_PACKAGE = __package__.partition(".")[0]

# A package's row covers all its modules.
_MOVED = {
    "training": "workbench.training",
    "bench": "workbench.bench",
    "tables": "formats.tables",
    "accumulation": "policies.accumulation",
    "chopping": "targets.chop",
    "divergence": "workbench.diagnosis.divergence",
    "interchange": "formats.codes",
    "safetensors_files": "storage.safetensors",
    "quantization.blocks": "targets.blocks",
    "quantization.integers": "targets.integers",
    "quantization.targets": "targets.lookup",
}
# Modules named in files of torch.save.
_IN_FILES = {
    old.removeprefix(f"{_PACKAGE}."): functions[0].__module__.removeprefix(f"{_PACKAGE}.")
    for old, functions in IN_FILES_BEFORE.items()
}


def list_names() -> list[str]:
    """Return the old names below the package."""
    return [*_MOVED, *_IN_FILES]


def _find_new_name(name: str) -> str | None:
    """Return a module's new name below the package, or None if it has not moved."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        head = ".".join(parts[:end])
        if new := _MOVED.get(head) or _IN_FILES.get(head):
            return ".".join([new, *parts[end:]])
    return None


class _Loader(importlib.abc.Loader):
    """Loads the module of the new name, which keeps its own spec."""

    def __init__(self, module) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec):
        return self._module

    def exec_module(self, module) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        package, _, inside = name.partition(".")
        if package != _PACKAGE or (new := _find_new_name(inside)) is None:
            return None
        module = importlib.import_module(f"{_PACKAGE}.{new}")
        if inside not in _IN_FILES:
            warnings.warn(
                f"{name} is {_PACKAGE}.{new} since torch-dtypes 0.2; the old name goes in the "
                "next release",
                DeprecationWarning,
                stacklevel=2,
            )
        return importlib.machinery.ModuleSpec(name, _Loader(module))


def install() -> None:
    """Put the finder first: folders of old names may be left, with only bytecode in them."""
    sys.meta_path.insert(0, _Finder())
