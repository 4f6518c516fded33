"""The command ``torch-dtypes sweep``."""

import sys

import click

from ...targets.lookup import target
from ..report.progress import plain_console
from ..report.provenance import command_line
from ..report.tables import print_rows
from ..training import checks, inputs
from ..training import options as common
from ..training.combinations import Misfit
from ..training.recipes import PUBLISHED, RECIPES
from . import grid
from .display import Display
from .files import place, read_config
from .options import cell_threads_option, retry_option, time_limit_option
from .store import Store
from .sweeping import Sweep, go


@checks.callback
def _formats(values):
    names = tuple(map(checks.named, values))
    for name in names:
        target(name)
    return names


@click.command(short_help="Try formats, rounding modes, accumulators and recipes, and compare.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    is_eager=True,
    callback=read_config,
    help="A YAML file with these options as keys, and lists for repeatable ones. "
    "Options of the command line win.",
)
@inputs.source_options(several=True)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    callback=_formats,
    help="posit16es2, 'posit<12,1>', e5m7, bf16, half, float8_e4m3fn, ...; for mixed, qat and ptq "
    "also blocks and integers: mxfp4, int8.",
)
@click.option(
    "--rounding",
    "roundings",
    multiple=True,
    metavar="MODE",
    callback=checks.mode,
    help="nearest_even, up, down, toward_zero, stochastic, ..., or Pychop's number; default: each "
    "format's own.",
)
@click.option(
    "--accumulate",
    "accumulates",
    multiple=True,
    default=("machine",),
    show_default=True,
    metavar="POLICY",
    callback=checks.policy,
    help="How dot products are summed: machine, float32, float64, exact, format, "
    "chunked(K), block(TERMS) or a chip such as nvidia-h100; with options "
    "too: format(accumulator=e5m7).",
)
@click.option(
    "--recipe",
    "recipes",
    type=click.Choice(list(RECIPES)),
    multiple=True,
    default=("all",),
    show_default=True,
    help=" ".join(f"{name}: {what}." for name, what in RECIPES.items()),
)
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(0, 2**32 - 1),
    multiple=True,
    default=(0,),
    show_default=True,
    help="Seeds for initial weights, image order, and random rounding.",
)
@click.option(
    "--epochs",
    type=click.IntRange(0),
    default=7,
    show_default=True,
    help="Passes over the training data; 0 tests --weights untrained.",
)
@common.optimizer_options
@common.training_options
@common.device_option
@cell_threads_option
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Cells in parallel; they take several GPUs in turn.",
)
@time_limit_option
@click.option(
    "--engine",
    type=click.Choice(["joblib", "dask"]),
    default="joblib",
    show_default=True,
    help="dask: run cells over the machines of --scheduler.",
)
@click.option(
    "--scheduler", metavar="ADDRESS", help="The address of a Dask scheduler, tcp://host:8786."
)
@retry_option
@click.option("--list", "list_only", is_flag=True, help="List the cells; run none.")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder for outcomes, tables, heat map and report. The same command "
    "continues there with the missing cells.",
)
def sweep(**options):
    """Try a network in every combination of formats, rounding modes, accumulators, recipes and
    seeds.

    Each combination is a cell, in its own process: if one crashes, raises or diverges, only that
    cell is lost, and the tables tell why. Each network, data set and seed is trained in float32 as
    well, for comparison. After an interruption the same command continues; a cell with another
    definition runs anew.
    """
    console = plain_console()
    cells = _cells(options)
    if options["list_only"]:
        return _list(console, cells)
    if not options["out"]:
        raise click.UsageError("expected --out, a folder for the results, but got none")
    if (options["engine"] == "dask") != bool(options["scheduler"]):
        raise click.UsageError("expected --engine dask and --scheduler ADDRESS together")
    checks.folder(None, None, options["out"])
    try:
        guesses = {
            dataset: data.guess.accuracy
            for (_, dataset), data in grid.check(cells, options["download"]).items()
        }
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        # An ImportError comes from torchvision's downloads.
        raise click.ClickException(str(error)) from error
    limits = {
        "jobs": options["jobs"],
        "time_limit": options["time_limit"],
        "scheduler": options["scheduler"],
        "retry": options["retry"],
    }
    interrupted = False
    try:
        with Display(console) as shown:
            go(cells, options["out"], watcher=shown, **limits)
    except KeyboardInterrupt:
        interrupted = True
    except (OSError, ValueError, ImportError) as error:
        # An error of the disk, which has no option.
        full = isinstance(error, OSError) and error.strerror and error.filename is None
        raise click.ClickException(
            f"cannot write into {options['out']}: {error.strerror}" if full else str(error)
        ) from error
    result = _report(console, cells, guesses, options["out"])
    if interrupted:
        console.print("Interrupted: the same command continues with the missing cells.")
        sys.exit(130)  # the shell's status of an interrupted command
    states = {result.outcomes[cell.key]["state"] for cell in cells if cell.key in result.outcomes}
    if states == {"failed"}:
        raise click.ClickException(
            "every cell has failed; the reasons are above. With --retry the same command runs "
            "them again"
        )


def _cells(options):
    if not options["formats"] and set(options["recipes"]) - set(PUBLISHED):
        raise click.UsageError(
            "expected at least one cell, but got no format; give --format posit16es2"
        )
    ctx = click.get_current_context()
    datasets = inputs.datasets_of(options, lambda name: place(ctx, name))
    inputs.check_files(options)
    names = ("data_dir", "train_samples", "test_samples", "text", "threads")
    shared = common.settings_in(options) | {name: options[name] for name in names}
    try:
        settings = grid.settings_of(datasets=datasets, **shared)
        axes = grid.Axes(
            options["formats"],
            options["model"],
            datasets,
            options["roundings"],
            options["accumulates"],
            options["recipes"],
            options["seeds"],
        )
        return grid.cells_of(axes, settings)
    except (OSError, ValueError) as error:
        where = place(ctx, error.option, error.value) if isinstance(error, Misfit) else ""
        raise click.UsageError(f"{where}{error}") from error


def _list(console, cells):
    names = ("model", "dataset", "format", "rounding", "accumulate", "recipe", "seed")
    print_rows(
        console,
        [*names, "file"],
        [[*(str(getattr(cell, name)) for name in names), f"{cell.key}.json"] for cell in cells],
    )
    bases = len(grid.with_bases(cells)) - len(cells)
    console.print(
        f"{len(cells)} cell{'s' * (len(cells) != 1)}, and {bases} training{'s' * (bases != 1)} in "
        "float32 for them."
    )


def _report(console, cells, guesses, out):
    store = Store(out)
    whole = Sweep(
        cells,
        {
            cell.key: result
            for cell in grid.with_bases(cells)
            if (result := store.read(cell)) is not None
        },
        guesses,
    )
    whole.print(console)
    with checks.writing_into(out):
        written = whole.write(out, command_line())
    console.print(f"\nWritten: {', '.join(str(path) for path in written)}")
    return whole
