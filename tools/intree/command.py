"""The command line of `tools/intree/build`."""

from __future__ import annotations

from pathlib import Path

import click

from .applying import apply, edit_copy
from .building import build, check_machine
from .releases import Refused, include_tree, source_tree

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("source", required=False, type=FOLDER)
@click.option("--only-headers", type=FOLDER, metavar="INCLUDE", help="Edit a copy of an installed PyTorch's include folder instead.")
@click.option("--to", type=click.Path(path_type=Path), metavar="COPY", help="Where that copy goes; it must not exist yet.")
@click.option("--edits-only", is_flag=True, help="Edit SOURCE, and build nothing.")
@click.option("--build-only", is_flag=True, help="Build SOURCE, which was edited before.")
@click.option("--target", default="python", show_default=True, help="What to build: python (what `import torch` needs), c10, torch_cpu, all, ...")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to build (default: SOURCE/build).")
@click.option("--define", multiple=True, metavar="NAME=VALUE", help="A further definition for cmake; may be given again.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once (default: as many as there are cores).")
def main(source, only_headers, to, edits_only, build_only, target, folder, define, jobs):
    """Put the number formats into the PyTorch tree in SOURCE, as types of its own list, and build it.

    SOURCE is edited in place, all of it or nothing. Nothing is installed: what the build needs and does not find is named.
    """
    if (source is None) == (only_headers is None):
        raise click.UsageError("expected SOURCE or --only-headers INCLUDE, and not both")
    if edits_only and build_only:
        raise click.UsageError("expected --edits-only or --build-only, and not both")
    if (to is None) != (only_headers is None):
        raise click.UsageError("expected --to COPY with --only-headers INCLUDE, and nowhere else")
    try:
        if only_headers is not None:
            tree = include_tree(only_headers.resolve())
            written = edit_copy(tree, to.resolve())
            click.echo(f"PyTorch {tree.release.name}: {len(written)} files edited or added in {to}")
            return
        tree = source_tree(source.resolve())
        if not edits_only:
            check_machine()
        if not build_only:
            written = apply(tree)
            click.echo(f"PyTorch {tree.release.name}: {len(written)} files edited or added in {source}")
        if not edits_only:
            build(tree.folder, target, jobs, folder and folder.resolve(), define)
            if target == "python":
                click.echo(f"PYTHONPATH={tree.folder} python tools/intree/checks/first_tensor.py")
    except Refused as error:
        raise click.ClickException(str(error)) from None
