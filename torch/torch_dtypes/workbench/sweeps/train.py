"""``torch-dtypes train``: train one network in several dtypes and compare them."""

import contextlib
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
import torch

from ...formats.dtypes import is_format_dtype
from ...formats.tables.making import content_of
from ...policies.accumulation import accumulation_block
from ...targets.lookup import target
from ..cards.card import card
from ..report.folders import lock_folder
from ..report.progress import plain_console
from ..report.provenance import command_line
from ..training import checks, findings, inputs, observing, report
from ..training import options as common
from ..training.combinations import check_policy, check_settings
from ..training.loop import try_out
from ..training.measures import perplexity
from ..training.ranks import first_line, is_lost
from ..training.recipes import PUBLISHED, QUANTIZING, THROUGHOUT, RulesFile, Trial, resolve
from ..training.records import Config, Epoch, Run
from ..training.sources import check_network
from ..training.summaries import summarize
from ..training.together import Command, agree, agree_after, end, join_ranks
from . import grid
from .cells import Cell
from .display import Display
from .store import Store
from .sweeping import go_through


@click.command(cls=Command, short_help="Train a network in several dtypes and compare them.")
@inputs.source_options()
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="Passes over the training data.",
)
@common.optimizer_options
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed for initial weights, image order and dropout.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Train with the seeds seed to seed+N-1 and report the mean.",
)
@common.device_option
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    default=("posit16es2",),
    show_default=True,
    metavar="NAME",
    callback=checks.named_formats,
    help="Dtype to train in: posit16es2, e5m7, posit12es1, fixed8_8, acme8=acme8.txt (a file of "
    "values), ...; repeat for several. For mixed, qat and ptq also blocks and integers: "
    "mxfp8_e4m3, int8.",
)
@common.recipe_options
@click.option(
    "--accumulate",
    "policy",
    metavar="POLICY",
    callback=checks.policy,
    help="How dot products in the dtypes are summed: machine (default), float32, "
    "float64, exact, format, chunked(K), block(TERMS) or a chip such as "
    "nvidia-h100; with options too: format(accumulator=e5m7, fused=True).",
)
@click.option(
    "--loss-dtype",
    type=click.Choice(["network", "float32"]),
    default="network",
    show_default=True,
    help="For the recipes all and master: compute the loss from the logits in the "
    "network's dtype or in float32.",
)
@click.option(
    "--observe",
    is_flag=True,
    help="Count the roundings of each run's last epoch (overflow, underflow, "
    "noise, by layer and pass), into --out and its report; for float32, those "
    "that the dtypes would make. That epoch takes about twice the time.",
)
@click.option(
    "--observe-format",
    "observe_formats",
    multiple=True,
    metavar="FORMAT",
    callback=checks.named_formats,
    help="With --observe, measure float32 against this format too, such as nvfp4.",
)
@click.option("--no-baseline", is_flag=True, help="Do not train in float32 as well.")
@common.threads_option
@click.option(
    "--out",
    type=click.Path(),
    metavar="DIR",
    callback=checks.folder,
    help="Write report.html, results.json and the figure into DIR.",
)
@common.width_option
@click.option(
    "--resume",
    is_flag=True,
    help="No effect: the same command always continues in --out with the missing runs.",
)
@common.markdown_option("Write the table by recipe into its marked part of FILE.")
def train(**options):
    """Train a network in number formats, and in float32 for comparison.

    With the recipe "all", weights, activations, gradients and the optimizer's state all have the
    dtype. All runs start from the same weights and see the data in the same order. A dtype's name
    may end in a rounding mode (q52_stochastic). Each run is its own process: if one crashes, only
    that run is lost. Ctrl-C stops after the step and keeps the results so far; with --out the same
    command continues there. Under torchrun (torchrun --nproc-per-node 2 -m torch_dtypes train ...)
    the processes share each step's inputs and the test, and the first one reports and writes.
    """
    with join_ranks() as ranks, contextlib.ExitStack() as held:
        with agree_after(ranks):
            config, trials = _prepare(options, ranks)
            folder = options["out"] or (
                held.enter_context(tempfile.TemporaryDirectory(prefix="torch-dtypes-train-"))
                if ranks.is_first
                else "."
            )
            if ranks.is_first:
                _or_click_error(held.enter_context, lock_folder(folder))
        data = _data(options, ranks)
        with common.threads(options["threads"]):
            with agree_after(ranks):
                described = _describe(options, config, data, trials, ranks)
                cells = _cells(options, config, trials, described)
            with (
                accumulation_block(options["policy"])
                if options["policy"]
                else contextlib.nullcontext(),
                agree_after(ranks),
            ):
                find_unused = _try_out(config, data, trials)
            _compare(options, config, data, described, cells, Store(folder), ranks, find_unused)


