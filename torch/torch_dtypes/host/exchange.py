"""Exchanges the code of a Python function of PyTorch or another library; the object stays."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any


@functools.cache
def copy_stock(function: Callable) -> Callable:
    """Return a copy that keeps the stock code when the function's code is exchanged."""
    if not isinstance(function, types.FunctionType):
        return function
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    for name in ("__kwdefaults__", "__module__", "__qualname__", "__doc__", "__annotations__"):
        setattr(copy, name, getattr(function, name))
    copy.__dict__.update(function.__dict__)
    return copy


def call_instead(function: types.FunctionType, replacement: Callable) -> None:
    """Make a function call its replacement, and stay the object that others imported by name.

    The replacement becomes a global of the function's module, where Dynamo finds it.
    """
    copy, old, name = copy_stock(function), function.__code__, f"_torch_dtypes_{function.__name__}"
    if name in function.__globals__:
        raise ImportError(
            f"expected one function {function.__name__!r} in {function.__module__}, but got a "
            "second one to exchange; rename a row"
        )
    # New code must have as many free variables as the old code.
    free = ", ".join((*old.co_freevars, ""))
    lines = [
        "def outer():",
        f"  {free} = [None] * {len(old.co_freevars)}" if free else "  pass",
        "  def inner(*args, **kwargs):",
    ]
    lines += [f"    return {name}(*args, **kwargs)", f"    {free}", "  return inner"]
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), old.co_filename, "exec"), namespace)
    code = namespace["outer"]().__code__
    function.__globals__[name] = replacement
    function.__code__ = code.replace(
        co_name=old.co_name, co_qualname=old.co_qualname, co_firstlineno=old.co_firstlineno
    )
    function.__defaults__ = function.__kwdefaults__ = None
    function.__wrapped__ = copy  # gives the signature and the source
    # torch.jit.script compiles this copy, since it takes no *args.
    function.__prepare_scriptable__ = lambda: copy


def parse_source(function: types.FunctionType) -> ast.Module:
    """Parse a function's source, to edit the tree and hand it to ``compile_as``."""
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def compile_as(function: types.FunctionType, tree: ast.Module) -> types.CodeType:
    """Compile an edited tree of a function's source, with the function's file, lines and names."""
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    namespace: dict = {}
    exec(
        compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec"),
        function.__globals__,
        namespace,
    )
    return namespace[function.__name__].__code__.replace(co_qualname=function.__qualname__)
