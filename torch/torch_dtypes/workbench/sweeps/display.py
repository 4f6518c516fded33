"""Progress of a sweep: a bar, and a line for each cell."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..report.progress import bar_on
from ..training.measures import perplexity
from .cells import Cell

if TYPE_CHECKING:
    from rich.console import Console


class Watcher(contextlib.AbstractContextManager):
    """The receiver of a sweep's progress; this one shows nothing."""

    def __exit__(self, *_) -> None: ...

    def start(self, done: int, of: int) -> None:
        """Begin; ``done`` of the ``of`` cells have an outcome already."""

    def told(self, cell: Cell, message: dict) -> None:
        """Note a step or an epoch of a running cell: a message of ``work``."""

    def cell(self, cell: Cell, result: dict) -> None:
        """Note that a cell has ended, with this outcome."""

    def on_interrupt(self) -> None:
        """Note Ctrl-C: ending the processes of cells takes seconds."""


class Display(Watcher):
    """Shows a bar with the remaining time, if a user sees the console, and a line for each cell."""

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
        # Cells that were done before do not count for the time.
        self._task = self._bar.add_task("cells", total=of - done)
        if done:
            self._print(f"{done} of {of} cells were done before.")

    def told(self, cell: Cell, message: dict) -> None:
        if "step" in message:
            self._bar.update(
                self._task,
                description=f"{self.name(cell)}: step {message['step']}, "
                f"loss {message['loss']:.4f}",
            )

    def cell(self, cell: Cell, result: dict) -> None:
        self._done += 1
        for text in self.build_lines(cell, result):
            self._print(text)
        self._bar.update(self._task, advance=1)

    def build_lines(self, cell: Cell, result: dict) -> Iterator[str]:
        """Return the lines for a cell that has ended."""
        result_text = (
            f"accuracy {result['accuracy']:.2f} %, loss {result['loss']:.4f}"
            + (f", perplexity {perplexity(result['loss']):.3f}" if cell.is_text else "")
            if result["state"] == "done"
            else f"{result['state']}: {result['reason']}"
        )
        yield f"[{self._done}/{self._of}] {self.name(cell)}: {result_text}"

    def name(self, cell: Cell) -> str:
        """Return the cell's name in a line."""
        return cell.label

    def on_interrupt(self) -> None:
        self._print("Interrupted: ending the cells that run.")

    def _print(self, text: str) -> None:
        self._console.print(text)
        sys.stdout.flush()  # the console of the command writes there
