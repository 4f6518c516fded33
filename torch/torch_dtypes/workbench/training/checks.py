"""Checks of options' values, which run before anything is loaded."""

import contextlib
import functools
import importlib.util
import math
import os
import tempfile

import click
import torch

import torch_dtypes

from ...formats.arguments import parse_mode
from ...policies.accumulation import accumulation_block
from .ranks import read_launcher
from .sources import check_model


def is_given(name):
    """Whether the command line or a file gave an option."""
    return click.get_current_context().get_parameter_source(name) not in (
        None,
        click.core.ParameterSource.DEFAULT,
    )


def callback(check):
    """Make a click callback from a check of an option's value; its errors name the option."""

    @functools.wraps(check)
    def run(ctx, param, value):
        try:
            return check(value)
        except (TypeError, ValueError) as error:
            raise click.BadParameter(str(error)) from error

    return run


def several(value):
    """Return the values of a repeatable option, or the one of another."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


@callback
def positive(value):
    for number in several(value):
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"expected a finite number above 0, but got {number}")
    return value


@callback
def not_negative(value):
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise ValueError(f"expected a finite number of at least 0, but got {value}")
    return value


@callback
def momentum(value):
    if not 0 <= value < 1:  # false for NaN, too
        raise ValueError(f"expected a number from 0 to below 1, but got {value}")
    return value


@callback
def model(value):
    """Check the name of a network, or several."""
    for name in several(value):
        check_model(name)
    return value


@callback
def data(value):
    """Check the name of a user's loader."""
    if value is not None and ":" not in value:
        raise ValueError(f"expected --data as package.module:loader, but got {value!r}")
    return value


@callback
def image_size(value):
    if value not in (None, "32"):
        raise ValueError(
            f"expected images of 32 x 32, but got {value}: give images of other sizes by --data, "
            "and a --model for them"
        )


@callback
def policy(value):
    """Check an accumulation policy, or several."""
    for name in filter(None, several(value)):
        with accumulation_block(name):
            pass
    return value


@callback
def loss_scale(value):
    if value is None or value == "dynamic":
        return value
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(value)) and number > 0:
            return number
    raise ValueError(f"expected a finite number above 0 or dynamic, but got {value}")


def named(value):
    """Check a format's name and return it. ``acme8=acme8.txt`` defines the name of a proposal by
    the file of its values.

    Raises:
        ValueError: a file without such values, or a name that exists.
    """
    name, definition, path = value.partition("=") if "<" not in value else (value, "", "")
    if definition:
        torch_dtypes.table_format(path, name=name)
    return name


@callback
def named_formats(values):
    """Check the names of formats, of which one may be ``acme8=acme8.txt``."""
    return tuple(map(named, values)) if isinstance(values, tuple) else values and named(values)


@callback
def number_format(value):
    """Check the name of a format in which an optimizer can keep values."""
    if value in (None, "none", "float32"):
        return value
    name = named(value)
    torch_dtypes.target(name)
    return name


@callback
def mode(value):
    """Check the names of rounding modes, or of one."""
    return (
        tuple(map(parse_mode, value)) if isinstance(value, tuple) else value and parse_mode(value)
    )


@callback
def device(value):
    if value == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device, but torch sees none here; use --device cpu")
    return value


@callback
def folder(path):
    """Make a folder and check that files can be written, before hours of training."""
    if path is None or read_launcher()[0] > 0:  # only the first of several processes writes
        return path
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(f"cannot write into {path}: {error.strerror}") from error
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "the figure needs matplotlib, which is not installed: pip install 'torch-dtypes[train]'"
        )
    return path


@contextlib.contextmanager
def writing_into(path):
    """Turn an OSError of the block into a click error that names the file or folder."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"cannot write into {path}: {error.strerror}") from error


def writable(path):
    """Check that a file can be written, or made, and return its path."""
    if path is not None and read_launcher()[0] == 0:
        there = os.path.exists(path)
        try:
            with open(path, "a", encoding="utf-8"):
                pass
            if not there:
                os.remove(path)  # a refused run leaves nothing behind
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from error
    return path
