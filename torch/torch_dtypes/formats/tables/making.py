"""Registry of the tables that a process knows by name."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from ... import _C
from .. import naming
from ..patterns import name_pattern
from .definition import Definition, expect_format, of_text

_BY_CONTENT = name_pattern(r"table\d+_[0-9a-f]{16}")
_OWN_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_made: dict[str, Definition] = {}  # tables named by their content or by a user, by name
_formats: dict[str, _C.Format] = {}  # tables in use, by name
_named: dict[str, tuple[re.Pattern, Callable[..., Definition]]] = {}


# Functions that return whether a name is taken.
_taken_by: list[Callable[[str], bool]] = []


def ask_before_naming(means_something: Callable[[str], bool]) -> Callable[[str], bool]:
    """Decorate a function that returns whether a name is taken. A user's table then gets no such
    name."""
    _taken_by.append(means_something)
    return means_something


def named(pattern: str) -> Callable:
    """Decorate a function that defines the tables whose names match the pattern. It gets the
    match's groups, as integers or text."""

    def register(define: Callable[..., Definition]) -> Callable[..., Definition]:
        _named[pattern] = (name_pattern(pattern), define)
        return define

    return register


def format_of_name(name: str) -> _C.Format | None:
    """Return a copy of the format of a published or a user's table by its name; None if this
    process does not know the name."""
    if name in _made:
        return define_once(name, lambda: _made[name])
    for pattern, define in _named.values():
        if match := pattern.fullmatch(name):
            parameters = [int(g) if g is not None and g.isdecimal() else g for g in match.groups()]
            name = re.sub(r"\d+", lambda digits: str(int(digits[0])), name)  # lns03_3 is lns3_3
            return define_once(name, functools.partial(define, *parameters))
    return None


def known_names() -> list[str]:
    """Return the names of tables without parameters, and users' own names."""
    return [
        name
        for name in (*_named, *_made)
        if name.isidentifier() and not _BY_CONTENT.fullmatch(name)
    ]


def refuse_unknown(name: str) -> None:
    """Refuse a name by content whose table this process does not know."""
    if _BY_CONTENT.fullmatch(name):
        raise ValueError(
            f"expected a table that this process knows, but got {name}, a name by content; create "
            "it with table_format, or load a checkpoint that has its values"
        )


def define_once(name: str, define: Callable[[], Definition]) -> _C.Format:
    """Return a copy of the format of a table's name. The first call defines it."""
    if name not in _formats:
        _formats[name] = define().format(name)
    return _C.Format(_formats[name])


def written_name(name: str) -> str:
    """Return a dtype's name for files and other processes. The name of a table that only this
    process knows is followed by a colon and the content."""
    name = naming.spell(name)
    base, _ = naming.split_rounding(name)
    return f"{name}:{_text(base)}" if base in _made else name


@functools.lru_cache(maxsize=64)
def _text(name: str) -> str:
    return _made[name].text()


def content_of(name: str) -> str | None:
    """Return the name by content of a table that a user named; None for another format."""
    base, _ = naming.split_rounding(naming.spell(name))
    return _made[base].name() if base in _made and not _BY_CONTENT.fullmatch(base) else None


def has_values(written: str) -> bool:
    """Whether a table's content follows a name, as ``written_name`` writes it."""
    _, colon, text = written.partition(":")
    try:
        return bool(colon) and bool(of_text(text))
    except ValueError:
        return False


def learn(written: str) -> str:
    """Return the name in a name of ``written_name``, and register its table."""
    name, colon, text = written.partition(":")
    if not colon:
        return name
    base, _ = naming.split_rounding(name)
    if base in _made and _text(base) == text:
        return name
    definition = of_text(text)
    keep(base, definition)
    return name


def keep(name: str, definition: Definition) -> None:
    """Register a table under a name.

    Raises:
        ValueError: another format has the name, or it cannot be a name.
    """
    if name in _made:
        if _made[name].content() != definition.content():
            raise ValueError(
                f"expected the values that {name!r} has in this process, but got others; use "
                "another name"
            )
        return
    if not _BY_CONTENT.fullmatch(name):
        _expect_free(name)
    elif name != definition.name():
        raise ValueError(
            f"expected the values of {name} after its name, but got those of {definition.name()}; "
            "the text is damaged"
        )
    _made[name] = expect_format(definition)


def _expect_free(name: str) -> None:
    if not _OWN_NAME.fullmatch(name) or len(name) > 64:
        raise ValueError(
            "expected a name of at most 64 lower-case letters, digits and single underscores, a "
            f"letter first, but got {name!r}"
        )
    head, options = naming.split_options(name)
    if options:
        raise ValueError(
            f"expected a name without an option at its end, but got {name!r}, which means {head!r} "
            f"with {', '.join(options)}; use another name"
        )
    if any(means_something(name) for means_something in _taken_by):
        raise ValueError(f"expected a name that is not taken, but got {name!r}; use another name")
