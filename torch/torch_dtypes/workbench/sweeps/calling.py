"""``torch_dtypes.sweep``."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ... import _C
from ...targets.base import Target

if TYPE_CHECKING:
    from .sweeping import Sweep

_Format = str | torch.dtype | _C.Format | Target


def sweep(
    format: _Format | Sequence[_Format],
    *,
    rounding: str | int | Sequence[str | int] = (),
    accumulate: str | Sequence[str] = "machine",
    recipe: str | Sequence[str] = "all",
    model: str | Sequence[str] = "lenet5",
    dataset: str | Sequence[str] = "digits",
    seed: int | Sequence[int] = 0,
    out: str | os.PathLike | None = None,
    jobs: int = 1,
    time_limit: int | None = None,
    scheduler: str | None = None,
    retry: bool = False,
    weights: str | os.PathLike | None = None,
    data_dir: str | os.PathLike = "data",
    progress: bool | None = None,
    **settings,
) -> Sweep:
    """Accuracy of a network by format, rounding mode, accumulation policy, recipe and seed: every
    combination is a cell, in a process of its own::

        modes = ["nearest_even", "stochastic"]
        found = torch_dtypes.sweep(
            ["q43", "q52", "bf16"], rounding=modes, recipe="ptq", seed=range(3), out="sweep")
        found.heatmap().savefig("heatmap.pdf")
        print(found.to_markdown())

    A cell that crashes, raises or diverges loses itself alone, and its row says why. With ``out``,
    what is done is kept there, and the same call goes on after any interruption. Each model, data
    set and seed is trained in float32 as well, for comparison.

    Args:
        format: names, as ``torch_dtypes.target`` takes them, whose spelling tables keep; or dtypes,
            formats and targets.
        rounding: modes of ``ROUNDING_MODES``, or Pychop's numbers; none: each format's own.
        accumulate: policies of ``torch_dtypes.accumulate`` by name, such as ``"chunked(32)"``. But
            for ``"machine"``, a network that would have a stock dtype throughout has this package's
            dtype of the same numbers, whose sums obey.
        recipe, model, dataset: as ``torch-dtypes train`` has them; a data set of your own is
            ``"package.module:loader"``.
        seed: at least 0.
        out: a folder for outcomes; None: a temporary one.
        jobs: cells side by side, at least 1; with ``device="cuda"`` each takes the next of the
            machine's GPUs, in turn.
        time_limit: of a cell, in seconds; None: there is none.
        scheduler: a Dask scheduler's address, for cells over machines.
        retry: whether cells that failed before are done again.
        weights: a file that training starts from; with ``epochs=0`` nothing is trained.
        data_dir: where the data sets' files are.
        progress: whether standard error shows how far it is: a line for each cell, and a bar on a
            terminal or in a notebook. None: there alone.
        settings: ``epochs=7, batch_size=32, optimizer="adam", lr=, momentum=, eps=, schedule=,
            loss_scale=, master=, state=, train_samples=, test_samples=, threads=1, device="cpu"``,
            as the options of ``torch-dtypes train``.

    Returns:
        A :class:`Sweep`.

    Raises:
        ValueError: no cells, an unknown name, a value out of range, a network or data that do not
            serve, or a block of ``rounding`` or ``accumulate`` around the call, which cells would
            not heed: before anything runs.
        OSError: a file or folder; a BlockingIOError where another sweep is at work in it.
        ConnectionError: no scheduler.
        TypeError: an unknown setting, or a value of another kind.

    Example::

        >>> formats = ["q43", "posit8es1"]
        >>> found = torch_dtypes.sweep(formats, recipe="ptq", epochs=1, train_samples=200)
        >>> [row["format"] for row in found.rows()]
        ['q43', 'posit8es1']
    """
    from ..report.progress import console_of
    from . import arguments, grid  # whatever trains and draws is imported when it is first used
    from .display import Display, Watcher
    from .sweeping import Sweep, go

    arguments.check_blocks()
    console = console_of(progress)
    formats = arguments.names_of(arguments.several(format))
    axes = grid.Axes(
        formats, *map(arguments.several, (model, dataset, rounding, accumulate, recipe, seed))
    )
    arguments.check_names("a model", axes.models)
    arguments.check_names("a data set", axes.datasets)
    arguments.check_settings(
        {"seed": axes.seeds, "jobs": jobs, "time_limit": time_limit, **settings}
    )
    cells = grid.cells_of(
        axes,
        grid.settings_of(weights=weights, data_dir=data_dir, datasets=axes.datasets, **settings),
    )
    guesses = {dataset: data.guess.accuracy for (_, dataset), data in grid.check(cells).items()}
    options = {"jobs": jobs, "time_limit": time_limit, "scheduler": scheduler, "retry": retry}
    with contextlib.ExitStack() as stack:
        folder = (
            stack.enter_context(tempfile.TemporaryDirectory(prefix="torch-dtypes-sweep-"))
            if out is None
            else out
        )
        watcher = stack.enter_context(Watcher() if console is None else Display(console))
        return Sweep(cells, go(cells, folder, watcher=watcher, **options), guesses)
