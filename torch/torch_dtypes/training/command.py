"""``torch-dtypes train``: train one network in several dtypes and compare them."""

import contextlib
import math
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..accumulation import accumulation_block
from ..tables.making import content_of
from ..workbench.folders import occupied
from ..workbench.provenance import command_line
from . import options as check
from . import report
from .combinations import check_policy, check_settings
from .comparison import CHECKPOINT, Comparison
from .loop import Config
from .markdown import write_table
from .observing import Observations
from .page import write_report
from .ranks import is_lost
from .recipes import AFTER, QUANTIZING, THROUGHOUT, RulesFile, Trial, resolve, try_out
from .sources import check_network
from .together import Command, agree, agreed, end, joined


@click.command(cls=Command, short_help="Train a network in several dtypes and compare them.")
@check.source_options()
@click.option("--epochs", type=click.IntRange(1), default=7, show_default=True, help="Passes over the training images.")
@check.optimizer_options
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For initial weights, image order and dropout.")
@click.option(
    "--repeats", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Train with the seeds seed to seed+N-1 and report the mean."
)
@check.device_option
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    default=("posit16es2",),
    show_default=True,
    metavar="NAME",
    callback=check.named_formats,
    help="Dtype to train in: posit16es2, e5m7, posit12es1, fixed8_8, acme8=acme8.txt (a file of values), ...; repeat for several. For mixed, qat and "
    "ptq also blocks and integers: mxfp8_e4m3, int8.",
)
@check.recipe_options
@click.option(
    "--accumulate",
    "policy",
    metavar="POLICY",
    callback=check.policy,
    help="How dot products in the dtypes add up: machine (default), float32, float64, exact, format, chunked(K), block(TERMS) or a chip such as "
    "nvidia-h100; with options too: format(accumulator=e5m7, fused=True).",
)
@click.option(
    "--loss-dtype",
    type=click.Choice(["network", "float32"]),
    default="network",
    show_default=True,
    help="Of the recipes all and master: the loss is computed from the logits in the network's dtype or in float32.",
)
@click.option(
    "--observe",
    is_flag=True,
    help="Count what rounding did in each run's last epoch (overflow, underflow, noise, by layer and pass), into --out and its report; "
    "of float32 what the dtypes would do. That epoch takes about twice the time.",
)
@click.option("--no-baseline", is_flag=True, help="Do not train in float32 as well.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads; default: torch's own choice.")
@click.option("--out", type=click.Path(), metavar="DIR", callback=check.folder, help="Write report.html, results.json and the figure into DIR.")
@check.width_option
@click.option("--resume", is_flag=True, help="Go on with the comparison that was interrupted in --out.")
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    callback=check.markdown,
    help="Write the table by recipe into its marked part of FILE.",
)
def train(**options):
    """Train a network in number formats, and in float32 for comparison.

    By the recipe "all" weights, activations, gradients and the optimizer's state all have
    the dtype. All runs start from the same weights and see the images in the same order. A
    dtype's name may end in a rounding mode (q52_stochastic). Ctrl-C stops after the step
    and keeps what was reached; with --out, --resume goes on there. Under torchrun
    (torchrun --nproc-per-node 2 -m torch_dtypes train ...) the processes share each step's
    images and the test among them, and the first one reports and writes.
    """
    with joined() as ranks, contextlib.ExitStack() as held:
        _train(options, ranks, held)


def _train(options, ranks, held):
    with agreed(ranks):
        config, trials = _prepare(options, ranks)
        if options["out"] and ranks.is_first:
            _or_click_error(held.enter_context, occupied(options["out"]))
            if not options["resume"] and (interrupted := Path(options["out"], CHECKPOINT)).exists():
                raise click.UsageError(
                    f"{options['out']} holds a comparison that was interrupted: --resume goes on with it. To begin anew give another --out, or "
                    f"remove {interrupted}"
                )
    data = _data(options, ranks)
    with check.threads(options["threads"]):
        with agreed(ranks):
            described = _describe(options, config, data, trials, ranks)
        observations = Observations(trials, options["out"]) if options["observe"] else None
        comparison = Comparison(config, data, trials, described["seeds"], described, options["out"], observations, ranks)
        with accumulation_block(options["policy"]) if options["policy"] else contextlib.nullcontext():
            with agreed(ranks):
                comparison.find_unused = _try_out(config, data, trials)
            if options["resume"]:
                with agreed(ranks):
                    _or_click_error(comparison.resume)
            _compare(comparison, options)


