"""``show``: compare formats in a table, in figures and on a page."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ... import _C
from ..report.colours import colours
from ..report.drawing import WIDTHS
from ..report.page import Report, Reported
from ..report.tables import print_rows
from .card import Card, card
from .figures import number_line_figure, precision_figure

_ROWS = (
    "format",
    "kind",
    "bits",
    "largest",
    "smallest",
    "smallest normal",
    "epsilon",
    "significant bits",
    "decades",
    "numbers",
    "specials",
)


def _number(x: float | None) -> str:
    """Write a number with digits that read back as it, or as a power of two if it is one far from
    1."""
    if x is None:
        return ""
    mantissa, exponent = math.frexp(x)
    if mantissa == 0.5 and not 1e-3 <= x < 1e4:
        return f"2^{exponent - 1}"
    return _digits(x)


def _digits(x: float) -> str:
    """Write a number with the fewest digits that read back as it, at most 17."""
    short = f"{x:.6g}"
    return short if float(short) == x or math.isnan(x) else repr(x).removesuffix(".0")


def _specials(c: Card) -> str:
    nan = "NaN" if c.nans == 1 else f"{c.nans:,} NaNs"
    if c.format.is_tapered:
        nan = "NaR"
    names = ["-0"] * (c.zeros == 2) + ["infinities"] * (c.infinities > 0) + [nan] * (c.nans > 0)
    return ", ".join(names) or "none"


def _row(c: Card) -> tuple[str, ...]:
    name = c.name if c.name == c.canonical else f"{c.name} ({c.canonical})"
    return (
        name,
        c.kind,
        str(c.bits),
        _number(c.largest),
        _number(c.smallest),
        _number(c.smallest_normal),
        _number(c.epsilon),
        str(c.significant_bits),
        "" if c.decades is None else f"{c.decades:.1f}",
        f"{c.finite:,}",
        _specials(c),
    )


class Comparison(Reported):
    """The result of :func:`show`: the cards, and their outputs. A notebook shows it as a table with
    its figures."""

    def __init__(self, cards: Sequence[Card], values: bool = False, width: str = "page"):
        self.cards = tuple(cards)
        self.with_values = values
        self.width = width

    def table(self) -> list[dict[str, str]]:
        """Return a row for each format, by column: the words and numbers of the printed table."""
        return [dict(zip(_ROWS, _row(c), strict=True)) for c in self.cards]

    def print(self, console=None) -> None:
        """Print the table and each format's definition; with ``values``, also its values (formats
        of at most 8 bits)."""
        from rich.console import Console

        console = console or Console()
        rows = [_row(c) for c in self.cards]
        # A column for each format, as many as the console has room for.
        for some in _group_rows(rows, console.width - max(map(len, _ROWS))):
            print_rows(
                console,
                [_ROWS[0], *(row[0] for row in some)],
                list(zip(_ROWS, *some, strict=True))[1:],
            )
        for c in self.cards:
            console.print(f"\n[bold]{c.name}[/bold]: {_definition(c)}", highlight=False)
            if self.with_values and c.bits <= 8:
                widest = max(len(_value(c, x)) for x in c.values().tolist())
                print_rows(
                    console,
                    *_grid(
                        c,
                        next(
                            n
                            for n in (16, 8, 4, 2, 1)
                            if n == 1 or 6 + n * (widest + 2) <= console.width
                        ),
                    ),
                )
            elif self.with_values:
                console.print(
                    f"{2**c.bits:,} codes are too many to print; the limit is 8 bits.",
                    highlight=False,
                )

    def as_json(self) -> dict:
        """Return plain data: all figures of each card, and the values of formats of at most 8 bits,
        in the order of codes."""

        def plain(c: Card) -> dict:
            data = {
                "name": c.name,
                "canonical": c.canonical,
                "kind": c.kind,
                "bits": c.bits,
                "largest": c.largest,
                "smallest": c.smallest,
                "smallest_normal": c.smallest_normal,
                "epsilon": c.epsilon,
                "significant_bits": c.significant_bits,
                "decades": c.decades,
                "finite": c.finite,
                "zeros": c.zeros,
                "infinities": c.infinities,
                "nans": c.nans,
                "parameters": dict(c.parameters),
            }
            if c.bits <= 8:
                data["values"] = [v if math.isfinite(v) else str(v) for v in c.values().tolist()]
            return data

        return {"formats": [plain(c) for c in self.cards]}

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Write ``formats.html`` (one file, which needs no network), ``formats.json`` and the
        figures as PNG, SVG and PDF, and return the paths.

        Args:
            folder: the folder, made if missing. command: the line that the page names as its
                origin.

        Raises:
            OSError: a file cannot be written.
        """
        return self.report(command).save(folder, "formats", self.width)

    def report(self, command: str | None = None) -> Report:
        """Build the :class:`Report`: table, figures (``precision``, and ``number_line`` for formats
        of at most 8 bits), definitions and values."""
        report = Report(
            f"Number formats: {', '.join(c.name for c in self.cards)}",
            command=command,
            data=self.as_json,
        )
        rows = [_row(c) for c in self.cards]
        names = dict(zip((row[0] for row in rows), (c.name for c in self.cards), strict=True))
        own = colours(names.values())
        report.table(_ROWS, rows, colours={shown: own[name] for shown, name in names.items()})
        report.footnote(
            "Largest and smallest are the largest finite and the smallest positive number; "
            "epsilon is the distance from 1 to the next number; decades are log10(largest / "
            "smallest); numbers counts the different finite values."
        )
        report.section("Precision against magnitude")
        caption = "Significant bits of numbers by their magnitude, a step for each binade."
        report.figure(lambda width: precision_figure(self.cards, width), caption, "precision")
        is_small = any(c.bits <= 8 for c in self.cards)
        if is_small:
            caption = "The positive numbers of formats of at most 8 bits, a tick for each."
            report.section("The number line").figure(
                lambda width: number_line_figure(self.cards, width), caption, "number_line"
            )
        report.section("Definitions" + " and values" * is_small)
        for c in self.cards:
            report.section(c.name, level=3).text(_definition(c))
            if c.bits <= 8:
                report.table(*_grid(c, 8), dense=True)
        return report

    def html(self, command: str | None = None) -> str:
        """Return the text of the page, which opens without a network."""
        return self.report(command).html()

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(c.name for c in self.cards)}>"


