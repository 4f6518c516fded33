"""The tables of a run, on a terminal and for docs/results.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .._marked_sections import replace_sections
from ..workbench.pages import Page
from . import charts
from .measuring import OVER, RATE, SPEED_UP
from .suites import SUITES

IMAGES = "images"
_BUSY = 0.25  # load for each core, at the start of a run, above which its results say so


def pivot(results: dict, suite: str, cell: Callable[[dict], str]) -> list[list[str]]:
    """One line for each comparison of a suite: work, dtype, against, target, and a cell for each number of threads."""
    lines: dict[tuple, dict[int, str]] = {}
    for row in (row for row in results["rows"] if row["suite"] == suite):
        lines.setdefault((row["work"], row["dtype"], row["against"], row["target"] or ""), {})[row["threads"]] = cell(row)
    return [[*key, *(cells.get(count, "") for count in results["machine"]["threads"])] for key, cells in lines.items()]


def headers(results: dict) -> list[str]:
    return ["work", "dtype", "against", "target", *(f"{n} thread{'s' * (n > 1)}" for n in results["machine"]["threads"])]


def _figure(row: dict) -> str:
    """The row's ratio; where ours is to be faster, how many times."""
    value = row["measured"] if row["measure"] == SPEED_UP else row["ratio"]
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _verdict(row: dict) -> str:
    return {True: ", met", False: ", missed", None: ""}[row["met"]]


def _terminal_cell(row: dict) -> str:
    absolute = {OVER: f" ({row['measured']:+.2f} µs)", RATE: f" ({row['measured']:.0f} M/s per core)"}.get(row["measure"], "")
    text = _figure(row) + absolute + _verdict(row)
    return text if row["met"] is None else f"[{'green' if row['met'] else 'red'}]{text}[/]"


def print_tables(console, results: dict) -> None:
    """Prints a table for each suite to a ``rich.console.Console``, and the notes."""
    from rich.table import Table

    if not console.is_terminal:
        console.width = 10_000  # in a file or a pipe nothing has to fit
    where = results["machine"]
    console.print(
        f"{where['cpu']}, {where['cores']} cores (load {where['load']:.1f}), {where['vector_unit']}, torch {where['torch']}, "
        f"torch_dtypes {where['torch_dtypes']}. Figures are ours over theirs, of medians over rounds in turn.",
        highlight=False,
    )
    for suite in results["command"]:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for i, header in enumerate(headers(results)):
            table.add_column(header, justify="left" if i < 4 else "right")
        for line in pivot(results, suite, _terminal_cell):
            table.add_row(*line)
        if table.row_count:
            console.print()
            console.print(f"{suite}: {SUITES[suite].summary}", highlight=False)
            console.print(table)
    for note in results["notes"]:
        console.print(note, highlight=False, markup=False)


def page_of(results: dict) -> Page:
    """What ``bench.html`` shows: a table for each suite, the charts, and what was not measured."""
    where, commands = results["machine"], results["command"]
    page = Page("torch-dtypes bench", command=" && ".join(commands.values()))
    busy = "The machine was busy with other work; figures are rough. " if where["load"] > _BUSY * where["cores"] else ""
    page.text(f"{busy}Cases are timed in turn; a figure is ours over theirs, of medians over rounds.")
    for suite in commands:
        lines = pivot(results, suite, lambda row: _figure(row) + _verdict(row))
        page.section(suite).text(SUITES[suite].summary)
        if suite == "scaling":
            for name, figure in charts.figures(results).items():
                page.figure(figure, charts.CAPTIONS[name])
        elif lines:
            page.table(headers(results), lines)
    for note in results["notes"]:
        page.footnote(note)
    return page


def markdown_of(results: dict, suite: str) -> str:
    """A suite's part of docs/results.md: ratios only, no absolute times."""
    where = results["machine"]
    lines = [f"### {suite}", "", SUITES[suite].summary, "", f"    {results['command'][suite]}", ""]
    lines += [f"{where['cpu']}, {where['vector_unit']}, torch {where['torch']}, torch_dtypes {where['torch_dtypes']}."]
    if where["load"] > _BUSY * where["cores"] and suite != "memory":
        lines[-1] += f" **The machine was busy with other work** (load {where['load']:.1f} on {where['cores']} cores): figures are rough."
    if suite == "scaling":  # hundreds of figures: bench.json has them
        lines += [line for name, caption in charts.CAPTIONS.items() for line in ("", f"![{caption}]({IMAGES}/{name})")]
    else:
        lines += ["", _markdown_line(headers(results)), "|" + "---|" * len(headers(results))]
        lines += [_markdown_line(line) for line in pivot(results, suite, lambda row: _figure(row) + _verdict(row))]
    if suite == "peers":
        lines += ["", *(f"- {note}" for note in results["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def update_markdown(path: Path, results: dict) -> None:
    """Replaces the marked part of each suite that was run, or adds it at the end; the rest of the file stays as it is."""
    replace_sections(path, "bench", {suite: markdown_of(results, suite) for suite in results["command"]})
