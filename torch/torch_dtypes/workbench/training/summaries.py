"""Summaries of a comparison's runs: means and deviations over seeds, by dtype and recipe."""

import math
import statistics
from dataclasses import dataclass, field

from .measures import ACCURACY, LOSS, MEASURES, PERPLEXITY, Measure
from .records import Named

BASELINE = "float32"


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over ``count`` seeds; ``std`` is ``None`` for one seed."""

    mean: float
    std: float | None
    count: int = field(default=1, compare=False)

    @classmethod
    def of(cls, values):
        """Return the statistics of ``values``, or ``None`` if there are none."""
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
        """Write ``mean`` or ``mean ± std`` with ``digits`` digits after the point."""
        text = f"{self.mean:{sign}.{digits}f}"
        return text if self.std is None else f"{text} ± {self.std:.{digits}f}"


@dataclass(frozen=True)
class Summary(Named):
    """All seeds of one dtype by one recipe. Runs that diverged or failed count only in ``diverged``
    and ``failed``.

    Attributes:
        dtype: the name of the dtype, without ``torch.``.
        recipe: one of ``recipes.RECIPES``.
        series: by a measure's name, a :class:`Stat` for each epoch; empty if no run came to its
            end.
        gaps: by a measure's name, its final value minus float32's with the same seed, or ``None``
            without a pair.
        seconds: the training time of one epoch, or ``None``.
        diverged: ``(seed, epoch)`` of the runs that diverged.
        train_loss: the loss of the last epoch, averaged over the seeds, or ``None``.
        seeds: the number of runs.
        why: the sentence on the first run that diverged or failed, or ``None``.
        said: the dtype as the user spelt it (``bf16``), for tables and figures.
    """

    dtype: str
    recipe: str
    series: dict[str, list[Stat]]
    gaps: dict[str, Stat | None]
    seconds: Stat | None
    diverged: list[tuple[int, int]]
    train_loss: float | None = None
    seeds: int = 1
    why: str | None = None
    said: str | None = None
    failed: list[int] = field(default_factory=list)

    @property
    def accuracy(self):
        """The accuracy in percent after each epoch."""
        return self.series[ACCURACY.name]

    @property
    def gap(self):
        """The gap of the final accuracy, in points."""
        return self.gaps[ACCURACY.name]

    def final(self, measure: Measure):
        """Return a measure after the last epoch; ``None`` if no run came to its end."""
        return next(reversed(self.series[measure.name]), None)

    @property
    def lost(self):
        """How many runs did not come to their end, and in which way, in words."""
        return len(self.diverged) + len(self.failed), " or ".join(
            ["diverged"] * bool(self.diverged) + ["failed"] * bool(self.failed)
        )

    @property
    def is_baseline(self):
        """Whether it is the baseline of the others: float32 throughout."""
        return (self.dtype, self.recipe) == (BASELINE, "all")

    def as_json(self, is_text=False):
        """Return plain data for JSON; ``is_text``: with perplexities."""

        def pair(stat):
            return None if stat is None else {"mean": stat.mean, "std": stat.std}

        def gap(stat):
            return None if stat is None else {**pair(stat), "half_interval_95": stat.interval}

        return {
            "dtype": self.dtype,
            "name": self.name,
            "recipe": self.recipe,
            "accuracy": [pair(stat) for stat in self.accuracy],
            "gap_to_float32": gap(self.gap),
            **{
                key: value
                for measure in (LOSS, PERPLEXITY)[: 1 + is_text]
                for key, value in (
                    (measure.name, [pair(stat) for stat in self.series[measure.name]]),
                    (f"{measure.name}_gap_to_float32", gap(self.gaps[measure.name])),
                )
            },
            "seconds_per_epoch": pair(self.seconds),
            "diverged": [{"seed": seed, "epoch": epoch} for seed, epoch in self.diverged],
        }


def summarize(runs):
    """Return one :class:`Summary` per dtype and recipe, in the order in which they first appear."""
    grouped = {}
    for run in runs:
        grouped.setdefault((run.dtype, run.recipe), []).append(run)
    baseline = {run.seed: run for run in grouped.get((BASELINE, "all"), ()) if run.is_good}
    summaries = []
    for (dtype, recipe), all_runs in grouped.items():
        good = [run for run in all_runs if run.is_good]
        epochs = list(zip(*(run.epochs for run in good), strict=True))
        pairs = [
            (run.epochs[-1], baseline[run.seed].epochs[-1])
            for run in good
            if run.seed in baseline and (dtype, recipe) != (BASELINE, "all")
        ]
        summaries.append(
            Summary(
                dtype,
                recipe,
                {m.name: [Stat.of(map(m.of, epoch)) for epoch in epochs] for m in MEASURES},
                {m.name: Stat.of(m.of(own) - m.of(base) for own, base in pairs) for m in MEASURES},
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
