"""What the options of ``torch-dtypes train`` may be, as click callbacks: errors before anything is loaded."""

import contextlib
import importlib.util
import math
import os
import tempfile

import click
import torch

import torch_dtypes

from ...policies.accumulation import accumulation_block
from ..report.drawing import WIDTHS
from .data import DATASETS, load_dataset
from .loop import SCHEDULES
from .models import MODELS
from .networks import OPTIMIZERS, RECIPES
from .ranks import launched
from .records import Config
from .sources import check_model, own_data


def is_given(name):
    """Whether an option was said, on the command line or in a file."""
    return click.get_current_context().get_parameter_source(name) not in (None, click.core.ParameterSource.DEFAULT)


def positive(ctx, param, value):
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"expected a finite number above 0, but got {value}")
    return value


def momentum(ctx, param, value):
    if not 0 <= value < 1:  # false for NaN, too
        raise click.BadParameter(f"expected a number from 0 to below 1, but got {value}")
    return value


def model(ctx, param, value):
    """The name of a network, or several."""
    for name in (value,) if isinstance(value, str) else value:
        try:
            check_model(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return value


def data(ctx, param, value):
    """The name of a loader of one's own."""
    if value is not None and ":" not in value:
        raise click.BadParameter(f"expected --data as package.module:loader, but got {value!r}")
    return value


def image_size(ctx, param, value):
    if value not in (None, "32"):
        raise click.BadParameter(f"expected images of 32 x 32, but got {value}: give images of other sizes by --data, and a --model for them")


def policy(ctx, param, value):
    if value:
        try:
            with accumulation_block(value):
                pass
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return value


def loss_scale(ctx, param, value):
    if value is None or value == "dynamic":
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise click.BadParameter(f"expected a finite number above 0 or dynamic, but got {value}")
    return number


def named(value):
    """A format's name; of ``acme8=acme8.txt``, a proposal's and the file of its values, the name, which means these from now on.

    Raises:
        ValueError: a file that has no such values, or a name that exists.
    """
    name, given, path = value.partition("=") if "<" not in value else (value, "", "")
    if given:
        torch_dtypes.table_format(path, name=name)
    return name


def named_formats(ctx, param, values):
    """The names of formats, of which one may be ``acme8=acme8.txt``."""
    if values is None:
        return None
    try:
        return named(values) if isinstance(values, str) else tuple(named(value) for value in values)
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error)) from error


def number_format(ctx, param, value):
    """The name of a format that an optimizer can keep values in."""
    if value in (None, "none", "float32"):
        return value
    value = named_formats(ctx, param, value)
    try:
        torch_dtypes.target(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def device(ctx, param, value):
    if value == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("expected a CUDA device, but torch sees none here; use --device cpu")
    return value


def folder(ctx, param, path):
    """Create the folder and see that files can be written, before hours of training."""
    if path is None or launched()[0] > 0:  # the first of several processes writes
        return path
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise click.BadParameter(f"cannot write into {path}: {error.strerror}") from error
    if importlib.util.find_spec("matplotlib") is None:
        raise click.BadParameter("the figure needs matplotlib, which is not installed: pip install 'torch-dtypes[train]'")
    return path


width_option = click.option(
    "--width", type=click.Choice(list(WIDTHS)), default="page", show_default=True, help="Of the figures' files: column is one column of a paper."
)


def check_width(out):
    """An error where --width is for no file."""
    if is_given("width") and not out:
        raise click.UsageError("expected --width with --out, the folder of the figures' files, but got it alone: add --out, or leave --width out")


def markdown(ctx, param, path):
    """A file that can be written, or made."""
    if path is not None and launched()[0] == 0:
        there = os.path.exists(path)
        try:
            with open(path, "a", encoding="utf-8"):
                pass
            if not there:
                os.remove(path)  # a run that is refused leaves nothing behind
        except OSError as error:
            raise click.BadParameter(f"cannot write {path}: {error.strerror}") from error
    return path


def taking(options):
    """The decorator of a command that takes these options, in their order."""

    def add(command):
        for option in reversed(options):
            command = option(command)
        return command

    return add


optimizer_options = taking((
    click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Inputs in a training step."),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adam", show_default=True,
                 help="With its defaults, but for --lr and --momentum."),
    click.option("--lr", type=float, callback=positive, help="Learning rate; default 0.001 (adam), 0.01 (sgd)."),
    click.option("--momentum", type=float, callback=momentum, default=0.0, show_default=True, help="For sgd."),
))  # fmt: skip

device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, callback=device,
    help="cuda: a GPU; dtypes other than stock ones where this package was built with kernels for it.",
)  # fmt: skip


