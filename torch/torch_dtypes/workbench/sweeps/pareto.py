"""The Pareto figure of a sweep: accuracy, or perplexity of a text, against bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..report.colours import GREY, colours
from ..report.drawing import MARKERS, new_figure
from ..training.measures import ACCURACY
from .tables import Group


class Point(NamedTuple):
    """A format and rounding mode of a group, with its bits, and the mean of the group's measure:
    accuracy in percent, or perplexity."""

    bits: float
    value: float
    format: str
    rounding: str
    group: int


def find_points(groups: Sequence[Group]) -> list[Point]:
    """Return a point for each entry with a mean, and bits."""
    return [
        Point(cost.moved, entry.mean, name, rounding, i)
        for i, group in enumerate(groups)
        for (name, rounding), entry in group.entries.items()
        if entry.mean is not None and (cost := group.costs.get(name)) is not None
    ]


def has_points(groups: Sequence[Group]) -> bool:
    return bool(find_points(groups))


def find_front(points: Sequence[Point], sign: int = 1) -> list[Point]:
    """Return the points to which no other has fewer bits and is as good, or is better and has as
    few bits; by rising bits. ``sign``: 1 if larger values are better, -1 if smaller ones are."""
    front: list[Point] = []
    for p in sorted(points, key=lambda p: (p.bits, -sign * p.value)):
        if not front or sign * p.value > sign * front[-1].value:
            front.append(p)
    return front


def pareto_figure(groups: Sequence[Group], width: str = "page"):
    """Draw a matplotlib figure with a panel for each model and data set: a point for each format
    and rounding mode, in the format's colour, with a marker for each recipe and policy.

    The line joins the points that no other one beats. A dashed line is float32's value.

    Args:
        groups: the tables. width: ``"page"`` or ``"column"``, one column of a paper.

    Raises:
        ValueError: no entry has a mean and bits.
    """
    points = find_points(groups)
    if not points:
        raise ValueError(
            "expected a cell that is done, of a format by its name, for accuracy against bits, but "
            "got none"
        )
    panels: dict[tuple[str, str], list[Point]] = {}
    for p in points:
        panels.setdefault((groups[p.group].model, groups[p.group].dataset), []).append(p)
    colour = colours(dict.fromkeys(p.format for p in points))
    page = width == "page"
    size = 8.0 if page else 6.0
    with new_figure(width, len(panels) * (3.6 if page else 2.4)) as figure:
        grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, ((model, dataset), own) in zip(grid, panels.items(), strict=True):
            _draw(axes, own, groups, colour, size)
            axes.set_title(f"{model} on {dataset}", fontsize=size * 1.2)
            measure = groups[own[0].group].measure
            label = "accuracy in percent" if measure is ACCURACY else measure.name
            axes.set(xlabel="bits moved of an operand", ylabel=label)
    return figure


def _draw(axes, points: list[Point], groups: Sequence[Group], colour: dict, size: float) -> None:
    kinds = list(dict.fromkeys(p.group for p in points))
    for place, kind in enumerate(kinds):
        group, marker = groups[kind], MARKERS[place % len(MARKERS)]
        sums = "" if group.accumulate == "machine" else f", {group.accumulate}"
        own = [p for p in points if p.group == kind]
        axes.scatter(
            [p.bits for p in own],
            [p.value for p in own],
            c=[colour[p.format] for p in own],
            marker=marker,
            s=size * 4,
            zorder=3,
        )
        # The legend's marker, in no format's colour.
        axes.scatter([], [], c=GREY, marker=marker, label=group.recipe + sums)
    higher = groups[points[0].group].measure is ACCURACY
    front = find_front(points, 1 if higher else -1)
    axes.step(
        [p.bits for p in front],
        [p.value for p in front],
        where="post",
        color=GREY,
        linewidth=0.9,
        zorder=2,
    )
    bases = [groups[kind].baseline.mean for kind in kinds if groups[kind].baseline.mean is not None]
    if bases:
        best = (max if higher else min)(bases)
        axes.axhline(best, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), label="float32")
    axes.set_xscale("log", base=2)
    low, high = min(p.bits for p in points), max(p.bits for p in points)
    ticks = [2.0**e for e in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.margins(x=0.08, y=0.12)
    axes.grid()
    # Beside the points, since labels of formats with as many bits would cover each other.
    for name in dict.fromkeys(p.format for p in sorted(points)):
        axes.scatter([], [], c=colour[name], marker="o", s=size * 2, label=name)
    axes.legend(fontsize=size, loc="upper left", bbox_to_anchor=(1.01, 1.02))
