"""The ``torch-dtypes`` command, whose sub-commands are in ``COMMANDS``.

click and rich belong to the extra ``train``, not to the package. So nothing here imports
them until :func:`main` has looked whether they are there.
"""

import codecs
import contextlib
import errno
import importlib
import importlib.util
import os
import sys
import warnings

# What the commands print beyond ASCII, as a stream shows it that has no such sign
# (PYTHONIOENCODING=ascii, another 8-bit locale).
_SPELT = {"±": "+-", "µ": "u", "…": "..."}

# How writing to standard output fails; EPIPE (its reader has ended, as head does) is no error to
# speak of.
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

# Each command by its name, and the module below the package that has it.
COMMANDS = {
    "bench": "workbench.bench.command",
    "sensitivity": "workbench.sensitivity.command",
    "show": "workbench.show_command",
    "sweep": "workbench.sweeps.command",
    "train": "workbench.sweeps.train",
    "variability": "workbench.variability.command",
    "vectors": "workbench.vectors.command",
}

EXTRA = "pip install 'torch-dtypes[train]'"


def main(args=None):
    """Run the command line ``args`` (by default the process's own) and exit."""
    absent = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if absent:
        sys.exit(f"Error: the torch-dtypes command needs {' and '.join(absent)}: {EXTRA}")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None: it was closed, by >&-
            _spell_out(stream)
    as_before = warnings.formatwarning
    warnings.formatwarning = _warning(as_before)
    try:
        try:
            group()(args=args, prog_name="torch-dtypes")
        finally:
            warnings.formatwarning = as_before
            if sys.stdout is not None:
                # Here, where what goes wrong can be said; Python's own at its end prints "Exception
                # ignored".
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            # Files have names where they are opened; commands say themselves what is wrong with
            # theirs.
            raise
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed
            # What is still in its buffer would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(
            1
            if error.errno == errno.EPIPE
            else f"Error: cannot write to standard output, or a file: {error.strerror}"
        )


def _warning(as_before):
    """How warnings that are meant for users look: without the line of this package's code that gave
    them."""

    def text(message, category, *place):
        return (
            f"Warning: {message}\n"
            if category is UserWarning
            else as_before(message, category, *place)
        )

    return text


def _spell_out(stream):
    """Lets a text stream write signs that its encoding lacks as others: it would raise in the
    middle of a table."""
    try:
        "".join(_SPELT).encode(stream.encoding)
    except UnicodeEncodeError:
        codecs.register_error(
            "torch_dtypes.spelt",
            lambda error: (_spelt(error.object[error.start : error.end]), error.end),
        )
        stream.reconfigure(errors="torch_dtypes.spelt")


def _spelt(text):
    return "".join(_SPELT.get(sign, "?") for sign in text)


def group():
    """The ``click.Group`` of all commands; click must be installed."""
    import click
    import torch

    import torch_dtypes
    from torch_dtypes.workbench.training.together import Alone

    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

    version = (
        f"torch-dtypes %(version)s (torch {torch.__version__}, {torch_dtypes._C.cpu_capability()} "
        "kernels)"
    )

    @click.group(cls=Alone, context_settings=settings)
    @click.version_option(torch_dtypes.__version__, "-V", "--version", message=version)
    def commands():
        """Train and measure networks in posit and custom float dtypes."""

    for name, module in COMMANDS.items():
        commands.add_command(getattr(importlib.import_module(f"torch_dtypes.{module}"), name))
    return commands
