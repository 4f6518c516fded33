"""The command ``torch-dtypes run``."""

from __future__ import annotations

import importlib.util
import inspect
import math
import os
import sys
import warnings
from pathlib import Path

import click
from rich.console import Console

from ...compat.scripts import run_script
from ...formats.arguments import parse_mode
from ...formats.dtypes import dtype as dtype_of
from ...fuzzing.arguments import LEVELS
from ..observation.scripts import observe_script
from ..observation.sections import add_counts
from ..report.page import Report
from ..report.progress import plain_console
from ..report.provenance import command_line
from ..report.tables import print_rows
from ..training import checks
from .printed import Comparison, compare_outputs
from .repeats import load_once, run_in_child
from .settings import Setting, draws

_ROWS = 40  # of the table


@checks.callback
def _dtype(name):
    if name is not None:
        dtype_of(name := checks.named(name))
    return name


@checks.callback
def _random_mode(value):
    mode = value and parse_mode(value)
    if mode and not draws(mode):
        raise ValueError(
            f"expected a random mode, as stochastic or up_down, but got {mode}; use --rounding "
            f"{mode}"
        )
    return mode


@checks.callback
def _page(path):
    for name in ("jinja2", "matplotlib"):
        if path and importlib.util.find_spec(name) is None:
            raise ValueError(
                f"the page needs {name}, which is not installed: pip install 'torch-dtypes[train]'"
            )
    return path and checks.writable(path)


@click.command(
    short_help="Run a script in another dtype, rounding or adder, and repeat it to count digits.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--dtype", metavar="NAME", callback=_dtype, help="The default dtype, as in q52_stochastic."
)
@click.option(
    "--fuzzy",
    metavar="MODE",
    callback=_random_mode,
    help="Round every operation at random: stochastic, up_down, stochastic_a4, ...",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="operator",
    show_default=True,
    help="With --fuzzy: round each operator's result, or each instruction within it.",
)
@click.option(
    "--rounding",
    metavar="MODE",
    callback=checks.mode,
    help="Round every operation in this mode: in --dtype, else in each stock dtype.",
)
@click.option(
    "--accumulate",
    metavar="POLICY",
    callback=checks.policy,
    help="Add up products and sums by this policy: in --dtype, else in float32.",
)
@click.option(
    "--observe",
    type=click.Path(dir_okay=False),
    metavar="PAGE",
    callback=_page,
    help="Count what rounding does, by layer, and write it as a page (HTML).",
)
@click.option(
    "--repeats",
    type=click.IntRange(2),
    metavar="N",
    help="Run the script N times, each with other random bits, and say how many digits of its "
    "printed numbers stay.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of random rounding. The script's own random numbers do not depend on it.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(script, args, observe, repeats, seed, **options):
    """Run SCRIPT with ARGS as python does, under a setting. Options stand before SCRIPT.

    --fuzzy, and without --dtype --rounding and --accumulate, compute every floating-point operation
    of PyTorch anew: its exact result or float64's, rounded. --dtype sets the dtype of all that the
    script makes without naming one.
    """
    setting = _setting(**options)
    if observe and repeats:
        raise click.UsageError("expected --observe or --repeats, but got both: leave one out")
    if repeats and not setting.is_random:
        raise click.UsageError(
            "expected random rounding with --repeats, but got none: add --fuzzy stochastic, or a "
            "--dtype as q52_stochastic"
        )
    if not (observe or any(v for name, v in options.items() if name != "level")):
        raise click.UsageError(
            "expected --dtype, --fuzzy, --rounding, --accumulate or --observe, but got none of "
            "them: add one"
        )
    # Warnings of the script look as they do without this command.
    warnings.formatwarning = inspect.unwrap(warnings.formatwarning)
    if repeats:
        _repeat(setting, script, args, repeats, seed)
    elif observe:
        _observe(setting, script, args, seed, os.path.abspath(observe))
    else:
        _run(setting, script, args, seed)


def _setting(dtype, fuzzy, level, rounding, accumulate) -> Setting:
    if level == "instruction" and (accumulate or not fuzzy):
        raise click.UsageError(
            "expected --level instruction with --fuzzy and without --accumulate, but got "
            + ("both" if fuzzy else "no --fuzzy")
        )
    if fuzzy and rounding:
        raise click.UsageError("expected --fuzzy or --rounding, but got both: leave one out")
    if fuzzy and dtype:
        raise click.UsageError(
            "expected --fuzzy, which rounds float32 operations, without --dtype, but got both: "
            f"write --rounding {fuzzy}"
        )
    setting = Setting(dtype, fuzzy or rounding, accumulate, level)
    try:
        setting.check_policy()
    except (RuntimeError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="'--accumulate'") from error
    return setting


def _run(setting: Setting, script: str, args: tuple[str, ...], seed: int) -> None:
    with setting.applied(seed) as was_used:
        try:
            run_script(script, args)
        finally:
            if not was_used():
                click.echo(
                    f"torch-dtypes run: expected PyTorch operations that round in {script}, but "
                    "got none on its main thread; the setting changed nothing",
                    err=True,
                )


def _observe(setting, script, args, seed, page) -> None:
    report = Report(
        f"Effects of rounding in {Path(script).name}", command=command_line(), seeds=[seed]
    )
    ended = None
    with observe_script() as stats:
        try:
            _run(setting, script, args, seed)
        except SystemExit as error:
            ended = error
    if stats:
        add_counts(report.text(stats.worst()), stats, "rounding", limit=100)
    else:
        report.text("Nothing was rounded to a number format on the script's main thread.")
    with checks.writing_into(page):
        report.write(page)
    click.echo(f"torch-dtypes run: {stats.worst() or 'nothing was rounded'}; {page}", err=True)
    if ended is not None:
        raise ended


def _repeat(setting, script, args, repeats, seed) -> None:
    load_once()
    outputs = []
    for at in range(repeats):
        status, text = run_in_child(lambda at=at: _run(setting, script, args, seed + at), at > 0)
        if not at or status:
            sys.stdout.write(text)
        if status:
            raise SystemExit(status)
        outputs.append(text)
    _print_digits(compare_outputs(outputs), len(outputs))


def _print_digits(found: Comparison, repeats: int) -> None:
    console = plain_console()
    if found.differing:
        console.print(
            f"\nLeft out, as words differ between the runs: {found.differing} "
            f"line{'s' * (found.differing != 1)}."
        )
    if not found.numbers:
        console.print(f"\n{repeats} runs printed no number with a decimal point.")
        return
    console.print(
        f"\nSignificant digits of printed numbers in {repeats} runs. A further run has them with "
        f"probability {found.estimate.probability:.2f} (confidence "
        f"{found.estimate.confidence:g}).\n"
    )
    rows = [
        (
            str(n.line),
            n.text,
            n.values[0],
            min(n.values, key=float),
            max(n.values, key=float),
            "" if math.isnan(n.digits) else f"{n.digits:.1f}{' (all)' if n.are_all else ''}",
        )
        for n in found.numbers[:_ROWS]
    ]
    print_rows(
        Console(markup=False, emoji=False),
        ("line", "text", "first run", "lowest", "highest", "digits"),
        rows,
    )
    least = min(found.numbers, key=lambda n: math.inf if math.isnan(n.digits) else n.digits)
    if len(found.numbers) > _ROWS:
        console.print(
            f"and {len(found.numbers) - _ROWS} more; the fewest digits, {least.digits:.1f}, are in "
            f"line {least.line}"
        )
