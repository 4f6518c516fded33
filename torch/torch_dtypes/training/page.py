"""``report.html`` of a comparison, and its figure as files."""

from __future__ import annotations

from pathlib import Path

from ..workbench.colours import colours
from ..workbench.drawing import save
from ..workbench.pages import Page
from . import report
from .figure import draw

FIGURE = "accuracy"


def figure_of(described, summaries, width="page", strip=True):
    """The figure of a comparison; ``described`` is the ``config`` of its results.json. ``strip``: whether what failed stands below."""
    guess = report.guess_of(described)
    failed = report.failures(summaries, guess)
    return draw(
        summaries, title_of(described), report.setting(described), guess.accuracy, left_out=failed,
        strip={**failed, **report.losses_of_seeds(summaries)} if strip else {}, width=width,
    )  # fmt: skip


def title_of(described):
    """The network and the data."""
    return f"{described['model']} on {described['dataset']}"


def page_of(described, summaries, command=None):
    """The report as a :class:`Page`, to which more sections may be added before it is written."""
    guess = report.guess_of(described)
    failed = report.failures(summaries, guess)
    page = Page(title_of(described), command=command, seeds=described["seeds"])
    page.text(f"{described['parameters']:,} parameters. All runs of a seed begin with the same weights and see the samples in the same order.")
    page.figure(figure_of(described, summaries, strip=False), _caption(summaries))
    page.strip({**failed, **report.losses_of_seeds(summaries)}, "Failed" if failed else "Not with every seed")
    page.section("In numbers")
    own = colours(s.dtype for s in summaries)
    chips = {s.name: own[s.dtype] for s in summaries}
    page.table(*_table(summaries), colours=chips)
    counts = [len(s.accuracy) for s in summaries]
    if max(counts) > 1:
        shown = report.epochs_shown(max(counts), 15)
        page.section("Test accuracy after each epoch, in percent" if len(shown) == max(counts) else "Test accuracy after some epochs, in percent")
        learned = [s for s in summaries if s.accuracy]
        page.table(["dtype", *(str(epoch) for epoch in shown)], [[s.label, *(f"{s.accuracy[e - 1].mean:.2f}" for e in shown)] for s in learned])
    for note in report.notes(summaries, guess)[:1]:
        page.footnote(note)
    return page


def _caption(summaries):
    seeds = max(s.seeds for s in summaries)
    if seeds == 1:
        return (
            "Left: test accuracy after each epoch. Right: final accuracy, and its distance from float32's with the same seed. One seed says nothing "
            "of how much is luck: --repeats 5 adds intervals."
        )
    return (
        f"Left: test accuracy after each epoch, the mean of {seeds} seeds, in a band of one standard deviation. Right: final accuracy, and its "
        "distance from float32's, seed by seed, with the 95 % confidence interval of its mean (Student's t)."
    )


def _table(summaries):
    """Columns and rows; columns without a cell are left out."""
    columns = ["dtype", "recipe", "final accuracy", "gap to float32", "95 % interval", "training loss", "seconds per epoch", "seeds"]
    rows = []
    for s in summaries:
        final, gap = (s.accuracy[-1] if s.accuracy else None), s.gap
        half = None if gap is None else gap.interval
        rows.append([
            s.name, None if s.recipe == "all" else s.recipe, None if final is None else f"{final.text(2)} %",
            None if gap is None else f"{gap.mean:+.2f}", None if half is None else f"{gap.mean - half:+.2f} to {gap.mean + half:+.2f}",
            None if s.train_loss is None else f"{s.train_loss:.4f}", None if s.seconds is None else f"{s.seconds.mean:.2f}",
            f"{s.seeds - len(s.diverged)} of {s.seeds}" if s.diverged else s.seeds,
        ])  # fmt: skip
    kept = [i for i in range(len(columns)) if i == 0 or any(row[i] is not None for row in rows)]
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def write_figure(folder, described, summaries, width="page"):
    """Writes ``accuracy.png``, ``.svg`` and ``.pdf`` into an existing folder.

    Returns:
        The paths.

    Raises:
        OSError: they cannot be written.
    """
    return save(figure_of(described, summaries, width), Path(folder), FIGURE)


def write_report(folder, described, summaries, command=None, width="page", observations=None):
    """Writes ``report.html`` and the figure's files into an existing folder; what ``--observe`` counted at the page's end.

    Returns:
        The paths.

    Raises:
        OSError: they cannot be written.
    """
    page = page_of(described, summaries, command)
    if observations is not None:
        observations.add_to(page)
    return [page.write(Path(folder) / "report.html"), *write_figure(folder, described, summaries, width)]
