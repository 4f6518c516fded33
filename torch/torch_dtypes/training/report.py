"""What a comparison of dtypes leaves behind: a table, ``results.json``, ``accuracy.png``."""

import json
import math
import os
import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..workbench.colours import GREY, PALETTE, colours
from ..workbench.drawing import DASHES, MARKERS
from ..workbench.provenance import versions
from .data import CLASSES

BASELINE = "float32"


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over seeds; ``std`` is ``None`` for one seed."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values):
        """The statistics of ``values``, or ``None`` if there are none."""
        values = list(values)
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

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
    """

    dtype: str
    recipe: str
    accuracy: list[Stat]
    gap: Stat | None
    seconds: Stat | None
    diverged: list[tuple[int, int]]
    train_loss: float | None = None

    @property
    def label(self):
        """The dtype, with the recipe where that is not the plain one."""
        return self.dtype if self.recipe == "all" else f"{self.dtype} {self.recipe}"

    def as_json(self):
        """The summary as plain data for JSON."""

        def pair(stat):
            return None if stat is None else {"mean": stat.mean, "std": stat.std}

        return {
            "dtype": self.dtype,
            "recipe": self.recipe,
            "accuracy": [pair(stat) for stat in self.accuracy],
            "gap_to_float32": pair(self.gap),
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
        return summary.dtype, summary.recipe, f"diverged at epoch {min(epoch for _, epoch in summary.diverged)}", "-", "-"
    gap = "-" if summary.gap is None else summary.gap.text(2, sign="+")
    return summary.dtype, summary.recipe, summary.accuracy[-1].text(2), gap, summary.seconds.text(2)


def print_table(console, summaries, title):
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
    for note in notes(summaries):
        console.print(note, highlight=False)


def notes(summaries):
    """Sentences that explain the table: its units, and what diverged."""
    lines = ["Accuracy on the test images in percent; gap to float32 in points, seed by seed."]
    if any(s.accuracy and s.accuracy[-1].std is not None for s in summaries):
        lines.append("± is the standard deviation over the seeds.")
    idle = did_not_learn(summaries)
    for summary in summaries:
        for seed, epoch in summary.diverged:
            rest = "; its row is the mean of the other seeds" if summary.accuracy else ""
            where = f"at epoch {epoch} with seed {seed}"
            lines.append(f"{summary.label} diverged {where} (loss not finite){rest}.")
        if summary in idle:
            lines.append(
                f"{summary.label} did not learn: its loss is {summary.train_loss:.2f}, and guessing among {CLASSES} classes has "
                f"{math.log(CLASSES):.2f}. {_ADVICE.get(summary.recipe, _ADVICE['master'])}"
            )
    if any(summary.recipe == "ptq" for summary in summaries):
        lines.append("ptq: the epochs are float32's, the last is tested after quantisation.")
    return lines


_ADVICE = {
    "all": "Updates below half a unit in the last place are lost when weights round to nearest: try --recipe master, which has float32 masters.",
    "master": "Gradients may be lost below the smallest number or saturate at the largest one: try another --loss-scale.",
}


def did_not_learn(summaries):
    """Those whose training loss at the end is as high as a guess's, where float32's is not."""
    guess = 0.95 * math.log(CLASSES)
    if not any(s.label == BASELINE and s.train_loss is not None and s.train_loss < guess for s in summaries):
        return []
    return [s for s in summaries if s.recipe != "ptq" and s.train_loss is not None and s.train_loss > guess]


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
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def write_figure(folder, summaries, title):
    """Write ``accuracy.png`` into ``folder``: test accuracy against epoch.

    One line per dtype with its name at the right end, a band of one standard deviation
    where there are several seeds, and dtypes that diverged named below the title.

    Args:
        folder: an existing folder.
        summaries: from :func:`summarize`, at least one.
        title: the model and the data set.

    Returns:
        The path.

    Raises:
        OSError: when it cannot be written.
    """
    # Figure without pyplot: no window system, no global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    ends = []
    dtypes = 0
    own = colours(s.dtype for s in summaries)
    for summary in (s for s in summaries if s.accuracy):
        means = [stat.mean for stat in summary.accuracy]
        epochs = range(1, len(means) + 1)
        if summary.label == BASELINE:
            # A wide line under the others, so that one which coincides with it is seen.
            colour, style = GREY, {"linewidth": 6, "marker": "o", "markersize": 6, "alpha": 0.45, "zorder": 2}
        else:
            colour = own[summary.dtype]
            style = {
                "linewidth": 1.8, "marker": MARKERS[dtypes % len(MARKERS)], "markersize": 5.5, "zorder": 3,
                "linestyle": DASHES[dtypes // len(PALETTE) % len(DASHES)],
            }  # fmt: skip
            dtypes += 1
        axes.plot(epochs, means, color=colour, clip_on=False, solid_capstyle="round", **style)
        if summary.accuracy[0].std is not None:
            low = [stat.mean - stat.std for stat in summary.accuracy]
            high = [min(100, stat.mean + stat.std) for stat in summary.accuracy]
            axes.fill_between(epochs, low, high, color=colour, alpha=0.1, linewidth=0, zorder=1)
        ends.append((means[-1], f"{summary.label}  {means[-1]:.2f} %", colour))

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(title, loc="left", fontweight="bold", pad=24)
    lost = [s.label for s in summaries if s.diverged and not s.accuracy]
    if lost:
        axes.text(0, 1.02, f"diverged: {', '.join(lost)}", transform=axes.transAxes, color=GREY)
    _label_ends(axes, ends)
    path = Path(folder) / "accuracy.png"
    figure.savefig(path)
    return path


def _label_ends(axes, ends):
    """Write each line's name beside its end, moved apart where they would overlap."""
    if not ends:
        axes.set(xticks=[], yticks=[])
        return
    axes.margins(x=0.02)
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    positions = spread([(value - low) / (high - low) for value, _, _ in ends], gap=0.055)
    for (value, name, colour), place in zip(ends, positions, strict=True):
        axes.annotate(
            name, xy=(right, value), xytext=(1.04, place), textcoords="axes fraction",
            color=colour, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.9, "relpos": (0, 0.5),
                        "shrinkA": 2, "shrinkB": 0},
        )  # fmt: skip
    axes.set(xlim=axes.get_xlim(), ylim=(low, high))


def spread(values, gap):
    """Move ``values`` as little as needed so that neighbours are at least ``gap`` apart.

    Values in [0, 1] stay in order and, where there is room, at most 1.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    places = list(values)
    for previous, current in pairwise(order):
        places[current] = max(places[current], places[previous] + gap)
    ceiling = max(1.0, gap * (len(values) - 1))
    for current in reversed(order):  # push back down what was pushed over the top
        places[current] = min(places[current], ceiling)
        ceiling = places[current] - gap
    return places
