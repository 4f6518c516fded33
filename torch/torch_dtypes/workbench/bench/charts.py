"""The charts of the suite ``scaling``: rates against size, with the machine's limits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..report.colours import GREY, colours
from ..report.drawing import DASHES, MARKERS, new_figure
from .scaling import BASELINE

ELEMENTS, MATMUL = "scaling_elements.png", "scaling_matmul.png"
CAPTIONS = {
    ELEMENTS: "Elements in a nanosecond against their number",
    MATMUL: "Multiply-adds in a nanosecond against the side of the matrices",
}
_OPERATIONS = {"encode": "encode float32", "decode": "decode to float32", "add": "a + b"}


def figures(results: dict) -> dict:
    """Draw the charts, by the names of their files."""
    rows = [row for row in results["rows"] if row["suite"] == "scaling"]
    chosen = {
        draw: [row for row in rows if row["work"].startswith("matmul") == (draw is _matmul)]
        for draw in (_elements, _matmul)
    }
    names = {_elements: ELEMENTS, _matmul: MATMUL}
    return {
        names[draw]: draw(some, results["machine"]["threads"])
        for draw, some in chosen.items()
        if some
    }


def _curves(rows: list[dict]) -> dict[str, list[tuple[int, float]]]:
    """Return (operations, operations in a nanosecond) by case. Each row also has the figures of the
    case that it compares with."""
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        curves.setdefault(row["dtype"], {})[row["operations"]] = (
            row["operations"] / row["ours"] * 1e-9
        )
        curves.setdefault(row["against"], {})[row["operations"]] = (
            row["operations"] / row["theirs"] * 1e-9
        )
    return {name: sorted(points.items()) for name, points in curves.items()}


@contextlib.contextmanager
def _grid(columns: int, lines: int, title: str) -> Iterator:
    """Make a figure with a grid of axes on logarithmic scales, by line and column."""
    with new_figure("page", 1.0 + 2.2 * lines) as figure:
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize="medium")
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat:
            axes.set(xscale="log", yscale="log")
            axes.grid()
        yield figure, grid


def _plot(
    axes,
    curves: dict[str, list[tuple[int, float]]],
    ours: list[str],
    limits: list[str],
    side=lambda operations: operations,
) -> None:
    for i, name in enumerate(limits):
        sizes, rates = zip(*curves[name], strict=True)
        axes.plot(
            [side(s) for s in sizes],
            rates,
            color=GREY,
            linewidth=1.6,
            linestyle=DASHES[1 + i % 2],
            label=name,
            zorder=2,
        )
    colour = {BASELINE: "#000000"} | colours(ours)
    for i, name in enumerate((BASELINE, *ours)):
        sizes, rates = zip(*curves[name], strict=True)
        marker = {"marker": MARKERS[i % len(MARKERS)], "markersize": 4.5}
        axes.plot(
            [side(s) for s in sizes],
            rates,
            color=colour[name],
            linewidth=1.8,
            label=name,
            zorder=3,
            **marker,
        )


def _elements(rows: list[dict], threads: list[int]):
    title = (
        "Casts and addition: elements in a nanosecond, beside copy_ of the bytes read and written"
    )
    with _grid(len(_OPERATIONS), len(threads), title) as (figure, grid):
        for line, count in zip(grid, threads, strict=True):
            for axes, (operation, title) in zip(line, _OPERATIONS.items(), strict=True):
                curves = _curves(
                    [
                        row
                        for row in rows
                        if row["threads"] == count and row["work"].startswith(operation + ",")
                    ]
                )
                limits = sorted(
                    (name for name in curves if name.startswith("copy_")),
                    key=lambda name: int(name.split()[1]),
                    reverse=True,
                )
                _plot(
                    axes,
                    curves,
                    [name for name in curves if name != BASELINE and name not in limits],
                    limits,
                )
                _entitle(axes, f"{title}, {count} thread{'s' * (count > 1)}", "elements")
            line[0].set_ylabel("elements / ns")
    return figure


def _matmul(rows: list[dict], threads: list[int]):
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    with _grid(len(threads), 1, "Products of matrices: multiply-adds in a nanosecond") as (
        figure,
        (line,),
    ):
        for axes, count in zip(line, threads, strict=True):
            curves = _curves([row for row in rows if row["threads"] == count])
            _plot(
                axes,
                curves,
                [name for name in curves if name not in (BASELINE, "float32")],
                ["float32"],
                lambda macs: round(macs ** (1 / 3)),
            )
            axes.xaxis.set_major_locator(
                FixedLocator(sorted({round(row["operations"] ** (1 / 3)) for row in rows}))
            )
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(ScalarFormatter())
            _entitle(axes, f"n x n matrices, {count} thread{'s' * (count > 1)}", "n")
        line[0].set_ylabel("multiply-adds / ns")
    return figure


def _entitle(axes, title: str, what: str) -> None:
    axes.set_title(title, fontsize="small")
    axes.set_xlabel(what)
    axes.legend(fontsize="xx-small", loc="lower right")
