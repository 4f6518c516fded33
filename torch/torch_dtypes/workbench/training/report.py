"""What a comparison of dtypes comes to: summaries, the table on the terminal, its report,
``results.json``, a table in Markdown."""

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from ...targets.lookup import target
from ..report.colours import colours
from ..report.marked_sections import replace_sections
from ..report.page import Report, markdown_table, print_rows
from ..report.provenance import versions
from .data import CLASSES, Guess
from .figure import draw
from .recipes import AFTER, THROUGHOUT
from .records import Named

_EVEN = Guess(CLASSES, 100 / CLASSES)

BASELINE = "float32"


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over seeds; ``std`` is ``None`` for one seed. ``count``:
    how many seeds."""

    mean: float
    std: float | None
    count: int = field(default=1, compare=False)

    @classmethod
    def of(cls, values):
        """The statistics of ``values``, or ``None`` if there are none."""
        values = list(values)
        if not values:
            return None
        return cls(
            statistics.fmean(values),
            statistics.stdev(values) if len(values) > 1 else None,
            len(values),
        )

    @property
    def interval(self):
        """Half the width of the 95 % confidence interval of the mean: t * std / sqrt(count), by
        Student's t; ``None`` for one seed."""
        from scipy.special import stdtrit

        return (
            None
            if self.std is None
            else float(stdtrit(self.count - 1, 0.975)) * self.std / math.sqrt(self.count)
        )

    def text(self, digits, sign=""):
        """``mean`` or ``mean ± std`` with so many digits after the point."""
        text = f"{self.mean:{sign}.{digits}f}"
        return text if self.std is None else f"{text} ± {self.std:.{digits}f}"


