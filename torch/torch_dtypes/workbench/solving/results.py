"""Results: what became of each system, by format and method."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ..report.folders import finite_or_none, write_text
from ..report.page import Report, Reported
from . import report


@dataclass(frozen=True)
class Settings:
    """The common settings of all cells.

    Attributes:
        working, residual: the formats of solutions and of residuals, which may be ``"twice"``.
        scale: ``"squeeze"`` or None, as in ``linalg.refine``.
        max_steps: the most steps of refinement.
        seed: of random matrices, right sides and random rounding.
    """

    working: str
    residual: str
    scale: str | None
    max_steps: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """A cell's result.

    Attributes:
        converged: whether the forward error got down to four unit roundoffs of the working format.
        reason: a sentence: why refinement ended.
        steps: corrections of the first solution until then. inner_steps: all steps of GMRES or CG
            within them, and for the first solution. Both are None where there is no solution.
        backward: the normwise backward error. forward: the error relative to the exact solution.
            Both are NaN where there is no solution.
    """

    converged: bool
    reason: str
    steps: int | None = None
    inner_steps: int | None = None
    backward: float = math.nan
    forward: float = math.nan


@dataclass(frozen=True)
class Row:
    """A system, a format and a method, with their outcome."""

    matrix: str
    size: int
    condition: float
    format: str
    method: str
    outcome: Outcome


@dataclass
class Solutions(Reported):
    """Systems by formats and methods: which converge, in how many steps, to which error. A notebook
    shows its report.

    Attributes:
        rows: a :class:`Row` for each cell.
    """

    settings: Settings
    rows: list[Row]
    _stem = "solutions"

    @property
    def title(self) -> str:
        return "Which systems can a format solve?"

    def as_json(self) -> dict:
        """Return plain data. Numbers that are not finite are None."""
        rows = []
        for row in self.rows:
            cells = asdict(row)
            cells |= cells.pop("outcome")
            rows.append(finite_or_none(cells))
        return {"settings": asdict(self.settings), "rows": rows}

    def report(self, command: str | None = None) -> Report:
        return report.report_of(self, command)

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Write the page, the data as JSON, the table as CSV and Markdown, and the figure as PNG,
        SVG and PDF.

        Returns:
            The paths.

        Raises:
            OSError: a file cannot be written.
        """
        path = Path(folder) / f"{self._stem}.md"
        written = super().write(folder, command)
        write_text(path, self.report(command).markdown())
        return [*written, path]
