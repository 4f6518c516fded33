"""The figures of ``observe``: the exponents of numbers, and of blocks' scales, against the range
of the format."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...targets.block_scales import scale_format
from ..cards.card import BlockCard, Card, card
from ..report.colours import GREY, colours
from ..report.drawing import label_binades, new_figure
from .counts import PASSES, RoundingCounts

_DRAWN = ("forward", "backward", "gradients", "updates")
_LOST = "#B2182B"  # numbers out of range


class _Regions(NamedTuple):
    """Exponents of the smallest number, the smallest of full precision, and the first beyond the
    largest."""

    smallest: int
    normal: int
    largest: int


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


def _find_regions(c: Card) -> _Regions:
    smallest, largest = _find_range(c)
    normal = smallest if c.smallest_normal is None else math.frexp(c.smallest_normal)[1] - 1
    return _Regions(smallest, normal, largest)


def _shade_regions(axes, regions: _Regions, low: int, high: int) -> None:
    """Shade the exponents by their fate in the format: lost, subnormal, normal, overflow."""
    smallest, normal, largest = regions
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


def _block_trouble(c: RoundingCounts) -> str:
    return ", ".join(
        f"{_percent(share)} {word}"
        for word, share in (
            ("flush", c.share("flushed_blocks")),
            ("clip", c.share("clipped_blocks")),
        )
        if share >= 5e-4
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share < 0.0995 else f"{100 * share:.0f}%"


def _find_lowest_exponent(histograms: Sequence[dict[int, int]]) -> int:
    """Return an exponent below which at most one in a thousand of any layer's numbers is."""
    least = []
    for counts in histograms:
        left = sum(counts.values()) // 1000
        for e in sorted(counts):
            left -= counts[e]
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
    try:
        c = card(name)
    except ValueError:  # a quantiser
        c = None
    if c is None or isinstance(c, BlockCard):
        range_text = ", whose range differs by block" if c else ""
        legend = f"magnitude before rounding to {name}{range_text}"
        return _draw(rows, name, passes, limit, width, "exponents", None, _trouble, legend)
    regions = _find_regions(c)
    return _draw(rows, name, passes, limit, width, "exponents", regions, _trouble, _legend(c))


def scale_figure(
    rows: Sequence[RoundingCounts],
    name: str,
    passes: Sequence[str] | None = None,
    limit: int | None = 12,
    width: str = "page",
):
    """Draw a histogram of the exponents of blocks' scales for each layer (row) and pass (column);
    see ``Statistics.plot_scales``."""
    scale = scale_format(card(name).scale)
    smallest = math.frexp(scale.smallest)[1] - 1
    regions = _Regions(smallest, smallest, math.frexp(scale.largest)[1])
    legend = f"scale of a block in {name}; red: out of the range of {scale.name}"
    return _draw(rows, name, passes, limit, width, "scales", regions, _block_trouble, legend)


def _draw(
    rows: Sequence[RoundingCounts],
    name: str,
    passes: Sequence[str] | None,
    limit: int | None,
    width: str,
    field: str,
    regions: _Regions | None,
    describe: Callable[[RoundingCounts], str],
    legend: str,
):
    """Draw the histograms in a field of the counts, against the regions of a format if it has any,
    with a text for each."""
    by_layer, wanted = _select_counts(rows, name, passes, limit)
    colour = colours([name])[name]
    histograms = [getattr(c, field) for by_pass in by_layer.values() for c in by_pass.values()]
    histograms = [counts for counts in histograms if counts]
    every = [e for counts in histograms for e in counts]
    shaded = regions is not None
    regions = regions or _Regions(min(every), min(every), max(every) + 1)
    smallest, _, largest = regions
    # Without a limit, a few numbers near 0 would squeeze all others together.
    low = max(_find_lowest_exponent(histograms), min(smallest, -120)) - 1
    low = min(low, max(smallest, min(every) - 10)) - 2
    high = min(max(max(every), largest), max(every) + 12) + 3
    small = width == "column"
    row_height = 0.24 if small else 0.42
    with new_figure(width, row_height * len(by_layer) + (0.9 if small else 1.15)) as figure:
        grid = figure.subplots(1, len(wanted), sharex=True, sharey=True, squeeze=False)[0]
        layers = list(by_layer)
        for axes, where in zip(grid, wanted, strict=True):
            if shaded:
                _shade_regions(axes, regions, low, high)
            for i, layer in enumerate(layers):
                base = len(layers) - 1 - i
                axes.axhline(base, color=GREY, linewidth=0.4)
                counts = by_layer[layer].get(where)
                histogram = {} if counts is None else getattr(counts, field)
                if not histogram:
                    continue
                shown = {max(e, low): 0 for e in histogram}
                for e, n in histogram.items():
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
                if text := describe(counts):
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
        figure.supxlabel(legend, fontsize="x-small" if small else "small", color=GREY)
    return figure


def _legend(c: Card) -> str:
    subnormal = (
        ""
        if c.smallest_normal is None or c.smallest_normal == c.smallest
        else "; yellow: subnormal"
    )
    return f"magnitude before rounding to {c.name}; red: out of its range{subnormal}"
