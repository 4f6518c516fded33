"""``torch-dtypes train``: train one network in several dtypes and compare them."""

import contextlib
import importlib.util
import math
import os
import sys
import tempfile
from dataclasses import asdict

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import torch_dtypes

from . import report
from .data import DATASETS, load_dataset
from .loop import OPTIMIZERS, Config, dtype_name, resolve_dtype
from .loop import train as train_one
from .models import MODELS, build_model


def _positive(ctx, param, value):
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"expected a finite number above 0, but got {value}")
    return value


def _momentum(ctx, param, value):
    if not 0 <= value < 1:  # false for NaN, too
        raise click.BadParameter(f"expected a number from 0 to below 1, but got {value}")
    return value


def _policy(ctx, param, value):
    if value:
        try:
            with torch_dtypes.accumulate(value):
                pass
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return value


def _dtypes(ctx, param, names):
    try:
        return tuple(dict.fromkeys(resolve_dtype(name) for name in names))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _device(ctx, param, value):
    if value == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("expected a CUDA device, but torch sees none here; use --device cpu")
    return value


def _folder(ctx, param, path):
    """Create the folder and see that files can be written, before hours of training."""
    if path is None:
        return None
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise click.BadParameter(f"cannot write into {path}: {error.strerror}") from error
    if importlib.util.find_spec("matplotlib") is None:
        raise click.BadParameter("the figure needs matplotlib, which is not installed: pip install 'torch-dtypes[train]'")
    return path


@click.command(short_help="Train a network in several dtypes and compare them.")
@click.option("--model", type=click.Choice(MODELS), default="lenet5", show_default=True, help="The network.")
@click.option(
    "--dataset",
    type=click.Choice(DATASETS),
    default="digits",
    show_default=True,
    help="digits comes with scikit-learn; the others are files in --data-dir.",
)
@click.option(
    "--data-dir",
    type=click.Path(),
    default="data",
    show_default=True,
    metavar="DIR",
    help="Folder laid out as torchvision does (MNIST/raw, FashionMNIST/raw, cifar-10-batches-py).",
)
@click.option("--download", is_flag=True, help="Fetch missing files (needs torchvision).")
@click.option("--train-samples", type=click.IntRange(1), metavar="N", help="Use the first N training images.")
@click.option("--test-samples", type=click.IntRange(1), metavar="N", help="Use the first N test images.")
@click.option("--image-size", type=click.Choice(["32", "224"]), default="32", show_default=True, help="224 enlarges the images; alexnet only.")
@click.option("--epochs", type=click.IntRange(1), default=7, show_default=True, help="Passes over the training images.")
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Images in a step.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adam", show_default=True, help="With its defaults, but for --lr and --momentum.")
@click.option("--lr", type=float, callback=_positive, help="Learning rate; default 0.001 (adam), 0.01 (sgd).")
@click.option("--momentum", type=float, callback=_momentum, default=0.0, show_default=True, help="For sgd.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For initial weights, image order and dropout.")
@click.option(
    "--repeats", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Train with the seeds seed to seed+N-1 and report the mean."
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, callback=_device, help="cuda: stock dtypes only.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    default=("posit16es2",),
    show_default=True,
    metavar="NAME",
    callback=_dtypes,
    help="Dtype to train in: posit16es2, e5m7, posit12es1, fixed8_8, ...; repeat for several.",
)
@click.option(
    "--accumulate",
    "policy",
    metavar="POLICY",
    callback=_policy,
    help="How dot products in the dtypes add up: machine (default), float32, float64, exact, format or chunked(K).",
)
@click.option("--no-baseline", is_flag=True, help="Do not train in float32 as well.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads; default: torch's own choice.")
@click.option("--out", type=click.Path(), metavar="DIR", callback=_folder, help="Write results.json and accuracy.png into DIR.")
def train(**options):
    """Train a network with everything in a dtype, and in float32 for comparison.

    Weights, activations, gradients and the optimizer's state all have the dtype. All
    dtypes start from the same weights and see the images in the same order. A dtype's
    name may end in a rounding mode (q52_stochastic).
    """
    config, data, dtypes = _prepare(options)
    before = torch.get_num_threads()
    torch.set_num_threads(options["threads"] or before)
    try:
        described = _describe(options, config, data, dtypes)
        with torch_dtypes.accumulate(options["policy"]) if options["policy"] else contextlib.nullcontext():
            _compare(config, data, dtypes, options, described)
    finally:
        torch.set_num_threads(before)


