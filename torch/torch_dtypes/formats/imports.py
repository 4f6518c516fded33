"""Import of a user's own object, which a name ``package.module:name`` says."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys

SPELLING = "package.module:name"


def is_spelt(spec: str) -> bool:
    """Whether a text has the form of ``package.module:name``."""
    module, colon, name = spec.partition(":")
    return bool(colon) and all(map(str.isidentifier, (*module.split("."), *name.split("."))))


def find_object(spec: str, what: str) -> object:
    """Import the object that ``package.module:name`` names. Modules in the current folder are
    found, too.

    Args:
        spec: its place; ``name`` may have dots.
        what: its purpose, for errors.

    Raises:
        ValueError: a wrong spelling, no such name, or a module that does not import.
    """
    if not is_spelt(spec):
        raise ValueError(f"expected {what} as {SPELLING}, but got {spec!r}")
    module, _, name = spec.partition(":")
    value = _import(module, what)
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            names = difflib.get_close_matches(part, dir(value), 3)
            hint = f"; there are {', '.join(names)}" if names else ""
            raise ValueError(f"expected {what}, but {module} has no {name}{hint}") from None
    return value


def _import(name: str, what: str) -> object:
    here = os.getcwd()
    package = name.partition(".")[0]
    if (
        package not in sys.modules
        and importlib.util.find_spec(package) is None
        and here not in sys.path
    ):
        # A console script's path does not begin with the current folder, as python -m's does.
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise ValueError(
                f"expected {what}, but there is no module {error.name} (looked in {here} and in "
                "Python's path)"
            ) from error
        raise ValueError(f"expected {what}, but {name} does not import: {error}") from error
    except Exception as error:  # a user's module may raise any error
        raise ValueError(
            f"expected {what}, but {name} does not import: {type(error).__name__}: {error}"
        ) from error
