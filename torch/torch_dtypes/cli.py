"""The ``torch-dtypes`` command: ``train`` and ``bench``.

click and rich belong to the extra ``train``, not to the package. So nothing here imports
them until :func:`main` has looked whether they are there.
"""

import importlib.util
import sys

EXTRA = "pip install 'torch-dtypes[train]'"


def main(args=None):
    """Run the command line ``args`` (by default the process's own) and exit."""
    absent = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if absent:
        sys.exit(f"Error: the torch-dtypes command needs {' and '.join(absent)}: {EXTRA}")
    group()(args=args, prog_name="torch-dtypes")


def group():
    """The ``click.Group`` of all commands; click must be installed."""
    import click
    import torch

    import torch_dtypes
    from torch_dtypes.bench.command import bench
    from torch_dtypes.training.command import train

    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

    version = f"torch-dtypes %(version)s (torch {torch.__version__}, {torch_dtypes._C.cpu_capability()} kernels)"

    @click.group(context_settings=settings)
    @click.version_option(torch_dtypes.__version__, "-V", "--version", message=version)
    def commands():
        """Train and measure networks in posit and custom float dtypes."""

    commands.add_command(bench)
    commands.add_command(train)
    return commands