def source_options(several=False):
    """The options that say which network and which data, for the commands that need both; ``several``: --model and --dataset repeat.

    The data are then what ``data_of`` loads.
    """
    each = {"multiple": True} if several else {}
    options = (
        click.option(
            "--model", default=("lenet5",) if several else "lenet5", show_default=True, metavar="NAME", callback=model, **each,
            help=f"The network: {', '.join(MODELS)}, torchvision's by name, or your own as package.module:factory, called without arguments.",
        ),
        click.option("--weights", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                     help="Weights that the network starts from: a state dict by torch.save, or safetensors."),
        click.option(
            "--dataset", type=click.Choice(DATASETS), default=("digits",) if several else "digits", show_default=True, **each,
            help="digits comes with scikit-learn; the others are files in --data-dir.",
        ),
        click.option(
            "--data", metavar="MODULE:LOADER", callback=data,
            help="Your own data in place of --dataset: package.module:loader, called without arguments, returns (train, test), each a pair of "
            "tensors (inputs, labels), a data set of such pairs, or batches of them.",
        ),
        click.option("--data-dir", type=click.Path(), default="data", show_default=True, metavar="DIR",
                     help="Folder laid out as torchvision does (MNIST/raw, FashionMNIST/raw, cifar-10-batches-py)."),
        click.option("--download", is_flag=True, help="Fetch missing files (needs torchvision)."),
        click.option("--train-samples", type=click.IntRange(1), metavar="N", help="Use the first N training images."),
        click.option("--test-samples", type=click.IntRange(1), metavar="N", help="Use the first N test images."),
        click.option("--image-size", hidden=True, callback=image_size, expose_value=False),
    )  # fmt: skip

    return taking(options)


def config_of(options):
    """The ``Config`` of a training by the options of ``source_options`` and of one optimizer, for the commands that may train a network first."""
    if options["momentum"] and options["optimizer"] != "sgd":
        raise click.UsageError("--momentum is for --optimizer sgd")
    config = Config(
        options["model"], options["epochs"], options["batch_size"], options["optimizer"], options["lr"], options["momentum"], options["device"],
        weights=options["weights"],
    )  # fmt: skip
    return config


@contextlib.contextmanager
def threads(number):
    """A block on so many CPU threads; None: on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_files(options):
    """An error where --data-dir or --download are for data that are no files."""
    names = options["dataset"]
    if not options["data"] and set((names,) if isinstance(names, str) else names) != {"digits"}:
        return
    for name in ("data_dir", "download"):
        if is_given(name):
            what = f"--{name.replace('_', '-')}"
            which = "--data, your own loader" if options["data"] else "digits, which come with scikit-learn"
            raise click.UsageError(f"expected {what} with a --dataset of files, but got it with {which}: leave it out, or say another --dataset")


def data_of(options, dataset=None):
    """The data that the options of ``source_options`` ask for; ``dataset``: which of several.

    Raises:
        click.ClickException: there are none, or not such.
    """
    if options["data"] and is_given("dataset"):
        raise click.UsageError("expected --dataset or --data, but got both")
    check_files(options)
    try:
        if options["data"]:
            return own_data(options["data"]).first(options["train_samples"], options["test_samples"])
        return load_dataset(
            dataset or options["dataset"], options["data_dir"], options["train_samples"], options["test_samples"], options["download"]
        )
    except (ValueError, OSError, ImportError, RuntimeError) as error:  # the last: torchvision's downloads
        raise click.ClickException(str(error)) from error


_RECIPE_HELP = "all (default): everything in the dtype. " + " ".join(f"{name}: {what}." for name, what in RECIPES.items() if name != "all")

_WHICH_RECIPE = (
    click.option(
        "--recipe", "recipes", type=click.Choice(list(RECIPES)), multiple=True, default=("all",), help=_RECIPE_HELP + " Repeat to compare."
    ),
    click.option(
        "--rules", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
        help="YAML rules of torch_dtypes.quantize_ for mixed, qat and ptq, in place of --dtype for every layer.",
    ),
)  # fmt: skip
_HOW_TO_TRAIN = (
    click.option("--eps", type=float, callback=positive, help="Adam's; default 1e-8."),
    click.option("--schedule", type=click.Choice(list(SCHEDULES)), default="constant", show_default=True,
                 help="Of the learning rate: linear and cosine fall to 0, step to a tenth after half of the steps and again after three quarters."),
    click.option("--loss-scale", metavar="NUMBER", callback=loss_scale, help="Or dynamic; for the recipes master, mixed and qat."),
    click.option("--master", metavar="FORMAT", default="float32", show_default=True, callback=number_format,
                 help="Masters of the recipe master, rounded stochastically; none: the weights themselves are updated."),
    click.option("--state", metavar="FORMAT", callback=number_format,
                 help="Optimizer state of the recipe master, rounded stochastically; default: float32."),
)  # fmt: skip


training_options = taking(_HOW_TO_TRAIN)
recipe_options = taking((*_WHICH_RECIPE, *_HOW_TO_TRAIN))
