"""Run suites and write their results: a table, ``bench.json``, charts, the tables of
docs/reference/results.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

import torch_dtypes

from ... import _C
from ..report.folders import write_json
from ..report.progress import bar_on
from ..report.provenance import cpu_name
from ..training.recipes import resolve_dtype
from .measuring import Group, NotMeasuredError, Sizes, compare, count_rounds
from .suites import DEFAULT_SUITES, SUITES

ALL = "all"


class InterruptedRunError(KeyboardInterrupt):
    """Raised for Ctrl-C during a run, with the results so far."""

    def __init__(self, rows: list[dict], notes: list[str]) -> None:
        super().__init__("interrupted")
        self.rows, self.notes = rows, notes


def machine(threads: Sequence[int]) -> dict:
    """Return the properties that the figures depend on."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "vector_unit": _C.cpu_capability(),
        "threads": list(threads),
        "torch": str(torch.__version__),
        "torch_dtypes": torch_dtypes.__version__,
        "python": platform.python_version(),
    }


def _resolve_format_dtype(name: str) -> torch.dtype:
    dtype = resolve_dtype(name)
    if not torch_dtypes.is_format_dtype(dtype):
        raise ValueError(
            f"expected the name of a number format to compare with stock PyTorch, but got {name}, "
            "a stock dtype"
        )
    return dtype


def choose_groups(
    suites: Iterable[str], sizes: Sizes, dtypes: Sequence[torch.dtype] | None
) -> dict[str, list[Group]]:
    """Build the groups of the named suites, in the order of SUITES.

    Raises ValueError for an unknown name.
    """
    suites = tuple(suites)
    if ALL in suites:
        suites = tuple(SUITES)
    for name in suites:
        if name not in SUITES:
            raise ValueError(f"expected a suite out of {', '.join(SUITES)}, but got {name!r}")
    return {name: suite.groups(sizes, dtypes) for name, suite in SUITES.items() if name in suites}


def measure(
    groups: dict[str, list[Group]],
    threads: Sequence[int],
    rounds: int | None = None,
    quick: bool = False,
    on_round: Callable[[str], None] = lambda work: None,
) -> tuple[list[dict], list[str]]:
    """Return the rows of all groups for each number of threads, and a line for each group that
    could not be measured.

    Raises InterruptedRunError, with the rows so far, for Ctrl-C.
    """
    rows, notes = [], []
    before = torch.get_num_threads()
    try:
        for suite, members in groups.items():
            for group in members:
                for count in [max(threads)] if group.once else threads:
                    torch.set_num_threads(count)
                    work = group.rows[0].work
                    try:
                        figures = group.measure(
                            count_rounds(group, rounds, quick),
                            lambda suite=suite, work=work: on_round(f"{suite}: {work}"),
                        )
                    except NotMeasuredError as reason:
                        notes.append(str(reason))
                        continue
                    rows += [
                        {"suite": suite, **compare(row, group, figures, count)}
                        for row in group.rows
                    ]
    except KeyboardInterrupt:
        notes.append("Interrupted: what came after these was not measured.")
        raise InterruptedRunError(rows, list(dict.fromkeys(notes))) from None
    finally:
        torch.set_num_threads(before)
    return rows, list(dict.fromkeys(notes))


