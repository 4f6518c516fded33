"""The command ``torch-dtypes vectors``."""

import functools
import os
import sys
import tempfile

import click

from ...formats.arguments import parse_mode
from ..report.folders import is_special
from ..report.progress import bar_on
from ..training.checks import is_given, named_formats
from .blocks import BlockJob, find_blocks
from .files import put, write
from .lines import KINDS
from .making import OPERATIONS, Job


def _file(ctx, param, path):
    """Check, before a long run, that a file's folder can be written; ``-`` passes."""
    if path == "-":
        if sys.stdout is None:
            raise click.BadParameter("expected standard output to write to, but it is closed")
        return path
    if os.path.isdir(path):
        raise click.BadParameter(f"expected a file, but {path} is a folder")
    if is_special(path):
        return path
    folder = os.path.dirname(os.path.realpath(path))
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.BadParameter(
            f"cannot write {path}: {error.strerror}; name a file in a folder that exists"
        ) from error
    return path


@click.command(short_help="Write golden vectors: operands, results and flags as codes.")
@click.argument("format", metavar="FORMAT", callback=named_formats)
@click.option(
    "--op",
    "operation",
    type=click.Choice((*OPERATIONS, "quantize")),
    required=True,
    help="The operation.",
)
@click.option(
    "--mode",
    metavar="MODE",
    help="A deterministic rounding mode, or Pychop's number; default: the format's own. For "
    "quantize also a random mode: its random bits are among the operands.",
)
@click.option(
    "--to",
    metavar="FORMAT",
    callback=named_formats,
    help="For cast, and for dot of blocks (there default: fp32): the format of the results.",
)
@click.option("--terms", type=int, metavar="N", help="For dot: the number of products.")
@click.option(
    "--accumulate",
    default="machine",
    show_default=True,
    metavar="POLICY",
    help="For dot: machine, exact, chunked(32), format(accumulator=e5m7), ...",
)
@click.option(
    "--count", type=int, metavar="N", help="How many vectors, directed-random.  [default: 10000]"
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="All combinations of operands instead, for small formats.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Seed of the random vectors.",
)
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    callback=_file,
    help="The file to write; - for standard output.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(KINDS),
    default="hex",
    show_default=True,
    help="Lines of codes, JSON, or words for $readmemh.",
)
def vectors(format, operation, mode, to, terms, accumulate, count, everything, seed, out, kind):
    """Write golden vectors of an operation: operands, correctly rounded results and flags, as
    codes.

    FORMAT is any name that show takes: posit16es2, q43, bf16, posit12es1, e4m3fn_saturate,
    fixed8_8. Blocks (nvfp4, mxfp8_e4m3) have the operations quantize, from float32 to codes, and
    dot, of two blocks. The flags are those of IEEE 754-2019, section 7. Vectors are directed-random
    (ties, cancellation, both ends of the range, subnormal numbers and specials are drawn more
    often), or all combinations of operands. The same options write the same file.
    """
    from rich.console import Console

    if everything and count is not None:
        raise click.UsageError("expected --count or --all, but got both")
    if everything and is_given("seed"):
        raise click.UsageError("expected --seed or --all, but got both; --all draws none")
    try:
        mode = None if mode is None else parse_mode(mode)
        if count is None:
            count = 10_000
        if find_blocks(format) is not None:
            if everything or terms is not None or accumulate != "machine":
                raise ValueError(
                    "expected vectors of blocks without --all, --terms and --accumulate, but got "
                    "one; a dot product of two blocks is exact and rounds once"
                )
            job = BlockJob(format, operation, mode, to, count, seed)
        else:
            job = Job(
                format, operation, mode, to, terms, accumulate, None if everything else count, seed
            )
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    with bar_on(Console(stderr=True)) as bar:
        advance = functools.partial(bar.advance, bar.add_task("vectors", total=job.total))
        try:
            put(job, sys.stdout, kind, advance) if out == "-" else write(job, out, kind, advance)
        except RuntimeError as error:  # the format cannot follow the policy
            raise click.ClickException(str(error)) from error
        except OSError as error:  # for example, the disk is full
            if out == "-":
                raise  # handled in cli.main, for every command
            raise click.ClickException(f"cannot write {out}: {error.strerror}") from error
    written = (
        f"written: {out}, {job.total:,} vectors of {operation} in {format}, "
        f"{job.header()['rounding']}"
    )
    click.echo(written, err=out == "-")
