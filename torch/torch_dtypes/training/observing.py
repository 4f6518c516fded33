"""``train --observe``: what rounding did in the last epoch of each run, as files and as sections of the report."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import torch

from ..formats import is_format_dtype
from ..workbench import Statistics, observe
from ..workbench.colours import colours
from ..workbench.drawing import save
from ..workbench.folders import write_json
from ..workbench.observation.statistics import together
from .recipes import QUANTIZING

_ROWS = 12  # of a table in the report


class Observations:
    """The counts of the last epoch that each run came to, whole or not; of one that diverged, that epoch's.

    A run that rounds is counted as it rounds; one in a stock dtype is measured against the formats of the other runs, which changes
    nothing in it. Files that an interrupted comparison left are read again.
    """

    def __init__(self, trials, folder=None):
        dtypes = (t.number for t in trials if isinstance(t.number, torch.dtype) and is_format_dtype(t.number))
        self._formats = list(dict.fromkeys(dtypes))
        self._folder = None if folder is None else Path(folder)
        self._now: dict[tuple, tuple[int, Statistics]] = {}
        self._before: tuple[tuple, int, Statistics] | None = None  # of a run that was interrupted within an epoch: what was counted of it
        self.found: dict[str, tuple[int, Statistics]] = {}  # by run: the epoch, and its counts

    @contextlib.contextmanager
    def epoch(self, training, recipe):
        """Observes the training in a block."""
        is_stock = not is_format_dtype(training.dtype) and recipe not in QUANTIZING
        if is_stock and not self._formats:
            yield
            return
        with observe(training.model, self._formats if is_stock else None) as stats:
            yield
        key, epoch = training.run.key, len(training.run.epochs) + 1
        if self._before is not None and self._before[:2] == (key, epoch):
            before = self._before[2]
            if is_format_dtype(training.dtype):  # whose weights are counted once, as an epoch leaves them
                before = {where: counts for where, counts in before.items() if where[1] != "weights"}
            stats = together(before, stats)
        self._before = None
        self._now[key] = epoch, stats

    def state(self, run):
        """What was counted of a run's last epoch, for a checkpoint: plain data, or ``None``."""
        if run.key not in self._now:
            return None
        epoch, stats = self._now[run.key]
        return {"key": list(run.key), "epoch": epoch, **stats.as_json()}

    def load_state(self, state):
        """Takes over what ``state`` gave: the rest of that epoch is added to it."""
        key = tuple(state["key"])
        self._before = key, state["epoch"], Statistics.from_json(state)
        self._now[key] = self._before[1:]  # which is all of it where the epoch was whole

    def end(self, run):
        """Keeps what was counted last, in the folder too.

        Returns:
            One line on it, or ``None`` where nothing was observed.

        Raises:
            OSError: a file cannot be written.
        """
        if run.key not in self._now:
            return None
        epoch, stats = self._now.pop(run.key)
        self.found[_name(run)] = epoch, stats
        if self._folder is not None:
            stem = self._folder / _file(run)
            data = {"run": _name(run), "epoch": epoch, **stats.as_json()}
            write_json(stem.with_suffix(".json"), data)
            stats.to_csv(stem.with_suffix(".csv"))
            for name, figure in _figures(stats):
                save(figure, self._folder, f"{_file(run)}_{name}")
        worst = next(iter(stats.sorted()), None)
        if worst is None or worst.trouble == 0:
            return f"{_name(run)}, epoch {epoch}: no number left the range of its format"
        return f"{_name(run)}, epoch {epoch}: {stats.worst()}"

    def resume(self, runs):
        """Reads what was written of runs that are done.

        Raises:
            ValueError: a file is something else. OSError: it cannot be read.
        """
        for run in runs:
            path = self._folder / f"{_file(run)}.json"
            if not path.exists():
                continue
            try:
                data = json.loads(path.read_text(encoding="utf-8"))
                self.found[_name(run)] = data["epoch"], Statistics.from_json(data)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"expected counts of torch-dtypes train --observe, but could not read {path}: {error!r}") from error

    def add_to(self, page):
        """A section of the report for each run."""
        for run, (epoch, stats) in self.found.items():
            rows = stats.rows(_ROWS)
            if not rows:
                continue
            page.section(f"What rounding did: {run}, epoch {epoch}")
            page.text("Of the numbers that were rounded and not 0; the worst first. docs/workbench.md says what each count means.")
            used = [name for name in rows[0] if any(row[name] for row in rows)]
            page.table(used, [[row[name] for name in used] for row in rows], dense=True)
            for name, figure in _figures(stats):
                page.figure(figure, f"Exponents of the numbers before they were rounded to {name}, by layer and pass, against its range.")


def _name(run):
    return f"{run.label} seed {run.seed}"


def _file(run):
    return "rounding_" + "_".join(word for word in (run.dtype, "" if run.recipe == "all" else run.recipe, f"seed{run.seed}") if word)


def _figures(stats):
    for name in colours(stats.formats()):
        with contextlib.suppress(ValueError):  # zeros alone have no exponents to draw
            yield name, stats.plot(name)
