"""``show``: compare formats in a table, in figures and on a page."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ... import _C
from ...targets.block_scales import scale_format
from ..report.colours import colours
from ..report.drawing import WIDTHS
from ..report.page import Report, Reported
from ..report.tables import print_rows
from .card import BlockCard, Card, card
from .figures import error_figure, number_line_figure, precision_figure

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
_BLOCK_ROWS = ("elements", "largest element", "smallest element", "scales", "block")


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


def _row(c: Card | BlockCard) -> tuple[str, ...]:
    name = c.name if c.name == c.canonical else f"{c.name} ({c.canonical})"
    element = find_element(c)
    return (
        name,
        c.kind,
        f"{c.bits:g}",
        _number(c.largest),
        _number(c.smallest),
        _number(c.smallest_normal),
        _number(element.epsilon),
        str(element.significant_bits),
        "" if c.decades is None else f"{c.decades:.1f}",
        f"{element.finite:,}",
        _specials(element),
    )


def _block_row(c: Card | BlockCard) -> tuple[str, ...]:
    if isinstance(c, Card):
        return ("",) * len(_BLOCK_ROWS)
    return (
        c.format.element,
        _number(c.element.largest),
        _number(c.element.smallest),
        c.scale + " and float32" * c.format.tensor_scale,
        c.block,
    )


def find_element(c: Card | BlockCard) -> Card:
    """Return the card of a block's elements, or the card itself."""
    return c.element if isinstance(c, BlockCard) else c


def _list_rows(cards: Sequence[Card | BlockCard]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headings of the table and a row for each card; with those of blocks if there are
    any."""
    rows = [_row(c) for c in cards]
    if not any(isinstance(c, BlockCard) for c in cards):
        return _ROWS, rows
    own = [(*row, *_block_row(c)) for row, c in zip(rows, cards, strict=True)]
    return (*_ROWS, *_BLOCK_ROWS), own


class Comparison(Reported):
    """The result of :func:`show`: the cards, and their outputs. A notebook shows it as a table with
    its figures."""

    def __init__(
        self, cards: Sequence[Card | BlockCard], values: bool = False, width: str = "page"
    ):
        self.cards = tuple(cards)
        self.with_values = values
        self.width = width

    def table(self) -> list[dict[str, str]]:
        """Return a row for each format, by column: the words and numbers of the printed table."""
        headings, rows = _list_rows(self.cards)
        return [dict(zip(headings, row, strict=True)) for row in rows]

    def print(self, console=None) -> None:
        """Print the table and each format's definition; with ``values``, also its values (formats
        of at most 8 bits)."""
        from rich.console import Console

        console = console or Console()
        headings, rows = _list_rows(self.cards)
        # A column for each format, as many as the console has room for.
        for some in _group_rows(rows, console.width - max(map(len, headings))):
            print_rows(
                console,
                [headings[0], *(row[0] for row in some)],
                list(zip(headings, *some, strict=True))[1:],
            )
        for shown in self.cards:
            console.print(
                f"\n[bold]{shown.name}[/bold]: {describe_definition(shown)}", highlight=False
            )
            c = find_element(shown)
            if self.with_values and c.bits <= 8:
                widest = max(len(_value(c, x)) for x in c.values().tolist())
                print_rows(
                    console,
                    *value_grid(
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

        def plain(c: Card | BlockCard) -> dict:
            names = ("name", "canonical", "kind", "bits", "largest", "smallest")
            common = {name: getattr(c, name) for name in names}
            if isinstance(c, BlockCard):
                return common | {
                    "scale": c.scale,
                    "block": c.block,
                    "scale_rule": c.format.scale_rule,
                    "tensor_scale": c.format.tensor_scale,
                    "element": plain(c.element),
                }
            data = common | {
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
        """Build the :class:`Report`: table, figures (``precision``; ``error`` if there are blocks;
        ``number_line`` for formats of at most 8 bits), definitions and values."""
        report = Report(
            f"Number formats: {', '.join(c.name for c in self.cards)}",
            command=command,
            data=self.as_json,
        )
        headings, rows = _list_rows(self.cards)
        elements = [find_element(c) for c in self.cards]
        has_blocks = len(headings) > len(_ROWS)
        names = dict(zip((row[0] for row in rows), (c.name for c in self.cards), strict=True))
        own = colours(names.values())
        report.table(headings, rows, colours={shown: own[name] for shown, name in names.items()})
        report.footnote(
            "Largest and smallest are the largest finite and the smallest positive number; "
            "epsilon is the distance from 1 to the next number; decades are log10(largest / "
            "smallest); numbers counts the different finite values."
            + " For blocks, bits count a number's share of its block's scale, and the range is "
            "that of elements times scales (a tensor's scale comes on top). Epsilon, significant "
            "bits, numbers and specials are those of the elements." * has_blocks
        )
        report.section("Precision against magnitude")
        caption = "Significant bits of numbers by their magnitude, a step for each binade."
        if has_blocks:
            caption += " Of blocks: the elements at a scale of 1."
        report.figure(lambda width: precision_figure(self.cards, width), caption, "precision")
        if has_blocks:
            caption = (
                "Root mean square of the relative error of a number in random blocks, by its "
                "magnitude relative to its block's largest. Formats without blocks have a scale "
                "that brings the same largest number to the end of their finest range."
            )
            report.section("Error against magnitude within a block").figure(
                lambda width: error_figure(self.cards, width), caption, "error"
            )
        is_small = any(c.bits <= 8 for c in elements)
        if is_small:
            caption = "The positive numbers of formats of at most 8 bits, a tick for each."
            report.section("The number line").figure(
                lambda width: number_line_figure(self.cards, width), caption, "number_line"
            )
        report.section("Definitions" + " and values" * is_small)
        for shown, c in zip(self.cards, elements, strict=True):
            report.section(shown.name, level=3).text(describe_definition(shown))
            if c.bits <= 8:
                report.table(*value_grid(c, 8), dense=True)
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


def value_grid(c: Card, columns: int) -> tuple[list[str], list[list[str]]]:
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


def describe_definition(c: Card | BlockCard) -> str:
    """Return the kind of a format and its parameters in a line."""
    if isinstance(c, BlockCard):
        f = c.format
        # Scales of HiF4 have one rule alone.
        rule = "" if scale_format(c.scale).micro else f", scale_rule={f.scale_rule}"
        return (
            f"block: element={f.element}, scale={c.scale}, size={c.block}{rule}, "
            f"tensor_scale={f.tensor_scale}; {describe_definition(c.element)}"
        )
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
        formats: dtypes of this package, stock floating dtypes, formats, block formats, or their
            names (``"bf16"``, ``"float8_e4m3fn"``, ``"posit12es1"``, ``"posit<12,1>"``,
            ``"nvfp4"``); at least one. They take none of the process's 64 dtypes.
        out: a folder for ``formats.html``, ``formats.json`` and the figures, made if missing.
        values: whether ``print`` lists the value of each code (for formats of at most 8 bits; the
            page and the JSON always do).
        width: the width of the figures' files, ``"page"`` or ``"column"`` (one column of a paper).

    Returns:
        A :class:`Comparison`, which a notebook shows.

    Raises:
        ValueError: no format, an unknown name (the message lists the nearest), or a name of
            integers.
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
