"""The heat map of a sweep: formats by rounding modes, coloured by the gap to float32."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from ..report.drawing import WIDTHS, new_figure
from ..report.heatmap import draw_map, draw_scale
from ..training.measures import ACCURACY
from .tables import Entry, Group, signed

# Points below float32, in steps that separate a tenth of a point from one, and ten from a total
# loss.
STEPS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_SHORT = {
    "nearest_even": "nearest\neven",
    "nearest_zero": "nearest\nzero",
    "nearest_away": "nearest\naway",
    "nearest_up": "nearest\nup",
    "toward_zero": "toward\nzero",
    "stochastic_equal": "stochastic\nequal",
    "up_down": "up or\ndown",
    "to_odd": "to odd",
}


def heatmap_figure(groups: Sequence[Group], width: str = "page"):
    """Draw a matplotlib figure with a panel for each table: a row for each format, a column for
    each rounding mode. The gap to float32, in points or in percent of a perplexity, is a colour and
    a number.

    Darker is worse, also in grey. Failed and diverged cells are hatched and have no place on the
    scale; a strip below tells the reasons. A dashed frame marks results that are no better than a
    guess. Several seeds show their mean.

    Args:
        groups: the tables, at least one. width: ``"page"`` or ``"column"``, one column of a paper.
    """
    if not groups:
        raise ValueError("expected at least one table for a heat map, but got none")
    across = (
        2
        if width == "page" and len(groups) > 1 and max(len(g.roundings) for g in groups) <= 7
        else 1
    )
    down = -(-len(groups) // across)
    size = 7.0 if width == "page" else 5.5
    rows = max(len(g.formats) for g in groups)
    reasons = _reasons(groups)
    letters = {text: chr(ord("a") + i) if i < 26 else "+" for i, text in enumerate(reasons)}
    dashed = any(
        _is_a_guess(entry, group.guess) for group in groups for entry in group.entries.values()
    )
    wrapped = _wrap_titles(
        reasons, letters, dashed, int(WIDTHS[width] * (15.5 if width == "page" else 19))
    )
    line = size * 1.7 / 72
    titles = _titles(groups, WIDTHS[width] / across, size)
    title_lines = max(title.count("\n") for title in titles)
    panel_height = (
        0.85 + rows * (0.27 if width == "page" else 0.2) + title_lines * size * 1.2 * 1.3 / 72
    )
    heights, strip_height = down * panel_height + 0.65, len(wrapped) * line + 0.05
    with new_figure(width, heights + strip_height) as figure:
        panels, strip = (
            figure.subfigures(2, 1, height_ratios=[heights, strip_height])
            if wrapped
            else (figure, None)
        )
        axes = panels.subplots(down, across, squeeze=False)
        for place, panel in enumerate(axes.flat):
            if place < len(groups):
                _draw(panel, groups[place], titles[place], letters, size)
            else:
                panel.set_visible(False)
        measured = dict.fromkeys(group.measure for group in groups)
        words = [
            "points below float32" if m is ACCURACY else "percent of perplexity above float32"
            for m in measured
        ]
        draw_scale(panels, axes, STEPS, ", or ".join(words), size)
        if strip is not None:
            strip.text(
                0.012,
                0.98,
                "\n".join(wrapped),
                fontsize=size,
                va="top",
                linespacing=1.3,
                color="#333333",
            )
    return figure


def _reasons(groups: Sequence[Group]) -> list[str]:
    """Return the reasons of failures, each once, in order."""
    return list(
        dict.fromkeys(
            text
            for group in groups
            for entry in group.entries.values()
            for text in entry.reasons.values()
        )
    )


def _wrap_titles(
    reasons: list[str], letters: dict[str, str], dashed: bool, characters: int
) -> list[str]:
    lines = ["Dashed frame: at most 2 points better than a guess."] if dashed else []
    lines += ["Hatched: failed or diverged with a seed, or with all."] if reasons else []
    for text in reasons[:27]:
        lines += textwrap.wrap(
            f"({letters[text]}) {text}", characters, subsequent_indent="      "
        ) or [""]
    return lines


def _titles(groups: Sequence[Group], width: float, size: float) -> list[str]:
    """Break the panels' titles into lines that fit a panel of ``inches`` with the formats'
    names."""
    names = max(len(name) for group in groups for name in group.formats)
    letter = size * 1.2 * 0.6 / 72  # inches of a bold character
    return [
        textwrap.fill(group.title, max(16, int((width - 0.1 - names * size * 0.55 / 72) / letter)))
        for group in groups
    ]


def _draw(axes, group: Group, title: str, letters: dict[str, str], size: float) -> None:
    nothing = Entry()
    entries = [
        [group.entries.get((name, rounding), nothing) for rounding in group.roundings]
        for name in group.formats
    ]
    worse = -1 if group.measure is ACCURACY else 1  # the sign of a gap for the worse
    values = [
        [math.nan if entry.gap is None else worse * entry.gap for entry in row] for row in entries
    ]
    texts = [[_label(entry, letters) for entry in row] for row in entries]
    places = [(i, j, entry) for i, row in enumerate(entries) for j, entry in enumerate(row)]
    hatched = {
        (i, j) for i, j, entry in places if entry.reasons or (entry.gap is None and entry.waiting)
    }
    framed = {(i, j) for i, j, entry in places if _is_a_guess(entry, group.guess)}
    draw_map(
        axes,
        values,
        texts,
        [_SHORT.get(name, name) for name in group.roundings],
        group.formats,
        STEPS,
        size,
        hatched,
        framed,
    )
    seeds = max(
        (len(e.values) + len(e.reasons) + e.waiting for e in group.entries.values()), default=0
    )
    sentence = (
        f"float32 {group.baseline.mean:.{max(1, group.measure.digits - 1)}f}{group.measure.unit}"
        if group.baseline.mean is not None
        else "float32 failed"
    )
    sentence += f", guess {group.guess:.1f} %" if group.guess is not None else ""
    sentence += f", mean of {seeds} seeds" if seeds > 1 else ""
    # Above the modes' names, which take two lines.
    axes.annotate(
        sentence,
        (0, 1),
        (0, size * 3.9),
        "axes fraction",
        "offset points",
        fontsize=size,
        color="#333333",
        annotation_clip=False,
    )
    axes.annotate(
        title,
        (0, 1),
        (0, size * 5.5),
        "axes fraction",
        "offset points",
        fontsize=size * 1.2,
        weight="bold",
        annotation_clip=False,
    )


def _label(entry: Entry, letters: dict[str, str]) -> str:
    if entry.reasons:
        return ", ".join(dict.fromkeys(f"({letters[text]})" for text in entry.reasons.values()))
    if entry.gap is None:
        return "not done" if entry.waiting else ""
    return signed(entry.gap, 2 if abs(entry.gap) < 9.995 else 1)


def _is_a_guess(entry: Entry, guess: float | None) -> bool:
    return guess is not None and entry.mean is not None and entry.mean <= guess + 2
