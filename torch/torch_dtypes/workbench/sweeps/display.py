"""How far a sweep is: a bar, and a line for each cell."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from ..progress import is_seen
from .cells import Cell

if TYPE_CHECKING:
    from rich.console import Console


class Watcher(contextlib.AbstractContextManager):
    """Who hears how far a sweep is; this one says nothing."""

    def __exit__(self, *_) -> None: ...

    def start(self, done: int, of: int) -> None:
        """Before the first cell: how many were done before."""

    def cell(self, cell: Cell, result: dict) -> None:
        """A cell has ended, with this outcome."""

    def interrupted(self) -> None:
        """Ctrl-C came, and the processes of cells are being ended, which takes seconds."""


class Display(Watcher):
    """A bar with the time that is left, where somebody sees the console, and a line for each cell."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = console
        self._bar = Progress(
            TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=console, transient=True, disable=not is_seen(console),
        )  # fmt: skip
        self._task, self._done, self._of = None, 0, 0

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        self._bar.stop()

    def start(self, done: int, of: int) -> None:
        self._done, self._of = done, of
        self._task = self._bar.add_task("cells", total=of - done)  # those of before say nothing of the time
        if done:
            self._said(f"{done} of {of} cells were done before.")

    def cell(self, cell: Cell, result: dict) -> None:
        self._done += 1
        said = f"accuracy {result['accuracy']:.2f} %" if result["state"] == "done" else f"{result['state']}: {result['reason']}"
        self._said(f"[{self._done}/{self._of}] {cell.label}: {said}")
        self._bar.update(self._task, advance=1)

    def interrupted(self) -> None:
        self._said("Interrupted: ending the cells that run.")

    def _said(self, text: str) -> None:
        self._console.print(text)
        sys.stdout.flush()  # of the command, whose console it is
