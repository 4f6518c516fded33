"""Reports as single HTML files: tables, figures and what made them, without scripts and without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .drawing import dark_variables, inline_svg, is_mapped
from .folders import write_text
from .provenance import origin

_NUMBER = re.compile(r"[-+−<>~]?\s*[\d.]")
_LONG = 20  # characters; longer cells of several words may break


class Page:
    """A report, filled from above to below::

        page = Page("LeNet-5 on digits", command=command_line(), seeds=[0, 1, 2])
        page.text("Accuracy on the test images.")
        page.section("Gap to float32")
        page.figure(figure, "Gap in points, with its 95 % interval.")
        page.table(["dtype", "gap"], [["q43", "-0.12"]], colours={"q43": "#D55E00"})
        page.footnote("One epoch is 45 steps.")
        page.write("out/report.html")

    The file opens without a network (its own policy forbids the browser to load anything), follows the reader's choice of light or dark, fits a
    narrow window, and prints. At its end stand the command, seeds, versions, machine and date.

    Args:
        title: of the page and its window.
        command: the line that made it (``provenance.command_line()`` inside a command); None: no command did.
        seeds: of random numbers; empty: none were drawn.
    """

    def __init__(self, title: str, *, command: str | None = None, seeds: Iterable[int] = ()):
        self.title = title
        self._origin = origin(command, seeds)
        self._parts: list[dict[str, Any]] = []
        self._footnotes: list[str] = []

    def section(self, heading: str, level: int = 2) -> Page:
        """A heading; ``level`` 3 is one below a section's."""
        return self._add(kind="heading", text=heading, level=level)

    def text(self, *paragraphs: str) -> Page:
        """Paragraphs of plain text."""
        for paragraph in paragraphs:
            self._add(kind="text", text=paragraph)
        return self

    def code(self, text: str) -> Page:
        """Lines as they are, in type of even width."""
        return self._add(kind="code", text=text)

    def strip(self, entries: Mapping[str, str], heading: str) -> Page:
        """What has no figures, with the reason for each: formats that failed. Nothing where there are none."""
        return self._add(kind="strip", entries=dict(entries), heading=heading) if entries else self

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", *, colours: Mapping[str, str] | None = None, dense=False
    ) -> Page:
        """A table, its columns of numbers to the right; a wide one scrolls by itself.

        Args:
            columns: their headings. rows: a cell for each column: text, a number (six significant digits) or None (empty).
            caption: a sentence above it.
            colours: a colour for texts of the first column: a mark before them, as in the figures (``colours.colours(names)``).
            dense: smaller type, for long tables of values.

        Raises:
            ValueError: a row of another length.
        """
        texts = [[_cell(cell) for cell in row] for row in rows]
        for row in texts:
            if len(row) != len(columns):
                raise ValueError(f"expected {len(columns)} cells in a row, {', '.join(columns)}, but got {len(row)}: {row}")
        kinds = [_kind([row[i] for row in texts], is_first=i == 0) for i in range(len(columns))]
        return self._add(kind="table", columns=list(columns), rows=texts, kinds=kinds, caption=caption, colours=dict(colours or {}), dense=dense)

    def figure(self, figure, caption: str = "") -> Page:
        """A matplotlib figure as it is now, as SVG, with a caption that also says it to those who cannot see it."""
        place = sum(part["kind"] == "figure" for part in self._parts)
        return self._add(kind="figure", svg=inline_svg(figure, place), caption=caption, light=is_mapped(figure))

    def footnote(self, text: str) -> Page:
        """A sentence at the end of the page; the same one is there once."""
        if text not in self._footnotes:
            self._footnotes.append(text)
        return self

    def _add(self, **part: Any) -> Page:
        self._parts.append(part)
        return self

    def html(self) -> str:
        """The file's text."""
        return self._render("page.html")

    def fragment(self) -> str:
        """What a notebook shows (``_repr_html_``): the page without its title and origin, its style kept to itself."""
        return self._render("fragment.html")

    _repr_html_ = fragment

    def write(self, path: str | os.PathLike) -> Path:
        """Writes the file in one step, so that a reader never finds half of it; its folder is made where it is missing.

        Raises:
            OSError: it cannot be written.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.html())
        return path

    def _render(self, template: str) -> str:
        import jinja2

        loader, layout = jinja2.PackageLoader("torch_dtypes.workbench"), {"trim_blocks": True, "lstrip_blocks": True}
        environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, **layout)
        return environment.get_template(template).render(
            title=self.title, origin=self._origin, parts=self._parts, footnotes=self._footnotes, dark=dark_variables()
        )


def _cell(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def _kind(cells: list[str], is_first: bool) -> str:
    """``number`` for a column that is to the right, ``long`` for one of sentences, else ``word``."""
    if not is_first and any(len(cell) > _LONG and " " in cell for cell in cells):
        return "long"
    filled = [cell for cell in cells if cell not in ("", "-")]
    return "number" if filled and 2 * sum(bool(_NUMBER.match(cell)) for cell in filled) > len(filled) else "word"
