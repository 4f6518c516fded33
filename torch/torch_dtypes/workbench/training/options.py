"""Options that several commands share, and their checks, which run before anything is loaded."""

import contextlib
import functools
import importlib.util
import math
import os
import tempfile
from dataclasses import fields

import click
import torch

import torch_dtypes

from ...formats.arguments import parse_mode
from ...policies.accumulation import accumulation_block
from ..report.drawing import WIDTHS
from .data import DATASETS, load_dataset
from .loop import SCHEDULES
from .models import MODELS
from .ranks import read_launcher
from .recipes import OPTIMIZERS, RECIPES
from .records import Config, Settings
from .sources import check_model, load_own_data


def is_given(name):
    """Whether the command line or a file gave an option."""
    return click.get_current_context().get_parameter_source(name) not in (
        None,
        click.core.ParameterSource.DEFAULT,
    )


def callback(check):
    """Make a click callback from a check of an option's value; its errors name the option."""

    @functools.wraps(check)
    def run(ctx, param, value):
        try:
            return check(value)
        except (TypeError, ValueError) as error:
            raise click.BadParameter(str(error)) from error

    return run


def several(value):
    """Return the values of a repeatable option, or the one of another."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


@callback
def positive(value):
    for number in several(value):
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"expected a finite number above 0, but got {number}")
    return value


@callback
def momentum(value):
    if not 0 <= value < 1:  # false for NaN, too
        raise ValueError(f"expected a number from 0 to below 1, but got {value}")
    return value


@callback
def model(value):
    """Check the name of a network, or several."""
    for name in several(value):
        check_model(name)
    return value


@callback
def data(value):
    """Check the name of a user's loader."""
    if value is not None and ":" not in value:
        raise ValueError(f"expected --data as package.module:loader, but got {value!r}")
    return value


@callback
def image_size(value):
    if value not in (None, "32"):
        raise ValueError(
            f"expected images of 32 x 32, but got {value}: give images of other sizes by --data, "
            "and a --model for them"
        )


@callback
def policy(value):
    """Check an accumulation policy, or several."""
    for name in filter(None, several(value)):
        with accumulation_block(name):
            pass
    return value


@callback
def loss_scale(value):
    if value is None or value == "dynamic":
        return value
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(value)) and number > 0:
            return number
    raise ValueError(f"expected a finite number above 0 or dynamic, but got {value}")


def named(value):
    """Check a format's name and return it. ``acme8=acme8.txt`` defines the name of a proposal by
    the file of its values.

    Raises:
        ValueError: a file without such values, or a name that exists.
    """
    name, definition, path = value.partition("=") if "<" not in value else (value, "", "")
    if definition:
        torch_dtypes.table_format(path, name=name)
    return name


@callback
def named_formats(values):
    """Check the names of formats, of which one may be ``acme8=acme8.txt``."""
    return tuple(map(named, values)) if isinstance(values, tuple) else values and named(values)


@callback
def number_format(value):
    """Check the name of a format in which an optimizer can keep values."""
    if value in (None, "none", "float32"):
        return value
    name = named(value)
    torch_dtypes.target(name)
    return name


@callback
def mode(value):
    """Check the names of rounding modes, or of one."""
    return (
        tuple(map(parse_mode, value)) if isinstance(value, tuple) else value and parse_mode(value)
    )


@callback
def device(value):
    if value == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device, but torch sees none here; use --device cpu")
    return value


@callback
def folder(path):
    """Make a folder and check that files can be written, before hours of training."""
    if path is None or read_launcher()[0] > 0:  # only the first of several processes writes
        return path
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(f"cannot write into {path}: {error.strerror}") from error
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "the figure needs matplotlib, which is not installed: pip install 'torch-dtypes[train]'"
        )
    return path


