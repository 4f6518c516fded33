"""Progress of long work: a bar with the remaining time on a terminal or in a notebook, and nothing
elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...formats.arguments import boolean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

OnRun = Callable[[str, int | None], None]


class Stages:
    """Shows a bar for each stage of a study. The study calls it before each run with the stage's
    name and number of runs (None: unknown)."""

    def __init__(self, bar) -> None:
        self._bar, self._name, self._task = bar, None, None

    def __call__(self, name: str, total: int | None) -> None:
        if name != self._name:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._name, self._task = name, self._bar.add_task(name, total=total)
            return
        self._bar.update(self._task, advance=1)


class Lines:
    """Prints a line for each stage, on a console where no bar can move."""

    def __init__(self, console: Console) -> None:
        self._console, self._name = console, None

    def __call__(self, name: str, total: int | None) -> None:
        if name != self._name:
            self._name = name
            self._console.print(
                name if total is None else f"{name}: {total} run{'s' * (total != 1)}"
            )


@contextlib.contextmanager
def stages(console: Console) -> Iterator[Stages]:
    """Show the stages of a study as bars, if the console is a terminal or a notebook."""
    with bar_on(console) as bar:
        yield Stages(bar)


def bar_on(console: Console) -> Progress:
    """Make a bar with the remaining time, hidden if nobody sees the console."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not is_seen(console))


def plain_console(**options) -> Console:
    """Make a console for lines of text, without wrapping, highlighting or markup."""
    from rich.console import Console

    return Console(soft_wrap=True, markup=False, emoji=False, highlight=False, **options)


def is_seen(console: Console) -> bool:
    """Whether a user sees the console: in a file a bar is noise."""
    return console.is_terminal or console.is_jupyter


def console_of(progress: bool | None, otherwise: bool = True) -> Console | None:
    """Return a console on standard error for the progress of a Python call; None if it shows
    nothing.

    Args:
        progress: the call's argument. None: show progress if a user sees it, but not without rich,
            or if ``otherwise`` is False.

    Raises:
        TypeError: ``progress`` is no bool and not None.
        ModuleNotFoundError: ``progress`` is True without rich.
    """
    wanted = otherwise if progress is None else boolean("progress", progress)
    if not wanted:
        return None
    if importlib.util.find_spec("rich") is None:
        if progress is None:
            return None
        raise ModuleNotFoundError(
            "progress=True needs rich, which is not installed: pip install 'torch-dtypes[train]'"
        )
    console = plain_console(stderr=True)
    return console if progress or is_seen(console) else None


class Shown:
    """Passes a study's progress to the caller's ``on_run``, and to a bar (or a line for each stage)
    in a block of ``show_bar``.

    Args:
        progress: as in ``console_of``; None: a bar, unless there is ``on_run``.
    """

    def __init__(self, progress: bool | None, on_run: OnRun | None) -> None:
        self._console = console_of(progress, otherwise=on_run is None)
        self._on_run, self._stages = on_run, None

    def __call__(self, what: str, total: int | None) -> None:
        if self._on_run is not None:
            self._on_run(what, total)
        if self._stages is not None:
            self._stages(what, total)

    @contextlib.contextmanager
    def show_bar(self) -> Iterator[None]:
        """Show the bar in a block. A block within it shows the same bar."""
        if self._console is None or self._stages is not None:
            yield
            return
        with (
            stages(self._console)
            if is_seen(self._console)
            else contextlib.nullcontext(Lines(self._console)) as self._stages
        ):
            try:
                yield
            finally:
                self._stages = None
