"""The command line of `tools/intree/build`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from .applying import apply, edit_copy
from .building import build, check_machine
from .releases import Refused, Tree, include_tree, source_tree
from .syntax import COMPILERS, check_units, find_compiler

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def check(tree: Tree, jobs: int) -> None:
    """Compile the units with each installed compiler, show the progress, and fail on errors."""
    compilers = [path for names in COMPILERS if (path := find_compiler(names))]
    if not compilers:
        raise Refused("expected g++ or clang++, but got neither; on Debian: apt install g++")
    refused = 0
    for compiler in compilers:
        with tempfile.TemporaryDirectory() as folder:
            results = check_units(tree, Path(folder), compiler, jobs)
            with click.progressbar(
                results,
                label=Path(compiler).name,
                show_pos=True,
                file=click.get_text_stream("stderr"),
            ) as bar:
                texts = [text for _, text in bar if text]
        for text in texts:
            click.echo(text, err=True)
        click.echo(f"{Path(compiler).name}: {len(texts)} units with errors")
        refused += len(texts)
    if refused:
        raise Refused(
            f"expected units that compile against PyTorch {tree.release.name}, but got {refused} "
            "with errors; fix the errors above"
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("source", required=False, type=FOLDER)
@click.option(
    "--only-headers",
    type=FOLDER,
    metavar="INCLUDE",
    help="Edit a copy of an installed PyTorch's include folder instead.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="COPY",
    help="Folder for that copy; it must not exist yet.",
)
@click.option(
    "--check",
    "checked",
    type=FOLDER,
    metavar="INCLUDE",
    help="Compile the files to be laid, without code, against a copy of these headers.",
)
@click.option("--edits-only", is_flag=True, help="Edit SOURCE, and build nothing.")
@click.option("--build-only", is_flag=True, help="Build SOURCE, which must be edited already.")
@click.option(
    "--target",
    default="python",
    show_default=True,
    help="Target: python (all that `import torch` needs), c10, torch_cpu, all, ...",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the build (default: SOURCE/build).",
)
@click.option(
    "--define",
    multiple=True,
    metavar="NAME=VALUE",
    help="A further definition for cmake; may be given again.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Compilers at once (default: as many as there are cores).",
)
def main(source, only_headers, to, checked, edits_only, build_only, target, folder, define, jobs):
    """Put the number formats into the PyTorch tree in SOURCE, as types of its own list, and build
    it.

    SOURCE is edited in place, completely or not at all. Nothing is installed: missing needs of the
    build are named.
    """
    if sum(x is not None for x in (source, only_headers, checked)) != 1:
        raise click.UsageError(
            "expected one of SOURCE, --only-headers INCLUDE and --check INCLUDE, but got none or "
            "several; give one"
        )
    if edits_only and build_only:
        raise click.UsageError("expected --edits-only or --build-only, but got both; give one")
    if (to is None) != (only_headers is None):
        raise click.UsageError(
            "expected --to COPY with --only-headers INCLUDE, but got one alone; give both"
        )
    try:
        if checked is not None:
            check(include_tree(checked.resolve()), jobs or os.cpu_count() or 1)
            return
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
            click.echo(
                f"PyTorch {tree.release.name}: {len(written)} files edited or added in {source}"
            )
        if not edits_only:
            build(tree.folder, target, jobs, folder and folder.resolve(), define)
            if target == "python":
                click.echo(f"PYTHONPATH={tree.folder} python tools/intree/checks/first_tensor.py")
    except Refused as error:
        raise click.ClickException(str(error)) from None
