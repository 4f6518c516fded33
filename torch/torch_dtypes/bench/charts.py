"""The charts of the suite ``scaling``: rates against size, beside the machine's limits."""

from __future__ import annotations

from pathlib import Path

from ..workbench.colours import GREY, RULE, colours
from ..workbench.drawing import MARKERS
from .scaling import BASELINE

ELEMENTS, MATMUL = "scaling_elements.png", "scaling_matmul.png"
CAPTIONS = {ELEMENTS: "Elements in a nanosecond against their number", MATMUL: "Multiply-adds in a nanosecond against the side of the matrices"}
_OPERATIONS = {"encode": "encode float32", "decode": "decode to float32", "add": "a + b"}
_LIMIT_STYLES = ("--", ":")


def write_charts(folder: Path, results: dict) -> list[Path]:
    """Writes the charts of a run that has the suite scaling, and returns their paths: none without it."""
    written = []
    for name, figure in figures(results).items():
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / name)
        written.append(folder / name)
    return written


def figures(results: dict) -> dict:
    """The charts by their files' names."""
    rows = [row for row in results["rows"] if row["suite"] == "scaling"]
    chosen = {draw: [row for row in rows if row["work"].startswith("matmul") == (draw is _matmul)] for draw in (_elements, _matmul)}
    names = {_elements: ELEMENTS, _matmul: MATMUL}
    return {names[draw]: draw(some, results["machine"]["threads"]) for draw, some in chosen.items() if some}


def _curves(rows: list[dict]) -> dict[str, list[tuple[int, float]]]:
    """(operations, operations in a nanosecond) by case; the case compared against has its figures in each row."""
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        curves.setdefault(row["dtype"], {})[row["operations"]] = row["operations"] / row["ours"] * 1e-9
        curves.setdefault(row["against"], {})[row["operations"]] = row["operations"] / row["theirs"] * 1e-9
    return {name: sorted(points.items()) for name, points in curves.items()}


def _figure(columns: int, lines: int, title: str):
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    figure = Figure(figsize=(2 + 3.7 * columns, 1.6 + 3.1 * lines), dpi=120, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure, figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)


def _style(axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _plot(axes, curves: dict[str, list[tuple[int, float]]], ours: list[str], limits: list[str], side=lambda operations: operations) -> None:
    for i, name in enumerate(limits):
        sizes, rates = zip(*curves[name], strict=True)
        axes.plot([side(s) for s in sizes], rates, color=GREY, linewidth=1.6, linestyle=_LIMIT_STYLES[i % 2], label=name, zorder=2)
    colour = {BASELINE: "#000000"} | colours(ours)
    for i, name in enumerate((BASELINE, *ours)):
        sizes, rates = zip(*curves[name], strict=True)
        marker = {"marker": MARKERS[i % len(MARKERS)], "markersize": 4.5}
        axes.plot([side(s) for s in sizes], rates, color=colour[name], linewidth=1.8, label=name, zorder=3, **marker)


def _elements(rows: list[dict], threads: list[int]):
    figure, grid = _figure(len(_OPERATIONS), len(threads), "Casts and addition: elements in a nanosecond, beside copy_ of the bytes read and written")
    for line, count in zip(grid, threads, strict=True):
        for axes, (operation, title) in zip(line, _OPERATIONS.items(), strict=True):
            chosen = [row for row in rows if row["threads"] == count and row["work"].startswith(operation + ",")]
            curves = _curves(chosen)
            limits = sorted((name for name in curves if name.startswith("copy_")), key=lambda name: int(name.split()[1]), reverse=True)
            _style(axes)
            _plot(axes, curves, [name for name in curves if name != BASELINE and name not in limits], limits)
            axes.set_title(f"{title}, {count} thread{'s' * (count > 1)}", loc="left", fontsize=10)
            axes.legend(fontsize=8, frameon=False, loc="lower right")
        line[0].set_ylabel("elements / ns")
    for axes in grid[-1]:
        axes.set_xlabel("elements")
    return figure


def _matmul(rows: list[dict], threads: list[int]):
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    figure, grid = _figure(len(threads), 1, "Products of matrices: multiply-adds in a nanosecond")
    for axes, count in zip(grid[0], threads, strict=True):
        curves = _curves([row for row in rows if row["threads"] == count])
        _style(axes)
        _plot(axes, curves, [name for name in curves if name not in (BASELINE, "float32")], ["float32"], lambda macs: round(macs ** (1 / 3)))
        sides = sorted({round(row["operations"] ** (1 / 3)) for row in rows})
        axes.xaxis.set_major_locator(FixedLocator(sides))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_title(f"n x n matrices, {count} thread{'s' * (count > 1)}", loc="left", fontsize=10)
        axes.set_xlabel("n")
        axes.legend(fontsize=8, frameon=False, loc="lower right")
    grid[0][0].set_ylabel("multiply-adds / ns")
    return figure
