"""The picture of a refinement: its errors against its steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .refinement import Refinement

# Okabe and Ito's blue and vermilion, which colour-blind readers can tell apart, and a grey.
_BLUE, _RED, _GREY = "#0072B2", "#D55E00", "#555555"


def draw(result: Refinement, path: str | Path) -> None:
    """Write the picture; the path's ending says the file's kind. An error of 0 is left out."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    curves = [("backward error", result.backward_errors, _BLUE, "o-")]
    if result.forward_errors is not None:
        curves.append(("forward error", result.forward_errors, _RED, "s--"))
    for label, errors, colour, style in curves:
        axes.semilogy(errors, style, color=colour, label=label, nonpositive="mask")
    axes.axhline(result.tolerance, color=_GREY, linewidth=0.9, linestyle=":")
    axes.annotate(
        "tolerance",
        (1, result.tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=_GREY,
    )
    axes.set_title(result.title, loc="left", weight="bold")
    axes.set_xlabel(f"corrections ({result.reason})", wrap=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#DDDDDD")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path)
