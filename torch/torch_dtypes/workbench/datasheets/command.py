"""The command ``torch-dtypes datasheet``."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import click

from ..report.marked_sections import replace_sections
from ..report.progress import plain_console
from ..report.provenance import command_line
from ..sweeps import grid
from ..sweeps.display import Display
from ..sweeps.options import cell_threads_option, retry_option, time_limit_option
from ..sweeps.store import Store
from ..training import checks, inputs
from ..training import options as common
from ..training.loading import load_data
from .measuring import measure
from .plan import PARTS, Plan
from .sheet import build, find_formats

# Networks and data sets of --thorough, beside the user's.
_FURTHER = (("gpt", "topics"), ("resnet18", "cifar10"))


@click.command(short_help="Does a format hold, and what does it need? One page, one verdict.")
@click.argument("formats", nargs=-1, required=True, metavar="FORMAT...")
@click.option(
    "--against",
    multiple=True,
    metavar="FORMAT",
    help="A format to stand beside them; repeat for several.",
)
@inputs.source_options()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(PARTS)),
    help="A part of the page; repeat for several.  [default: all]",
)
@click.option(
    "--thorough",
    is_flag=True,
    help="Hours: seeds 0 to 4, a GPT on text, and ResNet-18 on CIFAR-10 where --data-dir has it.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Passes over the training data.",
)
@common.optimizer_options
@click.option(
    "--seeds",
    type=click.IntRange(1),
    metavar="N",
    help="Train with the seeds 0 to N-1; with one, no difference can be judged.  [default: 3]",
)
@cell_threads_option
@click.option(
    "--jobs", type=click.IntRange(1), default=2, show_default=True, help="Cells in parallel."
)
@time_limit_option
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run the cells over machines: the address of a Dask scheduler, tcp://host:8786.",
)
@retry_option
@common.out_option(
    "Folder for the page, Markdown, CSV, JSON and figures. The same command continues there."
)
@common.markdown_option("Write the Markdown into its marked part of FILE.")
def datasheet(**options):
    """Ask whether a network keeps its accuracy in a format, and what it needs for that: one page
    that opens with a verdict.

    FORMAT is a name as in show (e4m4, posit8es1, mxfp4), acme8=acme8.txt, a file of values, or
    package.module:MyQuantiser. Its parts ask show and sweep, beside float32 and the formats of
    --against. Each sentence of the verdict names the rows it rests on, and says so where runs
    differ by less than their spread. Whatever fails is a sentence on the page.
    """
    console = plain_console()
    plan, failures = _plan(options)
    with contextlib.ExitStack() as stack:
        folder = options["out"] or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="torch-dtypes-datasheet-")
        )
        limits = {name: options[name] for name in ("jobs", "time_limit", "scheduler", "retry")}
        try:
            with Display(console) as shown:
                with common.threads(options["threads"]):
                    measured = measure(
                        plan, Store(folder), shown, options["download"], console.print, **limits
                    )
        except KeyboardInterrupt:
            console.print(
                "Interrupted: the same command continues with the missing cells."
                if options["out"]
                else "Interrupted: without --out nothing was kept."
            )
            sys.exit(130)  # the shell's status of an interrupted command
        except (OSError, ValueError, ImportError) as error:
            raise click.ClickException(str(error)) from error
    with checks.writing_into(options["out"]):
        sheet = build(plan, measured, failures, options["out"])
    sheet.print(console)
    if options["markdown"]:
        with checks.writing_into(options["markdown"]):
            section = {", ".join(plan.formats): f"\n{sheet.markdown()}\n"}
            replace_sections(Path(options["markdown"]), "datasheet", section)
    if options["out"]:
        with checks.writing_into(options["out"]):
            written = sheet.write(options["out"], command_line())
        console.print(f"\nWritten: {written[-2]}, {written[-1]} and {len(written) - 2} other files")


def _plan(options):
    """Return the options as (plan, failures of formats), or raise a click error."""
    (dataset,) = inputs.datasets_of(options)
    if not options["thorough"]:
        inputs.check_files(options)
    formats, failures = find_formats(options["formats"])
    against, others = find_formats(options["against"])
    failures |= others
    if not formats:
        raise click.UsageError("; ".join(f"{name}: {why}" for name, why in failures.items()))
    # The page names formats without the folders of their files.
    click.get_current_context().params |= {"formats": (*formats,), "against": (*against,)}
    shared = common.settings_in(options) | {
        name: options[name]
        for name in ("data_dir", "train_samples", "test_samples", "text", "threads")
    }
    try:
        settings = grid.settings_of(datasets=(dataset,), **shared)
    except OSError as error:
        raise click.UsageError(str(error)) from error
    tasks, data_dir = [(options["model"], dataset)], None
    for task in _FURTHER if options["thorough"] else ():
        if task in tasks:
            continue
        try:
            load_data(task[1], task[0], data_dir=options["data_dir"])
            tasks.append(task)
            data_dir = os.path.abspath(options["data_dir"])
        except (OSError, ValueError, ImportError) as error:
            failures[" on ".join(task)] = str(error)
    plan = Plan(
        tuple(dict.fromkeys(formats)),
        tuple(name for name in dict.fromkeys(against) if name not in formats),
        tuple(tasks),
        tuple(range(options["seeds"] or (5 if options["thorough"] else 3))),
        settings,
        tuple(name for name in PARTS if name in options["only"] or not options["only"]),
        data_dir,
        sums_epochs=settings.epochs if options["thorough"] else 1,
    )
    return plan, failures
