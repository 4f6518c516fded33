"""The figures of the parts that studies fill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..cards.card import BlockCard, Card
from ..observation.counts import RoundingCounts
from ..report.colours import GREY, PALETTE, colours
from ..report.drawing import label_binades, new_figure

_TAILS = 0.001  # of a tensor's numbers, left out at each end


def _quantiles(exponents: Mapping[int, int]) -> tuple[int, int, int]:
    """Return the exponents at the lower tail, the median and the upper tail."""
    total, seen, found = sum(exponents.values()), 0, []
    wanted = [_TAILS * total, total / 2, (1 - _TAILS) * total]
    for exponent, count in sorted(exponents.items()):
        seen += count
        while len(found) < 3 and seen >= wanted[len(found)]:
            found.append(exponent)
    return tuple(found)


def ranges_figure(
    counts: Sequence[RoundingCounts],
    cards: Sequence[Card | BlockCard],
    tensors: Mapping[str, str],
    width: str = "page",
):
    """Draw the exponents of tensors below the ranges of formats.

    Args:
        counts: the counts of one format, whose exponents are those before rounding; of layers
            without weights none is drawn. cards: the formats. tensors: words for the passes, in
            the order to draw.
        width: ``"page"`` or ``"column"`` (one column of a paper).
    """
    with_weights = [c.layer for c in counts if c.where == "weights"]
    drawn = [
        c
        for where in tensors
        for c in counts
        if c.where == where and c.layer in with_weights and c.exponents
    ]
    cards = [c for c in cards if c.smallest is not None]
    colour = colours(c.name for c in cards)
    lines = len(cards) + len(drawn)
    with new_figure(width, 0.8 + 0.19 * lines) as figure:
        axes = figure.add_subplot()
        names = []
        for at, c in enumerate(cards):
            names.append(c.name)
            low, high = math.frexp(c.smallest)[1] - 1, math.frexp(c.largest)[1]
            axes.hlines(-at, low, high, color=colour[c.name], linewidth=5)
        far = [_quantiles(c.exponents) for c in drawn]
        for at, (c, (low, middle, high)) in enumerate(zip(drawn, far, strict=True), len(cards)):
            names.append(f"{tensors[c.where]} {c.layer or '(model)'}")
            axes.hlines(-at, low, high + 1, color=GREY, linewidth=1.2)
            axes.plot([middle + 0.5], [-at], "o", color=GREY, markersize=3)
        if far:
            left, right = min(low for low, _, _ in far), max(high for *_, high in far)
            axes.set_xlim(left - 8, right + 12)  # wide formats go on beyond the figure
        label_binades(axes, 12)
        axes.set_yticks([-at for at in range(len(names))], names, fontsize="small")
        axes.set_ylim(0.3 - lines, 0.8)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("magnitude")
        axes.grid(axis="x")
    return figure


def layers_figure(rows: Sequence[dict], width: str = "page"):
    """Draw the rise of the loss by layer, a mark for each format. ``rows``: those of the part
    ``layers``; rises that are not finite have no mark. ``width``: as in :func:`ranges_figure`."""
    names = list(dict.fromkeys(row["format"] for row in rows))
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    colour = colours(names)
    with new_figure(width, 1.2 + 0.28 * len(layers)) as figure:
        axes = figure.add_subplot()
        axes.axvline(0, color=GREY, linewidth=0.8)
        for i, name in enumerate(names):
            own = {row["layer"]: float(row["rise"]) for row in rows if row["format"] == name}
            shift = 0.5 * ((i + 0.5) / len(names) - 0.5)
            finite = [(at, own[x]) for at, x in enumerate(layers) if math.isfinite(own[x])]
            axes.plot(
                [rise for _, rise in finite],
                [-at - shift for at, _ in finite],
                "o",
                color=colour[name],
                label=name,
                markersize=5,
            )
        axes.set_yticks([-at for at in range(len(layers))], [x or "(model)" for x in layers])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("rise of the loss")
        axes.grid(axis="x")
        axes.legend(ncols=min(len(names), 6), loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def digits_figure(rows: Sequence[dict], width: str = "page"):
    """Draw the digits of each module's numbers, a mark for each format: the median, and a line
    from the lowest 5 %. ``rows``: those of the part ``digits``; ``width``: as in
    :func:`ranges_figure`."""
    names = list(dict.fromkeys(row["format"] for row in rows))
    modules = list(dict.fromkeys(row["module"] for row in rows))
    colour = colours(names)
    with new_figure(width, 1.2 + 0.28 * len(modules)) as figure:
        axes = figure.add_subplot()
        for i, name in enumerate(names):
            shift = 0.6 * ((i + 0.5) / len(names) - 0.5)
            own = [row for row in rows if row["format"] == name]
            at = [-modules.index(row["module"]) - shift for row in own]
            style = {"color": colour[name] if colour[name] != GREY else PALETTE[0]}
            axes.hlines(at, [row["low"] for row in own], [row["digits"] for row in own], **style)
            axes.plot([row["digits"] for row in own], at, "o", label=name, markersize=4, **style)
        axes.set_yticks([-at for at in range(len(modules))], modules)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(left=0)
        axes.set_xlabel("significant decimal digits")
        axes.grid(axis="x")
        axes.legend(ncols=min(len(names), 6), loc="lower left", bbox_to_anchor=(0, 1))
    return figure
