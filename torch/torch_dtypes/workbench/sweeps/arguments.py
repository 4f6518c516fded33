"""Check the arguments of ``torch_dtypes.sweep`` by the options of the command line, which mean the
same."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable
from dataclasses import fields

import click

from ...formats.arguments import expect_settings, find_mode, outline
from ...policies.accumulation import policy_of_block
from ...targets.lookup import FormatTarget, target
from ...targets.quantisers import QuantiserTarget
from ..training.text import default_dataset
from .cells import OF_TRAIN, Settings
from .command import sweep as command

_OPTIONS = {option.name: option for option in command.params} | {
    "seed": next(o for o in command.params if o.name == "seeds")
}
_NOT_HERE = {"weights", "weights_digest", "data_dir", "text", "text_digest", *OF_TRAIN}
_SETTINGS = {field.name for field in fields(Settings)} - _NOT_HERE | {"seed", "jobs", "time_limit"}


def several(value: object) -> tuple:
    """Return one value, or several, as a tuple."""
    return (
        tuple(value)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        else (value,)
    )


def check_settings(settings: dict[str, object]) -> None:
    """Check settings as the command line checks the same options.

    Raises:
        TypeError: an unknown setting, or a value that is neither a number nor a name.
        ValueError: a value out of range.
    """
    expect_settings("sweep", settings, _SETTINGS)
    for name, values in settings.items():
        for value in several(values):
            if value is not None:
                _check(name, value)


def _check(name: str, value: object) -> None:
    option, context = _OPTIONS[name], click.Context(command)
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Real)):
        raise TypeError(f"expected {name} as a number or a name, but got {outline(value)}")
    try:
        converted = option.type.convert(str(value), option, context)
        if option.callback is not None:
            option.callback(context, option, converted)
    except click.BadParameter as error:
        raise ValueError(f"{name}: {error.message}") from error


def names_of(formats: tuple) -> tuple[str, ...]:
    """Return the names of formats for tables and cells: as the user spelt them, or the own name of
    a dtype, format or target.

    Raises:
        TypeError, ValueError: an unknown format, or one whose name does not define it in the
            processes of cells.
    """
    names = []
    for value in formats:
        a_target = target(value)
        is_table = isinstance(a_target, FormatTarget) and a_target.format.kind.name == "table"
        is_local = isinstance(a_target, QuantiserTarget) and not a_target.is_importable
        if is_table or is_local or target(a_target.name) != a_target:
            what = (
                "whose values only this process knows"
                if is_table
                else "which only this process knows; give its class in a module, or "
                "'package.module:name'"
                if is_local
                else f"which the name {a_target.name} does not define"
            )
            raise ValueError(
                "expected formats with a name that defines them for the processes of cells, but "
                f"got {outline(value)}, {what}"
            )
        names.append(value if isinstance(value, str) else a_target.name)
    return tuple(names)


def check_blocks() -> None:
    """Raise ValueError within a block of ``rounding`` or ``accumulate``: cells, in their own
    processes, would ignore it."""
    for block, value in (("rounding", find_mode(None)), ("accumulate", policy_of_block())):
        if value is not None:
            raise ValueError(
                f"expected sweep() outside of {block}() blocks, which its cells, in other "
                f"processes, ignore, but got a block of {value}; use sweep(..., {block}={value!r})"
            )


def choose_data(dataset: object, text: object, models: object) -> object:
    """Return the data sets of a sweep: as given, the name of a text, or the networks' default.

    Raises:
        ValueError: data sets and a text.
    """
    if text is None:
        return default_dataset(list(map(str, several(models)))) if dataset is None else dataset
    if dataset is not None:
        raise ValueError("expected dataset= or text=, but got both; leave one out")
    return os.path.basename(text)


def check_names(what: str, names: tuple) -> None:
    """Raise TypeError for an object in place of a name, such as a module or a data set."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"expected {what} by name, or your own as 'package.module:function', but "
                f"got {outline(name)}"
            )
