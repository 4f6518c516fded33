"""Options that several commands share."""

import contextlib
from dataclasses import fields

import click
import torch

from ..report.drawing import WIDTHS
from . import checks
from .loop import SCHEDULES
from .recipes import OPTIMIZERS, RECIPES
from .records import Config, Settings

width_option = click.option(
    "--width",
    type=click.Choice(list(WIDTHS)),
    default="page",
    show_default=True,
    help="Width of the figures' files; column: one column of a paper.",
)


def check_width(out):
    """Refuse --width if no files are written."""
    if checks.is_given("width") and not out:
        raise click.UsageError(
            "expected --width with --out, the folder of the figures' files, but got it alone: "
            "add --out, or leave --width out"
        )


def out_option(what):
    """Return the option --out, a folder, whose help says what is written."""
    return click.option(
        "--out", type=click.Path(), metavar="DIR", callback=checks.folder, help=what
    )


def markdown_option(what):
    """Return the option --markdown, whose help says what is written."""
    return click.option(
        "--markdown",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        callback=checks.callback(checks.writable),
        help=what,
    )


def add_options(options):
    """Make the decorator of a command that takes these options, in their order."""

    def add(command):
        for option in reversed(options):
            command = option(command)
        return command

    return add


optimizer_options = add_options(
    (
        click.option(
            "--batch-size",
            type=click.IntRange(1),
            default=32,
            show_default=True,
            help="Inputs in a training step.",
        ),
        click.option(
            "--optimizer",
            type=click.Choice(OPTIMIZERS),
            default="adam",
            show_default=True,
            help="The optimizer, with its default settings where no option has others. muon: for "
            "the matrices of hidden layers, with adamw for the rest.",
        ),
        click.option(
            "--lr",
            type=float,
            callback=checks.positive,
            help="Learning rate; default 0.01 for sgd, else 0.001.",
        ),
        click.option(
            "--momentum",
            type=float,
            callback=checks.momentum,
            default=0.0,
            show_default=True,
            help="For sgd.",
        ),
        click.option(
            "--weight-decay",
            type=float,
            callback=checks.not_negative,
            help="Default: 0 (adam, sgd), 0.01 (adamw), 0.1 (muon).",
        ),
        click.option(
            "--schedule",
            type=click.Choice(list(SCHEDULES)),
            default="constant",
            show_default=True,
            help="Schedule of the learning rate: linear and cosine fall to 0, step to a "
            "tenth after half of the steps and again after three quarters.",
        ),
        click.option(
            "--warmup",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            metavar="STEPS",
            help="The learning rate first rises in a line, for so many steps.",
        ),
        click.option(
            "--clip",
            type=float,
            callback=checks.positive,
            metavar="NORM",
            help="Scale the gradients of a step so that their common norm is at most this.",
        ),
        click.option(
            "--micro-batches",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            metavar="N",
            help="Compute each step's gradients in N parts, which add up (gradient accumulation).",
        ),
    )
)

epochs_option = click.option(
    "--epochs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Passes over the training data, if the network is trained.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed for weights, order of data and rounding.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), help="CPU threads; default: torch's own choice."
)
device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    callback=checks.device,
    help="cuda: a GPU. Dtypes that are not stock need a build of this package with kernels for it.",
)


def config_of(options):
    """Build the ``Config`` of a training from the options of ``source_options`` and of one
    optimizer, for commands that may train a network first."""
    if options["momentum"] and options["optimizer"] != "sgd":
        raise click.UsageError("--momentum is for --optimizer sgd")
    return Config(options["model"], **settings_in(options))


def settings_in(options):
    """Select the options that all trainings share."""
    return {f.name: options[f.name] for f in fields(Settings) if f.name in options}


@contextlib.contextmanager
def threads(number):
    """Set the number of CPU threads in a block; None keeps it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_RECIPE_HELP = "all (default): everything in the dtype. " + " ".join(
    f"{name}: {what}." for name, what in RECIPES.items() if name != "all"
)

_WHICH_RECIPE = (
    click.option(
        "--recipe",
        "recipes",
        type=click.Choice(list(RECIPES)),
        multiple=True,
        default=("all",),
        help=_RECIPE_HELP + " Repeat to compare.",
    ),
    click.option(
        "--rules",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="YAML rules of torch_dtypes.quantize_ for mixed, qat and ptq, in place of --dtype "
        "for every layer.",
    ),
)
_HOW_TO_TRAIN = (
    click.option(
        "--eps", type=float, callback=checks.positive, help="For adam and adamw; default 1e-8."
    ),
    click.option(
        "--loss-scale",
        metavar="NUMBER",
        callback=checks.loss_scale,
        help="A number, or dynamic; for the recipes master, mixed and qat.",
    ),
    click.option(
        "--master",
        metavar="FORMAT",
        default="float32",
        show_default=True,
        callback=checks.number_format,
        help="Format of the masters for the recipe master, rounded stochastically; "
        "none: update the weights themselves.",
    ),
    click.option(
        "--state",
        metavar="FORMAT",
        callback=checks.number_format,
        help="Format of the optimizer's state for the recipe master, rounded "
        "stochastically; default: float32.",
    ),
)


training_options = add_options(_HOW_TO_TRAIN)
recipe_options = add_options((*_WHICH_RECIPE, *_HOW_TO_TRAIN))
