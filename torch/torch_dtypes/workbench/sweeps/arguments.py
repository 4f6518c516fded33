"""What ``torch_dtypes.sweep`` is called with, held against the options of the command line: they
mean the same."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import fields

import click

from ...formats.arguments import expect_settings, find_mode, outline
from ...policies.accumulation import policy_of_block
from ...targets.lookup import FormatTarget, target
from .cells import LATER, Settings
from .command import sweep as command

_OPTIONS = {option.name: option for option in command.params} | {
    "seed": next(o for o in command.params if o.name == "seeds")
}
_NOT_HERE = {"weights", "weights_digest", "data_dir", *LATER}
_SETTINGS = {field.name for field in fields(Settings)} - _NOT_HERE | {"seed", "jobs", "time_limit"}


def several(value: object) -> tuple:
    """One value, or some, as a tuple."""
    return (
        tuple(value)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        else (value,)
    )


def check_settings(settings: dict[str, object]) -> None:
    """Raises what the command line would say of the same options.

    Raises:
        TypeError: an unknown setting, or a value that is neither a number nor a name.
        ValueError: a value out of range.
    """
    expect_settings("sweep", settings, _SETTINGS)
    for name, given in settings.items():
        for value in several(given):
            if value is not None:
                _check(name, value)


def _check(name: str, value: object) -> None:
    option, context = _OPTIONS[name], click.Context(command)
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Real)):
        raise TypeError(f"expected {name} as a number or a name, but got {outline(value)}")
    try:
        made = option.type.convert(str(value), option, context)
        if option.callback is not None:
            option.callback(context, option, made)
    except click.BadParameter as error:
        raise ValueError(f"{name}: {error.message}") from error


def names_of(formats: tuple) -> tuple[str, ...]:
    """Formats by the names that tables and cells have for them: as they were spelt, or a dtype's, a
    format's or a target's own.

    Raises:
        TypeError, ValueError: an unknown format, or one that its name does not say in another
            process, where its cells are.
    """
    names = []
    for value in formats:
        made = target(value)
        is_table = isinstance(made, FormatTarget) and made.format.kind.name == "table"
        if is_table or (not isinstance(value, str) and target(made.name) != made):
            what = (
                "whose values are known in this process alone"
                if is_table
                else f"of which the name {made.name} says less"
            )
            raise ValueError(
                "expected formats that a name says, since cells are processes of their own, but "
                f"got {outline(value)}, {what}"
            )
        names.append(value if isinstance(value, str) else made.name)
    return tuple(names)


def check_blocks() -> None:
    """Raises ValueError within a block of ``rounding`` or ``accumulate``, which cells, in processes
    of their own, would not heed."""
    for block, given in (("rounding", find_mode(None)), ("accumulate", policy_of_block())):
        if given is not None:
            raise ValueError(
                f"expected sweep outside of blocks of {block}(), which its cells, in processes of "
                f"their own, do not heed, but got it in one of {given}: say sweep(..., "
                f"{block}={given!r})"
            )


def check_names(what: str, names: tuple) -> None:
    """Raises TypeError where one is no text: a module, a data set."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"expected {what} by name, as 'package.module:function' where it is your own, but "
                f"got {outline(name)}"
            )