@dataclass(frozen=True)
class Summary(Named):
    """All seeds of one dtype by one recipe. Runs that diverged or failed count only in ``diverged``
    and ``failed``.

    Attributes:
        dtype: name without ``torch.``.
        recipe: one of ``recipes.RECIPES``.
        accuracy: one :class:`Stat` in percent for each epoch; empty if no run came to its end.
        gap: final accuracy minus that of float32 with the same seed, in points, or
            ``None`` where there is no pair to compare.
        seconds: training time of one epoch, or ``None``.
        diverged: ``(seed, epoch)`` of the runs that diverged.
        train_loss: of the last epoch, the mean over the seeds, or ``None``.
        seeds: how many runs there were.
        why: of the first run that diverged or failed, the sentence on it, or ``None``.
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
    failed: list[int] = field(default_factory=list)

    @property
    def lost(self):
        """How many runs did not come to their end, and how, in words."""
        return len(self.diverged) + len(self.failed), " or ".join(
            ["diverged"] * bool(self.diverged) + ["failed"] * bool(self.failed)
        )

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
            "gap_to_float32": None
            if self.gap is None
            else {**pair(self.gap), "half_interval_95": self.gap.interval},
            "seconds_per_epoch": pair(self.seconds),
            "diverged": [{"seed": seed, "epoch": epoch} for seed, epoch in self.diverged],
        }


def summarize(runs):
    """One :class:`Summary` per dtype and recipe, in the order in which they first appear."""
    grouped = {}
    for run in runs:
        grouped.setdefault((run.dtype, run.recipe), []).append(run)
    baseline = {run.seed: run for run in grouped.get((BASELINE, "all"), ()) if run.is_good}
    summaries = []
    for (dtype, recipe), all_runs in grouped.items():
        good = [run for run in all_runs if run.is_good]
        epochs = zip(*(run.epochs for run in good), strict=True)
        gaps = (
            ()
            if (dtype, recipe) == (BASELINE, "all")
            else (
                run.epochs[-1].accuracy - baseline[run.seed].epochs[-1].accuracy
                for run in good
                if run.seed in baseline
            )
        )
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
                next((why for run in all_runs if (why := run.divergence or run.failure)), None),
                all_runs[0].said,
                [run.seed for run in all_runs if run.failure],
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
        how = (
            f"diverged at epoch {min(epoch for _, epoch in summary.diverged)}"
            if summary.diverged
            else "failed"
        )
        return summary.name, summary.recipe, how, "-", "-"
    gap = "-" if summary.gap is None else summary.gap.text(2, sign="+")
    return summary.name, summary.recipe, summary.accuracy[-1].text(2), gap, summary.seconds.text(2)


def print_table(console, summaries, title, guess=_EVEN):
    """Print the comparison, one row per dtype and recipe, to a ``rich.console.Console``.

    Accuracy in percent after each epoch (means over the seeds; on a narrow terminal a
    selection of epochs), the final one, its distance from float32 in points and the
    seconds per epoch. Runs that diverged are named below.
    """
    count = max((len(summary.accuracy) for summary in summaries), default=0)
    headers = ("dtype", "recipe", "final %", "gap", "s/epoch")
    rows = [_cells(summary) for summary in summaries]
    names = 2
    if all(summary.recipe == "all" for summary in summaries):
        names, headers, rows = 1, (headers[0], *headers[2:]), [(row[0], *row[2:]) for row in rows]
    fixed = sum(2 + max(map(len, column)) for column in zip(headers, *rows, strict=True))
    # In a file nothing has to fit.
    room = (
        (console.width - fixed) // (2 + max(5, len(f"ep {count}")))
        if console.is_terminal
        else count
    )
    shown = epochs_shown(count, room)
    epochs = (
        [f"{s.accuracy[epoch - 1].mean:.1f}" if s.accuracy else "-" for epoch in shown]
        for s in summaries
    )
    columns = (*headers[:names], *(f"ep {epoch}" for epoch in shown), *headers[names:])
    console.print()
    print_rows(
        console,
        columns,
        [(*row[:names], *some, *row[names:]) for row, some in zip(rows, epochs, strict=True)],
        title,
    )
    console.print()
    for note in notes(summaries, guess):
        console.print(note, highlight=False, soft_wrap=not console.is_terminal)


def over_seeds(summaries):
    """What a title says of the seeds; an interruption leaves some with fewer than others, or all
    with one."""
    counts = {summary.seeds for summary in summaries}
    most = max(counts, default=1)
    return "" if most == 1 else f", mean of {'up to ' * (len(counts) > 1)}{most} seeds"


def notes(summaries, guess=_EVEN):
    """Sentences that explain the table: its units, and what diverged."""
    lines = ["Accuracy on the test images in percent; gap to float32 in points, seed by seed."]
    if any(s.accuracy and s.accuracy[-1].std is not None for s in summaries):
        lines.append("± is the standard deviation over the seeds.")
    most = max((s.seeds for s in summaries), default=1)
    lines += [
        f"{s.label} was interrupted: {s.seeds} of {most} seeds."
        for s in summaries
        if s.seeds < most
    ]
    idle = did_not_learn(summaries, guess)
    for summary in summaries:
        for seed, epoch in summary.diverged:
            rest = "; its row is the mean of the other seeds" if summary.accuracy else ""
            where = f"at epoch {epoch} with seed {seed}"
            lines.append(f"{summary.label} diverged {where} (loss not finite){rest}.")
        if summary.failed:
            lines.append(
                f"{summary.label} failed with {len(summary.failed)} of {summary.seeds} seeds: "
                f"{summary.why}"
            )
        if summary in idle:
            lines.append(f"{summary.label} {_idleness(summary, guess)}")
    lines += [f"{s.label} {_guessing(s)}" for s in guesses_after_training(summaries, guess)]
    if after := [
        recipe for recipe in AFTER if any(summary.recipe == recipe for summary in summaries)
    ]:
        lines.append(
            f"{', '.join(after)}: the epochs are float32's, the last is tested after rounding."
        )
    return lines


_GRADIENTS_LOST = (
    "Gradients may be lost below the smallest number or saturate at the largest one: try another "
    "--loss-scale"
)
_MASTERS = "try --recipe master, which has float32 masters"
_ADVICE = {
    "nearest": (
        "Updates below half a unit in the last place are lost when weights round to nearest: "
        f"{_MASTERS}."
    ),
    "all": f"Gradients may be lost below the smallest number: {_MASTERS} and takes a --loss-scale.",
    "master": f"{_GRADIENTS_LOST}, and --loss-dtype float32.",
}


def _idleness(summary, guess):
    recipe = summary.recipe
    if recipe == "all" and target(summary.dtype).rounding.startswith("nearest"):
        recipe = "nearest"
    return (
        f"did not learn: its loss is {summary.train_loss:.2f}, and guessing among {guess.classes} "
        f"classes has {guess.loss:.2f}. {_ADVICE.get(recipe, f'{_GRADIENTS_LOST}.')}"
    )


def _guessing(summary):
    return (
        f"guesses on the test images ({summary.accuracy[-1].mean:.1f} %), though its training "
        f"loss fell to {summary.train_loss:.2f}. Normalisation "
        "layers, where it has some, may have lost their running statistics, whose updates (0.1 "
        "of a difference) are below half a unit in the dtype's last place: try --recipe mixed, "
        "which keeps them in float32, as module.float() after model.to(dtype) does in code of "
        "your own."
    )


def failures(summaries, guess=_EVEN):
    """The reason of each that diverged or failed with all seeds, or did not learn, by label."""
    idle = did_not_learn(summaries, guess)
    found = {}
    for summary in summaries:
        if not summary.accuracy and not summary.diverged:
            found[summary.label] = f"failed: {summary.why}"
        elif not summary.accuracy:
            epochs = sorted({epoch for _, epoch in summary.diverged})
            where = f"diverged at epoch {epochs[0]}" + (
                f" to {epochs[-1]}" if len(epochs) > 1 else ""
            )
            where += f" with all {summary.seeds} seeds" if summary.seeds > 1 else ""
            found[summary.label] = (
                f"{where}. {summary.why}" if summary.why else f"{where} (loss not finite)."
            )
        elif summary in idle:
            found[summary.label] = _idleness(summary, guess)
    return found


def losses_of_seeds(summaries):
    """What is to be said of each that diverged with some of its seeds, by label."""
    return {
        s.label: (
            f"{s.lost[0]} of {s.seeds} seeds {s.lost[1]}; its figures are the mean of the others."
        )
        + (f" {s.why}" if s.why else "")
        for s in summaries
        if s.lost[0] and s.accuracy
    }


def setting(described):
    """A sentence on what the figures depend on besides the dtypes."""
    schedule = "" if described["schedule"] == "constant" else f", {described['schedule']} schedule"
    momentum = f", momentum {described['momentum']:g}" if described["momentum"] else ""
    sums = "" if described["accumulate"] == "machine" else f", sums by {described['accumulate']}"
    epochs, seeds = described["epochs"], len(described["seeds"])
    ranks = f" on {described['ranks']} processes" if "ranks" in described else ""
    return (
        f"{described['optimizer']} at {described['lr']:g}{momentum}{schedule}, batch "
        f"{described['batch_size']}{ranks}, {epochs} epoch{'s' * (epochs > 1)}{sums}; "
        f"{described['train_samples']:,} training and {described['test_samples']:,} test samples; "
        f"{seeds} seed{'s' * (seeds > 1)}; a guess has {described['guess']:.3g} %"
    )


def guess_of(described):
    """The :class:`Guess` of a comparison; ``described`` is the ``config`` of its results.json."""
    return Guess(described["classes"], described["guess"])


def did_not_learn(summaries, guess=_EVEN):
    """Those whose training loss at the end is as high as a guess's, where float32's is not."""
    stuck = 0.95 * guess.loss
    if not any(
        s.is_baseline and s.train_loss is not None and s.train_loss < stuck for s in summaries
    ):
        return []
    return [
        s
        for s in summaries
        if s.recipe not in AFTER and s.train_loss is not None and s.train_loss > stuck
    ]


def guesses_after_training(summaries, guess=_EVEN):
    """Those in a dtype whose training loss fell to less than half of a guess's, and whose test
    accuracy is a guess's, where float32's is not."""

    def guesses(summary):
        return summary.accuracy[-1].mean <= guess.accuracy + 2

    if any(s.is_baseline and s.accuracy and guesses(s) for s in summaries):
        return []
    fell = [
        s
        for s in summaries
        if s.recipe in THROUGHOUT and s.train_loss is not None and s.train_loss < 0.5 * guess.loss
    ]
    return [s for s in fell if not s.is_baseline and guesses(s)]


def results_of(described, runs):
    """What ``results.json`` holds, of the plain data ``described`` and a list of ``records.Run``:
    ``config``, ``versions``, ``units``, ``runs`` (per dtype, recipe and seed, every epoch) and
    ``summary`` (per dtype and recipe); a figure that is not finite is ``null``.
    """
    return {
        "config": described,
        "versions": versions(),
        "units": {
            "accuracy": "percent of the test images",
            "gap_to_float32": "points",
            "loss": "mean cross-entropy, nats",
            "seconds": "training part of an epoch",
        },
        "runs": [run.as_json() for run in runs],
        "summary": [summary.as_json() for summary in summarize(runs)],
    }


def title_of(described):
    """The network and the data."""
    return f"{described['model']} on {described['dataset']}"


def figure_of(described, summaries, width="page", strip=True):
    """The figure of a comparison; ``described`` is the ``config`` of its results.json. ``strip``:
    whether what failed stands below."""
    guess = guess_of(described)
    failed = failures(summaries, guess)
    below = {**failed, **losses_of_seeds(summaries)} if strip else {}
    return draw(
        summaries,
        title_of(described),
        setting(described),
        guess.accuracy,
        left_out=failed,
        strip=below,
        width=width,
    )


def report_of(described, summaries, command=None, data=None):
    """The :class:`Report`, to which more sections may be added. What failed stands on its
    figure."""
    guess = guess_of(described)
    failed, count = failures(summaries, guess), max(len(s.accuracy) for s in summaries)
    made = Report(title_of(described), command=command, seeds=described["seeds"], data=data)
    made.text(
        f"{described['parameters']:,} parameters. All runs of a seed begin with the same weights "
        "and see the samples in the same order."
    )
    made.figure(
        lambda width: figure_of(described, summaries, width, strip=False), _caption(summaries)
    )
    made.figure(lambda width: figure_of(described, summaries, width), None, "accuracy")
    made.strip(
        {**failed, **losses_of_seeds(summaries)}, "Failed" if failed else "Not with every seed"
    )
    own = colours(s.dtype for s in summaries)
    made.section("In numbers").table(
        *_table(summaries), colours={s.name: own[s.dtype] for s in summaries}
    )
    if count > 1:
        shown = epochs_shown(count, 15)
        made.section(
            f"Test accuracy after {'each epoch' if len(shown) == count else 'some epochs'}, in "
            "percent"
        )
        rows = [
            [s.label, *(f"{s.accuracy[e - 1].mean:.2f}" for e in shown)]
            for s in summaries
            if s.accuracy
        ]
        made.table(["dtype", *map(str, shown)], rows)
    return made.footnote(notes(summaries, guess)[0])


def _caption(summaries):
    seeds = max(s.seeds for s in summaries)
    if seeds == 1:
        return (
            "Left: test accuracy after each epoch. Right: final accuracy, and its distance from "
            "float32's with the same seed. One seed says nothing of how much is luck: --repeats "
            "5 adds intervals."
        )
    return (
        f"Left: test accuracy after each epoch, the mean of {seeds} seeds, in a band of one "
        "standard deviation. Right: final accuracy, and its distance from float32's, seed by "
        "seed, with the 95 % confidence interval of its mean (Student's t)."
    )


def _table(summaries):
    """Columns and rows; columns without a cell are left out."""
    columns = [
        "dtype",
        "recipe",
        "final accuracy",
        "gap to float32",
        "95 % interval",
        "training loss",
        "seconds per epoch",
        "seeds",
    ]
    rows = []
    for s in summaries:
        final, gap = (s.accuracy[-1] if s.accuracy else None), s.gap
        half = None if gap is None else gap.interval
        rows.append(
            [
                s.name,
                None if s.recipe == "all" else s.recipe,
                None if final is None else f"{final.text(2)} %",
                None if gap is None else f"{gap.mean:+.2f}",
                None if half is None else f"{gap.mean - half:+.2f} to {gap.mean + half:+.2f}",
                None if s.train_loss is None else f"{s.train_loss:.4f}",
                None if s.seconds is None else f"{s.seconds.mean:.2f}",
                f"{s.seeds - s.lost[0]} of {s.seeds}" if s.lost[0] else s.seeds,
            ]
        )
    kept = [i for i in range(len(columns)) if i == 0 or any(row[i] is not None for row in rows)]
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def write_markdown(path, described, summaries, command):
    """Replaces the comparison's part of a Markdown file, a table by dtype and recipe, or adds it.

    Raises:
        OSError: the file cannot be read or written.
    """
    by_place = {
        (summary.name, summary.recipe): summary for summary in summaries if not summary.is_baseline
    }
    baseline = next((summary for summary in summaries if summary.is_baseline), None)
    dtypes, recipes = (list(dict.fromkeys(key[i] for key in by_place)) for i in (0, 1))
    idle, seeds = did_not_learn(summaries, guess_of(described)), len(described["seeds"])
    what = (
        f"{described['train_samples']:,} training and {described['test_samples']:,} test images, "
        f"{described['epochs']} epochs, {described['optimizer']} at {described['lr']:g} "
        f"({described['schedule']} schedule), batch {described['batch_size']}; "
        f"{'one seed' if seeds == 1 else f'mean and standard deviation of {seeds} seeds'}. Test "
        "accuracy in percent"
    )
    if baseline is not None and baseline.accuracy:
        what += (
            f", in parentheses its distance from float32's {baseline.accuracy[-1].text(2)} in "
            "points"
        )
    name = f"{title_of(described)}: {', '.join(described['recipes'])}"
    rows = [
        [dtype, *(_place(by_place.get((dtype, recipe)), idle) for recipe in recipes)]
        for dtype in dtypes
    ]
    parts = [
        f"### {name}",
        f"    {command}",
        f"{what}. torch {versions()['torch']}.",
        markdown_table(["dtype", *recipes], rows),
    ]
    replace_sections(Path(path), "train", {name: "\n\n".join(parts) + "\n"})


def _place(summary, idle):
    if summary is None:
        return ""
    if not summary.accuracy:
        return "diverges" if summary.diverged else "fails"
    gap = "" if summary.gap is None else f" ({summary.gap.mean:+.2f})"
    note = (
        ", did not learn"
        if summary in idle
        else f", some seeds {'diverge' if summary.diverged else 'fail'}"
        if summary.lost[0]
        else ""
    )
    return f"{summary.accuracy[-1].text(2)}{gap}{note}"
