"""The command ``torch-dtypes variability``."""

from __future__ import annotations

from dataclasses import fields

import click
import torch
from rich.console import Console

from ...fuzzing import fuzzy
from ...fuzzing.arguments import LEVELS
from ..report.progress import plain_console, stages
from ..report.provenance import command_line
from ..training import checks, inputs
from ..training import options as common
from ..training.generators import forked_generators
from ..training.loop import Training as Trained
from ..training.ranks import first_line
from ..training.sources import build_network, check_network
from .programs import Inference, Training, test_batches
from .results import Settings
from .study import METRICS, Study, check_one_mode, check_settings


@checks.callback
def _share(value):
    if not 0 < value < 1:
        raise ValueError(f"expected a number between 0 and 1, but got {value}")
    return value


@click.command(
    short_help="Repeat a network in random rounding: how many of its digits hold, and "
    "which modules lose the others."
)
@inputs.source_options()
@common.epochs_option
@common.optimizer_options
@click.option(
    "--repeats",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    metavar="N",
    help="Runs under random rounding.",
)
@click.option(
    "--training",
    is_flag=True,
    help="Repeat the training too; otherwise only a trained network's answers.",
)
@click.option(
    "--mode",
    callback=checks.mode,
    default="stochastic",
    show_default=True,
    metavar="NAME",
    help="The rounding of every operation; stochastic_a4 has 4 random bits.",
)
@click.option(
    "--format",
    metavar="NAME",
    callback=checks.named_formats,
    help="A format in float32's place. Default: each tensor's own numbers.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="operator",
    show_default=True,
    help="Round each operator's result, or each instruction within it.",
)
@click.option(
    "--fused/--apart",
    default=True,
    show_default=True,
    help="With --level instruction: round a multiply-add once, or product and sum.",
)
@click.option(
    "--probability",
    type=float,
    default=0.95,
    show_default=True,
    callback=_share,
    help="Probability that a further run confirms the digits.",
)
@click.option(
    "--confidence",
    type=float,
    default=0.95,
    show_default=True,
    callback=_share,
    help="Confidence of that probability.",
)
@click.option(
    "--where/--no-where",
    default=True,
    show_default=True,
    help="Search for the modules that lose the digits.",
)
@click.option(
    "--where-repeats",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="Runs of each set of modules in the search.",
)
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    default="distance",
    show_default=True,
    help="The measure for modules; distance: of the outputs from IEEE's, relative.",
)
@click.option(
    "--tolerance",
    type=float,
    callback=checks.not_negative,
    help="Modules that move the metric further are responsible. Default: half of "
    "the move by all modules.",
)
@common.seed_option
@common.device_option
@common.threads_option
@common.out_option("Write page, tables (CSV, JSON) and figures into DIR.")
def variability(**options):
    """Run a network repeatedly in random rounding, and report how many digits hold.

    Every operation is rounded up or down at random, so digits that differ between runs
    depend on rounding. Metrics, predicted labels and each layer's activations are compared. Then
    one module is perturbed at a time, and a search (delta debugging) finds the smallest sets of
    modules that are responsible. The network has the weights of --weights, or is trained in float32
    first.
    """
    settings, config, data = _prepare(options)
    with common.threads(options["threads"]):
        _run(options, settings, config, data)


def _prepare(options):
    """Return the options as (settings, config, data), or raise a click error before any work."""
    config = common.config_of(options)
    if not options["where"]:
        for name in ("where_repeats", "metric", "tolerance"):
            if checks.is_given(name):
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is for the search that --no-where leaves out"
                )
    if options["level"] == "operator" and not options["fused"]:
        raise click.UsageError("expected --level instruction with --apart, but got operator")
    settings = check_settings(Settings(**{f.name: options[f.name] for f in fields(Settings)}))
    try:
        fuzzy(mode=settings.mode, format=settings.format)
        check_one_mode(settings)
    except (ValueError, TypeError) as error:
        raise click.BadParameter(str(error), param_hint="'--format'") from error
    data = inputs.data_of(options)
    try:
        check_network(config, data)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    return settings, config, data


def _run(options, settings, config, data):
    def study(stage):
        if options["training"]:
            program = Training(config, data, options["seed"])
        else:
            program = Inference(
                trained_network(config, data, options["seed"], stage),
                test_batches(data.test, config),
            )
        result = Study(program, settings, stage).go()
        result.title = f"Numerical variability of {config.model} on {data.name}"
        return result

    run_study(config.model, options["out"], study)


def run_study(model, out, study):
    """Run a study, print its result and write it into ``out``. The study gets the function that
    shows its stages."""
    console = plain_console()
    with stages(console) as stage:
        try:
            result = study(stage)
        except (RuntimeError, ValueError) as error:
            # Memory is exhausted, an operator fails, or a layer cannot round to a format.
            raise click.ClickException(f"{model} failed: {first_line(error)}") from error
    console.print(f"{result.title}\n")
    result.print(Console(markup=False, emoji=False))
    if out:
        with checks.writing_into(out):
            written = result.write(out, command_line())
        named = [str(path) for path in written if path.suffix in (".html", ".json", ".yaml")]
        console.print(
            f"\nwritten: {', '.join(named)} and {len(written) - len(named)} tables and figures"
        )


def trained_network(config, data, seed, stage):
    """Build the network with its weights, from a file or from a training in float32."""
    if config.weights is not None:
        with forked_generators():
            torch.manual_seed(seed)
            return build_network(config, data).to(config.device)
    training = Trained(config, data, torch.float32, seed)
    steps = config.epochs * -(-len(data.train) // config.batch_size)
    run = training.go(on_step=lambda loss: stage("training in float32", steps))
    if run.divergence or run.diverged_at is not None:
        raise ValueError(
            f"training in float32 diverged: {run.divergence or 'its loss is not finite'}; try a "
            "smaller --lr"
        )
    return training.model
