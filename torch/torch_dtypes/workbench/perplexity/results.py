"""Results: perplexities by format and recipe."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass

from ..report.folders import finite_or_none
from ..report.page import Report, Reported
from ..training.measures import perplexity
from . import report
from .recipes import RECIPES
from .study import BASE, Cell, Outcome, Settings, Study


@dataclass
class Row:
    """A cell's numbers.

    Attributes:
        bits: of a weight in rounded layers, or of a number where no weights are rounded; NaN if
            they are not known.
        loss: nats for each scored token. perplexity: its exponential.
        rise: of the loss, from float32's. error: the standard error of the rise, from its
            differences between windows; NaN for a single window.
    """

    format: str
    recipe: str
    bits: float
    perplexity: float
    loss: float
    rise: float
    error: float
    seconds: float


@dataclass
class Perplexity(Reported):
    """The results of a study. A notebook shows its report."""

    model: str
    settings: Settings
    parameters: int
    unit: str
    tokens: int
    scored: int
    windows: int
    text: str
    digest: str
    kept: list[str]
    rows: list[Row]
    _stem = "perplexity"

    @property
    def title(self) -> str:
        return f"Perplexity of {self.model}"

    @property
    def float32(self) -> Row:
        return self.rows[0]

    def as_json(self) -> dict:
        """Return plain data. Numbers that are not finite are None."""
        data = {
            name: value for name, value in asdict(self).items() if name not in ("rows", "settings")
        }
        rows = [finite_or_none(asdict(row)) for row in self.rows]
        return {**data, "settings": asdict(self.settings), "rows": rows}

    def report(self, command: str | None = None) -> Report:
        return report.report_of(self, command)


def collect(study: Study, outcomes: dict[Cell, Outcome], text: str, digest: str) -> Perplexity:
    """Collect the results of a study. ``text`` names the text, whose SHA-256 is ``digest``."""
    counts = [w.scored for w in study.windows]
    rows = [_row(cell, o, outcomes[BASE].losses, counts) for cell, o in outcomes.items()]
    loaded = study.loaded
    return Perplexity(
        loaded.name,
        study.settings,
        loaded.parameters,
        loaded.unit,
        len(loaded.tokens),
        sum(counts),
        len(counts),
        text,
        digest,
        _find_kept(study),
        rows,
    )


def _find_kept(study: Study) -> list[str]:
    """Return the modules with weights of two dimensions or more that recipes leave in float32, if
    there are any recipes. Layers of a list count as one: ``layers.*.gate``."""
    if not any(cell.recipe in RECIPES for cell in study.cells):
        return []
    rounded = {name for names in study.layers.values() for name in names}
    names = [
        re.sub(r"(^|\.)\d+(?=\.)", r"\1*", name)
        for name, module in study.loaded.model.named_modules()
        if name not in rounded and any(p.dim() > 1 for p in module.parameters(recurse=False))
    ]
    return list(dict.fromkeys(names))


def _row(cell: Cell, outcome: Outcome, base: list[float], counts: list[int]) -> Row:
    total = sum(counts)
    loss = math.fsum(outcome.losses) / total
    rises = [a - b for a, b in zip(outcome.losses, base, strict=True)]
    rise = math.fsum(rises) / total
    return Row(
        cell.format,
        cell.recipe,
        outcome.bits,
        perplexity(loss),
        loss,
        rise,
        _standard_error(rises, counts, rise),
        outcome.seconds,
    )


def _standard_error(rises: list[float], counts: list[int], rise: float) -> float:
    """Return the standard error of a ratio of sums, over windows (Cochran, Sampling techniques,
    1977, section 6.3)."""
    n = len(rises)
    if n < 2:
        return math.nan
    squares = math.fsum((x - rise * count) ** 2 for x, count in zip(rises, counts, strict=True))
    return math.sqrt(n / (n - 1) * squares) / sum(counts)
