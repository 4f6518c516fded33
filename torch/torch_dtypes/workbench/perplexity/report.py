"""The report of a study: sentences, a table, and a figure of bits against perplexity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..report.colours import GREY, colours
from ..report.drawing import MARKERS, new_figure
from ..report.page import Report
from .study import SAVED

if TYPE_CHECKING:
    from .results import Perplexity, Row

_COLUMNS = ("format", "recipe", "bits", "perplexity", "loss", "rise of the loss", "standard error")
_NOT_FINITE = "not finite"
_LOG_FROM = 4  # the ratio of largest to smallest perplexity above which their axis is logarithmic
_NAMED = 6  # kept modules that a sentence names


def _number(x: float, form: str) -> str:
    return format(x, form) if math.isfinite(x) else _NOT_FINITE


def table_rows(result: Perplexity) -> list[list[str]]:
    return [
        [
            row.format,
            "" if row is result.float32 else row.recipe,
            f"{row.bits:.4g}" if math.isfinite(row.bits) else "-",
            _number(row.perplexity, ".6g"),
            _number(row.loss, ".6f"),
            "" if row is result.float32 else _number(row.rise, "+.6f"),
            f"{row.error:.2g}" if row is not result.float32 and math.isfinite(row.error) else "",
        ]
        for row in result.rows
    ]


def sentences(result: Perplexity) -> list[str]:
    """Summarise the study in sentences."""
    s, unit = result.settings, result.unit
    lines = [
        f"{result.model} has {result.parameters:,} parameters. Its text is {result.text} (SHA-256 "
        f"{result.digest[:16]}): {result.tokens:,} {unit}, of which {result.scored:,} are scored "
        f"in {result.windows:,} windows of {s.context:,}, {s.stride:,} apart.",
        f"The loss is in nats for each of these {unit}, and perplexity is its exponential. The "
        "standard error is of the rise of the loss from float32's, from its differences between "
        "windows.",
    ]
    if result.kept:
        more = len(result.kept) - _NAMED
        others = f" and {more:,} others" if more > 0 else ""
        lines.append(f"Recipes leave these in float32: {', '.join(result.kept[:_NAMED])}{others}.")
    if any(row.recipe == "all" for row in result.rows):
        lines.append("The recipe all has the whole model in the dtype.")
    if any(row.recipe == SAVED.recipe for row in result.rows):
        lines.append(f"The row {SAVED.format} has the rules that the model was saved with.")
    return lines


def report_of(result: Perplexity, command: str | None = None) -> Report:
    report = Report(
        result.title, command=command, seeds=[result.settings.seed], data=result.as_json
    )
    report.text(*sentences(result))
    report.table(
        _COLUMNS,
        table_rows(result),
        name="perplexity",
        colours=colours(row.format for row in result.rows),
    )
    if find_points(result):
        caption = (
            "Bits of a weight in rounded layers (of a number, where no weights are rounded) "
            "against perplexity. The dashed line is float32."
        )
        report.figure(lambda width: bits_figure(result, width), caption, "bits")
    return report


def find_points(result: Perplexity) -> list[Row]:
    """Return the rows with a place in the figure."""
    return [
        row for row in result.rows[1:] if math.isfinite(row.bits) and math.isfinite(row.perplexity)
    ]


def bits_figure(result: Perplexity, width: str = "page"):
    """Draw a matplotlib figure of perplexity against bits: a point for each format and recipe, in
    the format's colour, with a marker for each recipe.

    Args:
        width: ``"page"`` or ``"column"``, one column of a paper.
    """
    rows, base = find_points(result), result.float32.perplexity
    recipes = list(dict.fromkeys(row.recipe for row in rows))
    colour = colours(dict.fromkeys(row.format for row in rows))
    size = 8.0 if width == "page" else 6.0
    with new_figure(width, 3.6 if width == "page" else 2.4) as figure:
        axes = figure.add_subplot()
        for place, recipe in enumerate(recipes):
            own, marker = (
                [row for row in rows if row.recipe == recipe],
                MARKERS[place % len(MARKERS)],
            )
            axes.scatter(
                [row.bits for row in own],
                [row.perplexity for row in own],
                c=[colour[row.format] for row in own],
                marker=marker,
                s=size * 4,
                zorder=3,
            )
            # The legend's marker, in no format's colour.
            axes.scatter([], [], c=GREY, marker=marker, label=recipe)
        if math.isfinite(base):
            axes.axhline(base, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), label="float32")
        values = [row.perplexity for row in rows] + [base] * math.isfinite(base)
        if max(values) > _LOG_FROM * min(values):
            axes.set_yscale("log")
        axes.set(xlabel="bits", ylabel="perplexity", title=result.model)
        axes.margins(x=0.08, y=0.12)
        axes.grid()
        for name in dict.fromkeys(row.format for row in rows):
            axes.scatter([], [], c=colour[name], marker="o", s=size * 2, label=name)
        axes.legend(fontsize=size, loc="upper left", bbox_to_anchor=(1.01, 1.02))
    return figure
