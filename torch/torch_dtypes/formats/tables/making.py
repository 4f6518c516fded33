"""The tables that a process knows by name."""

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
_made: dict[str, Definition] = {}  # by name, of tables that are named by their content or by a user
_formats: dict[str, _C.Format] = {}  # by name, of every table that was asked for
_named: dict[str, tuple[re.Pattern, Callable[..., Definition]]] = {}


# What says of a name whether it means something already.
_taken_by: list[Callable[[str], bool]] = []


def ask_before_naming(means_something: Callable[[str], bool]) -> Callable[[str], bool]:
    """A decorator: a user's table gets no name of which the function says True."""
    _taken_by.append(means_something)
    return means_something


def named(pattern: str) -> Callable:
    """A decorator: names that match the pattern are tables that the function defines, from the
    match's groups as integers or text."""

    def register(define: Callable[..., Definition]) -> Callable[..., Definition]:
        _named[pattern] = (name_pattern(pattern), define)
        return define

    return register


def format_of_name(name: str) -> _C.Format | None:
    """A copy of the format of a published table's name or of one that was made in this process;
    None: no such name, so far."""
    if name in _made:
        return define_once(name, lambda: _made[name])
    for pattern, define in _named.values():
        if match := pattern.fullmatch(name):
            parameters = [int(g) if g is not None and g.isdecimal() else g for g in match.groups()]
            name = re.sub(r"\d+", lambda digits: str(int(digits[0])), name)  # lns03_3 is lns3_3
            return define_once(name, functools.partial(define, *parameters))
    return None


def known_names() -> list[str]:
    """The names of tables that need no parameters, or that a user gave."""
    return [
        name
        for name in (*_named, *_made)
        if name.isidentifier() and not _BY_CONTENT.fullmatch(name)
    ]


def refuse_unknown(name: str) -> None:
    """An error for the name of a table by its content that this process does not know."""
    if _BY_CONTENT.fullmatch(name):
        raise ValueError(
            f"expected the values of {name} to be known, which is named by its content, but "
            "nothing in this process has them: make it with table_format, or load a checkpoint, "
            "which brings them"
        )


def define_once(name: str, define: Callable[[], Definition]) -> _C.Format:
    """A copy of the format of a table's name, which is defined at the first call."""
    if name not in _formats:
        _formats[name] = define().format(name)
    return _C.Format(_formats[name])


def written_name(name: str) -> str:
    """A dtype's name as files and other processes get it: that of a table which only this process
    knows has the content behind a colon."""
    name = naming.spelled(name)
    base, _ = naming.split_rounding(name)
    return f"{name}:{_text(base)}" if base in _made else name


@functools.lru_cache(maxsize=64)
def _text(name: str) -> str:
    return _made[name].text()


def content_of(name: str) -> str | None:
    """What names the values of a table that a user has named; None: another format."""
    base, _ = naming.split_rounding(naming.spelled(name))
    return _made[base].name() if base in _made and not _BY_CONTENT.fullmatch(base) else None


def learn(written: str) -> str:
    """The name within a written name, whose table is known from now on."""
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
    """Makes a table known by a name.

    Raises:
        ValueError: the name is that of another format, or can be none.
    """
    if name in _made:
        if _made[name].content() != definition.content():
            raise ValueError(
                f"expected one table of the name {name!r}, but got other values than it has in "
                "this process; take another"
            )
        return
    if not _BY_CONTENT.fullmatch(name):
        _expect_free(name)
    elif name != definition.name():
        raise ValueError(
            f"expected {name} to name the values that stand behind it, but they are "
            f"{definition.name()}'s: the text is damaged"
        )
    _made[name] = expect_format(definition)


def _expect_free(name: str) -> None:
    if not _OWN_NAME.fullmatch(name) or len(name) > 64:
        raise ValueError(
            "expected a name of at most 64 lower-case letters, digits and single underscores, a "
            f"letter first, but got {name!r}; case is ignored"
        )
    head, options = naming.split_options(name)
    if options:
        raise ValueError(
            f"expected a name that ends in no option, but got {name!r}, which says {head!r} with "
            f"{', '.join(options)}; take another"
        )
    if any(means_something(name) for means_something in _taken_by):
        raise ValueError(
            f"expected a name that no format has, but got {name!r}, which means something "
            "already; take another name"
        )
