"""The figure of ``observe``: the exponents of numbers against the range of the format."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..cards.card import Card, card
from ..report.colours import GREY, colours
from ..report.drawing import label_binades, new_figure
from .counts import PASSES, RoundingCounts

_DRAWN = ("forward", "backward", "gradients", "updates")
_LOST = "#B2182B"  # numbers out of range


def _select_counts(
    rows: Sequence[RoundingCounts], name: str, passes: Sequence[str] | None, limit: int | None
):
    """Return counts by layer and pass, and the passes among them. The layers of most trouble stay,
    in the model's order."""
    of_format = [c for c in rows if c.format == name and c.exponents]
    if passes is None:
        wanted = [p for p in _DRAWN if any(c.where == p for c in of_format)] or [
            p for p in PASSES if any(c.where == p for c in of_format)
        ]
    else:
        unknown = [p for p in passes if p not in PASSES]
        if unknown:
            raise ValueError(f"expected passes of {', '.join(PASSES)}, but got {unknown[0]!r}")
        wanted = [p for p in passes if any(c.where == p for c in of_format)]
    if not wanted:
        where = "any pass" if passes is None else " or ".join(passes)
        raise ValueError(
            f"expected numbers other than 0 that were rounded to {name} in {where} to plot, but "
            "got none"
        )
    by_layer: dict[str, dict[str, RoundingCounts]] = {}
    for c in of_format:
        if c.where in wanted:
            by_layer.setdefault(c.layer, {})[c.where] = c
    if limit is not None and len(by_layer) > limit:
        worst = sorted(
            by_layer, key=lambda layer: -max(c.trouble for c in by_layer[layer].values())
        )[:limit]
        by_layer = {layer: by_pass for layer, by_pass in by_layer.items() if layer in worst}
    return by_layer, wanted


def _find_range(c: Card) -> tuple[int, int]:
    """Return the exponents of the smallest and the largest number, by magnitude if a table has only
    negative ones."""
    ends = [c.smallest, c.largest]
    if c.smallest is None:
        sizes = c.values().abs()
        sizes = sizes[sizes.isfinite() & (sizes > 0)]
        ends = [sizes.min().item(), sizes.max().item()]
    return math.frexp(ends[0])[1] - 1, math.frexp(ends[1])[1]


def _shade_regions(axes, c: Card, low: int, high: int) -> None:
    """Shade the exponents by their fate in the format: lost, subnormal, normal, overflow."""
    smallest, largest = _find_range(c)
    normal = smallest if c.smallest_normal is None else math.frexp(c.smallest_normal)[1] - 1
    for begin, end, colour, alpha in (
        (low, smallest, _LOST, 0.10),
        (smallest, normal, "#E69F00", 0.16),
        (largest, high, _LOST, 0.10),
    ):
        if begin < end:
            axes.axvspan(begin, end, color=colour, alpha=alpha, linewidth=0)
    for edge in {smallest, normal, largest}:
        if low < edge < high:
            axes.axvline(edge, color=GREY, linewidth=0.6, linestyle=(0, (2, 2)))


def _label(layer: str, room: int = 22) -> str:
    name = layer or "(model)"
    return name if len(name) <= room else "…" + name[-room + 1 :]


def _trouble(c: RoundingCounts) -> str:
    parts = [
        f"{_percent(share)} {word}"
        for word, share in (("under", c.share("underflow")), ("over", c.share("overflow")))
        if share >= 5e-4
    ]
    return ", ".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share < 0.0995 else f"{100 * share:.0f}%"


def _find_lowest_exponent(by_layer: dict[str, dict[str, RoundingCounts]]) -> int:
    """Return an exponent below which at most one in a thousand of any layer's numbers is."""
    least = []
    for counts in (c for by_pass in by_layer.values() for c in by_pass.values()):
        left = sum(counts.exponents.values()) // 1000
        for e in sorted(counts.exponents):
            left -= counts.exponents[e]
            if left < 0:
                least.append(e)
                break
    return min(least)


def exponent_figure(
    rows: Sequence[RoundingCounts],
    name: str,
    passes: Sequence[str] | None = None,
    limit: int | None = 12,
    width: str = "page",
):
    """Draw a histogram of exponents for each layer (row) and pass (column), scaled to its commonest
    exponent; see ``Statistics.plot``."""
    by_layer, wanted = _select_counts(rows, name, passes, limit)
    c, colour = card(name), colours([name])[name]
    every = [
        e for by_pass in by_layer.values() for counts in by_pass.values() for e in counts.exponents
    ]
    smallest, largest = _find_range(c)
    # Without a limit, a few numbers near 0 would squeeze all others together.
    low = max(_find_lowest_exponent(by_layer), min(smallest, -120)) - 1
    low = min(low, max(smallest, min(every) - 10)) - 2
    high = min(max(max(every), largest), max(every) + 12) + 3
    small = width == "column"
    row_height = 0.24 if small else 0.42
    with new_figure(width, row_height * len(by_layer) + (0.9 if small else 1.15)) as figure:
        grid = figure.subplots(1, len(wanted), sharex=True, sharey=True, squeeze=False)[0]
        layers = list(by_layer)
        for axes, where in zip(grid, wanted, strict=True):
            _shade_regions(axes, c, low, high)
            for i, layer in enumerate(layers):
                base = len(layers) - 1 - i
                axes.axhline(base, color=GREY, linewidth=0.4)
                counts = by_layer[layer].get(where)
                if counts is None:
                    continue
                shown = {max(e, low): 0 for e in counts.exponents}
                for e, n in counts.exponents.items():
                    shown[max(e, low)] += n
                edges = range(min(shown), max(shown) + 2)
                most = max(shown.values())
                for drawn, lost in ((colour, False), (_LOST, True)):
                    heights = [
                        base
                        + 0.82 * shown.get(e, 0) / most * (lost == (not smallest <= e < largest))
                        for e in edges[:-1]
                    ]
                    axes.stairs(heights, edges, baseline=base, fill=True, color=drawn, alpha=0.85)
                if text := _trouble(counts):
                    size, on_left = (
                        "xx-small" if small else "x-small",
                        2 * max(shown, key=shown.__getitem__) > low + high,
                    )
                    at, side = (low + 0.5, "left") if on_left else (high - 0.5, "right")
                    axes.text(at, base + 0.9, text, ha=side, va="top", fontsize=size, color=_LOST)
            axes.set_title(where, **({"fontsize": "small"} if small else {}))
            axes.set_xlim(low, high)
            label_binades(axes, max(2, (7 if small else 16) // len(wanted)))
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
        grid[0].set_ylim(-0.02, len(layers))
        grid[0].set_yticks(
            [len(layers) - 1 - i + 0.4 for i in range(len(layers))],
            [_label(layer, 14 if small else 22) for layer in layers],
        )
        figure.supxlabel(_legend(c), fontsize="x-small" if small else "small", color=GREY)
    return figure


def _legend(c: Card) -> str:
    subnormal = (
        ""
        if c.smallest_normal is None or c.smallest_normal == c.smallest
        else "; yellow: subnormal"
    )
    return f"magnitude before rounding to {c.name}; red: out of its range{subnormal}"
