"""The figures of ``show``: precision against magnitude, and the number line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..report.colours import colours
from ..report.drawing import DASHES, label_binades, new_figure
from .card import Card

_LINE_BITS = 8


def precision_figure(cards: Sequence[Card], width: str = "page"):
    """Draw significant bits (left) and decimal digits (right) against magnitude, a step for each
    binade, as in the posit literature.

    Args:
        cards: the cards, at least one. width: ``"page"`` or ``"column"``.

    Source: Gustafson, Yonemoto, "Beating floating point at its own game: posit arithmetic" (2017),
    figures 7 to 10.
    """
    colour = colours(c.name for c in cards)
    with new_figure(width, 4.2 if width == "page" else 2.6) as figure:
        axes = figure.add_subplot()
        most = 0.0
        for i, c in enumerate(cards):
            exponents = c.exponents()
            if not len(exponents):  # no positive numbers
                continue
            bits = c.precision(exponents)
            most = max(most, bits.max().item())
            edges = torch.cat([exponents, exponents[-1:] + 1]).tolist()
            style = {"linewidth": 1.8 if width == "page" else 1.1, "linestyle": DASHES[i // 6 % 4]}
            axes.stairs(
                bits.tolist(), edges, baseline=0, color=colour[c.name], label=c.name, **style
            )
        axes.set(xlabel="magnitude", ylabel="significant bits", ylim=(0, (most or 1) * 1.12))
        label_binades(axes, 9)
        axes.grid()
        digits = axes.secondary_yaxis(
            "right", functions=(lambda b: b * math.log10(2), lambda d: d / math.log10(2))
        )
        digits.set_ylabel("decimal digits")
        if any(len(c.exponents()) for c in cards):
            axes.legend(
                ncols=min(len(cards), 5 if width == "page" else 3),
                loc="lower center",
                bbox_to_anchor=(0.5, 1.0),
                fontsize="small",
            )
    return figure


def number_line_figure(cards: Sequence[Card], width: str = "page"):
    """Draw the positive numbers of formats of at most 8 bits as ticks: on a linear scale, and by
    magnitude.

    Args:
        cards: the cards; at least one must have at most 8 bits, and the others are left out. width:
            as in :func:`precision_figure`.
    """
    small = [c for c in cards if c.bits <= _LINE_BITS]
    if not small:
        raise ValueError(
            f"expected a format of at most {_LINE_BITS} bits for a number line, but got "
            f"{', '.join(c.name for c in cards)}"
        )
    colour = colours(c.name for c in cards)
    with new_figure(
        width, 1.0 + 0.62 * len(small) if width == "page" else 0.9 + 0.4 * len(small)
    ) as figure:
        linear, by_magnitude = figure.subplots(1, 2, sharey=True)
        for row, c in enumerate(small):
            values = c.values()
            values = values[values.isfinite() & (values > 0)].unique()
            at = torch.full_like(values, float(len(small) - row))
            for axes in (linear, by_magnitude):
                axes.plot(
                    values,
                    at,
                    "|",
                    color=colour[c.name],
                    markersize=13 if width == "page" else 8,
                    markeredgewidth=0.9,
                )
        linear.set_xlim(0, 4)
        linear.set_xlabel("numbers from 0 to 4")
        if any(len(c.exponents()) for c in small):
            by_magnitude.set_xscale("log", base=2)
        by_magnitude.set_xlabel("all positive numbers, by magnitude")
        linear.set_yticks(range(1, len(small) + 1), [c.name for c in reversed(small)])
        linear.set_ylim(0.4, len(small) + 0.6)
        for axes in (linear, by_magnitude):
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
    return figure
