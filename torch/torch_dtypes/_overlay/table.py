"""The rows of the tables HOOKS: one for each place of PyTorch's Python, or of its builtins, that code of ours is put into.

Each module of this folder that has such code has a table of its own; ``hooks`` installs them all. A row whose target PyTorch does not have is
an error, unless the row is optional, with the reason.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pkgutil
import textwrap
import types
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from .. import _C
from .._exchange import call_instead, copy_stock

When = _C.When


@functools.cache
def _owner(name: str) -> Any:
    return pkgutil.resolve_name(name)


def _get(owner: Any, name: str) -> Any:
    return vars(owner)[name] if isinstance(owner, type) and name in vars(owner) else getattr(owner, name)


@dataclass(frozen=True)
class Hook:
    """What stands at ``owner.name``, a module's or a class's, and what of ours it runs."""

    owner: str
    name: str
    implementation: Any
    _: KW_ONLY
    optional: str | None = None  # why it may be missing; see releases.py

    @property
    def target(self) -> str:
        return f"{self.owner}.{self.name}"

    def find(self) -> tuple[Any, Any] | None:
        """The owner and what it has by that name; None where that is missing and may be."""
        try:
            owner = _owner(self.owner)
            return owner, _get(owner, self.name)
        except (AttributeError, ImportError):
            if self.optional is None:
                raise self.unexpected("it") from None
            return None

    def unexpected(self, expected: str, found: object = None) -> ImportError:
        got = "none" if found is None else repr(found)
        return ImportError(
            f"expected {expected} at {self.target}, but got {got} in torch {torch.__version__}: this release, or another package, has changed it. "
            "Use a supported release, unpatched."
        )

    def install(self) -> None:
        if (found := self.find()) is not None:
            self.put(*found)

    def put(self, owner: Any, stock: Any) -> None:
        raise NotImplementedError


# Classes of arguments, of most calls all, that say nothing of what a call means.
_SAY_NOTHING = frozenset((torch.Tensor, torch.nn.Parameter, torch.dtype, torch.device, torch.Size, tuple, list, int, float, bool, str, type(None)))


def _says_what_calls_mean(kind: type) -> bool:
    """Whether stock asks a class, by its ``__torch_function__``, what a call with an object of it means."""
    asked = getattr(kind, "__torch_function__", torch._C._disabled_torch_function_impl)
    return asked is not torch._C._disabled_torch_function_impl and torch._C._is_torch_function_enabled()


def _asking_classes(implementation: Callable, skipped: int) -> Callable:
    """The implementation, for calls that stock does not hand to the class of an argument; what that class calls comes here again, as a call without
    such classes. The first ``skipped`` arguments are in the stock function already, as a method's tensor is."""

    @functools.wraps(implementation)
    def asking(stock, *args, **kwargs):
        for value in (*args, *kwargs.values()):
            kind = type(value)
            if kind not in _SAY_NOTHING and _says_what_calls_mean(kind):
                return stock(*args[skipped:], **kwargs)
        return implementation(stock, *args, **kwargs)

    return asking


@dataclass(frozen=True)
class Builtin(Hook):
    """A function or method in C++: it stays the same object; a C function in front of it (torch/csrc/formats/Trampolines.cpp) tests for the
    reasons in ``when`` and runs ``implementation(stock, *args, **kwargs)``, or else the stock function at once."""

    when: When

    def put(self, owner: Any, stock: Any) -> None:
        _C.hook(getattr(stock, "__func__", stock), self.made(owner), int(self.when))  # static methods', pybind11's

    def made(self, owner: Any) -> Callable:
        return self.implementation


@dataclass(frozen=True)
class Asking(Builtin):
    """The same for one that asks the classes of its arguments first (``__torch_function__``), as most operators do; factories of data do not."""

    def made(self, owner: Any) -> Callable:
        return _asking_classes(self.implementation, skipped=int(isinstance(owner, type)))


