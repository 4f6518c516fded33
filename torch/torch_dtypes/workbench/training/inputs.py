"""Options that choose network and data, and the loading of these data."""

import click

from . import checks
from .data import DATASETS, load_dataset
from .models import MODELS
from .options import add_options
from .sources import load_own_data


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
            callback=checks.model,
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
            help="Use the first N training images.",
        ),
        click.option(
            "--test-samples",
            type=click.IntRange(1),
            metavar="N",
            help="Use the first N test images.",
        ),
        click.option("--image-size", hidden=True, callback=checks.image_size, expose_value=False),
    )

    return add_options(options)


def check_files(options):
    """Refuse --data-dir or --download for data that are not read from files."""
    names = options["dataset"]
    if not options["data"] and set((names,) if isinstance(names, str) else names) != {"digits"}:
        return
    for name in ("data_dir", "download"):
        if checks.is_given(name):
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
    if options["data"] and checks.is_given("dataset"):
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
