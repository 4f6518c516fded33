"""A datasheet: its parts and its verdict, on a page and as files."""

from __future__ import annotations

import contextlib
import os
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ... import _C
from ...targets.base import Target
from ...targets.lookup import target
from ...targets.quantisers import Quantiser
from ..report.colours import colours
from ..report.folders import write_text
from ..report.page import Report, Reported
from ..report.progress import console_of
from ..sweeps import arguments, grid
from ..sweeps.display import Display, Watcher
from ..sweeps.store import Store
from ..training.checks import named
from . import parts, study_parts
from .files import files
from .measuring import Measured, measure
from .plan import PARTS, Plan
from .sentences import Sentence
from .studies import STUDIES
from .verdict import verdict

if TYPE_CHECKING:
    from rich.console import Console

_Format = str | torch.dtype | _C.Format | Target | Quantiser
_SETTINGS = ("epochs", "batch_size", "optimizer", "lr", "train_samples", "test_samples", "threads")


class Datasheet(Reported):
    """A datasheet of formats. A notebook shows its page.

    Attributes:
        plan: its formats, references, network, data and seeds. parts: its parts by name, each with
            ``rows`` of plain data. verdict: its sentences, each with the rows it rests on.
        failures: why a format has no datasheet, or a part no rows, by name.
    """

    _stem = "datasheet"

    def __init__(
        self,
        plan: Plan,
        parts: Mapping[str, parts.Part],
        failures: Mapping[str, str] | None = None,
    ):
        self.plan, self.parts, self.failures = plan, dict(parts), dict(failures or {})
        rows = {name: part.rows for name, part in self.parts.items()}
        self.verdict: list[Sentence] = [
            sentence for name in plan.formats for sentence in verdict(name, rows)
        ]

    def as_json(self) -> dict:
        """Return plain data: the rows of each part by name, ``verdict``, a list of sentences with
        the rows they rest on, and ``failures``."""
        data: dict = {name: part.rows for name, part in self.parts.items()}
        data["verdict"] = [
            {
                "format": sentence.format,
                "text": sentence.text,
                "is_detail": sentence.is_detail,
                "rests_on": [{"part": part, "row": row} for part, row in sentence.rests],
            }
            for sentence in self.verdict
        ]
        of_parts = {name: part.failures for name, part in self.parts.items() if part.failures}
        return data | {"failures": self.failures | of_parts}

    def report(self, command: str | None = None) -> Report:
        """Build the :class:`Report`."""
        plan = self.plan
        report = Report(
            self.title,
            command=command,
            seeds=plan.seeds if set(plan.measured_parts) & set(self.parts) else (),
            data=self.as_json,
        )
        self._add_verdict(report)
        report.strip(self.failures, "Not on this page")
        colour = colours(plan.names)
        for name, part in self.parts.items():
            report.section(PARTS[name], anchor=name).text(*part.text)
            self._add_details(report, name)
            for figure, caption, stem in part.figures:
                report.figure(figure, caption, stem)
            if part.table:
                headings, rows, anchors = part.headings, part.table, []
                if len(rows) == len(part.rows):
                    headings = [*headings, "row"]
                    shown = range(len(rows)) if part.shown is None else part.shown
                    rows = [[*rows[i], str(i + 1)] for i in shown]
                    anchors = [f"{name}-{i}" for i in shown]
                marks = {row[0]: colour[row[0]] for row in rows if row[0] in colour}
                report.table(
                    headings, rows, name=name, colours=marks, anchors=anchors, plain=name == "card"
                )
            report.strip(part.failures, "No result")
            for heading, columns, rows in part.more:
                report.section(heading, level=3).table(columns, rows, dense=True)
        return report

    def _add_verdict(self, report: Report) -> None:
        report.section("Verdict", anchor="verdict")
        if not self.verdict:
            report.text("Nothing was trained, so nothing can be said of accuracy.")
        for name in self.plan.formats:
            own = [s for s in self.verdict if s.format == name and not s.is_detail]
            if own and len(self.plan.formats) > 1:
                report.section(name, level=3)
            report.findings((sentence.text, _links(sentence)) for sentence in own)
        report.footnote(
            "A format holds if it loses at most float32's deviation over seeds. It loses something "
            "if that is more than the spread, the larger of the two deviations. Words behind a "
            "sentence are the rows that it rests on."
        )

    def _add_details(self, report: Report, part: str) -> None:
        details = [s for s in self.verdict if s.is_detail and s.rests[0][0] == part]
        several = len(self.plan.formats) > 1
        report.findings(
            (f"{s.format}: {s.text}" if several else s.text, _links(s)) for s in details
        )

    def print(self, console: Console | None = None) -> None:
        """Print the verdict, and what failed."""
        short = Report(self.title)
        self._add_verdict(short)
        short.strip(self.failures, "")
        for part in self.parts.values():
            short.strip(part.failures, "")
        short.print(console)

    @property
    def title(self) -> str:
        return f"Datasheet: {', '.join(self.plan.formats)}"

    def markdown(self) -> str:
        """Return the page in Markdown, without figures and title, in lines of 80 characters."""
        return "\n".join(map(_wrap, self.report().markdown().split("\n")))

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Write ``datasheet.html`` (one file, which needs no network), ``datasheet.md``,
        ``datasheet.json``, the tables as CSV and the figures as PNG, SVG and PDF.

        Returns:
            The paths.

        Raises:
            OSError: a file cannot be written.
        """
        written = super().write(folder, command)
        path = Path(folder) / "datasheet.md"
        write_text(path, f"# {self.title}\n\n{self.markdown()}")
        return [*written[:-2], path, *written[-2:]]

    def __repr__(self) -> str:
        return f"<Datasheet of {', '.join(self.plan.formats)}: {', '.join(self.parts)}>"


def _wrap(line: str) -> str:
    """Wrap a line of Markdown, but for headings and tables."""
    if line.startswith(("|", "#")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(
        line, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _links(sentence: Sentence) -> list[tuple[str, str]]:
    """Return the words and anchor of each row; a part is named once."""
    links, before = [], None
    for part, row in sentence.rests:
        words = f"{row + 1}" if part == before else f"{part} {row + 1}"
        links.append((words, f"{part}-{row}"))
        before = part
    return links


def build(
    plan: Plan,
    measured: Measured,
    failures: Mapping[str, str] | None = None,
    folder: str | os.PathLike | None = None,
) -> Datasheet:
    """Build the datasheet of a plan from what was measured. The files to take away are written
    into ``folder``.

    Raises:
        OSError: a file cannot be written.
    """
    made: dict[str, parts.Part] = {}
    for name in plan.parts:
        if name in measured.failures:
            made[name] = parts.Part(failures={name: measured.failures[name]})
        elif name == "accuracy":
            made[name] = parts.accuracy(plan, measured.outcomes, measured.guesses)
        elif name == "cost":
            sums = made.get("accumulator")
            made[name] = parts.cost(plan, sums.rows if sums else ())
        elif name == "accumulator":
            made[name] = parts.accumulator(plan, measured.outcomes, measured.guesses)
        elif name == "files":
            into = None if folder is None else Path(folder) / "files"
            made[name] = files(plan, measured.studies, into)
        elif name in STUDIES:
            made[name] = getattr(study_parts, name)(plan, measured.studies[name])
        else:
            made[name] = parts.card(plan)
    return Datasheet(plan, made, failures)


def find_formats(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the formats of names (``acme8=acme8.txt`` defines one by a file), and why others are
    none."""
    found, failures = [], {}
    for name in names:
        try:
            spelt = named(name)
            target(spelt)
            found.append(spelt)
        except Exception as error:  # of a user's module too
            failures[name.partition("=")[0]] = str(error) or type(error).__name__
    return found, failures