def _prepare(options):
    """The options as (config, data, dtypes), or a click error."""
    if options["momentum"] and options["optimizer"] != "sgd":
        raise click.UsageError("--momentum is for --optimizer sgd")
    config = Config(
        options["model"], options["epochs"], options["batch_size"], options["optimizer"],
        options["lr"], options["momentum"], options["device"], int(options["image_size"]),
    )  # fmt: skip
    if config.image_size != 32 and config.model != "alexnet":
        raise click.UsageError(f"--image-size {config.image_size} is for --model alexnet, not {config.model}")
    dtypes = options["dtypes"]
    if not options["no_baseline"] and torch.float32 not in dtypes:
        dtypes = (torch.float32, *dtypes)
    try:
        data = load_dataset(
            options["dataset"], options["data_dir"], options["train_samples"], options["test_samples"],
            options["download"],
        )  # fmt: skip
    except (ValueError, OSError, ImportError, RuntimeError) as error:  # the last: torchvision's downloads
        raise click.ClickException(str(error)) from error
    return config, data, dtypes


def _describe(options, config, data, dtypes):
    """Plain data that says what the comparison was, for results.json."""
    with torch.random.fork_rng(devices=[]):
        model = build_model(config.model, data.channels, image_size=config.image_size)
    return asdict(config) | {
        "lr": config.lr or {"adam": 0.001, "sgd": 0.01}[config.optimizer],
        "parameters": sum(p.numel() for p in model.parameters()),
        "dataset": data.name,
        "train_samples": len(data.train),
        "test_samples": len(data.test),
        "dtypes": [dtype_name(dtype) for dtype in dtypes],
        "seeds": list(range(options["seed"], options["seed"] + options["repeats"])),
        "threads": torch.get_num_threads(),
        "accumulate": options["policy"] or "machine",
    }


def _compare(config, data, dtypes, options, described):
    """Train every dtype with every seed, showing progress, then report."""
    console = Console(soft_wrap=True, markup=False, emoji=False)
    title = f"{config.model} on {data.name}"
    console.print(
        f"{title}: {described['parameters']:,} parameters, {len(data.train):,} training and "
        f"{len(data.test):,} test images, {config.optimizer}, batch {config.batch_size}, "
        f"{config.device}, {described['threads']} threads",
        highlight=False,
    )
    runs = []
    steps = config.epochs * math.ceil(len(data.train) / config.batch_size)
    for seed in described["seeds"]:
        for dtype in dtypes:
            with _Display(console, dtype_name(dtype), seed, config.epochs, steps) as display:
                try:
                    run = train_one(config, data, dtype, seed, display.step, display.epoch)
                except RuntimeError as error:  # an operator that the dtype or device lacks, no memory
                    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                    raise click.ClickException(f"training in {dtype_name(dtype)} failed: {reason}") from error
            runs.append(run)
            if run.divergence:
                console.print(run.divergence, highlight=False, markup=False)
            if options["out"]:  # after every run, so that an interruption loses only one
                _write(report.write_results, options["out"], described, runs)
    summaries = report.summarize(runs)
    repeats = f", mean of {options['repeats']} seeds" if options["repeats"] > 1 else ""
    report.print_table(console, summaries, title + repeats)
    if options["out"]:
        path = _write(report.write_figure, options["out"], summaries, title + repeats)
        console.print(f"Written: {os.path.join(options['out'], 'results.json')}, {path}", highlight=False)


def _write(write, folder, *what):
    try:
        return write(folder, *what)
    except OSError as error:
        raise click.ClickException(f"cannot write into {folder}: {error.strerror}") from error


class _Display:
    """A progress bar on a terminal, and one plain line per epoch everywhere."""

    def __init__(self, console, dtype, seed, epochs, steps):
        self._console, self._label, self._epochs = console, f"{dtype} seed {seed}", epochs
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(self._label, total=steps, loss="-")

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
