"""Results of a sweep as plain rows, and as tables of formats by rounding modes in CSV, Markdown,
LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..training.measures import ACCURACY, LOSS, Measure, measures_of, perplexity
from ..training.summaries import Stat
from .cells import Cell
from .costs import COST_COLUMNS, Cost, find_cost

COLUMNS = (
    "model",      "dataset",    "recipe",     "accumulate", "format",     "rounding",
    "seed",       "epochs",     "state",      "accuracy",   "gap",        *COST_COLUMNS,
    "loss",       "loss_gap",   "perplexity", "seconds",    "reason",
)  # fmt: skip


@dataclass
class Entry:
    """The results of the seeds of one format and rounding mode.

    Attributes:
        values: the group's measure, for cells that are done. losses: their test losses.
        gaps: points of accuracy to float32 with the same seed, or percent of its perplexity.
        reasons: by seed, for cells that failed or diverged. waiting: the number of cells without an
            outcome.
    """

    measure: Measure = ACCURACY
    values: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    waiting: int = 0

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def gap(self) -> float | None:
        return statistics.fmean(self.gaps) if self.gaps else None

    def text(self) -> str:
        """Write ``89.17 ± 0.42 (-0.04)``: mean, deviation over seeds, gap; then ``failed`` or
        ``diverged``, with the number of seeds if not all."""
        of = len(self.values) + len(self.reasons) + self.waiting
        parts = []
        if self.values:
            unit = "" if self.measure is ACCURACY else " %"
            parts.append(
                Stat.of(self.values).text(self.measure.digits)
                + (f" ({signed(self.gap, 2)}{unit})" if self.gaps else "")
            )
        if self.reasons:
            parts.append(
                " and ".join(sorted(self.states))
                + (f" {len(self.reasons)} of {of}" if len(self.reasons) < of else "")
            )
        if self.waiting:
            parts.append("not done" if self.waiting == of else f"{self.waiting} not done")
        return ", ".join(parts)


@dataclass
class Group:
    """One table: the results of a model, data set, recipe and accumulation policy, by format and
    rounding mode.

    Attributes:
        baseline: the entry of float32. guess: the accuracy of a guess in percent, if known; None
            for a text.
        measure: accuracy, or the perplexity of a text.
        costs: the bits of each format in this recipe; None where a file of rules gives the formats.
    """

    model: str
    dataset: str
    recipe: str
    accumulate: str
    formats: list[str]
    roundings: list[str]
    entries: dict[tuple[str, str], Entry]
    baseline: Entry
    guess: float | None = None
    costs: dict[str, Cost | None] = field(default_factory=dict)
    measure: Measure = ACCURACY

    @property
    def title(self) -> str:
        sums = "" if self.accumulate == "machine" else f", accumulate {self.accumulate}"
        return f"{self.model} on {self.dataset}, {self.recipe}{sums}"

    def caption(self) -> str:
        """Describe the numbers in a sentence."""
        base = self.baseline.text() or "missing"
        sentence = (
            f"Test accuracy in percent; in parentheses its gap in points to float32's {base}"
            if self.measure is ACCURACY
            else f"Test perplexity; in parentheses by how many percent it is above float32's {base}"
        )
        sentence += f"; a guess has {self.guess:.1f}." if self.guess is not None else "."
        return (
            f"{sentence} Bits stored are those of a parameter, bits moved those of an operand of a "
            "product, with their share of scales; product bits are the width of a product of two "
            "significands."
        )

    def note(self) -> str:
        """List why cells failed or diverged."""
        reasons = [
            f"{name} {rounding}: {why}"
            for (name, rounding), e in self.entries.items()
            for why in dict.fromkeys(e.reasons.values())
        ]
        return f"Failed or diverged: {'; '.join(reasons)}." if reasons else ""

    @property
    def headings(self) -> list[str]:
        """Headings of ``rows``."""
        return ["format", *(name.replace("_", " ") for name in COST_COLUMNS), *self.roundings]

    def loss_rows(self) -> list[list[str]]:
        """Return a row for float32 and each format: its name, then the mean test loss for each
        rounding mode."""
        entries = [("float32", [self.baseline] * len(self.roundings))]
        for name in self.formats:
            entries.append((name, [self.entries.get((name, r), Entry()) for r in self.roundings]))
        return [
            [name, *(Stat.of(e.losses).text(LOSS.digits) if e.losses else "" for e in row)]
            for name, row in entries
        ]

    def rows(self) -> list[list[str]]:
        """Return a row for each format: its name, its costs, then a text for each rounding mode."""
        nothing = Entry()
        return [
            [
                name,
                *_cost_texts(self.costs.get(name)),
                *(
                    self.entries.get((name, rounding), nothing).text()
                    for rounding in self.roundings
                ),
            ]
            for name in self.formats
        ]


def _cost_texts(cost: Cost | None) -> tuple[str, str, str]:
    if cost is None:
        return "", "", ""
    return f"{cost.stored:g}", f"{cost.moved:g}", str(cost.product)


def signed(value: float, digits: int) -> str:
    """Write a number with its sign; numbers that round to 0 are +0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def flat(cells: Sequence[Cell], outcomes: dict[str, dict]) -> list[dict]:
    """Return a row for each cell, by ``COLUMNS``; None for missing values."""
    rows = []
    for cell in cells:
        result, base = outcomes.get(cell.key), outcomes.get(cell.base.key)
        accuracy = None if result is None else result["accuracy"]
        reference = None if base is None else base["accuracy"]
        loss, base_loss = (None if found is None else found["loss"] for found in (result, base))
        cost = find_cost(cell)
        rows.append(
            {
                "model": cell.model,
                "dataset": cell.dataset,
                "recipe": cell.recipe,
                "accumulate": cell.accumulate,
                "format": cell.format,
                "rounding": cell.rounding,
                "seed": cell.seed,
                "epochs": cell.settings.epochs,
                "state": "not done" if result is None else result["state"],
                "accuracy": accuracy,
                "gap": None if accuracy is None or reference is None else accuracy - reference,
                "bits_stored": None if cost is None else cost.stored,
                "bits_moved": None if cost is None else cost.moved,
                "product_bits": None if cost is None else cost.product,
                "loss": loss,
                "loss_gap": None if loss is None or base_loss is None else loss - base_loss,
                "perplexity": perplexity(loss) if loss is not None and cell.is_text else None,
                "seconds": None if result is None else result["seconds"],
                "reason": None if result is None else result["reason"],
            }
        )
    return rows


