"""The heat map of a sweep: formats by rounding modes, coloured by the gap to float32."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..drawing import WIDTHS, new_figure
from .tables import Entry, Group, signed

# Points below float32, in steps that tell a tenth of a point from one, and ten from what is lost altogether.
STEPS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_PLAIN = "#EDEDED"  # beneath the hatching of what failed
_SHORT = {"nearest_even": "nearest\neven", "nearest_zero": "nearest\nzero", "nearest_away": "nearest\naway", "nearest_up": "nearest\nup",
          "toward_zero": "toward\nzero", "stochastic_equal": "stochastic\nequal", "up_down": "up or\ndown", "to_odd": "to odd"}  # fmt: skip


def heatmap_figure(groups: Sequence[Group], width: str = "page"):
    """A matplotlib figure with a panel for each table: a row a format, a column a rounding mode, the gap to float32 in points as colour and number.

    Darker is worse, in grey, too. What failed or diverged is hatched, and a strip below says why; it has no place on the scale. A dashed frame marks
    what is no better than a guess. Of several seeds the mean.

    Args:
        groups: at least one. width: ``"page"`` or ``"column"``, one column of a paper.
    """
    import matplotlib
    from matplotlib.colors import BoundaryNorm

    if not groups:
        raise ValueError("expected at least one table for a heat map, but got none")
    across = 2 if width == "page" and len(groups) > 1 and max(len(g.roundings) for g in groups) <= 7 else 1
    down = -(-len(groups) // across)
    size = 7.0 if width == "page" else 5.5
    rows = max(len(g.formats) for g in groups)
    reasons = _reasons(groups)
    letters = {text: chr(ord("a") + i) if i < 26 else "+" for i, text in enumerate(reasons)}
    dashed = any(_is_a_guess(entry, group.guess) for group in groups for entry in group.entries.values())
    wrapped = _wrapped(reasons, letters, dashed, int(WIDTHS[width] * (15.5 if width == "page" else 19)))
    line = size * 1.7 / 72
    titles = _titles(groups, WIDTHS[width] / across, size)
    title_lines = max(title.count("\n") for title in titles)
    panel_height = 0.85 + rows * (0.27 if width == "page" else 0.2) + title_lines * size * 1.2 * 1.3 / 72
    heights, strip_height = down * panel_height + 0.65, len(wrapped) * line + 0.05
    colours = matplotlib.colormaps["YlOrRd"].resampled(256)
    norm = BoundaryNorm(STEPS, 256, extend="neither")
    with new_figure(width, heights + strip_height) as figure:
        panels, strip = figure.subfigures(2, 1, height_ratios=[heights, strip_height]) if wrapped else (figure, None)
        axes = panels.subplots(down, across, squeeze=False)
        for place, panel in enumerate(axes.flat):
            if place < len(groups):
                _draw(panel, groups[place], titles[place], colours, norm, letters, size)
            else:
                panel.set_visible(False)
        _scale(panels, axes, colours, norm, size)
        if strip is not None:
            strip.text(0.012, 0.98, "\n".join(wrapped), fontsize=size, va="top", linespacing=1.3, color="#333333")
    return figure


def _reasons(groups: Sequence[Group]) -> list[str]:
    """The reasons of what failed, each once, in order."""
    return list(dict.fromkeys(text for group in groups for entry in group.entries.values() for text in entry.reasons.values()))


def _wrapped(reasons: list[str], letters: dict[str, str], dashed: bool, characters: int) -> list[str]:
    lines = ["Dashed frame: at most 2 points better than a guess."] if dashed else []
    lines += ["Hatched: failed or diverged with a seed, or with all."] if reasons else []
    for text in reasons[:27]:
        lines += textwrap.wrap(f"({letters[text]}) {text}", characters, subsequent_indent="      ") or [""]
    return lines


def _titles(groups: Sequence[Group], width: float, size: float) -> list[str]:
    """The panels' titles, in lines that are as long as a panel of so many inches is wide, beside the formats' names."""
    names = max(len(name) for group in groups for name in group.formats)
    letter = size * 1.2 * 0.6 / 72  # of bold type, inches
    return [textwrap.fill(group.title, max(16, int((width - 0.1 - names * size * 0.55 / 72) / letter))) for group in groups]


def _draw(axes, group: Group, title: str, colours, norm, letters: dict[str, str], size: float) -> None:
    import numpy as np
    from matplotlib.patches import Rectangle

    nothing = Entry()
    gaps = np.full((len(group.formats), len(group.roundings)), np.nan)
    for i, name in enumerate(group.formats):
        for j, rounding in enumerate(group.roundings):
            entry = group.entries.get((name, rounding), nothing)
            if entry.gap is not None:
                gaps[i, j] = min(100.0, max(0.0, -entry.gap))
            shade = colours(norm(gaps[i, j])) if entry.gap is not None else None
            text = _label(entry, letters)
            if entry.reasons or (entry.gap is None and entry.waiting):
                axes.add_patch(
                    Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=shade or _PLAIN, hatch="////", edgecolor="#A0A0A0", linewidth=0, zorder=2)
                )
            dark = shade is not None and _luminance(shade) < 0.45
            box = {"facecolor": _PLAIN, "edgecolor": "none", "pad": 1.2} if entry.reasons else None
            axes.text(j, i, text, ha="center", va="center", fontsize=size, color="white" if dark and not box else "black", bbox=box, zorder=4)
            if _is_a_guess(entry, group.guess):
                axes.add_patch(
                    Rectangle(
                        (j - 0.44, i - 0.4),
                        0.88,
                        0.8,
                        fill=False,
                        edgecolor="white" if dark else "black",
                        linewidth=0.9,
                        linestyle=(0, (2, 1.5)),
                        zorder=3,
                    )
                )
    axes.imshow(np.ma.masked_invalid(gaps), cmap=colours, norm=norm, aspect="auto", zorder=1)
    axes.set_xticks(range(len(group.roundings)), [_SHORT.get(name, name) for name in group.roundings], fontsize=size)
    axes.set_yticks(range(len(group.formats)), group.formats, fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor="black")
    axes.spines[:].set_visible(False)
    axes.set_xticks([x - 0.5 for x in range(1, len(group.roundings))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(group.formats))], minor=True)
    axes.set_axisbelow(False)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    seeds = max((len(e.accuracies) + len(e.reasons) + e.waiting for e in group.entries.values()), default=0)
    said = f"float32 {group.baseline.mean:.1f} %" if group.baseline.mean is not None else "float32 failed"
    said += f", guess {group.guess:.1f} %" if group.guess is not None else ""
    said += f", mean of {seeds} seeds" if seeds > 1 else ""
    # Above the modes' names, which take two lines.
    axes.annotate(said, (0, 1), (0, size * 3.9), "axes fraction", "offset points", fontsize=size, color="#333333", annotation_clip=False)
    axes.annotate(title, (0, 1), (0, size * 5.5), "axes fraction", "offset points", fontsize=size * 1.2, weight="bold", annotation_clip=False)


def _luminance(colour) -> float:
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]


def _label(entry: Entry, letters: dict[str, str]) -> str:
    if entry.reasons:
        return ", ".join(dict.fromkeys(f"({letters[text]})" for text in entry.reasons.values()))
    if entry.gap is None:
        return "not done" if entry.waiting else ""
    return signed(entry.gap, 2 if abs(entry.gap) < 9.995 else 1)


def _is_a_guess(entry: Entry, guess: float | None) -> bool:
    return guess is not None and entry.mean is not None and entry.mean <= guess + 2


def _scale(panels, axes, colours, norm, size: float) -> None:
    from matplotlib.cm import ScalarMappable

    bar = panels.colorbar(ScalarMappable(norm, colours), ax=axes, orientation="horizontal", fraction=0.035, aspect=60, pad=0.03, spacing="uniform")
    bar.set_ticks(STEPS, labels=[f"{step:g}" for step in STEPS], fontsize=size)
    bar.set_label("points below float32", fontsize=size)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
