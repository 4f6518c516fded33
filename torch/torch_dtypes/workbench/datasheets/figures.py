"""The figures of a datasheet that no other part of the workbench has."""

from __future__ import annotations

from collections.abc import Sequence

from ..report.colours import GREY, RULE, colours
from ..report.drawing import new_figure


def accuracy_figure(rows: Sequence[dict], width: str = "page"):
    """Draw the accuracy of formats, a panel for each recipe: a mark for each seed, filled to
    nearest, hollow for other rounding modes.

    Args:
        rows: rows of the part ``accuracy`` for one network, with float32's.
        width: ``"page"`` or ``"column"`` (one column of a paper).
    """
    base = next((row for row in rows if row["recipe"] == "float32"), None)
    rows = [row for row in rows if row["recipe"] != "float32"]
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    names = list(dict.fromkeys(row["format"] for row in rows))
    colour = colours(names)
    size = 5.0 if width == "page" else 3.0
    with new_figure(width, 1.0 + 0.36 * len(names)) as figure:
        panels = figure.subplots(1, len(recipes), sharex=True, sharey=True, squeeze=False)[0]
        for axes, recipe in zip(panels, recipes, strict=True):
            if base is not None and base["accuracy"] is not None:
                low, high = base["accuracy"], base["accuracy"]
                if base["deviation"] is not None:
                    low, high = low - base["deviation"], high + base["deviation"]
                axes.axvspan(low, high, color=RULE, zorder=1)
                axes.axvline(base["accuracy"], color=GREY, linewidth=0.8, zorder=2)
            for row in rows:
                if row["recipe"] == recipe:
                    nearest = row["rounding"] == "nearest_even"
                    at = len(names) - names.index(row["format"]) + (0.16 if nearest else -0.16)
                    axes.plot(
                        row["accuracies"],
                        [at] * len(row["accuracies"]),
                        "o",
                        color=colour[row["format"]],
                        markerfacecolor=None if nearest else "none",
                        markersize=size,
                        zorder=3,
                    )
            axes.set_title(recipe, fontsize="medium")
            axes.set_xlim(0, 102)
            axes.set_ylim(0.4, len(names) + 0.6)
            axes.set_yticks(range(len(names), 0, -1), names)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
        figure.supxlabel("accuracy in percent", fontsize="medium")
    return figure


def accumulator_figure(rows: Sequence[dict], width: str = "page"):
    """Draw the accuracy after training by the significant bits of the accumulator, a panel for
    each format: filled marks for one running sum, hollow ones for chunks.

    Args:
        rows: rows of the part ``accumulator``. width: as in :func:`accuracy_figure`.
    """
    names = list(dict.fromkeys(row["format"] for row in rows))
    colour = colours(names)
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    size = 5.0 if width == "page" else 3.0
    with new_figure(width, 0.5 + 2.0 * lines) as figure:
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        for axes, name in zip(panels, names, strict=False):
            own = [row for row in rows if row["format"] == name]
            base = next((row for row in own if row["significant_bits"] is None), None)
            if base is not None and base["accuracy"] is not None:
                spread = base["deviation"] or 0.0
                axes.axhspan(
                    base["accuracy"] - spread, base["accuracy"] + spread, color=RULE, zorder=1
                )
                axes.axhline(base["accuracy"], color=GREY, linewidth=0.8, zorder=2)
            for row in own:
                if row["significant_bits"] is not None:
                    shift = -0.15 if row["chunk"] is None else 0.15
                    axes.plot(
                        [row["significant_bits"] + shift] * len(row["accuracies"]),
                        row["accuracies"],
                        "o",
                        color=colour[name],
                        markerfacecolor=None if row["chunk"] is None else "none",
                        markersize=size,
                        zorder=3,
                    )
            axes.set_title(name, fontsize="medium")
            axes.grid(axis="y")
        figure.supxlabel("significant bits of the accumulator", fontsize="medium")
        figure.supylabel("accuracy in percent", fontsize="medium")
    return figure
