"""The ``torch-dtypes`` command, whose sub-commands are in ``COMMANDS``.

click and rich belong to the extra ``train``, not to the package. So nothing here imports
them until :func:`main` has looked whether they are there.
"""

import codecs
import contextlib
import errno
import functools
import importlib
import importlib.util
import os
import sys
import warnings

# Replacements of non-ASCII characters in output for a stream whose encoding lacks them
# (PYTHONIOENCODING=ascii, another 8-bit locale).
_SPELT = {"±": "+-", "µ": "u", "…": "..."}

# Errors of writing to standard output. EPIPE (its reader has ended, as head does) gives no message.
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

# Each command by its name, and the module below the package that has it.
COMMANDS = {
    "bench": "workbench.bench.command",
    "chop": "workbench.chop_command",
    "datasheet": "workbench.datasheets.command",
    "perplexity": "workbench.perplexity.command",
    "run": "workbench.scripts.command",
    "sensitivity": "workbench.sensitivity.command",
    "show": "workbench.show_command",
    "solve": "workbench.solving.command",
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
    warnings.formatwarning = _format_warning(as_before)
    try:
        try:
            group()(args=args, prog_name="torch-dtypes")
        finally:
            warnings.formatwarning = as_before
            if sys.stdout is not None:
                # Flushed here, where an error can be reported. Python's own flush at exit prints
                # "Exception ignored".
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            # A file that was opened has a name. Commands report errors of their own files.
            raise
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed
            # The rest of the buffer would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(
            1
            if error.errno == errno.EPIPE
            else f"Error: cannot write to standard output, or a file: {error.strerror}"
        )


def _format_warning(as_before):
    """Format warnings for users without the line of this package's code that gave them."""

    @functools.wraps(as_before)
    def format_text(message, category, *place):
        return (
            f"Warning: {message}\n"
            if category is UserWarning
            else as_before(message, category, *place)
        )

    return format_text


def _spell_out(stream):
    """Replace characters that a stream's encoding lacks, which would raise in the middle of a
    table."""
    try:
        "".join(_SPELT).encode(stream.encoding)
    except UnicodeEncodeError:
        codecs.register_error(
            "torch_dtypes.spelling",
            lambda error: (_spell(error.object[error.start : error.end]), error.end),
        )
        stream.reconfigure(errors="torch_dtypes.spelling")


def _spell(text):
    return "".join(_SPELT.get(sign, "?") for sign in text)


def group():
    """Return the ``click.Group`` of all commands; click must be installed."""
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
