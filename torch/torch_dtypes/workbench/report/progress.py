"""How long work is shown: a bar on a terminal or in a notebook, with the time that is left, and
nothing where the output goes elsewhere."""

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
    """A bar for each stage of a study, which says the stage's name and how many runs it has (None:
    not known) before each of them."""

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
    """A line for each stage instead, of a console in which no bar can move."""

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
    """The stages of a study on a console, where it is a terminal or a notebook."""
    with bar_on(console) as bar:
        yield Stages(bar)


def bar_on(console: Console) -> Progress:
    """A bar with the time that is left, which moves where somebody sees it."""
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
    """A console for lines of text: nothing is wrapped, highlighted or read as markup."""
    from rich.console import Console

    return Console(soft_wrap=True, markup=False, emoji=False, highlight=False, **options)


def is_seen(console: Console) -> bool:
    """Whether somebody looks at it: a bar in a file is noise."""
    return console.is_terminal or console.is_jupyter


def console_of(progress: bool | None, otherwise: bool = True) -> Console | None:
    """Standard error as a console on which a call from Python shows how far it is, or None where it
    shows nothing.

    Args:
        progress: the call's argument. None: where somebody sees it, unless ``otherwise`` is False,
            or rich is not there, with which bars are drawn.

    Raises:
        TypeError: it is none of the three.
        ModuleNotFoundError: True without rich.
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
    """Who hears of a study's runs: the caller's ``on_run``, and a bar (or a line for each stage)
    while a block of ``going`` is open.

    Args:
        progress: as ``console_of`` takes it; None: a bar, unless ``on_run`` says it in another way.
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
    def going(self) -> Iterator[None]:
        """Shows the bar; within such a block another is the same."""
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
