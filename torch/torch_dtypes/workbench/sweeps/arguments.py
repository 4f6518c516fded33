"""What ``torch_dtypes.sweep`` is called with, held against the options of the command line: they mean the same."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import fields

import click

from ..._arguments import expect_settings, said
from .cells import Settings
from .command import sweep as command

_OPTIONS = {option.name: option for option in command.params} | {"seed": next(o for o in command.params if o.name == "seeds")}
_SETTINGS = {field.name for field in fields(Settings)} - {"weights", "weights_digest", "data_dir"} | {"seed", "jobs", "time_limit"}


def several(value: object) -> tuple:
    """One value, or some, as a tuple."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)


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
        raise TypeError(f"expected {name} as a number or a name, but got {said(value)}")
    try:
        made = option.type.convert(str(value), option, context)
        if option.callback is not None:
            option.callback(context, option, made)
    except click.BadParameter as error:
        raise ValueError(f"{name}: {error.message}") from error


def check_names(what: str, names: tuple) -> None:
    """Raises TypeError where one is no text: a module, a data set."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"expected {what} by name, as 'package.module:function' where it is your own, but got {said(name)}")
