"""The tables of a run, on a terminal and for docs/reference/results.md."""

from __future__ import annotations

from pathlib import Path

from ..report.marked_sections import replace_sections
from ..report.page import Report
from ..report.tables import markdown_table
from . import charts
from .measuring import OVER, RATE, SPEED_UP
from .suites import SUITES

IMAGES = "images"
_BUSY = 0.25  # load for each core, at the start of a run, above which its results say so


def _columns(results: dict) -> list[str]:
    return [
        "work",
        "dtype",
        "against",
        "target",
        *(f"{n} thread{'s' * (n > 1)}" for n in results["machine"]["threads"]),
    ]


def _pivot(results: dict, suite: str, absolute: bool) -> list[list[str]]:
    """One line for each comparison of a suite: work, dtype, against, target, and a cell for each
    number of threads."""
    lines: dict[tuple, dict[int, str]] = {}
    for row in (row for row in results["rows"] if row["suite"] == suite):
        lines.setdefault((row["work"], row["dtype"], row["against"], row["target"] or ""), {})[
            row["threads"]
        ] = _cell(row, absolute)
    return [
        [*key, *(cells.get(count, "") for count in results["machine"]["threads"])]
        for key, cells in lines.items()
    ]


def _cell(row: dict, absolute: bool) -> str:
    """The row's ratio; where ours is to be faster, how many times. ``absolute``: with times."""
    value = row["measured"] if row["measure"] == SPEED_UP else row["ratio"]
    times = (
        {OVER: " ({:+.2f} µs)", RATE: " ({:.0f} M/s per core)"}.get(row["measure"], "")
        if absolute
        else ""
    )
    verdict = {True: ", met", False: ", missed", None: ""}[row["met"]]
    return (
        (f"{value:,.2f}" if value < 100 else f"{value:,.0f}")
        + times.format(row.get("measured"))
        + verdict
    )


def _busy(results: dict) -> bool:
    where = results["machine"]
    return where["load"] > _BUSY * where["cores"]


def report_of(results: dict) -> Report:
    """A table for each suite, the charts, and what was not measured."""
    commands = results["command"]
    made = Report(
        "torch-dtypes bench", command=" && ".join(commands.values()), data=lambda: results
    )
    busy = "The machine was busy with other work; figures are rough. " if _busy(results) else ""
    made.text(
        f"{busy}Cases are timed in turn; a figure is ours over theirs, of medians over rounds."
    )
    for suite in commands:
        lines = _pivot(results, suite, absolute=True)
        made.section(suite).text(SUITES[suite].summary)
        for name, figure in charts.figures(results).items() if suite == "scaling" else ():
            made.figure(figure, charts.CAPTIONS[name], Path(name).stem)
        if lines:
            made.table(_columns(results), lines)
    for note in results["notes"]:
        made.footnote(note)
    return made


def markdown_of(results: dict, suite: str) -> str:
    """A suite's part of docs/reference/results.md: ratios only, no absolute times."""
    where = results["machine"]
    lines = [f"### {suite}", "", SUITES[suite].summary, "", f"    {results['command'][suite]}", ""]
    lines += [
        f"{where['cpu']}, {where['vector_unit']}, torch {where['torch']}, torch_dtypes "
        f"{where['torch_dtypes']}."
    ]
    if _busy(results) and suite != "memory":
        lines[-1] += (
            f" **The machine was busy with other work** (load {where['load']:.1f} on "
            f"{where['cores']} cores): figures are rough."
        )
    if suite == "scaling":  # hundreds of figures: bench.json has them
        lines += [
            line
            for name, caption in charts.CAPTIONS.items()
            for line in ("", f"![{caption}]({IMAGES}/{name})")
        ]
    else:
        rows = [
            [cell.replace("|", "\\|") for cell in line]
            for line in _pivot(results, suite, absolute=False)
        ]
        lines += ["", markdown_table(_columns(results), rows)]
    if suite == "peers":
        lines += ["", *(f"- {note}" for note in results["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def update_markdown(path: Path, results: dict) -> None:
    """Replaces the marked part of each suite that was run, or adds it at the end; the rest of the
    file stays as it is."""
    replace_sections(
        path, "bench", {suite: markdown_of(results, suite) for suite in results["command"]}
    )
