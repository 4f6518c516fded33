"""Tables of text: on a terminal, in Markdown, and the kinds of their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_NUMBER = re.compile(r"[-+−<>~]?\s*[\d.]")
_LONG = 20  # characters; longer cells of several words may break


def print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    fold: bool = False,
) -> None:
    """Print a table with whole cells, even wider than the terminal. With ``fold``, only numbers and
    the words of headings stay whole."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for i, name in enumerate(columns):
        cells = [row[i] for row in rows]
        of_numbers = i > 0 and any(map(_NUMBER.match, cells))
        widest = max(
            map(
                len,
                (*(name.split() if fold else [name]), *(cells if of_numbers or not fold else ())),
            )
        )
        table.add_column(
            name,
            justify="right" if of_numbers else "left",
            overflow="fold",
            no_wrap=not fold,
            min_width=widest,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    least = Measurement.get(console, console.options.update(width=10_000), table).minimum
    if least > console.width:
        table.width = least
    console.print(table, crop=False)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown. Its cells are Markdown already."""
    lines = (columns, ["---"] * len(columns), *rows)
    return "\n".join(
        f"| {' | '.join(cells)} |" if cells[0] != "---" else f"|{'|'.join(cells)}|"
        for cells in lines
    )


def escape_markdown(text: str) -> str:
    """Escape plain text for Markdown."""
    return re.sub(r"([|*<])", r"\\\1", text)


def text_of_cell(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def kinds_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the kind of each column: ``number`` (right-aligned), ``long`` (sentences) or
    ``word``."""
    return [_kind([row[i] for row in rows], is_first=i == 0) for i in range(len(columns))]


def _kind(cells: list[str], is_first: bool) -> str:
    if not is_first and any(len(cell) > _LONG and " " in cell for cell in cells):
        return "long"
    filled = [cell for cell in cells if cell not in ("", "-")]
    return (
        "number"
        if filled and 2 * sum(bool(_NUMBER.match(cell)) for cell in filled) > len(filled)
        else "word"
    )
