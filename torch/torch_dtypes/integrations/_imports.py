"""Runs a function when another library's module has been imported; until then neither that library nor the function's module is loaded.

Python says nothing when an import ends, but the attribute `_initializing` of a module's spec, which importlib sets to False then
(`_load_unlocked` in importlib._bootstrap, Python 3.10 to 3.14). So a spec that is waited for gets a class that sees it. That serves a module
that is half imported as well, as whatever imports torch, which loads us, near its own beginning.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

_waiting: dict[str, Callable[[object], None]] = {}


def _run(name: str) -> None:
    module, function = sys.modules.get(name), _waiting.get(name)
    if module is None or function is None:  # the import failed: the next one may not
        return
    del _waiting[name]
    try:
        function(module)
    except Exception as error:  # whoever imports a library must get it, whatever we make of it
        warnings.warn(
            f"torch_dtypes does not know its way around this release of {name}, which is not affected, but may not take tensors of number "
            f"formats. {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


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
    """In front of the others on sys.meta_path: finds what they find."""

    def find_spec(self, name, path=None, target=None):
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            if finder is not self and (find := getattr(finder, "find_spec", None)) and (spec := find(name, path, target)) is not None:
                _watch(spec)
                return spec
        return None


def when_imported(functions: dict[str, Callable[[object], None]]) -> None:
    """Calls each function with the module of that name: now where it has been imported, else when it will have been. An error becomes a
    warning. Called once."""
    _waiting.update(functions)
    for name in functions:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            _watch(spec)
        else:
            _run(name)
    sys.meta_path.insert(0, _Finder())