def _data(options, ranks):
    """Load the data on every rank; the first rank of each machine downloads missing files."""
    fetches = options["download"] and int(os.environ.get("LOCAL_RANK", ranks.rank)) == 0
    data = None
    if fetches:
        with agree_after(ranks):
            data = inputs.data_of(options)
    elif options["download"]:
        agree(ranks)
    with agree_after(ranks):
        return data or inputs.data_of(options)


def _prepare(options, ranks):
    """Return the options as (config, trials), or raise a click error."""
    recipes = dict.fromkeys(options["recipes"])
    if ranks.size > 1 and options["observe"]:
        raise click.UsageError(f"expected one process for --observe, but got {ranks.size}")
    if ranks.size > 1 and options["micro_batches"] > 1:
        raise click.UsageError(
            f"expected one process for --micro-batches, but got {ranks.size}, which share each "
            "step's inputs already; leave it out"
        )
    for name in options["observe_formats"]:
        if not options["observe"]:
            raise click.UsageError("expected --observe with --observe-format, but got none")
        try:
            card(name)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--observe-format") from error
    try:
        if options["device"] == "cuda":
            ranks.take_gpu()
        check_settings(recipes, **options)
        for recipe in recipes:
            check_policy(options["policy"], recipe)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if options["loss_dtype"] != "network" and not set(recipes) & set(THROUGHOUT):
        raise click.UsageError(
            "--loss-dtype is for --recipe all or master: networks of the others have float32 logits"
        )
    if options["rules"] and not set(recipes) & set(QUANTIZING):
        raise click.UsageError("--rules is for --recipe mixed, qat or ptq")
    if options["rules"] and not set(recipes) - set(QUANTIZING) and checks.is_given("dtypes"):
        raise click.UsageError(
            "expected --dtype or --rules, but got both; a file of rules has its own formats"
        )
    if not set(recipes) - set(PUBLISHED) and checks.is_given("dtypes"):
        raise click.UsageError(
            f"expected --dtype or --recipe {', '.join(recipes)}, but got both; a published recipe "
            "has its own formats"
        )
    common.check_width(options["out"])
    if options["resume"] and not options["out"]:
        raise click.UsageError(
            "--resume needs --out, the folder of the comparison that was interrupted"
        )
    config = Config(options["model"], options["policy"], **common.settings_in(options))
    return config, _trials(options, recipes)


def _trials(options, recipes):
    """Build a trial of every dtype by every recipe, with float32 first."""
    trials = []
    if not options["no_baseline"]:
        trials.append(Trial("all", torch.float32))
    by_dtype = [
        recipe
        for recipe in recipes
        if recipe not in PUBLISHED and not (options["rules"] and recipe in QUANTIZING)
    ]
    for name in options["dtypes"]:
        for recipe in by_dtype:
            try:
                number = resolve(name, recipe)
                check_policy(options["policy"], recipe, number)
                trials.append(Trial(recipe, number, name.removeprefix("torch.")))
            except (TypeError, ValueError) as error:
                raise click.BadParameter(str(error), param_hint="'--dtype'") from error
    if options["rules"]:
        trials += [
            Trial(recipe, RulesFile(Path(options["rules"]).stem))
            for recipe in recipes
            if recipe in QUANTIZING
        ]
    trials += [Trial(recipe, RulesFile(recipe)) for recipe in recipes if recipe in PUBLISHED]
    in_float32 = [t for t in trials if t.number is torch.float32]
    if not options["no_baseline"] and len(in_float32) > 1 and in_float32[1].recipe == "all":
        trials.remove(in_float32[0])  # the user gave it, so it runs in its place
    return tuple(_each_once(trials))


def _each_once(trials):
    """Drop trials that were given twice. The same trial under another name is an error, since one
    of the names would be missing."""
    first = {}
    for trial in trials:
        before = first.setdefault(trial, trial)
        if before.said and before.said != trial.said:
            raise click.BadParameter(
                f"expected different dtypes, but got {before.said} and {trial.said}, which are "
                "the same; leave one out",
                param_hint="'--dtype'",
            )
    return first


