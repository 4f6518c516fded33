"""Options that choose network and data, and the loading of these data."""

from pathlib import Path

import click

from . import checks
from .data import DATASETS, FROM_FILES
from .loading import load_data
from .models import MODELS
from .options import add_options
from .text import TOPICS, default_dataset


def source_options(several=False, default="lenet5"):
    """Make the options that choose network and data, for commands that need both. With ``several``,
    --model and --dataset repeat. ``default`` is the network without --model.

    ``data_of`` then loads the data.
    """
    each = {"multiple": True} if several else {}
    options = (
        click.option(
            "--model",
            default=(default,) if several else default,
            show_default=default is not None,
            metavar="NAME",
            callback=checks.model,
            **each,
            help=f"The network: {', '.join(MODELS)}, gpt or 'gpt(layers=4, heads=4, width=128, "
            "context=128)' for text, torchvision's by name, or your own as package.module:factory, "
            "called without arguments.",
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
            show_default="digits; topics for gpt",
            **each,
            help="digits comes with scikit-learn; topics, a text of 0.4 MB, with Python's own "
            "documentation; the others are files in --data-dir.",
        ),
        click.option(
            "--text",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Any file in place of --dataset: a network learns its next bytes. The last tenth "
            "is for testing.",
        ),
        click.option(
            "--data",
            metavar="MODULE:LOADER",
            callback=checks.data,
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
            help="Use the first N training inputs.",
        ),
        click.option(
            "--test-samples",
            type=click.IntRange(1),
            metavar="N",
            help="Use the first N test inputs.",
        ),
        click.option("--image-size", hidden=True, callback=checks.image_size, expose_value=False),
    )

    return add_options(options)


def datasets_of(options, where=lambda name: ""):
    """Return the names of the data that the options of ``source_options`` choose.

    Args:
        where: a function that returns the place of an option in a file, for errors.

    Raises:
        click.UsageError: several options for one thing, or --data-dir for data without files.
    """
    given = [name for name in ("dataset", "data", "text") if checks.is_given(name)]
    if len(given) > 1:
        flags = " or ".join(f"--{name}" for name in given)
        many = "both" if len(given) == 2 else "all"
        raise click.UsageError(f"{where(given[-1])}expected {flags}, but got {many}")
    return _names_of(options)


def _names_of(options):
    if options["data"] or options["text"]:
        return (options["data"] or Path(options["text"]).name,)
    return checks.several(options["dataset"]) or (
        default_dataset(checks.several(options["model"])),
    )


def check_files(options):
    """Refuse --data-dir or --download for data that are not read from files."""
    names = set(_names_of(options))
    if options["data"]:
        which = "--data, your own loader"
    elif options["text"]:
        which = "--text, a file of its own"
    elif names & set(FROM_FILES):
        return
    else:
        which = (
            "topics, which come with Python"
            if TOPICS in names
            else ("digits, which come with scikit-learn")
        )
    for name in ("data_dir", "download"):
        if checks.is_given(name):
            what = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"expected {what} with a --dataset of files, but got it with {which}: leave it "
                "out, or give another --dataset"
            )


def data_of(options):
    """Load the data that the options of ``source_options`` name.

    Raises:
        click.ClickException: data that do not exist or cannot be loaded.
    """
    (dataset,) = datasets_of(options)
    check_files(options)
    names = ("data_dir", "train_samples", "test_samples", "text", "download")
    try:
        return load_data(dataset, options["model"], **{name: options[name] for name in names})
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        # An ImportError comes from torchvision's downloads.
        raise click.ClickException(str(error)) from error
