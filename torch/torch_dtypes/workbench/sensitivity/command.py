"""The command ``torch-dtypes sensitivity``."""

from __future__ import annotations

import click
import torch

from ...quantization.convert import quantize_
from ..report.progress import Shown
from ..training import checks, inputs
from ..training import options as common
from ..training.generators import forked_generators
from ..training.ranks import with_notes
from ..training.recipes import CALIBRATION_IMAGES
from ..training.sources import build_network, check_network
from ..variability.command import run_study, trained_network
from ..variability.programs import test_batches
from .choosing import solver
from .layers import RECIPES, build_rules, check_model, find_layers, find_targets
from .report import yaml_of_rules
from .results import Settings, check_bits
from .study import METRICS, Study


@checks.callback
def _formats(values):
    names = tuple(map(checks.named, values))
    find_targets(names)
    return names


@click.command(
    short_help="Round a network layer by layer: how sensitive each is, and the best "
    "mixture of formats for a budget of bits."
)
@inputs.source_options()
@common.epochs_option
@common.optimizer_options
@click.option(
    "--format",
    "formats",
    multiple=True,
    required=True,
    metavar="NAME",
    callback=_formats,
    help="Formats for layers: q43, 'posit<12,1>', bf16, mxfp4, int8, ...; repeat for a choice.",
)
@click.option(
    "--bits",
    type=float,
    multiple=True,
    callback=checks.positive,
    metavar="NUMBER",
    help="Find the best mixture with at most this many bits a weight, on average; "
    "repeat for several.",
)
@click.option(
    "--recipe",
    type=click.Choice(RECIPES),
    default="ptq",
    show_default=True,
    help="ptq: weights and input activations, with scales from training images; "
    "weights: only weights.",
)
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    default="loss",
    show_default=True,
    help="The measure of the damage. accuracy: the error rate; distance: of the "
    "outputs from float32's, relative.",
)
@click.option(
    "--layers",
    multiple=True,
    metavar="PATTERN",
    help="Round only these: a name, a regular expression over names, or a type "
    "such as nn.Conv2d; repeat for several. Default: all.",
)
@click.option(
    "--calibrate",
    type=click.IntRange(1),
    default=CALIBRATION_IMAGES,
    show_default=True,
    metavar="N",
    help="Training images for the scales of integers.",
)
@common.seed_option
@common.device_option
@common.threads_option
@common.out_option("Write page, tables (CSV, JSON), figures and rules into DIR.")
def sensitivity(**options):
    """Round one layer of a network at a time, and report how much each format costs it.

    The network has the weights of --weights, or is trained in float32 first. It answers the test
    data with one layer rounded to one format, then with all layers. The rise of the metric is the
    layer's sensitivity. For each --bits the mixture of formats with the least sum of rises is
    found, measured, and written as rules of torch_dtypes.quantize_.
    """
    layers, config, data = _prepare(options)
    with common.threads(options["threads"]):
        _run(options, layers, config, data)


def _prepare(options):
    """Return the options as (layers, config, data), or raise a click error before any work."""
    config = common.config_of(options)
    targets = find_targets(options["formats"])
    if options["bits"] or options["out"]:
        try:
            solver()
            if options["bits"] and options["out"]:
                yaml_of_rules()
        except ModuleNotFoundError as error:
            raise click.ClickException(str(error)) from error
    if checks.is_given("calibrate") and (
        options["recipe"] == "weights"
        or not any(a_target.needs_scale for a_target in targets.values())
    ):
        raise click.UsageError(
            "expected --calibrate with --recipe ptq and integers (--format int8), but got it "
            "without one of these; leave it out"
        )
    data = inputs.data_of(options)
    try:
        check_network(config, data)
        with forked_generators(config.device == "cuda"):
            layers = _tried_out(
                build_network(config, data).to(config.device), config, data, targets, options
            )
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        # A NotImplementedError comes from missing kernels of a device.
        raise click.ClickException(with_notes(error)) from error
    bits_of = {name: a_target.bits_per_value for name, a_target in targets.items()}
    try:
        if options["bits"]:
            check_bits(bits_of)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--format'") from error
    least = min(bits_of.values())
    for bits in options["bits"]:
        if bits < least:
            what = f"at least {least:g} bits a weight, the fewest of these formats"
            raise click.BadParameter(f"expected {what}, but got {bits:g}", param_hint="'--bits'")
    return layers, config, data


@torch.no_grad()
def _tried_out(network, config, data, targets, options):
    """Find the layers of a network. Two inputs run through it in every format, so that a layer that
    cannot round is an error before any long work."""
    check_model(network)
    layers = find_layers(network, options["layers"] or None)
    first, _ = data.train.batch(torch.arange(min(2, len(data.train))))
    first = first.to(config.device)
    for a_target in targets.values():
        rules = {
            name: rule
            for x in layers
            for name, rule in build_rules(x, a_target, options["recipe"]).items()
        }
        quantize_(network, rules, [first]).eval()(first)
    return layers


def _run(options, layers, config, data):
    targets = find_targets(options["formats"])
    settings = Settings(tuple(targets), options["recipe"], options["metric"], options["seed"])

    def study(stage):
        network = trained_network(config, data, options["seed"], stage)
        images, _ = data.train.batch(torch.arange(min(options["calibrate"], len(data.train))))
        calibrate, batches = (
            images.to(config.device).split(config.batch_size),
            test_batches(data.test, config),
        )
        result = Study(
            network,
            batches,
            settings,
            targets,
            layers,
            calibrate=calibrate,
            shown=Shown(False, stage),
        ).go()
        result.title = f"Sensitivity of {config.model} on {data.name} to formats"
        for bits in dict.fromkeys(options["bits"]):
            result.choose(bits=bits)
        if options["out"]:
            result.trade_off()
        return result

    run_study(config.model, options["out"], study)
