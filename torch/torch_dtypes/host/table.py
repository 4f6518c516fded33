"""Hooks: one row for each place of PyTorch or of another library that runs code of this package.

A row says the target, how the code gets there, when, and for which releases of PyTorch. Each module
with such code has a list `HOOKS`; `integrations/` has one list for other libraries. `install` puts
the rows in. docs/reference/hooks.md is a table of all rows, which tools/patch_table.py makes.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from .. import _C
from .._torch_version import RUNNING
from .exchange import call_instead, copy_stock
from .imports import call_when_imported


class Kind(enum.Enum):
    """The way a replacement gets to its target. The value is printed in the table of
    docs/reference/hooks.md."""

    # torch/csrc/formats/hooks/Patches.cpp puts it in, and calls the replacement if there is one.
    CPP = "C++"
    # A builtin stays the same object. A C function in front of it (Trampolines.cpp) tests for the
    # row's reasons, and calls replacement(stock, *args, **kwargs) or the stock function.
    BUILTIN = "builtin"
    # The same for a builtin that asks the classes of its arguments first (`__torch_function__`), as
    # most operators do. Factories of data do not.
    ASKING = "builtin that asks classes"
    # The return value of replacement(stock) takes the target's place.
    REPLACED = "replaced"
    # replacement(stock, *args, **kwargs) runs. It must have the stock function's parameters.
    CALLED = "called"
    # replacement(*args, **kwargs) runs first. It raises, or returns None for a stock call.
    ASKED = "asked first"
    # The same, but only where the first argument is a format tensor, so that other calls pay least.
    ASKED_OF_FORMATS = "asked first of format tensors"
    # The function gets the replacement's code, which adds only calls of `_torch_dtypes_...`.
    CODE = "code exchanged"
    # replacement(target) adds format dtypes to a list, a dictionary, a function or a module.
    TOLD = "told"


@functools.cache
def _find_owner(name: str) -> Any:
    return pkgutil.resolve_name(name)


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@dataclass(frozen=True)
class Hook:
    """A place of PyTorch or another library, and the code that runs there."""

    target: str
    kind: Kind
    # A function; or "module:function" of integrations/, which is loaded when the row is installed.
    replacement: Any
    reasons: int = 0  # _C.When: when a builtin calls its replacement
    _: KW_ONLY
    imported: str | None = None  # installed when this module has been imported; None: at load
    first: str | None = None  # releases of PyTorch that need the row; None: from the oldest one on
    last: str | None = None  # None: to the newest one
    within: bool = False  # the target is the function inside a decorator's wrapper
    # Set in rows in C++; other rows read them from the replacement.
    how: str | None = None
    reason: str | None = None
    file: str | None = None

    @property
    def is_needed(self) -> bool:
        """True if the running PyTorch is one of the row's releases."""
        if self.first is not None and _release(self.first) > RUNNING:
            return False
        return self.last is None or _release(self.last) >= RUNNING

    def load_replacement(self) -> Any:
        """Return the replacement. An integration's row has its name only, and imports it here."""
        if not isinstance(self.replacement, str):
            return self.replacement
        module, _, function = self.replacement.partition(":")
        package = __package__.partition(".")[0]
        return getattr(importlib.import_module(f"{package}.integrations.{module}"), function)

    def find(self) -> tuple[Any, Any]:
        """Return the module or class that has the target, and the target.

        Raises:
            ImportError: there is none.
        """
        owner_name, _, name = self.target.rpartition(".")
        if self.kind is Kind.TOLD and self.target == self.imported:
            return None, sys.modules[self.target]
        try:
            # A module that failed to import may come again as another one.
            owner = (pkgutil.resolve_name if self.imported else _find_owner)(owner_name)
            in_class = isinstance(owner, type) and name in vars(owner)
            return owner, vars(owner)[name] if in_class else getattr(owner, name)
        except (AttributeError, ImportError):
            raise self.make_error("it") from None

    def make_error(self, expected: str, actual: object = None) -> ImportError:
        got = "none" if actual is None else repr(actual)
        library = self.target.partition(".")[0]
        version = getattr(sys.modules.get(library), "__version__", "of this process")
        return ImportError(
            f"expected {expected} at {self.target}, but got {got} in {library} {version}; "
            "use a supported release that no other package has patched"
        )

    def install(self) -> None:
        INSTALLERS[self.kind](self, *self.find(), self.load_replacement())


def wait_for(module: str, name: str, kind: Kind, replacement: Any, **others: Any) -> Hook:
    """Return a row for a name of a module, or for the module (""), that waits for its import."""
    target = f"{module}.{name}" if name else module
    return Hook(target, kind, replacement, imported=module, **others)


