"""The tables of a run, on a terminal and for docs/reference/results.md."""

from __future__ import annotations

from pathlib import Path

from ..report.marked_sections import replace_sections
from ..report.page import Report
from ..report.tables import markdown_table
from . import charts
from .measuring import BUSY, OVER, RATE, SPEED_UP
from .suites import SUITES

IMAGES = "images"


def _columns(results: dict) -> list[str]:
    return [
        "work",
        "dtype",
        "against",
        "target",
        *(f"{n} thread{'s' * (n > 1)}" for n in results["machine"]["threads"]),
    ]


def _pivot(results: dict, suite: str, absolute: bool) -> list[list[str]]:
    """Return a line for each comparison of a suite: work, dtype, against, target, and a cell for
    each number of threads."""
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
    """Return the row's ratio, or how many times as fast this package is. With ``absolute``, add
    times."""
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


def _is_busy(results: dict) -> bool:
    where = results["machine"]
    return where["load"] > BUSY * where["cores"]


def report_of(results: dict) -> Report:
    """Build the report: a table for each suite, the charts, and notes on cases that were not
    measured."""
    commands = results["command"]
    report = Report(
        "torch-dtypes bench", command=" && ".join(commands.values()), data=lambda: results
    )
    busy = "The machine was busy with other work; figures are rough. " if _is_busy(results) else ""
    report.text(
        f"{busy}Cases are timed in turn; a figure is this package's median over the other's."
    )
    for suite in commands:
        lines = _pivot(results, suite, absolute=True)
        report.section(suite).text(SUITES[suite].summary, *_sentences(results, suite))
        for name, figure in charts.figures(results).items() if suite == "scaling" else ():
            report.figure(figure, charts.CAPTIONS[name], Path(name).stem)
        if lines:
            report.table(_columns(results), lines)
    for note in results["notes"]:
        report.footnote(note)
    return report


def _sentences(results: dict, suite: str) -> list[str]:
    return SUITES[suite].sentences([row for row in results["rows"] if row["suite"] == suite])


def markdown_of(results: dict, suite: str) -> str:
    """Return a suite's part of docs/reference/results.md: ratios only, no absolute times."""
    where = results["machine"]
    lines = [f"### {suite}", "", SUITES[suite].summary, "", f"    {results['command'][suite]}", ""]
    lines += [
        f"{where['cpu']}, {where['vector_unit']}, torch {where['torch']}, torch_dtypes "
        f"{where['torch_dtypes']}."
    ]
    if _is_busy(results) and suite != "memory":
        lines[-1] += (
            f" **The machine was busy with other work** (load {where['load']:.1f} on "
            f"{where['cores']} cores): figures are rough."
        )
    if suite == "scaling":  # bench.json has its hundreds of figures
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
    lines += [line for sentence in _sentences(results, suite) for line in ("", sentence)]
    if suite == "peers":
        lines += ["", *(f"- {note}" for note in results["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def update_markdown(path: Path, results: dict) -> None:
    """Replace the marked part of each suite that ran, or append it. The rest of the file stays as
    it is."""
    replace_sections(
        path, "bench", {suite: markdown_of(results, suite) for suite in results["command"]}
    )
