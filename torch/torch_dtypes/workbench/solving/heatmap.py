"""The heat map of a study: systems by formats and methods, coloured by the steps to
convergence."""

from __future__ import annotations

import math
import string
import textwrap
from typing import TYPE_CHECKING

from ..report.drawing import WIDTHS, new_figure
from ..report.heatmap import draw_map, draw_scale

if TYPE_CHECKING:
    from .results import Outcome, Solutions

CAPTION = (
    "Corrections of the first solution until convergence, with all steps of GMRES or CG in "
    "brackets. Hatched cells did not converge; letters name the reasons."
)
_STEPS = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


def heatmap_figure(result: Solutions, width: str = "page"):
    """Draw a matplotlib figure with a row for each system, and a column for each format and method.

    Darker took more steps, also in grey. Cells that did not converge are hatched, with a cross and
    the letter of their reason.

    Args:
        width: ``"page"`` or ``"column"``, one column of a paper.
    """
    systems = list(dict.fromkeys((row.matrix, row.condition) for row in result.rows))
    columns = list(dict.fromkeys((row.format, row.method) for row in result.rows))
    outcomes = {(row.matrix, row.format, row.method): row.outcome for row in result.rows}
    cells = [[outcomes[name, *column] for column in columns] for name, _ in systems]
    reasons = dict.fromkeys(o.reason for row in cells for o in row if not o.converged)
    letters = dict(zip(reasons, string.ascii_lowercase, strict=False))
    size = 7.0 if width == "page" else 5.5
    lines = _legend(letters, int(WIDTHS[width] * (15.5 if width == "page" else 19)))
    heights = [
        1.25 + (0.25 if width == "page" else 0.19) * len(systems),
        len(lines) * size * 1.7 / 72 + 0.05,
    ]
    with new_figure(width, sum(heights)) as figure:
        panel, strip = figure.subfigures(2, 1, height_ratios=heights)
        axes = panel.subplots()
        draw_map(
            axes,
            [[o.steps if o.converged else math.nan for o in row] for row in cells],
            [[_text(o, letters) for o in row] for row in cells],
            [f"{name}\n{method}" for name, method in columns],
            [_label(name, condition) for name, condition in systems],
            _STEPS,
            size,
            {(i, j) for i, row in enumerate(cells) for j, o in enumerate(row) if not o.converged},
        )
        draw_scale(panel, axes, _STEPS, "corrections until convergence", size)
        style = {"fontsize": size, "va": "top", "linespacing": 1.3, "color": "#333333"}
        strip.text(0.012, 0.98, "\n".join(lines), **style)
    return figure


def _text(outcome: Outcome, letters: dict[str, str]) -> str:
    if not outcome.converged:
        return f"\u00d7 {letters.get(outcome.reason, '')}".strip()
    return f"{outcome.steps}" + (f" ({outcome.inner_steps})" if outcome.inner_steps else "")


def _label(name: str, condition: float) -> str:
    return name if "cond=" in name else f"{name}, cond {condition:.0e}"


def _legend(letters: dict[str, str], characters: int) -> list[str]:
    lines = []
    for text, letter in letters.items():
        lines += textwrap.wrap(f"({letter}) {text}", characters, subsequent_indent="      ")
    return lines
