"""What a comparison of dtypes comes to: summaries, a table, ``results.json``."""

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from ..quantization.targets import target
from ..workbench.folders import write_json
from ..workbench.provenance import versions
from .data import CLASSES, Guess
from .recipes import AFTER, THROUGHOUT

_EVEN = Guess(CLASSES, 100 / CLASSES)

BASELINE = "float32"


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over seeds; ``std`` is ``None`` for one seed. ``count``: how many seeds."""

    mean: float
    std: float | None
    count: int = field(default=1, compare=False)

    @classmethod
    def of(cls, values):
        """The statistics of ``values``, or ``None`` if there are none."""
        values = list(values)
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    @property
    def interval(self):
        """Half the width of the 95 % confidence interval of the mean: t * std / sqrt(count), by Student's t; ``None`` for one seed."""
        from scipy.special import stdtrit

        return None if self.std is None else float(stdtrit(self.count - 1, 0.975)) * self.std / math.sqrt(self.count)

    def text(self, digits, sign=""):
        """``mean`` or ``mean ± std`` with so many digits after the point."""
        text = f"{self.mean:{sign}.{digits}f}"
        return text if self.std is None else f"{text} ± {self.std:.{digits}f}"


@dataclass(frozen=True)
class Summary:
    """All seeds of one dtype by one recipe. Runs that diverged count only in ``diverged``.

    Attributes:
        dtype: name without ``torch.``.
        recipe: one of ``recipes.RECIPES``.
        accuracy: one :class:`Stat` in percent for each epoch; empty if all runs diverged.
        gap: final accuracy minus that of float32 with the same seed, in points, or
            ``None`` where there is no pair to compare.
        seconds: training time of one epoch, ``None`` if all runs diverged.
        diverged: ``(seed, epoch)`` of the runs that diverged.
        train_loss: of the last epoch, the mean over the seeds; ``None`` if all diverged.
        seeds: how many runs there were.
        why: of the first run that diverged, the sentence on it, or ``None``.
        said: the dtype as the user spelt it (``bf16``), for tables and figures.
    """

    dtype: str
    recipe: str
    accuracy: list[Stat]
    gap: Stat | None
    seconds: Stat | None
    diverged: list[tuple[int, int]]
    train_loss: float | None = None
    seeds: int = 1
    why: str | None = None
    said: str | None = None

    @property
    def name(self):
        """The dtype as the user spelt it."""
        return self.said or self.dtype

    @property
    def label(self):
        """That, with the recipe where it is not the plain one."""
        return self.name if self.recipe == "all" else f"{self.name} {self.recipe}"

    @property
    def is_baseline(self):
        """Whether the others are compared with it: float32 throughout."""
        return (self.dtype, self.recipe) == (BASELINE, "all")

    def as_json(self):
        """The summary as plain data for JSON."""

        def pair(stat):
            return None if stat is None else {"mean": stat.mean, "std": stat.std}

        return {
            "dtype": self.dtype,
            "name": self.name,
            "recipe": self.recipe,
            "accuracy": [pair(stat) for stat in self.accuracy],
            "gap_to_float32": None if self.gap is None else {**pair(self.gap), "half_interval_95": self.gap.interval},
            "seconds_per_epoch": pair(self.seconds),
            "diverged": [{"seed": seed, "epoch": epoch} for seed, epoch in self.diverged],
        }


def summarize(runs):
    """One :class:`Summary` per dtype and recipe, in the order in which they first appear."""
    grouped = {}
    for run in runs:
        grouped.setdefault((run.dtype, run.recipe), []).append(run)
    baseline = {run.seed: run for run in grouped.get((BASELINE, "all"), ()) if run.diverged_at is None}
    summaries = []
    for (dtype, recipe), all_runs in grouped.items():
        good = [run for run in all_runs if run.diverged_at is None]
        epochs = zip(*(run.epochs for run in good), strict=True)
        gaps = () if (dtype, recipe) == (BASELINE, "all") else (
            run.epochs[-1].accuracy - baseline[run.seed].epochs[-1].accuracy
            for run in good if run.seed in baseline
        )  # fmt: skip
        summaries.append(
            Summary(
                dtype,
                recipe,
                [Stat.of(epoch.accuracy for epoch in at_epoch) for at_epoch in epochs],
                Stat.of(gaps),
                Stat.of(statistics.fmean(epoch.seconds for epoch in run.epochs) for run in good),
                [(run.seed, run.diverged_at) for run in all_runs if run.diverged_at is not None],
                statistics.fmean(run.epochs[-1].train_loss for run in good) if good else None,
                len(all_runs),
                next((run.divergence for run in all_runs if run.divergence), None),
                all_runs[0].said,
            )
        )
    return summaries


