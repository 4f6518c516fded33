"""The figure of a comparison: a measure against epoch, the paired gap to float32 next to it, and
failures in a strip below."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from ..report.colours import GREY, colours
from ..report.drawing import DASHES, MARKERS, WIDTHS, new_figure
from .measures import ACCURACY

_LINE = {"page": 0.185, "column": 0.14}  # height of a line of text, in inches
_SIGN = {"page": 0.064, "column": 0.049}  # average width of a character, in inches
_LABEL = {"page": 20, "column": 14}  # characters in a line of a name
_REASON_LINES = 2
_MOST_FAILED = 8


@dataclass(frozen=True)
class Curve:
    """The style of a summary in both panels."""

    summary: object
    colour: str
    marker: str
    dash: object

    @property
    def is_baseline(self):
        return self.summary.is_baseline


def curves_of(summaries):
    """Return the styles of the summaries that came to an end. Each has its format's colour, and a
    marker and dash that no other with the colour has."""
    own, styles, seen = colours(s.dtype for s in summaries), [], {}
    for summary in summaries:
        colour = own[summary.dtype]
        place = seen.setdefault(colour, 0)
        seen[colour] += 1
        if summary.accuracy:
            styles.append(
                Curve(
                    summary,
                    colour,
                    MARKERS[(place + len(seen) - 1) % len(MARKERS)],
                    DASHES[place % len(DASHES)],
                )
            )
    return styles


def draw(
    summaries,
    title,
    setting="",
    guess=None,
    left_out=(),
    strip=None,
    width="page",
    measure=ACCURACY,
):
    """Draw the figure.

    Args:
        summaries: the results of ``summaries.summarize``, at least one.
        title: the network and the data.
        setting: a sentence below the title on other conditions of the figures.
        guess: the measure of a guess, or None.
        left_out: labels of summaries without a part in the panels, because their curves would
            stretch the axes.
        strip: texts for the strip below, by label, such as reasons of failures.
        width: ``"page"`` or ``"column"``, one column of a paper, with one panel above the other.
        measure: a ``measures.Measure``.

    Returns:
        A matplotlib ``Figure``.
    """
    curves = [curve for curve in curves_of(summaries) if curve.summary.label not in left_out]
    rows = len(curves)
    line, signs = _LINE[width], int(WIDTHS[width] / _SIGN[width]) - 4
    names = [_in_lines(curve.summary.label, _LABEL[width]) for curve in curves]
    row = (0.09 if width == "page" else 0.07) + 0.9 * line * max(
        (name.count("\n") + 1 for name in names), default=1
    )
    titles, words = textwrap.wrap(title, int(0.58 * signs)), textwrap.wrap(setting, signs)
    below = _strip(strip or {}, signs)
    is_page = width == "page"
    heights = [
        line * (0.4 + 1.3 * len(titles) + len(words)),
        0.0,
        line * (len(below) + 1) if below else 0.0,
    ]
    if is_page:
        heights[1] = max(3.4, 0.9 + row * rows) if rows else 0.1
    else:
        curve_height, gap_height = 1.9, 0.55 + row * rows
        heights[1] = curve_height + gap_height if rows else 0.1
    with new_figure(width, sum(heights)) as figure:
        head, body, foot = figure.subfigures(3, 1, height_ratios=[max(h, 1e-3) for h in heights])
        left = 0.1 / WIDTHS[width]
        head.text(
            left,
            1 - 0.4 * line / heights[0],
            "\n".join(titles),
            weight="bold",
            va="top",
            size="large",
        )
        head.text(
            left,
            1 - line * (0.5 + 1.3 * len(titles)) / heights[0],
            "\n".join(words),
            va="top",
            color=GREY,
            size="small",
            linespacing=1.35,
        )
        if rows:
            grid = (
                {"width_ratios": [1.15, 1]}
                if is_page
                else {"height_ratios": [curve_height, gap_height]}
            )
            against_epoch, beside = body.subplots(
                *((1, 2) if is_page else (2, 1)), gridspec_kw=grid
            )
            _draw_series(against_epoch, curves, guess, 5 if is_page else 3.5, measure)
            _draw_gaps(beside, curves, names, width, measure)
        if below:
            own = colours(s.dtype for s in summaries)
            _write_strip(
                foot, below, line / heights[2], left, {s.label: own[s.dtype] for s in summaries}
            )
    return figure


def _draw_series(axes, curves, guess, size, measure):
    from matplotlib.ticker import FixedLocator, MaxNLocator

    most = max(len(curve.summary.accuracy) for curve in curves)
    for curve in curves:
        stats = curve.summary.series[measure.name]
        epochs = range(1, len(stats) + 1)
        # A wide line below the others stays visible where another one covers it.
        style = {"linewidth": 0.32 * size, "zorder": 3, "linestyle": curve.dash}
        if curve.is_baseline:
            style = {"linewidth": size, "alpha": 0.45, "zorder": 2}
        axes.plot(
            epochs,
            [stat.mean for stat in stats],
            color=curve.colour,
            marker=curve.marker,
            markersize=size,
            markevery=-(-most // 12),
            clip_on=False,
            solid_capstyle="round",
            **style,
        )
        if stats[0].std is not None:
            low = [s.mean - s.std for s in stats]
            high = [min(measure.most, s.mean + s.std) for s in stats]
            axes.fill_between(
                epochs, low, high, color=curve.colour, alpha=0.1, linewidth=0, zorder=1
            )
    low, high = axes.get_ylim()
    if high - low < measure.least:
        low, high = low - measure.least / 2, high + measure.least / 2
    if guess is not None and low < guess + 0.15 * (high - low):
        high = max(high, guess + 0.04 * (guess - low))  # all gaps may be below 0
        low = min(low, guess - 0.04 * (high - guess))
        axes.axhline(guess, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
        axes.annotate(
            "guess",
            (1, guess),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            color=GREY,
        )
    axes.set(
        xlabel="epoch",
        ylabel=_label_of("test", measure),
        ylim=(low, high),
        xlim=(0.6, 1.4) if most == 1 else (1, most),
    )
    axes.xaxis.set_major_locator(
        FixedLocator([1]) if most == 1 else MaxNLocator(nbins=8, integer=True)
    )
    axes.grid(axis="y")


def _label_of(what, measure):
    return f"{what} {measure.name}{f' ({measure.unit.strip()})' if measure.unit else ''}"


def _draw_gaps(axes, curves, names, width, measure):
    """Draw a row for each summary: the gap (without a baseline, the final value) as a point with
    its interval, and in figures."""
    has_gaps = any(curve.summary.gap is not None for curve in curves)
    digits = measure.digits
    shown, texts = [], []
    size = 6 if width == "page" else 4.5
    for row, curve in enumerate(curves):
        final = curve.summary.final(measure)
        stat = curve.summary.gaps[measure.name] if has_gaps else final
        texts.append(f"{final.mean:.{digits}f}{measure.unit}")
        if stat is None:
            if curve.is_baseline:
                axes.plot(
                    0,
                    row,
                    marker=curve.marker,
                    color=curve.colour,
                    alpha=0.45,
                    markersize=size + 1,
                    zorder=2,
                )
            continue
        half = stat.interval
        if has_gaps:
            texts[-1] += f"  {stat.mean:+.{digits}f}".replace("-", "−") + (
                "" if half is None else f" ± {half:.{digits}f}"
            )
        elif half is not None:
            texts[-1] += f" ± {half:.{digits}f}"
        if half is not None:
            axes.plot(
                [stat.mean - half, stat.mean + half],
                [row, row],
                color=curve.colour,
                linewidth=size / 3,
                zorder=3,
            )
        axes.plot(
            stat.mean, row, marker=curve.marker, color=curve.colour, markersize=size, zorder=4
        )
        shown.append((stat.mean, half or 0.0))
    _limits(axes, shown, has_gaps, measure.least)
    if has_gaps:
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
    axes.set_yticks(range(len(curves)), names)
    axes.tick_params(axis="y", labelsize="small")
    for tick, curve in zip(axes.get_yticklabels(), curves, strict=True):
        tick.set_color(curve.colour)
    axes.set_ylim(max(len(curves), 3 if width == "page" else 1) - 0.4, -0.6)
    for row, text in enumerate(texts):
        axes.annotate(
            text,
            (1, row),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            size="small",
        )
    axes.set_xlabel(
        f"gap to float32 ({measure.of_gap})" if has_gaps else _label_of("final", measure)
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _in_lines(label, signs):
    """Break a name into lines of at most ``room`` characters, before its options and its recipe."""
    lines = [""]
    for part in re.findall(r"[ _]?[^ _]+", label):
        if lines[-1] and len(lines[-1] + part) > signs:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def _limits(axes, shown, has_gaps, least):
    """Return limits around all points, and around their intervals as far as the points stay apart:
    with two seeds, intervals are very long."""
    from matplotlib.ticker import MaxNLocator

    means = [mean for mean, _ in shown] + [0.0] * has_gaps
    low, high = min(means), max(means)
    room = 3 * max(high - low, 0.25 * least)
    low = max(min([low, *(m - h for m, h in shown)]), low - room)
    high = min(max([high, *(m + h for m, h in shown)]), high + room)
    margin = max(0.06 * (high - low), (least - (high - low)) / 2)
    axes.set_xlim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))


def _strip(failed, signs):
    """Return the lines of the strip: a label, or None where a text continues, and words."""
    lines = []
    shown = list(failed.items())[
        : _MOST_FAILED if len(failed) <= _MOST_FAILED else _MOST_FAILED - 1
    ]
    for label, reason in shown:
        words = textwrap.wrap(
            f"{label}: {reason}", signs - 3, max_lines=_REASON_LINES, placeholder=" …"
        )
        lines += [(label if i == 0 else None, text) for i, text in enumerate(words)]
    if len(shown) < len(failed):
        lines.append((None, f"and {len(failed) - len(shown)} more"))
    return lines


def _write_strip(foot, lines, step, left, own):
    from matplotlib.lines import Line2D

    foot.add_artist(Line2D([left, 1 - left], [1, 1], color=GREY, linewidth=0.6))
    for i, (label, text) in enumerate(lines):
        y = 1 - step * (i + 0.9)
        if label is not None:
            foot.text(left, y, "×", color=own.get(label, GREY), weight="bold", va="center")
        foot.text(left * 2.6, y, text, color=GREY, size="small", va="center")
