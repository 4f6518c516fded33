"""``show``: formats side by side, as a table, as figures and as a page."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from .. import _C
from .cards import Card, card
from .colours import colours
from .drawing import WIDTHS, save
from .figures import number_line_figure, precision_figure
from .folders import write_json
from .pages import Page

_ROWS = ("format", "kind", "bits", "largest", "smallest", "smallest normal", "epsilon", "significant bits", "decades", "numbers", "specials")

_HEADINGS = {
    "precision": ("Precision against magnitude", "Significant bits of numbers by their magnitude, a step for each binade."),
    "number_line": ("The number line", "The positive numbers of formats of at most 8 bits, a tick for each."),
}


def _number(x: float | None) -> str:
    """The digits that read back as it; a power of two far from 1 as one."""
    if x is None:
        return ""
    mantissa, exponent = math.frexp(x)
    if mantissa == 0.5 and not 1e-3 <= x < 1e4:
        return f"2^{exponent - 1}"
    return _digits(x)


def _digits(x: float) -> str:
    """As few digits as read back as the number: at most 17."""
    short = f"{x:.6g}"
    return short if float(short) == x or math.isnan(x) else repr(x).removesuffix(".0")


def _specials(c: Card) -> str:
    nan = "NaR" if c.format.is_tapered else "NaN" if c.nans == 1 else f"{c.nans:,} NaNs"
    found = ["-0"] * (c.zeros == 2) + ["infinities"] * (c.infinities > 0) + [nan] * (c.nans > 0)
    return ", ".join(found) or "none"


def _row(c: Card) -> tuple[str, ...]:
    name = c.name if c.name == c.canonical else f"{c.name} ({c.canonical})"
    return (
        name, c.kind, str(c.bits), _number(c.largest), _number(c.smallest), _number(c.smallest_normal), _number(c.epsilon),
        str(c.significant_bits), "" if c.decades is None else f"{c.decades:.1f}", f"{c.finite:,}", _specials(c),
    )  # fmt: skip


class Comparison:
    """What :func:`show` returns: the cards, and ways to look at them. A notebook shows it as a table with its figures."""

    def __init__(self, cards: Sequence[Card], values: bool = False, width: str = "page"):
        self.cards = tuple(cards)
        self.with_values = values
        self.width = width

    def table(self) -> list[dict[str, str]]:
        """A row for each format, by column: the words and numbers of the printed table."""
        return [dict(zip(_ROWS, _row(c), strict=True)) for c in self.cards]

    def print(self, console=None) -> None:
        """Prints the table, each format's definition and, where asked for, its values (formats of at most 8 bits)."""
        from rich.console import Console
        from rich.table import Table

        console = console or Console()
        rows = [_row(c) for c in self.cards]
        label = max(map(len, _ROWS))
        for some in _fitting(rows, console.width - label):  # a format a column, as many as there is room for: no number is ever cut off
            table = Table(box=None, header_style="bold", pad_edge=False)
            table.add_column(_ROWS[0], no_wrap=True)
            for row in some:
                table.add_column(row[0], justify="right", no_wrap=True)
            for name, *cells in zip(_ROWS[1:], *(row[1:] for row in some), strict=True):
                table.add_row(name, *cells)
            console.print(table)
        for c in self.cards:
            parameters = ", ".join(f"{name}={value}" for name, value in c.parameters)
            console.print(f"\n[bold]{c.name}[/bold]: {c.kind}, {parameters}", highlight=False)
            if self.with_values and c.bits <= 8:
                console.print(_value_table(c, console.width))
            elif self.with_values:
                console.print(f"{2**c.bits:,} codes are too many to print: of at most 8 bits they are.", highlight=False)

    def figures(self, width: str = "page") -> dict[str, object]:
        """matplotlib figures by name: ``precision``, and ``number_line`` where a format has at most 8 bits."""
        made = {"precision": precision_figure(self.cards, width)}
        if any(c.bits <= 8 for c in self.cards):
            made["number_line"] = number_line_figure(self.cards, width)
        return made

    def as_json(self) -> dict:
        """Plain data: every figure of every card, and the values of formats of at most 8 bits, as ``code -> value``."""

        def plain(c: Card) -> dict:
            data = {
                "name": c.name, "canonical": c.canonical, "kind": c.kind, "bits": c.bits, "largest": c.largest, "smallest": c.smallest,
                "smallest_normal": c.smallest_normal, "epsilon": c.epsilon, "significant_bits": c.significant_bits, "decades": c.decades,
                "finite": c.finite, "zeros": c.zeros, "infinities": c.infinities, "nans": c.nans, "parameters": dict(c.parameters),
            }  # fmt: skip
            if c.bits <= 8:
                data["values"] = [v if math.isfinite(v) else str(v) for v in c.values().tolist()]
            return data

        return {"formats": [plain(c) for c in self.cards]}

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Writes ``formats.html`` (one file, without network), ``formats.json`` and the figures as PNG, SVG and PDF.

        Args:
            folder: made where it does not exist. command: the line that the page names as its origin.

        Returns:
            The paths.

        Raises:
            OSError: when it cannot be written.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = [path for name, figure in self.figures(self.width).items() for path in save(figure, folder, name)]
        write_json(folder / "formats.json", self.as_json())
        return [*written, self.page(command).write(folder / "formats.html"), folder / "formats.json"]

    def page(self, command: str | None = None) -> Page:
        """A report: table, figures, definitions and values, and what made it."""
        page = Page(f"Number formats: {', '.join(c.name for c in self.cards)}", command=command)
        rows = [_row(c) for c in self.cards]
        names = dict(zip((row[0] for row in rows), (c.name for c in self.cards), strict=True))
        own = colours(names.values())
        page.table(_ROWS, rows, colours={shown: own[name] for shown, name in names.items()})
        page.footnote(
            "Largest and smallest are the largest finite and the smallest positive number; epsilon is the distance from 1 to the next number; "
            "decades are log10(largest / smallest); numbers counts the different finite values."
        )
        for name, figure in self.figures().items():
            page.section(_HEADINGS[name][0]).figure(figure, _HEADINGS[name][1])
        page.section("Definitions" + " and values" * any(c.bits <= 8 for c in self.cards))
        for c in self.cards:
            page.section(c.name, level=3)
            page.text(f"{c.kind}: " + ", ".join(f"{name}={value}" for name, value in c.parameters))
            if c.bits <= 8:
                grid = _grid(c, 8)
                page.table(["code", *(f"+{i:X}" for i in range(len(grid[0][1])))], [[first, *values] for first, values in grid], dense=True)
        return page

    def html(self, command: str | None = None) -> str:
        """The page as a file has it: one that opens without a network."""
        return self.page(command).html()

    def _repr_html_(self) -> str:
        return self.page().fragment()

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(c.name for c in self.cards)}>"


