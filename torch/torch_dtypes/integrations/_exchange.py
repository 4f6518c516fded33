"""How code of ours gets into a Python function of another library."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable


def exchange_code(function: types.FunctionType, replacement: types.FunctionType, name: str, implementation: Callable) -> None:
    """Lets a public Python function of another library run the replacement's code, which calls the implementation by that name, given the
    stock function first. The function stays the same object."""
    if function.__code__.co_varnames[: function.__code__.co_argcount] != replacement.__code__.co_varnames:
        raise ImportError(f"expected {function!r} to take {replacement.__code__.co_varnames}, as in the releases that are known")
    stock = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    function.__globals__[name] = functools.partial(implementation, stock)
    function.__code__ = replacement.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
