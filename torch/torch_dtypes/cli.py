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

    from torch_dtypes.training.command import train

    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

    @click.group(context_settings=settings)
    def commands():
        """Train and measure networks in posit and custom float dtypes."""

    @commands.command()
    @click.option("--steps", type=click.IntRange(1), help="Training steps to time in each case.")
    @click.option("--batch-size", "batch_sizes", multiple=True, type=click.IntRange(1), help="Images in a step; repeat for several.")
    @click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="Dtype to time; repeat for several.")
    @click.option("--threads", type=click.IntRange(1), help="CPU threads; default: torch's own choice.")
    @click.option("--out", type=click.Path(), metavar="DIR", help="Folder for the results.")
    def bench(**options):
        """Time training steps in several dtypes."""
        from torch_dtypes import bench as benchmark

        # What was not given is left to the defaults of run().
        given = {name: value for name, value in options.items() if value not in (None, ())}
        try:
            benchmark.run(**given)
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from error

    commands.add_command(train)
    return commands