def run(
    suites: Iterable[str] = DEFAULT_SUITES,
    threads: Iterable[int] = (),
    rounds: int | None = None,
    quick: bool = False,
    dtypes: Iterable[str] = (),
    out: str | None = None,
    markdown: str | None = None,
    sizes: Sizes | None = None,
) -> dict:
    """Measure, print a table for each suite, and write the requested files.

    Args:
        suites: names out of SUITES, or "all".
        threads: numbers of PyTorch's threads, each measured; default: one, and PyTorch's current
            number.
        rounds: the rounds for every case, at least 1; default: each group's own. quick: whether to
            take few rounds.
        dtypes: names of number formats in place of the suites' own.
        out: a folder for ``bench.json``, ``bench.html`` and, with the suite scaling, its charts as
            PNG, SVG and PDF; made if missing.
        markdown: a file whose marked parts become the tables of the suites; charts go into the
            folder ``images`` next to it.
        sizes: the amounts of work.

    Returns the content of ``bench.json``: ``machine``, ``command``, ``rows``, ``notes``.

    Raises ValueError for unknown names and OSError for files that cannot be written. For Ctrl-C it
    raises KeyboardInterrupt, after the tables and ``bench.json`` of the results so far; charts and
    markdown need a whole run.
    """
    from rich.console import Console

    from . import report
    from .charts import figures

    counts = tuple(dict.fromkeys(threads)) or tuple(dict.fromkeys((1, torch.get_num_threads())))
    sizes, names = sizes or Sizes(), list(dtypes)
    groups = choose_groups(suites, sizes, [_resolve_format_dtype(name) for name in names] or None)
    folder = Path(out) if out else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    if markdown:
        # Fail now, not after hours of work, if the file cannot be written.
        Path(markdown).open("a").close()
    results = {
        "machine": machine(counts),
        "command": _command(groups, counts, rounds, quick, names),
    }
    console = Console()
    total = sum(
        (count_rounds(g, rounds, quick) + 1) * (1 if g.once else len(counts))
        for members in groups.values()
        for g in members
    )
    with bar_on(console) as progress:
        task, interrupted = progress.add_task("", total=total), None
        try:
            results["rows"], notes = measure(
                groups,
                counts,
                rounds,
                quick,
                lambda work: progress.update(task, advance=1, description=work),
            )
        except InterruptedRunError as error:
            interrupted, results["rows"], notes = error, error.rows, error.notes
    # The greater load of before and after, without the run's own threads.
    results["machine"]["load"] = max(results["machine"]["load"], os.getloadavg()[0] - max(counts))
    results["notes"] = [note for suite in groups for note in SUITES[suite].notes(sizes)] + notes
    page = report.report_of(results)
    where = results["machine"]
    console.print(
        f"{where['cpu']}, {where['cores']} cores (load {where['load']:.1f}), "
        f"{where['vector_unit']}, torch {where['torch']}, torch_dtypes {where['torch_dtypes']}.",
        highlight=False,
    )
    page.print(console)
    if folder:
        if interrupted:
            write_json(folder / "bench.json", results)
        written = [folder / "bench.json"] if interrupted else page.save(folder, "bench")
        console.print(f"Written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
    if interrupted:
        raise interrupted
    if markdown:
        report.update_markdown(Path(markdown), results)
        for name, figure in figures(results).items():
            path = Path(markdown).parent / report.IMAGES / name
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path)
    return results


def _command(
    groups: dict[str, list[Group]],
    threads: Sequence[int],
    rounds: int | None,
    quick: bool,
    dtypes: Sequence[str],
) -> dict[str, str]:
    """Return, for each suite, the command that repeats it."""
    options = [f"--threads {count}" for count in threads] + [f"--dtype {name}" for name in dtypes]
    options += [f"--rounds {rounds}"] * bool(rounds) + ["--quick"] * quick
    return {
        suite: " ".join(["torch-dtypes bench", f"--suite {suite}", *options]) for suite in groups
    }


def list_comparisons(suites: Iterable[str], dtypes: Iterable[str] = ()) -> list[str]:
    """List the comparisons of the suites, with their targets, as lines."""
    lines = []
    for name, members in choose_groups(
        suites, Sizes(), [_resolve_format_dtype(each) for each in dtypes] or None
    ).items():
        lines += ["", f"{name}: {SUITES[name].summary}"]
        for row in (row for group in members for row in group.rows):
            lines.append(
                f"  {row.work}: {row.case} over {row.against}"
                + (f", {row.target}" if row.target else "")
            )
        lines += [f"  {note}" for note in SUITES[name].notes(Sizes())]
    return lines[1:]
