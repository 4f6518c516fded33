"""How far a sweep is: a bar, and a line for each cell."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..report.progress import bar_on
from .cells import Cell

if TYPE_CHECKING:
    from rich.console import Console


class Watcher(contextlib.AbstractContextManager):
    """Who hears how far a sweep is; this one says nothing."""

    def __exit__(self, *_) -> None: ...

    def start(self, done: int, of: int) -> None:
        """Before the first cell: how many were done before."""

    def told(self, cell: Cell, message: dict) -> None:
        """A cell that runs here has come to a step or an epoch: a message as ``work`` gives it."""

    def cell(self, cell: Cell, result: dict) -> None:
        """A cell has ended, with this outcome."""

    def interrupted(self) -> None:
        """Ctrl-C came, and the processes of cells are being ended, which takes seconds."""


class Display(Watcher):
    """A bar with the time that is left, where somebody sees the console, and a line for each
    cell."""

    def __init__(self, console: Console) -> None:
        self._console, self._bar = console, bar_on(console)
        self._task, self._done, self._of = None, 0, 0

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        self._bar.stop()

    def start(self, done: int, of: int) -> None:
        self._done, self._of = done, of
        # Those of before say nothing of the time.
        self._task = self._bar.add_task("cells", total=of - done)
        if done:
            self._said(f"{done} of {of} cells were done before.")

    def told(self, cell: Cell, message: dict) -> None:
        if "step" in message:
            self._bar.update(
                self._task,
                description=f"{self.name(cell)}: step {message['step']}, "
                f"loss {message['loss']:.4f}",
            )

    def cell(self, cell: Cell, result: dict) -> None:
        self._done += 1
        for text in self.said(cell, result):
            self._said(text)
        self._bar.update(self._task, advance=1)

    def said(self, cell: Cell, result: dict) -> Iterator[str]:
        """The lines on a cell that has ended."""
        said = (
            f"accuracy {result['accuracy']:.2f} %"
            if result["state"] == "done"
            else f"{result['state']}: {result['reason']}"
        )
        yield f"[{self._done}/{self._of}] {self.name(cell)}: {said}"

    def name(self, cell: Cell) -> str:
        """How a cell is called."""
        return cell.label

    def interrupted(self) -> None:
        self._said("Interrupted: ending the cells that run.")

    def _said(self, text: str) -> None:
        self._console.print(text)
        sys.stdout.flush()  # of the command, whose console it is
