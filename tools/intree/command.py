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
    """Compiles the units with each compiler that is installed, shows how far that is, and fails
    where one refuses any."""
    compilers = [path for names in COMPILERS if (path := find_compiler(names))]
    if not compilers:
        raise Refused("expected g++ or clang++, but found neither; on Debian: apt install g++")
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
            "with errors; they stand above"
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
    help="Where that copy goes; it must not exist yet.",
)
@click.option(
    "--check",
    "checked",
    type=FOLDER,
    metavar="INCLUDE",
    help="Compile what would be laid, without code, against a copy of these headers.",
)
@click.option("--edits-only", is_flag=True, help="Edit SOURCE, and build nothing.")
@click.option("--build-only", is_flag=True, help="Build SOURCE, which was edited before.")
@click.option(
    "--target",
    default="python",
    show_default=True,
    help="What to build: python (what `import torch` needs), c10, torch_cpu, all, ...",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to build (default: SOURCE/build).",
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

    SOURCE is edited in place, all of it or nothing. Nothing is installed: what the build needs and
    does not find is named.
    """
    if sum(given is not None for given in (source, only_headers, checked)) != 1:
        raise click.UsageError("expected one of SOURCE, --only-headers INCLUDE and --check INCLUDE")
    if edits_only and build_only:
        raise click.UsageError("expected --edits-only or --build-only, and not both")
    if (to is None) != (only_headers is None):
        raise click.UsageError("expected --to COPY with --only-headers INCLUDE, and nowhere else")
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