def _fitting(rows: list[tuple[str, ...]], room: int) -> list[list[tuple[str, ...]]]:
    """The rows in groups that are at most so many characters wide as columns, two between them; at least one in each."""
    groups: list[list[tuple[str, ...]]] = []
    left = 0
    for row in rows:
        width = max(map(len, row)) + 2
        if not groups or left < width:
            groups.append([])
            left = room
        groups[-1].append(row)
        left -= width
    return groups


def _value(c: Card, x: float) -> str:
    return "NaR" if c.format.is_tapered and math.isnan(x) else _digits(x)


def _grid(c: Card, columns: int = 16) -> list[tuple[str, list[str]]]:
    """Values by code, so many in a row (fewer where there are no more): the code of a row's first, and their texts."""
    values = [_value(c, x) for x in c.values().tolist()]
    digits = -(-c.bits // 4)
    return [(f"0x{first:0{digits}X}", values[first : first + columns]) for first in range(0, len(values), columns)]


def _value_table(c: Card, room: int):
    from rich.table import Table

    widest = max(len(_value(c, x)) for x in c.values().tolist())
    grid = _grid(c, next(columns for columns in (16, 8, 4, 2, 1) if columns == 1 or 6 + columns * (widest + 2) <= room))
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("code", no_wrap=True)
    for column in range(len(grid[0][1])):
        table.add_column(f"+{column:X}", justify="right", no_wrap=True)
    for first, values in grid:
        table.add_row(first, *values)
    return table


def show(*formats: torch.dtype | str | _C.Format, out: str | os.PathLike | None = None, values: bool = False, width: str = "page") -> Comparison:
    """Says what formats are: bits, range, precision, special values, in a table, in figures and on a page::

        torch_dtypes.show("posit16es2", torch.bfloat16, "e5m5").print()
        torch_dtypes.show("q43", "posit8es1", out="formats")

    Args:
        formats: dtypes of this package, stock floating ones, formats, or names of any of them (``"bf16"``, ``"float8_e4m3fn"``,
            ``"posit12es1"``, ``"posit<12,1>"``); at least one. None of them takes one of the process's 64 dtypes.
        out: a folder for ``formats.html``, ``formats.json`` and the figures; made where it does not exist.
        values: whether ``print`` lists the value of each code (of formats of at most 8 bits; the page and the JSON always do).
        width: of the figures' files, ``"page"`` or ``"column"`` (one column of a paper).

    Returns:
        A :class:`Comparison`, which a notebook shows.

    Raises:
        ValueError: no format, an unknown name (the nearest are listed), or one of blocks or integers.
        TypeError: what is no format.
        OSError: ``out`` cannot be written.

    Example::

        >>> shown = torch_dtypes.show("posit8es1", "q43")
        >>> shown.table()[1]["largest"], shown.table()[1]["specials"]
        ('240', '-0, infinities, 14 NaNs')
    """
    if not formats:
        raise ValueError("expected at least one format to show, but got none: say torch_dtypes.show('posit16es2', 'bf16')")
    if width not in WIDTHS:
        raise ValueError(f"expected a width of {', '.join(WIDTHS)}, but got {width!r}")
    made = Comparison([card(f) for f in formats], values, width)
    if out is not None:
        made.write(out)
    return made
