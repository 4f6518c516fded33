"""The part of ``torch-dtypes bench`` that has ``--model``."""

from __future__ import annotations

from pathlib import Path

import click
import torch
from rich.console import Console

from ..report.marked_sections import replace_sections
from ..report.progress import bar_on
from ..report.provenance import command_line
from ..training import checks, inputs
from ..training import options as common
from ..training.recipes import AFTER, PUBLISHED, RECIPES, Trial, resolve
from ..training.records import Config
from ..training.sources import check_network, load_own_batch
from .measuring import NotMeasuredError
from .memory import run_process
from .own_model import BASELINE, OwnModel, measure_costs, take_batch
from .own_report import report_of

_DTYPES = ("posit16es2", "q52")
_BATCH = 32
_ROUNDS, _QUICK_ROUNDS = 20, 3
_PROFILES, _QUICK_PROFILES = 5, 1
_RECIPES = [name for name in RECIPES if name not in (*AFTER, *PUBLISHED)]

own_options = common.add_options(
    (
        inputs.source_options(default=None),
        click.option(
            "--recipe",
            "recipes",
            type=click.Choice(_RECIPES),
            multiple=True,
            default=("all",),
            show_default=True,
            help="Which numbers of --model are in the format, as in train; repeat for several.",
        ),
        click.option(
            "--optimizer",
            type=click.Choice(common.OPTIMIZERS),
            default="adam",
            show_default=True,
            help="The optimizer of --model.",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(1),
            help=f"Inputs in a step of --model. Default: the function's batch, else {_BATCH}.",
        ),
    )
)
_OWN = (
    "weights dataset text data data_dir download train_samples test_samples recipes optimizer "
    "batch_size"
).split()


def check_options(options: dict) -> None:
    """Refuse options of suites beside --model, and options of --model without it."""
    if options["model"] is None:
        wrong, with_model = [name for name in _OWN if checks.is_given(name)], "with"
    else:
        wrong, with_model = (
            [name for name in ("suites", "only_list") if checks.is_given(name)],
            "without",
        )
        if len(options["threads"]) > 1:
            raise click.UsageError("expected one --threads with --model, but got several")
    if wrong:
        flags = {"suites": "suite", "only_list": "list", "recipes": "recipe"}
        flag = flags.get(wrong[0], wrong[0]).replace("_", "-")
        raise click.UsageError(f"expected --{flag} {with_model} --model; leave one of them out")


def bench_model(options: dict) -> OwnModel:
    """Measure, print and write the cost of a step of --model.

    Raises:
        click.ClickException: wrong options, or a network that takes no step.
    """
    if options["out"]:
        checks.folder(click.get_current_context(), None, options["out"])
    with common.threads(options["threads"][0] if options["threads"] else None):
        result = _measure(options)
    console = Console()
    page = report_of(result, command_line())
    page.print(console)
    if options["out"]:
        with checks.writing_into(options["out"]):
            written = page.save(options["out"], "bench")
            markdown = Path(options["out"]) / "bench.md"
            markdown.write_text(page.markdown(), encoding="utf-8")
        names = ", ".join(map(str, (*written[-2:], markdown)))
        console.print(f"Written: {names}", highlight=False, soft_wrap=True)
    if options["markdown"]:
        with checks.writing_into(options["markdown"]):
            section = {options["model"]: f"\n{page.markdown()}\n"}
            replace_sections(Path(options["markdown"]), "bench --model", section)
    return result


def _measure(options: dict) -> OwnModel:
    trials = _trials(options)
    try:
        data, batch_size = _load(options)
        batch = take_batch(data, batch_size)
        config = Config(
            options["model"],
            batch_size=batch_size,
            optimizer=options["optimizer"],
            weights=options["weights"],
        )
        check_network(config, batch)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    quick = options["quick"]
    rounds = options["rounds"] or (_QUICK_ROUNDS if quick else _ROUNDS)

    def measure_peak(path: Path) -> int:
        return run_process(str(path), what=options["model"])["peak"]

    with bar_on(Console()) as bar:
        task = bar.add_task("", total=len(trials) * (1 + rounds + 3))
        try:
            return measure_costs(
                config,
                batch,
                trials,
                rounds=rounds,
                profiles=_QUICK_PROFILES if quick else _PROFILES,
                measure_peak=measure_peak,
                on_run=lambda what: bar.update(task, advance=1, description=what),
            )
        except (ValueError, NotMeasuredError) as error:
            raise click.ClickException(str(error)) from error


def _load(options: dict):
    """Return the data and the number of inputs in a step."""
    given = any(map(checks.is_given, ("dataset", "data", "text")))
    if ":" in options["model"] and not given:
        data = load_own_batch(options["model"])
        if data is not None:
            return data, options["batch_size"] or len(data.train)
    data = inputs.data_of(options)
    return data, options["batch_size"] or min(_BATCH, len(data.train))


def _trials(options: dict) -> list[Trial]:
    """Return the trials, each once, with float32 first."""
    trials = [Trial("all", torch.float32, BASELINE)]
    for name in options["dtypes"] or _DTYPES:
        for recipe in options["recipes"]:
            try:
                trials.append(Trial(recipe, resolve(name, recipe), name.removeprefix("torch.")))
            except (TypeError, ValueError) as error:
                raise click.BadParameter(str(error), param_hint="'--dtype'") from error
    return list({trial.label: trial for trial in trials}.values())