def install(rows: Iterable[Hook], run: Callable | None = None) -> None:
    """Install the rows that the running PyTorch needs, each at its time.

    Args:
        rows: those in Python.
        run: ``run(install_rows, module)`` calls ``install_rows()`` when the module has been
            imported. Without it an error in a row is an error of that import.
    """
    later: dict[str, list[Hook]] = {}
    for row in rows:
        if not row.is_needed:
            continue
        if row.imported is None:
            row.install()
        else:
            later.setdefault(row.imported, []).append(row)
    for name, group in later.items():
        function = functools.partial(_install_all, group)
        call_when_imported(name, functools.partial(run, function, name) if run else function)


def _install_all(rows: list[Hook]) -> None:
    for row in rows:
        row.install()


def _put(row: Hook, owner: Any, stock: Any, make: Callable[[Callable], Any]) -> None:
    """Put what ``make(stock)`` returns in the target's place.

    A module's function stays the same object, so that ``from torch import it`` works before and
    after.
    """
    name = row.target.rpartition(".")[2]
    if row.within:
        cells = [c.cell_contents for c in stock.__closure__ or ()]
        own_name = stock.__name__
        stock = next((f for f in cells if getattr(f, "__name__", None) == own_name), None)
        if stock is None:
            raise row.make_error("a wrapped function", stock)
    if isinstance(stock, staticmethod):
        setattr(owner, name, staticmethod(make(stock.__func__)))
    elif isinstance(stock, property):
        setattr(owner, name, property(make(stock.fget)))
    elif isinstance(stock, types.FunctionType) and (row.within or not isinstance(owner, type)):
        call_instead(stock, make(copy_stock(stock)))
    elif callable(stock) or isinstance(stock, dict):
        setattr(owner, name, make(stock))
    else:
        raise row.make_error("a function", stock)


def _list_parameters(function: Callable) -> list[tuple]:
    parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


def _install_called(row: Hook, _owner: Any, stock: Any, replacement: Callable) -> None:
    own = _list_parameters(replacement)[1:]
    if not isinstance(stock, types.FunctionType) or _list_parameters(stock) != own:
        raise row.make_error(f"a function of the parameters {[name for name, *_ in own]}", stock)
    call_instead(stock, functools.partial(replacement, copy_stock(stock)))


def _ask_first(replacement: Callable, stock: Callable) -> Callable:
    @functools.wraps(stock)
    def call(*args, **kwargs):
        # Dynamo could not trace the replacement. No graph traced by it has a format tensor.
        compiling = torch.compiler.is_dynamo_compiling()
        own = None if compiling else replacement(*args, **kwargs)
        return stock(*args, **kwargs) if own is None else own

    call.__prepare_scriptable__ = lambda: stock  # of methods
    return call


def _ask_of_formats(replacement: Callable, stock: Callable) -> Callable:
    is_format_tensor, asking = _C.is_format_tensor, _ask_first(replacement, stock)

    @functools.wraps(stock)
    def call(*args, **kwargs):
        if torch.compiler.is_dynamo_compiling() or (args and not is_format_tensor(args[0])):
            return stock(*args, **kwargs)
        return asking(*args, **kwargs)

    call.__prepare_scriptable__ = lambda: stock
    return call


def _install_asked(ask: Callable, row: Hook, owner: Any, stock: Any, replacement: Callable) -> None:
    home = getattr(owner, "__module__", owner.__name__)
    if not row.within and getattr(stock, "__module__", None) != home:
        raise row.make_error("torch's own function", stock)
    _put(row, owner, stock, functools.partial(ask, replacement))


def _install_code(row: Hook, _owner: Any, stock: Any, replacement: types.FunctionType) -> None:
    code, own = stock.__code__, replacement.__code__
    added = [name for name in own.co_names if name.startswith("_torch_dtypes_")]
    same = [name for name in own.co_names if name not in added]
    if same != list(code.co_names) or code.co_freevars:
        raise row.make_error(f"a function that uses {same}", code.co_names)
    for name in added:
        stock.__globals__[name] = replacement.__globals__[name]
    stock.__code__ = own.replace(co_name=code.co_name, co_qualname=code.co_qualname)


def _tell(row: Hook, owner: Any, stock: Any, replacement: Callable) -> None:
    # A class method is passed bound.
    replacement(stock if owner is None else getattr(owner, row.target.rpartition(".")[2]))


# By kind, a function of the row, its owner, its target and its replacement. Rows of builtins have
# theirs in host/hooks/trampolines.py: no builtin is hooked inside PyTorch's own tree.
INSTALLERS: dict[Kind, Callable[[Hook, Any, Any, Any], None]] = {
    Kind.REPLACED: _put,
    Kind.CALLED: _install_called,
    Kind.ASKED: functools.partial(_install_asked, _ask_first),
    Kind.ASKED_OF_FORMATS: functools.partial(_install_asked, _ask_of_formats),
    Kind.CODE: _install_code,
    Kind.TOLD: _tell,
}
