"""Runs a function when another module has been imported, and loads nothing until then.

Python has no event for the end of an import. But importlib then sets the attribute `_initializing`
of the module's spec to False (`_load_unlocked` in importlib._bootstrap, Python 3.10 to 3.14). So
the spec gets a class that sees this assignment.

It also serves a half-imported module: a library that imports PyTorch near its own beginning loads
this package there. `wrapt.when_imported` (2.1) does not: it calls a hook at once for every module
in sys.modules, and for others after the loader's `exec_module`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

_waiting: dict[str, list[Callable[[], None]]] = {}


def _run(name: str) -> None:
    if name not in sys.modules:  # the import failed, and the next one may not
        return
    functions = _waiting.pop(name, [])
    try:
        for function in functions:
            function()
    except BaseException:  # the import fails, so that the next one tries again
        _waiting[name] = functions
        del sys.modules[name]
        raise


def _watch(spec) -> None:
    kind = type(spec)

    class Watched(kind):
        @property
        def _initializing(self):
            return vars(self).get("_initializing", False)

        @_initializing.setter
        def _initializing(self, value):
            vars(self)["_initializing"] = value
            if not value:
                self.__class__ = kind
                _run(self.name)

    spec.__class__ = Watched


class _Finder:
    """Finds a module by the other finders of sys.meta_path, and watches the awaited imports."""

    def find_spec(self, name, path=None, target=None):
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find and (spec := find(name, path, target)) is not None:
                _watch(spec)
                return spec
        return None


_finder = _Finder()


def call_when_imported(name: str, function: Callable[[], None]) -> None:
    """Call a function now if that module is imported, else when its import ends.

    An error of the function is an error of that import.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    half_imported = getattr(spec, "_initializing", False)
    if module is not None and not half_imported:
        function()
        return
    if half_imported and name not in _waiting:
        _watch(spec)
    _waiting.setdefault(name, []).append(function)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
