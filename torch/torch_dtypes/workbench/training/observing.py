"""``train --observe``: count the roundings in the last epoch of each run, for files and sections of
the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...formats.dtypes import is_format_dtype
from .. import Statistics, observe
from ..observation.sections import add_counts
from ..observation.statistics import merge_statistics
from ..report.folders import write_json
from ..report.page import Report
from .recipes import PUBLISHED, QUANTIZING
from .records import Run


class Observed:
    """The counts of the last epoch of a training, which may be incomplete; if it diverged, of that
    epoch.

    A training that rounds is counted as it rounds. A training in a stock dtype is measured against
    the formats, which changes nothing in it.
    """

    def __init__(self, formats: Sequence[str]):
        self._formats = list(formats)
        self._now: tuple[int, Statistics] | None = None
        # Counts of the epoch from before an interruption.
        self._before: tuple[int, Statistics] | None = None

    @contextlib.contextmanager
    def epoch(self, training, recipe: str) -> Iterator[None]:
        """Observe the training in a block."""
        is_stock = not is_format_dtype(training.dtype) and recipe not in (*QUANTIZING, *PUBLISHED)
        if is_stock and not self._formats:
            yield
            return
        with observe(training.model, self._formats if is_stock else None) as stats:
            yield
        epoch = len(training.run.epochs) + 1
        if self._before is not None and self._before[0] == epoch:
            before = self._before[1]
            # Their weights are counted once, at the end of an epoch.
            if is_format_dtype(training.dtype):
                before = {
                    where: counts for where, counts in before.items() if where[1] != "weights"
                }
            stats = merge_statistics(before, stats)
        self._before, self._now = None, (epoch, stats)

    def state(self) -> dict | None:
        """Return the counts of the last epoch as plain data, or ``None``."""
        return None if self._now is None else {"epoch": self._now[0], **self._now[1].as_json()}

    def load_state(self, state: dict | None) -> None:
        """Restore a result of ``state``; the rest of that epoch is added to it."""
        if state is not None:
            self._now = self._before = state["epoch"], Statistics.from_json(state)


def sentence(run: Run, observed: dict) -> str:
    """Summarise the counts in a line; ``observed`` is a result of ``Observed.state``."""
    stats = Statistics.from_json(observed)
    worst = next(iter(stats.sorted()), None)
    text = (
        "no number left the range of its format"
        if worst is None or worst.trouble == 0
        else stats.worst()
    )
    return f"{_name(run)}, epoch {observed['epoch']}: {text}"


def write_counts(folder: Path, run: Run, observed: dict) -> None:
    """Write the counts as JSON and CSV. Raises: OSError."""
    write_json(folder / f"{_file(run)}.json", {"run": _name(run), **observed})
    Statistics.from_json(observed).to_csv(folder / f"{_file(run)}.csv")


def add_section(report: Report, run: Run, observed: dict) -> None:
    """Add a run's section to the report, with file names for its figures."""
    stats = Statistics.from_json(observed)
    if stats:
        report.section(f"Effects of rounding: {_name(run)}, epoch {observed['epoch']}")
        add_counts(report, stats, _file(run))


def _name(run: Run) -> str:
    return f"{run.label} seed {run.seed}"


def _file(run: Run) -> str:
    return "rounding_" + "_".join(
        word
        for word in (run.dtype, "" if run.recipe == "all" else run.recipe, f"seed{run.seed}")
        if word
    )