def _try_out(config, data, trials):
    """Run each trial for one step; return whether one leaves a parameter without a gradient."""
    unused = []
    for trial in trials:
        try:
            unused.append(try_out(config, data, trial))
        except (RuntimeError, TypeError, ValueError, OSError, ImportError) as error:
            # The dtype lacks an operator, the rules do not fit, or memory is exhausted.
            raise click.ClickException(
                f"training in {trial.label} failed: {first_line(error)}"
            ) from error
    return any(unused)


def _or_click_error(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _describe(options, config, data, trials, ranks):
    """Return plain data that defines the comparison, for results.json."""
    several = {"ranks": ranks.size} if ranks.size > 1 else {}
    if tables := {trial.name: content for trial in trials if (content := content_of(trial.name))}:
        several["tables"] = tables  # the values behind a user's names
    return (
        asdict(config)
        | several
        | {
            "lr": config.lr or config.default_lr,
            "rules": Path(config.rules).read_text(encoding="utf-8") if config.rules else None,
            "parameters": _or_click_error(check_network, config, data),
            "dataset": data.name,
            "train_samples": len(data.train),
            "test_samples": len(data.test),
            "classes": data.classes,
            "guess": data.guess.accuracy,
            "text": {"sha256": data.digest, "window": data.shape[0]} if data.is_text else None,
            "dtypes": list(dict.fromkeys(trial.name for trial in trials)),
            "recipes": list(dict.fromkeys(options["recipes"])),
            "seeds": list(range(options["seed"], options["seed"] + options["repeats"])),
            "threads": torch.get_num_threads(),
            "accumulate": options["policy"] or "machine",
        }
    )


def _cells(options, config, trials, described):
    """Build a cell for each trial with each seed, with the trial."""
    observe = (
        tuple(
            t.name
            for t in trials
            if isinstance(t.number, torch.dtype) and is_format_dtype(t.number)
        )
        + options["observe_formats"]
        if options["observe"]
        else None
    )
    (dataset,) = inputs.datasets_of(options)
    shared = {name: value for name, value in common.settings_in(options).items() if name != "rules"}
    shared |= {
        name: options[name] for name in ("data_dir", "train_samples", "test_samples", "text")
    }
    shared |= {"datasets": (dataset,), "threads": torch.get_num_threads(), "observe": observe}
    settings, of_rules = grid.settings_of(**shared), grid.settings_of(**shared, rules=config.rules)
    cells = {}
    for seed in described["seeds"]:
        for trial in trials:
            has_rules = isinstance(trial.number, RulesFile)
            rounding = "nearest_even" if has_rules else target(trial.number).rounding
            what = (trial.name, rounding, options["policy"] or "machine", trial.recipe, seed)
            from_file = has_rules and trial.recipe not in PUBLISHED
            cell = Cell(config.model, dataset, *what, of_rules if from_file else settings)
            cells[cell.base if (trial.name, trial.recipe) == ("float32", "all") else cell] = trial
    return cells


def _compare(options, config, data, described, cells, store, ranks, find_unused):
    """Train every trial with every seed, showing progress, then report."""
    console = plain_console(quiet=not ranks.is_first)
    title = report.title_of(described)
    processes = f"{ranks.size} processes of " if ranks.size > 1 else ""
    console.print(
        f"{title}: {described['parameters']:,} parameters, {len(data.train):,} training and "
        f"{len(data.test):,} test inputs, {config.optimizer}, batch {config.batch_size}, "
        f"{config.device}, {processes}{described['threads']} threads"
    )
    interrupted, every = False, grid.with_bases(list(cells), compared=False)
    try:
        with _Display(console, cells, config.epochs, data.is_text) as shown:
            limits = {"retry": True, "compared": False, "ranks": ranks, "find_unused": find_unused}
            outcomes = go_through(store, list(cells), watcher=shown, **limits)
    except KeyboardInterrupt:
        interrupted = True
        outcomes = (
            {cell.key: found for cell in every if (found := store.read(cell)) is not None}
            if ranks.is_first
            else {}
        )
    except OSError as error:
        if not options["out"]:
            raise  # of standard output
        raise click.ClickException(
            f"cannot write into {options['out']}: {error.strerror}"
        ) from error
    except (RuntimeError, ValueError) as error:
        # Memory is exhausted, or the file of an outcome holds other data.
        if ranks.size > 1 and is_lost(error):
            raise
        raise click.ClickException(f"training failed: {first_line(error)}") from error
    runs = {
        cell.key: run_of(trial, cell.seed, outcomes[cell.key])
        for cell, trial in cells.items()
        if cell.key in outcomes
    }
    if ranks.is_first and runs:
        _report(console, runs, outcomes, described, options, interrupted)
    if interrupted:
        cell = next((cell for cell in every if cell.key not in outcomes), every[-1])
        kept = (
            f"the same command continues in epoch {shown.reached.get(cell.key, 0) + 1}"
            if options["out"]
            else "without --out it was not kept"
        )
        console.print(f"Interrupted: {shown.name(cell)}; {kept}.")
        end(ranks, 130)  # the shell's status of an interrupted command
    if runs and all(run.failure for run in runs.values()):
        raise click.ClickException(
            "every run has failed; the reasons are above. The same command runs them again"
        )


def run_of(trial, seed, result):
    """Rebuild the :class:`Run` of an outcome."""
    reason = result["reason"]
    why = {
        "divergence": reason if result["state"] == "diverged" else None,
        "failure": reason if result["state"] == "failed" else None,
    }
    said = {
        "dtype": trial.name,
        "name": trial.said,
        "recipe": trial.recipe,
        "seed": seed,
        "epochs": result["epochs"],
    }
    return Run.from_json(said | why)


def _report(console, runs, outcomes, described, options, interrupted):
    """Print and write the results so far; ``runs`` and ``outcomes`` are by cell."""
    summaries = summarize(runs.values())
    report.print_table(
        console,
        summaries,
        report.title_of(described) + findings.over_seeds(summaries),
        report.guess_of(described),
        report.tokens_of(described),
    )
    observed = [
        (run, found) for key, run in runs.items() if (found := outcomes[key].get("observed"))
    ]
    if options["out"]:
        made = report.report_of(
            described,
            summaries,
            command_line(),
            lambda: report.results_of(described, runs.values()),
        )
        for run, found in observed:
            observing.add_section(made, run, found)
            _write(observing.write_counts, Path(options["out"]), run, found)
        *_, page, results = _write(made.save, options["out"], "report", options["width"], "results")
        console.print(f"Written: {results}, {page}, and its figure as PNG, SVG and PDF")
    if options["markdown"] and not interrupted:
        _write(report.write_markdown, options["markdown"], described, summaries, command_line())


def _write(write, folder, *what):
    with checks.writing_into(folder):
        return write(folder, *what)


class _Display(Display):
    """Shows a progress bar on a terminal, and one plain line per epoch everywhere."""

    def __init__(self, console, cells, epochs, is_text):
        super().__init__(console)
        self._is_text = is_text
        self._trials, self._epochs = {cell.key: trial for cell, trial in cells.items()}, epochs
        self.reached = {}  # the last epoch of each cell

    def name(self, cell):
        trial = self._trials.get(cell.key)
        return f"{trial.label if trial else 'float32'} seed {cell.seed}"

    def start(self, done, of):
        super().start(0, of - done)
        if done:
            self._print(f"{done} runs were done before.")

    def told(self, cell, message):
        super().told(cell, message)
        if "epoch" in message:
            epoch = Epoch(**message["epoch"])
            self.reached[cell.key] = epoch.epoch
            text = f"{self.name(cell)} epoch {epoch.epoch}/{self._epochs}: "
            if epoch.diverged:
                text += f"diverged, loss {epoch.train_loss:.4g}"
            else:
                text += f"loss {epoch.train_loss:.4f}, test loss {epoch.test_loss:.4f}, "
                if self._is_text:
                    text += f"perplexity {perplexity(epoch.test_loss):.3f}, "
                text += f"accuracy {epoch.accuracy:.2f} %, {epoch.seconds:.1f} s"
            self._print(text)

    def build_lines(self, cell, result):
        if result["state"] == "failed":
            yield f"{self.name(cell)}: failed: {result['reason']}"
        elif cell.is_after_training and result["state"] == "done":
            yield f"{self.name(cell)}: accuracy {result['accuracy']:.2f} % after rounding"
        elif result["state"] == "diverged":
            yield result["reason"]
        if "observed" in result and cell.key in self._trials:
            yield observing.sentence(
                run_of(self._trials[cell.key], cell.seed, result), result["observed"]
            )