def epochs_shown(count, room):
    """At most ``room`` of the epochs 1 to ``count``, evenly and with both ends.

    None at all where there is no room for two: the last is also in the final column.
    """
    if count <= room:
        return list(range(1, count + 1))
    if room < 2:
        return []
    return [1 + round(i * (count - 1) / (room - 1)) for i in range(room)]


def _cells(summary):
    """The text of a row outside its epochs: dtype, recipe, final, gap, seconds."""
    if not summary.accuracy:
        return summary.name, summary.recipe, f"diverged at epoch {min(epoch for _, epoch in summary.diverged)}", "-", "-"
    gap = "-" if summary.gap is None else summary.gap.text(2, sign="+")
    return summary.name, summary.recipe, summary.accuracy[-1].text(2), gap, summary.seconds.text(2)


def print_table(console, summaries, title, guess=_EVEN):
    """Print the comparison, one row per dtype and recipe, to a ``rich.console.Console``.

    Accuracy in percent after each epoch (means over the seeds; on a narrow terminal a
    selection of epochs), the final one, its distance from float32 in points and the
    seconds per epoch. Runs that diverged are named below.
    """
    from rich.table import Table

    count = max((len(summary.accuracy) for summary in summaries), default=0)
    headers = ("dtype", "recipe", "final %", "gap", "s/epoch")
    rows = [_cells(summary) for summary in summaries]
    names = 2
    if all(summary.recipe == "all" for summary in summaries):
        names, headers, rows = 1, (headers[0], *headers[2:]), [(row[0], *row[2:]) for row in rows]
    if not console.is_terminal:
        console.width = 10_000  # in a file or a pipe nothing has to fit
    fixed = sum(2 + max(map(len, column)) for column in zip(headers, *rows, strict=True))
    shown = epochs_shown(count, (console.width - fixed) // (2 + max(5, len(f"ep {count}"))))

    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for header in (*headers[:names], *(f"ep {epoch}" for epoch in shown), *headers[names:]):
        table.add_column(header, justify="left" if header in headers[:names] else "right", no_wrap=True)
    for summary, row in zip(summaries, rows, strict=True):
        epochs = (f"{summary.accuracy[epoch - 1].mean:.1f}" if summary.accuracy else "-" for epoch in shown)
        table.add_row(*row[:names], *epochs, *row[names:])
    console.print()
    console.print(table)
    console.print()
    for note in notes(summaries, guess):
        console.print(note, highlight=False)


def over_seeds(summaries):
    """What a title says of the seeds; an interruption leaves some with fewer than others, or all with one."""
    counts = {summary.seeds for summary in summaries}
    most = max(counts, default=1)
    return "" if most == 1 else f", mean of {'up to ' * (len(counts) > 1)}{most} seeds"


def notes(summaries, guess=_EVEN):
    """Sentences that explain the table: its units, and what diverged."""
    lines = ["Accuracy on the test images in percent; gap to float32 in points, seed by seed."]
    if any(s.accuracy and s.accuracy[-1].std is not None for s in summaries):
        lines.append("± is the standard deviation over the seeds.")
    most = max((s.seeds for s in summaries), default=1)
    lines += [f"{s.label} was interrupted: {s.seeds} of {most} seeds." for s in summaries if s.seeds < most]
    idle = did_not_learn(summaries, guess)
    for summary in summaries:
        for seed, epoch in summary.diverged:
            rest = "; its row is the mean of the other seeds" if summary.accuracy else ""
            where = f"at epoch {epoch} with seed {seed}"
            lines.append(f"{summary.label} diverged {where} (loss not finite){rest}.")
        if summary in idle:
            lines.append(f"{summary.label} {_idleness(summary, guess)}")
    lines += [f"{s.label} {_guessing(s)}" for s in guesses_after_training(summaries, guess)]
    if after := [recipe for recipe in AFTER if any(summary.recipe == recipe for summary in summaries)]:
        lines.append(f"{', '.join(after)}: the epochs are float32's, the last is tested after rounding.")
    return lines


_GRADIENTS_LOST = "Gradients may be lost below the smallest number or saturate at the largest one: try another --loss-scale"
_MASTERS = "try --recipe master, which has float32 masters"
_ADVICE = {
    "nearest": f"Updates below half a unit in the last place are lost when weights round to nearest: {_MASTERS}.",
    "all": f"Gradients may be lost below the smallest number: {_MASTERS} and takes a --loss-scale.",
    "master": f"{_GRADIENTS_LOST}, and --loss-dtype float32.",
}


def _idleness(summary, guess):
    recipe = summary.recipe
    if recipe == "all" and target(summary.dtype).rounding.startswith("nearest"):
        recipe = "nearest"
    return (
        f"did not learn: its loss is {summary.train_loss:.2f}, and guessing among {guess.classes} classes has {guess.loss:.2f}. "
        f"{_ADVICE.get(recipe, f'{_GRADIENTS_LOST}.')}"
    )


def _guessing(summary):
    return (
        f"guesses on the test images ({summary.accuracy[-1].mean:.1f} %), though its training loss fell to {summary.train_loss:.2f}. Normalisation "
        "layers, where it has some, may have lost their running statistics, whose updates (0.1 of a difference) are below half a unit in the dtype's "
        "last place: try --recipe mixed, which keeps them in float32, as module.float() after model.to(dtype) does in code of your own."
    )


def failures(summaries, guess=_EVEN):
    """The reason of each that diverged with all seeds or did not learn, by label."""
    idle = did_not_learn(summaries, guess)
    found = {}
    for summary in summaries:
        if not summary.accuracy:
            epochs = sorted({epoch for _, epoch in summary.diverged})
            where = f"diverged at epoch {epochs[0]}" + (f" to {epochs[-1]}" if len(epochs) > 1 else "")
            where += f" with all {summary.seeds} seeds" if summary.seeds > 1 else ""
            found[summary.label] = f"{where}. {summary.why}" if summary.why else f"{where} (loss not finite)."
        elif summary in idle:
            found[summary.label] = _idleness(summary, guess)
    return found


def losses_of_seeds(summaries):
    """What is to be said of each that diverged with some of its seeds, by label."""
    return {
        s.label: f"{len(s.diverged)} of {s.seeds} seeds diverged; its figures are the mean of the others." + (f" {s.why}" if s.why else "")
        for s in summaries
        if s.diverged and s.accuracy
    }


def setting(described):
    """A sentence on what the figures depend on besides the dtypes."""
    schedule = "" if described["schedule"] == "constant" else f", {described['schedule']} schedule"
    momentum = f", momentum {described['momentum']:g}" if described["momentum"] else ""
    sums = "" if described["accumulate"] == "machine" else f", sums by {described['accumulate']}"
    epochs, seeds = described["epochs"], len(described["seeds"])
    ranks = f" on {described['ranks']} processes" if "ranks" in described else ""
    return (
        f"{described['optimizer']} at {described['lr']:g}{momentum}{schedule}, batch {described['batch_size']}{ranks}, "
        f"{epochs} epoch{'s' * (epochs > 1)}{sums}; "
        f"{described['train_samples']:,} training and {described['test_samples']:,} test samples; {seeds} seed{'s' * (seeds > 1)}; "
        f"a guess has {described['guess']:.3g} %"
    )


def guess_of(described):
    """The :class:`Guess` of a comparison; ``described`` is the ``config`` of its results.json."""
    return Guess(described["classes"], described["guess"])


def did_not_learn(summaries, guess=_EVEN):
    """Those whose training loss at the end is as high as a guess's, where float32's is not."""
    stuck = 0.95 * guess.loss
    if not any(s.is_baseline and s.train_loss is not None and s.train_loss < stuck for s in summaries):
        return []
    return [s for s in summaries if s.recipe not in AFTER and s.train_loss is not None and s.train_loss > stuck]


def guesses_after_training(summaries, guess=_EVEN):
    """Those in a dtype whose training loss fell to less than half of a guess's, and whose test accuracy is a guess's, where float32's is not."""

    def guesses(summary):
        return summary.accuracy[-1].mean <= guess.accuracy + 2

    if any(s.is_baseline and s.accuracy and guesses(s) for s in summaries):
        return []
    fell = [s for s in summaries if s.recipe in THROUGHOUT and s.train_loss is not None and s.train_loss < 0.5 * guess.loss]
    return [s for s in fell if not s.is_baseline and guesses(s)]


def write_results(folder, config, runs):
    """Write ``results.json`` into ``folder``, replacing it in one step.

    Args:
        folder: an existing folder.
        config: plain data that says what was asked for.
        runs: a list of ``records.Run``.

    Returns:
        The path. The file holds ``config``, ``versions``, ``units``, ``runs`` (per dtype, recipe
        and seed, every epoch) and ``summary`` (per dtype and recipe); a figure that is not finite
        is ``null``.

    Raises:
        OSError: when it cannot be written.
    """
    results = {
        "config": config,
        "versions": versions(),
        "units": {"accuracy": "percent of the test images", "gap_to_float32": "points",
                  "loss": "mean cross-entropy, nats", "seconds": "training part of an epoch"},
        "runs": [run.as_json() for run in runs],
        "summary": [summary.as_json() for summary in summarize(runs)],
    }  # fmt: skip
    path = Path(folder) / "results.json"
    write_json(path, results)
    return path
