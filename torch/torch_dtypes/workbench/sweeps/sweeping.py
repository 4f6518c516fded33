"""The results of a sweep, and the function that runs its cells."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..report.folders import lock_folder, write_json, write_text
from ..report.page import Report, Reported
from ..training.ranks import ALONE, Ranks
from . import tables
from .cells import Cell
from .display import Watcher
from .engines import Dask, Joblib, Together, run_all
from .grid import with_bases
from .heatmap import heatmap_figure
from .pareto import has_points, pareto_figure
from .store import Store


class Sweep(Reported):
    """The results of a sweep. A notebook shows its report.

    Attributes:
        cells: the requested cells, in order.
        outcomes: the outcomes by ``cell.key``, those of trainings in float32 too; cells that did
            not run have none.
        guesses: the accuracy of a guess in percent, by data set.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        outcomes: dict[str, dict],
        guesses: dict[str, float] | None = None,
    ):
        self.cells, self.outcomes, self.guesses = tuple(cells), dict(outcomes), dict(guesses or {})

    def rows(self) -> list[dict]:
        """Return a row for each cell, by column: model, dataset, recipe, accumulate, format,
        rounding, seed, epochs, state, accuracy, gap, bits_stored, bits_moved, product_bits, loss,
        loss_gap, perplexity, seconds, reason. The accuracy is in percent, the gap in points to
        float32 with the same seed, the loss in nats. Only texts have a perplexity. Missing values
        are None; so are bits where a file of rules gives the formats.
        """
        return tables.flat(self.cells, self.outcomes)

    def groups(self) -> list[tables.Group]:
        """Return a table for each model, data set, recipe and accumulation policy."""
        return tables.groups(self.cells, self.outcomes, self.guesses)

    def table(self) -> list[dict[str, str]]:
        """Return a row for each format of each group, with its bits, and a text for each rounding
        mode, ``mean ± deviation (gap)``."""
        names = ("model", "dataset", "recipe", "accumulate")
        return [
            {name: getattr(group, name) for name in names}
            | dict(zip(group.headings, row, strict=True))
            for group in self.groups()
            for row in group.rows()
        ]

    @property
    def failures(self) -> dict[str, str]:
        """Reasons of cells that failed or diverged, by the cells' labels."""
        every = {cell.key: cell for cell in with_bases(self.cells)}
        return {
            cell.label: r["reason"]
            for key, cell in every.items()
            if (r := self.outcomes.get(key)) and r["state"] != "done"
        }

    @property
    def is_complete(self) -> bool:
        """Whether every cell has an outcome."""
        return all(cell.key in self.outcomes for cell in self.cells)

    def to_csv(self, path: str | os.PathLike | None = None) -> str:
        """Return CSV with a line for each cell, and write it to ``path`` if given. Raises:
        OSError."""
        return _write_if_named(tables.csv_text(self.rows()), path)

    def to_markdown(self, path: str | os.PathLike | None = None) -> str:
        """Return the tables in Markdown, and write them to ``path`` if given. Raises: OSError."""
        return _write_if_named(self.report().markdown(), path)

    def to_latex(self, path: str | os.PathLike | None = None) -> str:
        """Return the tables in LaTeX (booktabs), and write them to ``path`` if given. Raises:
        OSError."""
        return _write_if_named(self.report().latex(), path)

    def to_json(self, path: str | os.PathLike | None = None) -> dict:
        """Return plain data, the rows, and the outcomes with their epochs, and write them as JSON
        to ``path`` if given. Raises: OSError."""
        data = {
            "rows": self.rows(),
            "guesses": self.guesses,
            "outcomes": list(self.outcomes.values()),
        }
        if path is not None:
            write_json(path, data)
        return data

    def heatmap(self, width: str = "page"):
        """Draw a matplotlib figure: formats by rounding modes, coloured by the gap to float32.
        ``width``: ``"page"``, or ``"column"`` of a paper."""
        return heatmap_figure(self.groups(), width)

    def pareto(self, width: str = "page"):
        """Draw a matplotlib figure: accuracy against the bits moved to a product, with the formats
        to which no other is better in both. ``width``: as for ``heatmap``.

        Raises:
            ValueError: no cell is done, or files of rules give all formats.
        """
        return pareto_figure(self.groups(), width)

    def report(self, command: str | None = None) -> Report:
        """Build the :class:`Report`."""
        title = "Sweep: " + ", ".join(
            dict.fromkeys(f"{c.model} on {c.dataset}" for c in self.cells)
        )
        report = Report(
            title,
            command=command,
            seeds=dict.fromkeys(cell.seed for cell in self.cells),
            data=self.to_json,
        )
        done = sum(r["state"] == "done" for c in self.cells if (r := self.outcomes.get(c.key)))
        report.text(
            f"{done} of {_count_text(len(self.cells), 'cell')} {'is' if done == 1 else 'are'} "
            f"done; {_settings(self.cells[0])}."
        )
        report.figure(
            self.heatmap,
            "Gap to float32 in points, or in percent of a text's perplexity, by format and "
            "rounding mode; darker is worse, failures are hatched.",
            "heatmap",
        )
        if has_points(groups := self.groups()):
            report.figure(
                self.pareto,
                "Accuracy or perplexity against the bits of an operand, its share of scales "
                "included; mean over seeds. No other format is better in both than those on the "
                "line.",
                "pareto",
            )
        for group in groups:
            report.section(group.title).table(
                group.headings, group.rows(), group.caption(), note=group.note()
            )
            report.section(f"{group.title}: test loss").table(
                ["format", *group.roundings],
                group.loss_rows(),
                "Mean cross-entropy of the test data in nats, with the deviation over seeds.",
            )
        return report.strip(self.failures, "Failed or diverged")

    def __repr__(self) -> str:
        own = {cell.key: cell for cell in self.cells}
        states = [r["state"] for key in own if (r := self.outcomes.get(key))]
        beside = [
            r["state"]
            for c in with_bases(self.cells)
            if c.key not in own and (r := self.outcomes.get(c.key))
        ]
        counted = (
            f"{_count_text(len(own), 'cell')}, {len(states)} with an outcome, {_lost(states)} "
            "failed or diverged"
        )
        trainings = (
            f"; of {_count_text(len(beside), 'training')} in float32 for them, {_lost(beside)}"
            if _lost(beside)
            else ""
        )
        return f"<Sweep of {counted}{trainings}>"

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Write results.csv, .json, .md and .tex, heatmap and pareto as .png, .svg and .pdf, and
        report.html; return the paths. Raises: OSError."""
        written = self.report(command).save(folder, data="results")
        for ending, to in (("csv", self.to_csv), ("md", self.to_markdown), ("tex", self.to_latex)):
            written.append(Path(folder) / f"results.{ending}")
            to(written[-1])
        return written


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _lost(states: Sequence[str]) -> int:
    return sum(state != "done" for state in states)


def _settings(cell: Cell) -> str:
    s = cell.settings
    parts = [
        f"{s.epochs} epoch{'s' * (s.epochs != 1)}",
        f"batch {s.batch_size}",
        s.optimizer + (f" at {s.lr:g}" if s.lr else ""),
    ]
    parts += [f"{s.train_samples:,} training inputs"] if s.train_samples else []
    parts += [f"{s.test_samples:,} test inputs"] if s.test_samples else []
    parts += ["on a GPU"] if s.device == "cuda" else []
    return ", ".join(parts)


def _write_if_named(text: str, path: str | os.PathLike | None) -> str:
    if path is not None:
        write_text(path, text)
    return text


def go(cells: Sequence[Cell], out: str | os.PathLike, **options) -> dict[str, dict]:
    """Run the cells without an outcome in a folder, which is made if missing. Options and result
    are those of ``go_through``.

    Raises:
        BlockingIOError: another command works in the folder. OSError: the folder cannot be written.
    """
    store = Store(out)
    store.folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(store.folder):
        return go_through(store, cells, **options)


def go_through(
    store: Store,
    cells: Sequence[Cell],
    *,
    jobs: int = 1,
    time_limit: int | None = None,
    scheduler: str | None = None,
    retry: bool = False,
    watcher: Watcher | None = None,
    compared: bool = True,
    ranks: Ranks = ALONE,
    find_unused: bool = False,
) -> dict[str, dict]:
    """Run the cells without an outcome, and return all outcomes by key. An interruption is raised
    again after the processes have ended; outcomes so far are stored."""
    every, watcher = with_bases(cells, compared), watcher or Watcher()
    if ranks.is_first:
        store.open()
    outcomes = ranks.from_first(
        {cell.key: result for cell in every if (result := store.read(cell)) is not None}
        if ranks.is_first
        else None
    )
    if retry:
        outcomes = {key: result for key, result in outcomes.items() if result["state"] != "failed"}
    waiting = [cell for cell in every if cell.key not in outcomes]
    # If the weights of a training are gone, cells that start from it need the training again.
    needed = {cell.base.key for cell in waiting if cell.is_after_training}
    gone = [
        cell
        for cell in every
        if cell.key in needed
        and cell.key in outcomes
        and ranks.is_first
        and not store.is_ready(cell)
    ]
    waiting += ranks.from_first(gone)
    watcher.start(len(every) - len(waiting), len(every))
    if waiting:
        if ranks.size > 1:
            engine = Together(store, ranks, watcher.told, find_unused)
        else:
            engine = (
                Dask(store, scheduler, time_limit)
                if scheduler
                else Joblib(store, jobs, time_limit, watcher.told)
            )

        def keep(cell: Cell, result: dict) -> None:
            outcomes[cell.key] = result
            watcher.cell(cell, result)

        run_all(engine, waiting, keep, watcher.on_interrupt)
    return outcomes