def _data(options, ranks):
    """The data on every rank; the first one of each machine fetches files that are missing."""
    fetches = options["download"] and int(os.environ.get("LOCAL_RANK", ranks.rank)) == 0
    data = None
    if fetches:
        with agreed(ranks):
            data = check.data_of(options)
    elif options["download"]:
        agree(ranks)
    with agreed(ranks):
        return data or check.data_of(options)


def _prepare(options, ranks):
    """The options as (config, trials), or a click error."""
    recipes = dict.fromkeys(options["recipes"])
    if ranks.size > 1 and options["observe"]:
        raise click.UsageError(f"expected one process for --observe, but got {ranks.size}")
    try:
        if options["device"] == "cuda":
            ranks.take_gpu()
        check_settings(recipes, **options)
        for recipe in recipes:
            check_policy(options["policy"], recipe)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if options["loss_dtype"] != "network" and not set(recipes) & set(THROUGHOUT):
        raise click.UsageError("--loss-dtype is for --recipe all or master: networks of the others have float32 logits")
    if options["rules"] and not set(recipes) & set(QUANTIZING):
        raise click.UsageError("--rules is for --recipe mixed, qat or ptq")
    if options["rules"] and not set(recipes) - set(QUANTIZING) and check.is_given("dtypes"):
        raise click.UsageError("expected --dtype or --rules, but got both: a file's rules say their formats themselves")
    check.check_width(options["out"])
    if options["resume"] and not options["out"]:
        raise click.UsageError("--resume needs --out, the folder of the comparison that was interrupted")
    config = Config(
        options["model"], options["epochs"], options["batch_size"], options["optimizer"], options["lr"], options["momentum"], options["device"],
        int(options["image_size"]), options["eps"], options["schedule"], options["loss_scale"], options["master"], options["state"], options["rules"],
        options["weights"], options["policy"], options["loss_dtype"],
    )  # fmt: skip
    if config.image_size != 32 and config.model != "alexnet":
        raise click.UsageError(f"--image-size {config.image_size} is for --model alexnet, not {config.model}")
    trials = _trials(options, recipes)
    return config, trials


def _trials(options, recipes):
    """Every dtype by every recipe, and before them float32."""
    trials = []
    if not options["no_baseline"]:
        trials.append(Trial("all", torch.float32))
    by_dtype = [recipe for recipe in recipes if not (options["rules"] and recipe in QUANTIZING)]
    for name in options["dtypes"]:
        for recipe in by_dtype:
            try:
                number = resolve(name, recipe)
                check_policy(options["policy"], recipe, number)
                trials.append(Trial(recipe, number, name.removeprefix("torch.")))
            except (TypeError, ValueError) as error:
                raise click.BadParameter(str(error), param_hint="'--dtype'") from error
    if options["rules"]:
        trials += [Trial(recipe, RulesFile(Path(options["rules"]).stem)) for recipe in recipes if recipe in QUANTIZING]
    in_float32 = [t for t in trials if t.number is torch.float32]
    if not options["no_baseline"] and len(in_float32) > 1 and in_float32[1].recipe == "all":
        trials.remove(in_float32[0])  # it runs where it was asked for
    return tuple(_each_once(trials))


def _each_once(trials):
    """The trials without those that were said again; said by another name, one would be lost that somebody looks for."""
    first = {}
    for trial in trials:
        before = first.setdefault(trial, trial)
        if before.said and before.said != trial.said:
            raise click.BadParameter(
                f"expected different dtypes, but got {before.said} and {trial.said}, which are the same; leave one out", param_hint="'--dtype'"
            )
    return first


def _try_out(config, data, trials):
    """Whether one of the trials leaves a parameter without a gradient."""
    unused = []
    for trial in trials:
        try:
            unused.append(try_out(config, data, trial))
        except (RuntimeError, TypeError, ValueError, OSError, ImportError) as error:  # an operator that the dtype lacks, rules, no memory
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise click.ClickException(f"training in {trial.label} failed: {reason}") from error
    return any(unused)


