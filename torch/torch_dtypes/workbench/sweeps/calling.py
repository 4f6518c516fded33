"""The function ``torch_dtypes.sweep``."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ... import _C
from ...targets.base import Target
from ...targets.quantisers import Quantiser

if TYPE_CHECKING:
    from .sweeping import Sweep

_Format = str | torch.dtype | _C.Format | Target | Quantiser


def sweep(
    format: _Format | Sequence[_Format],
    *,
    rounding: str | int | Sequence[str | int] = (),
    accumulate: str | Sequence[str] = "machine",
    recipe: str | Sequence[str] = "all",
    model: str | Sequence[str] = "lenet5",
    dataset: str | Sequence[str] | None = None,
    seed: int | Sequence[int] = 0,
    out: str | os.PathLike | None = None,
    jobs: int = 1,
    time_limit: int | None = None,
    scheduler: str | None = None,
    retry: bool = False,
    weights: str | os.PathLike | None = None,
    data_dir: str | os.PathLike = "data",
    text: str | os.PathLike | None = None,
    progress: bool | None = None,
    **settings,
) -> Sweep:
    """Measure a network's accuracy by format, rounding mode, accumulation policy, recipe and seed.
    Every combination is a cell, in its own process::

        modes = ["nearest_even", "stochastic"]
        found = torch_dtypes.sweep(
            ["q43", "q52", "bf16"], rounding=modes, recipe="ptq", seed=range(3), out="sweep")
        found.heatmap().savefig("heatmap.pdf")
        print(found.to_markdown())

    If a cell crashes, raises or diverges, only that cell is lost, and its row tells why. ``out``
    keeps the cells that are done, and after an interruption the same call continues. Each model,
    data set and seed is trained in float32 as well, for comparison.

    Args:
        format: names, as in ``torch_dtypes.target``, which tables show as you spell them; or
            dtypes, formats and targets; or classes of quantisers in a module.
        rounding: modes of ``ROUNDING_MODES``, or Pychop's numbers; none: each format's own.
        accumulate: policies of ``torch_dtypes.accumulate`` by name, such as ``"chunked(32)"``. With
            a policy other than ``"machine"``, a network in a stock dtype gets this package's dtype
            of the same numbers, whose sums follow the policy.
        recipe, model, dataset: as for ``torch-dtypes train``; your own data set is
            ``"package.module:loader"``. None: ``"topics"`` for GPTs, else ``"digits"``.
        seed: seeds of at least 0.
        out: a folder for outcomes; None: a temporary one.
        jobs: the number of parallel cells, at least 1; with ``device="cuda"`` they take the
            machine's GPUs in turn.
        time_limit: the limit of a cell in seconds; None: no limit.
        scheduler: the address of a Dask scheduler, for cells over machines.
        retry: whether to run cells again that failed before.
        weights: a file with the initial weights; with ``epochs=0`` nothing is trained.
        data_dir: the folder of the data sets' files.
        text: a file in place of ``dataset``, as a text of bytes.
        progress: whether to show progress on standard error: a line for each cell, and a bar on a
            terminal or in a notebook. None: only there.
        settings: ``epochs=7, batch_size=32, optimizer="adam", lr=, momentum=, eps=, schedule=,
            weight_decay=, warmup=, clip=, micro_batches=1, loss_scale=, master=, state=,
            train_samples=, test_samples=, threads=1, device="cpu"``, as the options of
            ``torch-dtypes train``.

    Returns:
        A :class:`Sweep`.

    Raises:
        ValueError: before any cell runs, for no cells, an unknown name, a value out of range, an
            unsuitable network or data, or a surrounding block of ``rounding`` or ``accumulate``,
            which cells would ignore.
        OSError: a file or folder that cannot be used; a BlockingIOError if another sweep works in
            it.
        ConnectionError: an unreachable scheduler.
        TypeError: an unknown setting, or a value of another type.

    Example::

        >>> formats = ["q43", "posit8es1"]
        >>> found = torch_dtypes.sweep(formats, recipe="ptq", epochs=1, train_samples=200)
        >>> [row["format"] for row in found.rows()]
        ['q43', 'posit8es1']
    """
    from ..report.progress import console_of
    from . import arguments, grid  # modules that train and draw are imported when first used
    from .display import Display, Watcher
    from .sweeping import Sweep, go

    arguments.check_blocks()
    console = console_of(progress)
    formats = arguments.names_of(arguments.several(format))
    dataset = arguments.choose_data(dataset, text, model)
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
        grid.settings_of(
            weights=weights, data_dir=data_dir, text=text, datasets=axes.datasets, **settings
        ),
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
