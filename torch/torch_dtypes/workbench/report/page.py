"""Reports: the sentences, tables and figures of a result, on a terminal, as an offline page, and as
files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .drawing import dark_variables, inline_svg, is_mapped, save
from .folders import write_csv, write_json, write_text
from .provenance import origin
from .tables import escape_markdown, kinds_of, markdown_table, print_rows, text_of_cell

if TYPE_CHECKING:
    from rich.console import Console

_TEX = {
    "&": r"\&",                 "%": r"\%",                 "#": r"\#",
    "_": r"\_",                 "$": r"\$",                 "{": r"\{",
    "}": r"\}",                 "~": r"\textasciitilde{}",  "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",  "±": r"$\pm$",              "<": r"$<$",
    ">": r"$>$",
}  # fmt: skip


class Report:
    """A report, filled from top to bottom::

        report = Report("LeNet-5 on digits", command=command_line(), seeds=[0, 1, 2])
        report.text("Accuracy on the test images.")
        report.section("Gap to float32")
        report.figure(figure, "Gap in points, with its 95 % interval.")
        report.table(["dtype", "gap"], [["q43", "-0.12"]], colours={"q43": "#D55E00"})
        report.footnote("One epoch is 45 steps.")
        report.write("out/report.html")

    Its page opens without a network: its policy forbids the browser to load anything. It follows
    the reader's choice of light or dark, fits a narrow window, and prints. It ends with the
    command, seeds, versions, machine and date. A notebook shows it without these.

    Args:
        title: the title of the page and its window.
        command: the line that made it (``provenance.command_line()`` inside a command); None: no
            command made it.
        seeds: the seeds of random numbers; empty: none were drawn.
        data: a function that returns plain data, which ``save`` writes as JSON.
    """

    def __init__(
        self,
        title: str,
        *,
        command: str | None = None,
        seeds: Iterable[int] = (),
        data: Callable[[], object] | None = None,
    ):
        self.title = title
        self._origin, self._data = origin(command, seeds), data
        self._parts: list[dict[str, Any]] = []
        self._footnotes: list[str] = []

    def section(self, heading: str, level: int = 2, anchor: str | None = None) -> Report:
        """Add a heading; ``level`` 3 is one below a section's. ``anchor``: its name for links."""
        return self._add(kind="heading", text=heading, level=level, anchor=anchor)

    def findings(self, sentences: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> Report:
        """Add a list of sentences, each with its links: pairs of words and an anchor."""
        entries = [(text, list(links)) for text, links in sentences]
        return self._add(kind="findings", entries=entries) if entries else self

    def text(self, *paragraphs: str) -> Report:
        """Add paragraphs of plain text."""
        for paragraph in paragraphs:
            self._add(kind="text", text=paragraph)
        return self

    def strip(self, entries: Mapping[str, str], heading: str) -> Report:
        """Add a strip of entries without figures, each with its reason, such as formats that
        failed. Without entries, add nothing."""
        return self._add(kind="strip", entries=dict(entries), heading=heading) if entries else self

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        caption: str = "",
        *,
        name: str | None = None,
        note: str = "",
        colours: Mapping[str, str] | None = None,
        dense: bool = False,
        fold: bool = False,
        anchors: Sequence[str] = (),
        plain: bool = False,
    ) -> Report:
        """Add a table with right-aligned columns of numbers. A wide table scrolls by itself.

        Args:
            columns: the headings. rows: a cell for each column: text, a number (six significant
                digits) or None (empty).
            caption: a sentence above the table. note: a sentence below it, in Markdown and LaTeX.
            name: the name of its CSV file; None: no file.
            colours: colours by texts of the first column, drawn as a mark before them, as in the
                figures (``colours.colours(names)``).
            dense: whether type is smaller, for long tables of values. fold: whether words break on
                a narrow terminal.
            anchors: the names of the rows for links; empty: none. plain: whether all columns are
                left-aligned, for a table whose rows are of different kinds.

        Raises:
            ValueError: a row of the wrong length.
        """
        texts = [[text_of_cell(cell) for cell in row] for row in rows]
        for row in texts:
            if len(row) != len(columns):
                raise ValueError(
                    f"expected {len(columns)} cells in a row, {', '.join(columns)}, but got "
                    f"{len(row)}: {row}"
                )
        looks = {
            "kinds": ["word"] * len(columns) if plain else kinds_of(columns, texts),
            "colours": dict(colours or {}),
            "dense": dense,
            "fold": fold,
            "anchors": list(anchors),
        }
        return self._add(
            kind="table",
            columns=list(columns),
            rows=texts,
            caption=caption,
            name=name,
            note=note,
            **looks,
        )

    def figure(self, figure: object, caption: str | None = "", name: str | None = None) -> Report:
        """Add a matplotlib figure, or a function that draws one by its width, as SVG.

        Args:
            caption: the caption, also read to users who cannot see the figure; None: leave the
                figure out of the page.
            name: the name of its files; None: no files.
        """
        draw = figure if callable(figure) else lambda width: figure
        return self._add(kind="figure", draw=draw, caption=caption, name=name)

    def footnote(self, text: str) -> Report:
        """Add a sentence at the end of the page, unless it is there already."""
        if text not in self._footnotes:
            self._footnotes.append(text)
        return self

    def _add(self, **part: Any) -> Report:
        self._parts.append(part)
        return self

    # Outputs

    def print(self, console: Console | None = None) -> None:
        """Print the report without its figures."""
        from rich.console import Console

        console = console or Console()
        # A file has no width to fit.
        plain = {"highlight": False, "markup": False, "soft_wrap": not console.is_terminal}
        for part in self._parts:
            if part["kind"] == "heading":
                console.print(f"\n{part['text']}", style="bold", **plain)
            elif part["kind"] == "text":
                console.print(part["text"], **plain)
            elif part["kind"] == "strip":
                for name, reason in part["entries"].items():
                    console.print(f"{name}: {reason}", **plain)
            elif part["kind"] == "findings":
                for text, _ in part["entries"]:
                    console.print(f"- {text}", **plain)
            elif part["kind"] == "table":
                print_rows(console, part["columns"], part["rows"], fold=part["fold"])
                if part["caption"]:
                    console.print(part["caption"], **plain)
        for note in self._footnotes:
            console.print(note, **plain)

    def html(self) -> str:
        """Return the text of the page."""
        return self._render("page.html")

    def fragment(self) -> str:
        """Return the HTML for a notebook (``_repr_html_``): the page without title and origin. Its
        style applies to itself only."""
        return self._render("fragment.html")

    _repr_html_ = fragment

    def markdown(self) -> str:
        """Return the headings, sentences, tables and strips in Markdown."""
        blocks = []
        for part in self._parts:
            if part["kind"] == "heading":
                blocks.append(f"{'#' * (part['level'] + 1)} {escape_markdown(part['text'])}")
            elif part["kind"] == "text":
                blocks.append(escape_markdown(part["text"]))
            elif part["kind"] == "findings":
                lines = []
                for text, links in part["entries"]:
                    rests = f" ({', '.join(words for words, _ in links)})" if links else ""
                    lines.append(f"- {escape_markdown(text)}{rests}")
                blocks.append("\n".join(lines))
            elif part["kind"] == "strip":
                entries = [f"{name}: {reason}" for name, reason in part["entries"].items()]
                head = [f"{escape_markdown(part['heading'])}:\n"] if part["heading"] else []
                blocks.append("\n".join([*head, *(f"- {escape_markdown(e)}" for e in entries)]))
            elif part["kind"] == "table":
                cells = [[escape_markdown(cell) for cell in row] for row in part["rows"]]
                blocks += [
                    escape_markdown(part["caption"]),
                    markdown_table(part["columns"], cells),
                    escape_markdown(part["note"]),
                ]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def latex(self) -> str:
        """Return a LaTeX ``table`` for each table, with the rules of the package booktabs."""
        parts, heading = [], self.title
        for part in self._parts:
            if part["kind"] == "heading":
                heading = part["text"]
            elif part["kind"] == "table":
                head, *rows = (
                    " & ".join(map(_tex, row)) + r" \\" for row in (part["columns"], *part["rows"])
                )
                caption = _tex(f"{heading}. {part['caption']}")
                lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
                lines += [
                    rf"\begin{{tabular}}{{l{'r' * (len(part['columns']) - 1)}}}",
                    r"\toprule",
                    head,
                    r"\midrule",
                    *rows,
                ]
                lines += [
                    r"\bottomrule",
                    r"\end{tabular}",
                    *([rf"\par\footnotesize {_tex(part['note'])}"] if part["note"] else []),
                ]
                parts.append("\n".join([*lines, r"\end{table}"]) + "\n")
        return "\n".join(parts)

    def figures(self, width: str = "page") -> dict[str, Any]:
        """Draw the matplotlib figures by name; ``width``: ``"page"``, or ``"column"`` of a
        paper."""
        return {
            part["name"]: part["draw"](width)
            for part in self._parts
            if part["kind"] == "figure" and part["name"]
        }

    def write(self, path: str | os.PathLike) -> Path:
        """Write the page in one step, so that no reader finds half of it. Missing folders are made.

        Raises:
            OSError: the page cannot be written.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.html())
        return path

    def save(
        self,
        folder: str | os.PathLike,
        stem: str = "report",
        width: str = "page",
        data: str | None = None,
    ) -> list[Path]:
        """Write all files into a folder, which is made if missing. Named figures become PNG, SVG
        and PDF, named tables CSV. The page is ``STEM.html``; data, if any, go to ``STEM.json``, or
        ``DATA.json``.

        Returns:
            The paths, with page and data last.

        Raises:
            OSError: a file cannot be written.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = [
            path
            for name, figure in self.figures(width).items()
            for path in save(figure, folder, name)
        ]
        tables = (part for part in self._parts if part["kind"] == "table" and part["name"])
        written += [
            write_csv(folder / f"{part['name']}.csv", part["columns"], part["rows"])
            for part in tables
        ]
        written.append(self.write(folder / f"{stem}.html"))
        if self._data is not None:
            written.append(folder / f"{data or stem}.json")
            write_json(written[-1], self._data())
        return written

    def _render(self, template: str) -> str:
        import jinja2

        drawn = []
        for part in self._parts:
            if part["kind"] == "figure" and part["caption"] is not None:
                figure = part["draw"]("page")
                part = {**part, "svg": inline_svg(figure, len(drawn)), "light": is_mapped(figure)}
            drawn.append(part)
        loader, layout = (
            jinja2.PackageLoader("torch_dtypes.workbench.report"),
            {"trim_blocks": True, "lstrip_blocks": True},
        )
        environment = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, **layout
        )
        return environment.get_template(template).render(
            title=self.title,
            origin=self._origin,
            parts=drawn,
            footnotes=self._footnotes,
            dark=dark_variables(),
        )


class Reported:
    """The base of results with a ``report``, and the outputs that all of them share. A notebook
    shows the report."""

    _stem = "report"

    def report(self, command: str | None = None) -> Report:
        """Build the :class:`Report`; ``command``: the line that made the result."""
        raise NotImplementedError

    def print(self, console: Console | None = None) -> None:
        """Print the tables and sentences."""
        self.report().print(console)

    def figures(self, width: str = "page") -> dict[str, Any]:
        """Draw the matplotlib figures by name; ``width``: ``"page"``, or ``"column"`` of a
        paper."""
        return self.report().figures(width)

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Write the page, which opens without a network, the data as JSON, the tables as CSV, and
        the figures as PNG, SVG and PDF.

        Returns:
            The paths.

        Raises:
            OSError: a file cannot be written.
        """
        return self.report(command).save(folder, self._stem)

    def _repr_html_(self) -> str:
        return self.report().fragment()


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in text)