def _group_rows(rows: list[tuple[str, ...]], room: int) -> list[list[tuple[str, ...]]]:
    """Group the rows so that each group, as columns two apart, is at most ``room`` characters wide;
    a group has at least one."""
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


def _grid(c: Card, columns: int) -> tuple[list[str], list[list[str]]]:
    """Arrange values by code, ``columns`` in a row (fewer if there are fewer): headings, then rows
    of the first code and the texts."""
    values = [_value(c, x) for x in c.values().tolist()]
    digits = -(-c.bits // 4)
    rows = [
        [f"0x{first:0{digits}X}", *values[first : first + columns]]
        for first in range(0, len(values), columns)
    ]
    return ["code", *(f"+{i:X}" for i in range(len(rows[0]) - 1))], [
        row + [""] * (len(rows[0]) - len(row)) for row in rows
    ]


def _definition(c: Card) -> str:
    return f"{c.kind}: " + ", ".join(f"{name}={value}" for name, value in c.parameters)


def show(
    *formats: torch.dtype | str | _C.Format,
    out: str | os.PathLike | None = None,
    values: bool = False,
    width: str = "page",
) -> Comparison:
    """Describe formats by bits, range, precision and special values, in a table, in figures and on
    a page::

        torch_dtypes.show("posit16es2", torch.bfloat16, "e5m5").print()
        torch_dtypes.show("q43", "posit8es1", out="formats")

    Args:
        formats: dtypes of this package, stock floating dtypes, formats, or their names (``"bf16"``,
            ``"float8_e4m3fn"``, ``"posit12es1"``, ``"posit<12,1>"``); at least one. They take none
            of the process's 64 dtypes.
        out: a folder for ``formats.html``, ``formats.json`` and the figures, made if missing.
        values: whether ``print`` lists the value of each code (for formats of at most 8 bits; the
            page and the JSON always do).
        width: the width of the figures' files, ``"page"`` or ``"column"`` (one column of a paper).

    Returns:
        A :class:`Comparison`, which a notebook shows.

    Raises:
        ValueError: no format, an unknown name (the message lists the nearest), or a name of blocks
            or integers.
        TypeError: a value that is no format.
        OSError: ``out`` cannot be written.

    Example::

        >>> shown = torch_dtypes.show("posit8es1", "q43")
        >>> shown.table()[1]["largest"], shown.table()[1]["specials"]
        ('240', '-0, infinities, 14 NaNs')
    """
    if not formats:
        raise ValueError(
            "expected at least one format to show, but got none; use "
            "torch_dtypes.show('posit16es2', 'bf16')"
        )
    if width not in WIDTHS:
        raise ValueError(f"expected a width of {', '.join(WIDTHS)}, but got {width!r}")
    comparison = Comparison([card(f) for f in formats], values, width)
    if out is not None:
        comparison.write(out)
    return comparison
