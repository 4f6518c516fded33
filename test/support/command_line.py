"""Run the command torch-dtypes in this process."""

import pytest

from torch_dtypes import cli

click_testing = pytest.importorskip("click.testing", reason="the command line needs click")


def command(*args):
    """Return the outcome of a command line; anything but a normal exit fails the test."""
    result = click_testing.CliRunner().invoke(
        cli.group(), [str(a) for a in args], prog_name="torch-dtypes"
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