@contextlib.contextmanager
def writing_into(path):
    """Turn an OSError of the block into a click error that names the file or folder."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"cannot write into {path}: {error.strerror}") from error


width_option = click.option(
    "--width",
    type=click.Choice(list(WIDTHS)),
    default="page",
    show_default=True,
    help="Width of the figures' files; column: one column of a paper.",
)


def check_width(out):
    """Refuse --width if no files are written."""
    if is_given("width") and not out:
        raise click.UsageError(
            "expected --width with --out, the folder of the figures' files, but got it alone: "
            "add --out, or leave --width out"
        )


def writable(path):
    """Check that a file can be written, or made, and return its path."""
    if path is not None and read_launcher()[0] == 0:
        there = os.path.exists(path)
        try:
            with open(path, "a", encoding="utf-8"):
                pass
            if not there:
                os.remove(path)  # a refused run leaves nothing behind
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from error
    return path


def markdown_option(what):
    """Return the option --markdown, whose help says what is written."""
    return click.option(
        "--markdown",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        callback=callback(writable),
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
            help="The optimizer, with its default settings except --lr and --momentum.",
        ),
        click.option(
            "--lr",
            type=float,
            callback=positive,
            help="Learning rate; default 0.001 (adam), 0.01 (sgd).",
        ),
        click.option(
            "--momentum",
            type=float,
            callback=momentum,
            default=0.0,
            show_default=True,
            help="For sgd.",
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
    callback=device,
    help="cuda: a GPU. Dtypes that are not stock need a build of this package with kernels for it.",
)


def source_options(several=False):
    """Make the options that choose network and data, for commands that need both. With ``several``,
    --model and --dataset repeat.

    ``data_of`` then loads the data.
    """
    each = {"multiple": True} if several else {}
    options = (
        click.option(
            "--model",
            default=("lenet5",) if several else "lenet5",
            show_default=True,
            metavar="NAME",
            callback=model,
            **each,
            help=f"The network: {', '.join(MODELS)}, torchvision's by name, or your own as "
            "package.module:factory, called without arguments.",
        ),
        click.option(
            "--weights",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Initial weights: a state dict by torch.save, or safetensors.",
        ),
        click.option(
            "--dataset",
            type=click.Choice(DATASETS),
            default=("digits",) if several else "digits",
            show_default=True,
            **each,
            help="digits comes with scikit-learn; the others are files in --data-dir.",
        ),
        click.option(
            "--data",
            metavar="MODULE:LOADER",
            callback=data,
            help="Your own data in place of --dataset: package.module:loader, called without "
            "arguments, returns (train, test), each a pair of tensors (inputs, labels), a "
            "data set of such pairs, or batches of them.",
        ),
        click.option(
            "--data-dir",
            type=click.Path(),
            default="data",
            show_default=True,
            metavar="DIR",
            help="Folder of data files, with torchvision's layout (MNIST/raw, "
            "FashionMNIST/raw, cifar-10-batches-py).",
        ),
        click.option("--download", is_flag=True, help="Fetch missing files (needs torchvision)."),
        click.option(
            "--train-samples",
            type=click.IntRange(1),
            metavar="N",
            help="Use the first N training images.",
        ),
        click.option(
            "--test-samples",
            type=click.IntRange(1),
            metavar="N",
            help="Use the first N test images.",
        ),
        click.option("--image-size", hidden=True, callback=image_size, expose_value=False),
    )

    return add_options(options)


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


def check_files(options):
    """Refuse --data-dir or --download for data that are not read from files."""
    names = options["dataset"]
    if not options["data"] and set((names,) if isinstance(names, str) else names) != {"digits"}:
        return
    for name in ("data_dir", "download"):
        if is_given(name):
            what = f"--{name.replace('_', '-')}"
            which = (
                "--data, your own loader"
                if options["data"]
                else "digits, which come with scikit-learn"
            )
            raise click.UsageError(
                f"expected {what} with a --dataset of files, but got it with {which}: leave it "
                "out, or give another --dataset"
            )


def data_of(options, dataset=None):
    """Load the data that the options of ``source_options`` name; ``dataset`` chooses one of
    several.

    Raises:
        click.ClickException: data that do not exist or cannot be loaded.
    """
    if options["data"] and is_given("dataset"):
        raise click.UsageError("expected --dataset or --data, but got both")
    check_files(options)
    try:
        if options["data"]:
            return load_own_data(options["data"]).first(
                options["train_samples"], options["test_samples"]
            )
        return load_dataset(
            dataset or options["dataset"],
            options["data_dir"],
            options["train_samples"],
            options["test_samples"],
            options["download"],
        )
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        # An ImportError comes from torchvision's downloads.
        raise click.ClickException(str(error)) from error


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
    click.option("--eps", type=float, callback=positive, help="For adam; default 1e-8."),
    click.option(
        "--schedule",
        type=click.Choice(list(SCHEDULES)),
        default="constant",
        show_default=True,
        help="Schedule of the learning rate: linear and cosine fall to 0, step to a "
        "tenth after half of the steps and again after three quarters.",
    ),
    click.option(
        "--loss-scale",
        metavar="NUMBER",
        callback=loss_scale,
        help="A number, or dynamic; for the recipes master, mixed and qat.",
    ),
    click.option(
        "--master",
        metavar="FORMAT",
        default="float32",
        show_default=True,
        callback=number_format,
        help="Format of the masters for the recipe master, rounded stochastically; "
        "none: update the weights themselves.",
    ),
    click.option(
        "--state",
        metavar="FORMAT",
        callback=number_format,
        help="Format of the optimizer's state for the recipe master, rounded "
        "stochastically; default: float32.",
    ),
)


training_options = add_options(_HOW_TO_TRAIN)
recipe_options = add_options((*_WHICH_RECIPE, *_HOW_TO_TRAIN))
