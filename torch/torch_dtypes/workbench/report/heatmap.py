"""Heat maps: numbers as text on colours. Darker is worse, also in grey."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

_PLAIN = "#EDEDED"  # below the hatching of cells without a number


def _colours(steps: Sequence[float]):
    import matplotlib
    from matplotlib.colors import BoundaryNorm

    return matplotlib.colormaps["YlOrRd"].resampled(256), BoundaryNorm(steps, 256, extend="neither")


def draw_map(
    axes,
    values: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    columns: Sequence[str],
    rows: Sequence[str],
    steps: Sequence[float],
    size: float,
    hatched: Collection[tuple[int, int]] = (),
    framed: Collection[tuple[int, int]] = (),
) -> None:
    """Draw a table of cells.

    Args:
        values: numbers by row and column, clipped to the steps; NaN: a cell without colour. texts:
            the texts of the cells.
        columns, rows: the names of columns and rows.
        steps: the numbers where colours change. size: the type size in points.
        hatched: cells, by row and column, that failed. framed: cells with a dashed frame.
    """
    import numpy as np
    from matplotlib.patches import Rectangle

    shades, norm = _colours(steps)
    clipped = np.clip(np.array(values, dtype=float), steps[0], steps[-1])
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            shade = None if math.isnan(clipped[i, j]) else shades(norm(clipped[i, j]))
            is_dark = (
                shade is not None and 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] < 0.45
            )
            box = None
            if (i, j) in hatched:
                corner, box = (
                    (j - 0.5, i - 0.5),
                    {"facecolor": _PLAIN, "edgecolor": "none", "pad": 1.2},
                )
                axes.add_patch(
                    Rectangle(
                        corner,
                        1,
                        1,
                        facecolor=shade or _PLAIN,
                        hatch="////",
                        edgecolor="#A0A0A0",
                        linewidth=0,
                        zorder=2,
                    )
                )
            axes.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                fontsize=size,
                color="white" if is_dark and not box else "black",
                bbox=box,
                zorder=4,
            )
            if (i, j) in framed:
                line = {
                    "edgecolor": "white" if is_dark else "black",
                    "linewidth": 0.9,
                    "linestyle": (0, (2, 1.5)),
                    "zorder": 3,
                }
                axes.add_patch(Rectangle((j - 0.44, i - 0.4), 0.88, 0.8, fill=False, **line))
    axes.imshow(np.ma.masked_invalid(clipped), cmap=shades, norm=norm, aspect="auto", zorder=1)
    axes.set_xticks(range(len(columns)), columns, fontsize=size)
    axes.set_yticks(range(len(rows)), rows, fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor="black")
    axes.spines[:].set_visible(False)
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.set_axisbelow(False)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)


def draw_scale(
    figure, axes, steps: Sequence[float], label: str, size: float, unit: float = 1.0
) -> None:
    """Draw the scale of colours below the axes, with numbers in multiples of ``unit``."""
    from matplotlib.cm import ScalarMappable

    shades, norm = _colours(steps)
    place = {
        "orientation": "horizontal",
        "fraction": 0.035,
        "aspect": 60,
        "pad": 0.03,
        "spacing": "uniform",
    }
    bar = figure.colorbar(ScalarMappable(norm, shades), ax=axes, **place)
    bar.set_ticks(steps, labels=[f"{step / unit:g}" for step in steps], fontsize=size)
    bar.set_label(label, fontsize=size)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