def choose_parts(only: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the chosen parts, in the page's order; all if none is named."""
    for name in only:
        grid.one_of(name, tuple(PARTS), "a part")
    return tuple(name for name in PARTS if name in only or not only)


def datasheet(
    *formats: _Format,
    against: _Format | Sequence[_Format] = (),
    model: str = "lenet5",
    dataset: str = "digits",
    seed: int | Sequence[int] = (0, 1, 2),
    only: str | Sequence[str] = (),
    out: str | os.PathLike | None = None,
    jobs: int = 1,
    data_dir: str | os.PathLike = "data",
    progress: bool | None = None,
    **settings,
) -> Datasheet:
    """Answer on one page whether a network keeps its accuracy in a format, and what it needs::

        sheet = torch_dtypes.workbench.datasheet("e4m4", against=["bf16", "e4m3fn"], out="e4m4")
        for sentence in sheet.verdict:
            print(sentence.text, sentence.rests)

    Its numbers are those of ``show``, ``sweep`` and the other tools; the verdict is made from
    their rows and says no more than they show.

    Args:
        formats: the formats, at least one, as in :func:`sweep`. against: references.
        model, dataset: as in :func:`sweep`, one of each.
        seed: seeds of at least 0. With one seed the verdict tells no differences.
        only: the parts, keys of ``torch_dtypes.workbench.datasheets.plan.PARTS``; none: all.
        out: a folder, where the same call continues; None: a temporary one.
        jobs: the number of parallel cells. data_dir, progress: as in :func:`sweep`.
        settings: ``epochs=4, batch_size=32, optimizer="adam", lr=, train_samples=, test_samples=,
            threads=1``, as in :func:`sweep`.

    Returns:
        A :class:`Datasheet`: ``.verdict``, ``.parts``, ``.print()``, ``.write(folder)``.

    Raises:
        ValueError: no format, an unknown name, a value out of range.
        TypeError: an unknown setting, or a value of another type.
        OSError: a folder that cannot be used.

    Example::

        >>> sheet = torch_dtypes.workbench.datasheet("q43", only="card")
        >>> sheet.parts["card"].rows[0]["largest"]
        240.0
    """
    arguments.check_blocks()
    arguments.check_settings(settings | {"seed": seed, "jobs": jobs})
    for name in settings:
        grid.one_of(name, _SETTINGS, "a setting")
    if not formats:
        raise ValueError("expected at least one format, but got none; use datasheet('e4m4')")
    arguments.check_names("a model and a data set", (model, dataset))
    plan = Plan(
        arguments.names_of(formats),
        arguments.names_of(arguments.several(against)),
        ((model, dataset),),
        tuple(dict.fromkeys(map(int, arguments.several(seed)))),
        grid.settings_of(data_dir=data_dir, datasets=(dataset,), **{"epochs": 4, **settings}),
        choose_parts(arguments.several(only)),
    )
    console = console_of(progress)
    with contextlib.ExitStack() as stack:
        folder = out or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="torch-dtypes-datasheet-")
        )
        watcher = stack.enter_context(Watcher() if console is None else Display(console))
        sheet = build(plan, measure(plan, Store(folder), watcher, jobs=jobs), folder=out)
    if out is not None:
        sheet.write(out)
    return sheet