def groups(
    cells: Sequence[Cell], outcomes: dict[str, dict], guesses: dict[str, float] | None = None
) -> list[Group]:
    """Build the tables, in the order of the cells."""
    tables: dict[tuple, Group] = {}
    for cell, row in zip(cells, flat(cells, outcomes), strict=True):
        key = (cell.model, cell.dataset, cell.recipe, cell.accumulate)
        if key not in tables:
            measure = measures_of(cell.is_text)[0]
            guess = None if cell.is_text else (guesses or {}).get(cell.dataset)
            tables[key] = Group(*key, [], [], {}, Entry(measure), guess, measure=measure)
        group = tables[key]
        group.costs.setdefault(cell.format, find_cost(cell))
        for name, names in ((cell.format, group.formats), (cell.rounding, group.roundings)):
            if name not in names:
                names.append(name)
        _add(group.entries.setdefault((cell.format, cell.rounding), Entry(group.measure)), row)
    for key, group in tables.items():
        bases = {
            c.base.key: c.base for c in cells if (c.model, c.dataset, c.recipe, c.accumulate) == key
        }
        for row in flat(list(bases.values()), outcomes):
            _add(group.baseline, {**row, "gap": None, "loss_gap": None})
    return list(tables.values())


def _add(entry: Entry, row: dict) -> None:
    if row["state"] == "not done":
        entry.waiting += 1
    elif row["state"] == "done":
        is_accuracy = entry.measure is ACCURACY
        entry.values.append(row[entry.measure.name])
        entry.losses.append(row["loss"])
        if row["gap" if is_accuracy else "loss_gap"] is not None:
            entry.gaps.append(row["gap"] if is_accuracy else 100 * math.expm1(row["loss_gap"]))
    else:
        entry.states.add(row["state"])
        entry.reasons[row["seed"]] = row["reason"]


def csv_text(rows: Sequence[dict]) -> str:
    """Return CSV: a header, then a line for each cell (RFC 4180)."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