def _or_click_error(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _describe(options, config, data, trials, ranks):
    """Plain data that says what the comparison was, for results.json."""
    several = {"ranks": ranks.size} if ranks.size > 1 else {}
    if tables := {trial.name: content for trial in trials if (content := content_of(trial.name))}:
        several["tables"] = tables  # what a user's names mean
    return (
        asdict(config)
        | several
        | {
            "lr": config.lr or {"adam": 0.001, "sgd": 0.01}[config.optimizer],
            "rules": Path(config.rules).read_text(encoding="utf-8") if config.rules else None,
            "parameters": _or_click_error(check_network, config, data),
            "dataset": data.name,
            "train_samples": len(data.train),
            "test_samples": len(data.test),
            "classes": data.classes,
            "guess": data.guess.accuracy,
            "dtypes": list(dict.fromkeys(trial.name for trial in trials)),
            "recipes": list(dict.fromkeys(options["recipes"])),
            "seeds": list(range(options["seed"], options["seed"] + options["repeats"])),
            "threads": torch.get_num_threads(),
            "accumulate": options["policy"] or "machine",
        }
    )


def _compare(comparison, options):
    """Train every trial with every seed, showing progress, then report."""
    console = Console(soft_wrap=True, markup=False, emoji=False, quiet=not comparison.ranks.is_first)
    config, data, described = comparison.config, comparison.data, comparison.described
    title = f"{config.model} on {data.name}"
    processes = f"{comparison.ranks.size} processes of " if comparison.ranks.size > 1 else ""
    console.print(
        f"{title}: {described['parameters']:,} parameters, {len(data.train):,} training and "
        f"{len(data.test):,} test images, {config.optimizer}, batch {config.batch_size}, "
        f"{config.device}, {processes}{described['threads']} threads",
        highlight=False,
    )
    if comparison.runs:
        console.print(f"{len(comparison.runs)} runs were done before.", highlight=False)
    steps = config.epochs * math.ceil(len(data.train) / config.batch_size)

    def display(trial, seed, done):
        return _Display(console, trial.label, seed, config.epochs, steps, done)

    def on_run(run):
        if run.recipe in AFTER:
            console.print(f"{run.label} seed {run.seed}: accuracy {run.epochs[-1].accuracy:.2f} % after rounding", highlight=False)
        if run.divergence:
            console.print(run.divergence, highlight=False, markup=False)
        if comparison.observations is not None and (line := comparison.observations.end(run)):
            console.print(line, highlight=False, markup=False)

    with _Stop(console) as stop:
        try:
            comparison.go(display, stop, on_run)
        except OSError as error:
            if not options["out"]:
                raise  # of standard output
            raise click.ClickException(f"cannot write into {options['out']}: {error.strerror}") from error
        except RuntimeError as error:  # no memory
            if comparison.ranks.size > 1 and is_lost(error):
                raise
            raise click.ClickException(f"training failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    if comparison.ranks.is_first:
        _report(console, comparison, options, title)
    if comparison.interrupted:
        run = comparison.interrupted
        kept = f"--resume goes on in epoch {len(run.epochs) + 1}" if options["out"] else "without --out it was not kept"
        console.print(f"Interrupted: {run.label} seed {run.seed}; {kept}.", highlight=False)
        end(comparison.ranks, 130)  # as a shell has it of a command that was interrupted


def _report(console, comparison, options, title):
    summaries = report.summarize(comparison.runs)
    repeats = report.over_seeds(summaries)
    if summaries:
        report.print_table(console, summaries, title + repeats, comparison.data.guess)
    if options["out"] and summaries:
        path, *_ = _write(write_report, options["out"], comparison.described, summaries, command_line(), options["width"], comparison.observations)
        console.print(f"Written: {os.path.join(options['out'], 'results.json')}, {path}, and its figure as PNG, SVG and PDF", highlight=False)
    if options["markdown"] and not comparison.interrupted:
        _write(write_table, options["markdown"], comparison.described, summaries, command_line())


def _write(write, folder, *what):
    try:
        return write(folder, *what)
    except OSError as error:
        raise click.ClickException(f"cannot write into {folder}: {error.strerror}") from error


class _Stop:
    """Whether Ctrl-C was pressed, in a block; pressed again, it interrupts at once."""

    def __init__(self, console):
        self._console, self._pressed, self._before = console, False, None

    def __enter__(self):
        with contextlib.suppress(ValueError):  # not the main thread: there Ctrl-C does not come
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, *_):
        self._pressed = True
        signal.signal(signal.SIGINT, self._before)

    def __call__(self):
        return self._pressed


class _Display:
    """A progress bar on a terminal, and one plain line per epoch everywhere."""

    def __init__(self, console, label, seed, epochs, steps, done):
        self._console, self._label, self._epochs = console, f"{label} seed {seed}", epochs
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(self._label, total=steps, completed=done, loss="-")

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def step(self, loss):
        self._bar.update(self._task, advance=1, loss=f"{loss:.4f}")

    def epoch(self, epoch):
        text = f"{self._label} epoch {epoch.epoch}/{self._epochs}: "
        if epoch.diverged:
            text += f"diverged, loss {epoch.train_loss:.4g}"
        else:
            text += f"loss {epoch.train_loss:.4f}, accuracy {epoch.accuracy:.2f} %, {epoch.seconds:.1f} s"
        self._console.print(text, highlight=False)
        sys.stdout.flush()