def _asking_first(stock: Callable, implementation: Callable, of_first: bool) -> Callable:
    is_ours = _C.is_format_tensor

    @functools.wraps(stock)
    def extended(*args, **kwargs):
        # Dynamo could not trace the implementation; it knows this test.
        own = None if torch.compiler.is_dynamo_compiling() else implementation(*args, **kwargs)
        return stock(*args, **kwargs) if own is None else own

    if of_first:
        asking = extended

        @functools.wraps(stock)
        def extended(*args, **kwargs):
            if torch.compiler.is_dynamo_compiling() or (args and not is_ours(args[0])):
                return stock(*args, **kwargs)
            return asking(*args, **kwargs)

    extended.__prepare_scriptable__ = lambda: stock  # of methods
    return extended


@dataclass(frozen=True)
class Replaced(Hook):
    """A Python function, or a method, in whose place ``implementation(stock)`` runs. A module's function stays the same object, so that
    ``from torch import it`` works before and after. ``within``: the function inside the wrapper that a decorator of PyTorch has made."""

    within: bool = False

    def made(self, stock: Callable) -> Callable:
        return self.implementation(stock)

    def put(self, owner: Any, stock: Any) -> None:
        if self.within:
            cells = [c.cell_contents for c in stock.__closure__ or ()]
            stock = next((f for f in cells if getattr(f, "__name__", None) == stock.__name__), None)
            if stock is None:
                raise self.unexpected("a wrapped function", stock)
        if isinstance(stock, staticmethod):
            setattr(owner, self.name, staticmethod(self.made(stock.__func__)))
        elif isinstance(stock, types.FunctionType) and (self.within or not isinstance(owner, type)):
            call_instead(stock, self.made(copy_stock(stock)))
        elif callable(stock):
            setattr(owner, self.name, self.made(stock))
        else:
            raise self.unexpected("a function", stock)


@dataclass(frozen=True)
class Extended(Replaced):
    """The same, where the function in its place asks ``implementation(*args, **kwargs)`` first, which raises, or answers None for what is not
    ours. In a graph of Dynamo's the stock function stands, since no format tensor enters one. ``of_first``: a call whose first argument is no format
    tensor is stock's, at the least cost."""

    of_first: bool = False

    def made(self, stock: Callable) -> Callable:
        return _asking_first(stock, self.implementation, self.of_first)

    def put(self, owner: Any, stock: Any) -> None:
        if not self.within and getattr(stock, "__module__", None) != getattr(owner, "__module__", owner.__name__):
            raise self.unexpected("torch's own function", stock)
        super().put(owner, stock)


@dataclass(frozen=True)
class ExchangedCode(Hook):
    """A Python function that keeps its identity and its globals and runs the implementation's code, which differs from stock's in the call of
    one function that is ours (``calls``, put among its globals) alone."""

    calls: tuple[str, Callable]

    def put(self, owner: Any, stock: Any) -> None:
        name, function = self.calls
        code, own = stock.__code__, self.implementation.__code__
        if [n for n in own.co_names if n != name] != list(code.co_names) or code.co_freevars:
            raise self.unexpected(f"a function that uses {[n for n in own.co_names if n != name]}", code.co_names)
        stock.__globals__[name] = function
        stock.__code__ = own.replace(co_name=code.co_name, co_qualname=code.co_qualname)


@dataclass(frozen=True)
class Registered(Hook):
    """A list, a dictionary or a function of PyTorch's that is told of something of ours: ``implementation(it)`` does so."""

    def put(self, owner: Any, stock: Any) -> None:
        self.implementation(getattr(owner, self.name))


def parsed(function: types.FunctionType) -> ast.Module:
    """The syntax tree of a function's source, to edit and hand to ``compiled_as``."""
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def compiled_as(function: types.FunctionType, tree: ast.Module) -> types.CodeType:
    """The code of an edited tree of a function's source, with the function's file, lines and names."""
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    made: dict = {}
    exec(compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec"), function.__globals__, made)
    return made[function.__name__].__code__.replace(co_qualname=function.__qualname__)


@dataclass(frozen=True)
class Native:
    """What a patch in C++ (torch/csrc/formats/Patches.cpp) of that name runs in Python."""

    name: str
    implementation: Callable


def install(rows: Iterable[Hook]) -> None:
    for row in rows:
        row.install()
