"""The report of a study: sentences, a table, and a heat map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..report.colours import colours
from ..report.page import Report
from . import heatmap

if TYPE_CHECKING:
    from .results import Row, Solutions

_COLUMNS = (
    "format", "method", "matrix", "rows", "condition", "converged", "steps", "inner steps",
    "backward error", "forward error", "reason",
)  # fmt: skip


def table_rows(result: Solutions) -> list[list[str]]:
    return [_cells(row) for row in result.rows]


def _cells(row: Row) -> list[str]:
    o = row.outcome
    counts = ["-" if n is None else str(n) for n in (o.steps, o.inner_steps)]
    errors = ["-" if math.isnan(x) else f"{x:.1e}" for x in (o.backward, o.forward)]
    condition = f"{row.condition:.1e}"
    verdict = "yes" if o.converged else "no"
    return [
        row.format, row.method, row.matrix, str(row.size), condition, verdict, *counts, *errors,
        o.reason,
    ]  # fmt: skip


def sentences(result: Solutions) -> list[str]:
    """Summarise the study in sentences."""
    s = result.settings
    residual = "twice its digits" if s.residual == "twice" else s.residual
    scaled = "scaled to the format's range, " if s.scale else ""
    return [
        f"Matrices are rounded to {s.working}, {scaled}and factorised in each format. Solutions "
        f"are in {s.working}, residuals in {residual}, in at most {s.max_steps} steps.",
        "A system has converged when its forward error, relative to the exact solution, is at most "
        f"four unit roundoffs of {s.working}. Steps are corrections of the first solution until "
        "then, inner steps all those of GMRES or CG. The backward error is normwise. Both errors "
        "are in the infinity norm.",
    ]


def report_of(result: Solutions, command: str | None = None) -> Report:
    report = Report(
        result.title, command=command, seeds=[result.settings.seed], data=result.as_json
    )
    report.text(*sentences(result))
    report.figure(lambda width: heatmap.heatmap_figure(result, width), heatmap.CAPTION, "heatmap")
    report.table(
        _COLUMNS,
        table_rows(result),
        name="solutions",
        colours=colours(row.format for row in result.rows),
    )
    return report
