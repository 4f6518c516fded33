"""The report of a comparison of dtypes: the table on the terminal, the page, ``results.json``, a
table in Markdown."""

from pathlib import Path

from ..report.colours import colours
from ..report.marked_sections import replace_sections
from ..report.page import Report
from ..report.provenance import versions
from ..report.tables import markdown_table, print_rows
from .data import Guess
from .figure import draw
from .findings import EVEN, did_not_learn, failures, losses_of_seeds, notes
from .summaries import summarize


def epochs_shown(count, room):
    """Choose at most ``room`` of the epochs 1 to ``count``, evenly and with both ends.

    If there is no room for two, choose none: the last is also in the final column.
    """
    if count <= room:
        return list(range(1, count + 1))
    if room < 2:
        return []
    return [1 + round(i * (count - 1) / (room - 1)) for i in range(room)]


def _cells(summary):
    """Return a row's texts outside its epochs: dtype, recipe, final, gap, seconds."""
    if not summary.accuracy:
        how = (
            f"diverged at epoch {min(epoch for _, epoch in summary.diverged)}"
            if summary.diverged
            else "failed"
        )
        return summary.name, summary.recipe, how, "-", "-"
    gap = "-" if summary.gap is None else summary.gap.text(2, sign="+")
    return summary.name, summary.recipe, summary.accuracy[-1].text(2), gap, summary.seconds.text(2)


def print_table(console, summaries, title, guess=EVEN):
    """Print the comparison, one row per dtype and recipe, to a ``rich.console.Console``.

    The columns are the accuracy in percent after each epoch, the final accuracy, its distance from
    float32 in points and the seconds per epoch. Figures are means over the seeds. A narrow terminal
    shows a selection of epochs. Lines below name the runs that diverged.
    """
    count = max((len(summary.accuracy) for summary in summaries), default=0)
    headers = ("dtype", "recipe", "final %", "gap", "s/epoch")
    rows = [_cells(summary) for summary in summaries]
    names = 2
    if all(summary.recipe == "all" for summary in summaries):
        names, headers, rows = 1, (headers[0], *headers[2:]), [(row[0], *row[2:]) for row in rows]
    fixed = sum(2 + max(map(len, column)) for column in zip(headers, *rows, strict=True))
    # A file has no width to fit.
    room = (
        (console.width - fixed) // (2 + max(5, len(f"ep {count}")))
        if console.is_terminal
        else count
    )
    shown = epochs_shown(count, room)
    epochs = (
        [f"{s.accuracy[epoch - 1].mean:.1f}" if s.accuracy else "-" for epoch in shown]
        for s in summaries
    )
    columns = (*headers[:names], *(f"ep {epoch}" for epoch in shown), *headers[names:])
    console.print()
    print_rows(
        console,
        columns,
        [(*row[:names], *some, *row[names:]) for row, some in zip(rows, epochs, strict=True)],
        title,
    )
    console.print()
    for note in notes(summaries, guess):
        console.print(note, highlight=False, soft_wrap=not console.is_terminal)


def setting(described):
    """Describe the conditions of the figures, other than the dtypes, in a sentence."""
    schedule = "" if described["schedule"] == "constant" else f", {described['schedule']} schedule"
    momentum = f", momentum {described['momentum']:g}" if described["momentum"] else ""
    sums = "" if described["accumulate"] == "machine" else f", sums by {described['accumulate']}"
    epochs, seeds = described["epochs"], len(described["seeds"])
    ranks = f" on {described['ranks']} processes" if "ranks" in described else ""
    return (
        f"{described['optimizer']} at {described['lr']:g}{momentum}{schedule}, batch "
        f"{described['batch_size']}{ranks}, {epochs} epoch{'s' * (epochs > 1)}{sums}; "
        f"{described['train_samples']:,} training and {described['test_samples']:,} test samples; "
        f"{seeds} seed{'s' * (seeds > 1)}; a guess has {described['guess']:.3g} %"
    )


def guess_of(described):
    """Return the :class:`Guess` of a comparison; ``described`` is the ``config`` of its
    results.json."""
    return Guess(described["classes"], described["guess"])


def results_of(described, runs):
    """Build the content of ``results.json`` from the plain data ``described`` and a list of
    ``records.Run``. It has ``config``, ``versions``, ``units``, ``runs`` (per dtype, recipe and
    seed, every epoch) and ``summary`` (per dtype and recipe). Figures that are not finite are
    ``null``.
    """
    return {
        "config": described,
        "versions": versions(),
        "units": {
            "accuracy": "percent of the test images",
            "gap_to_float32": "points",
            "loss": "mean cross-entropy, nats",
            "seconds": "training part of an epoch",
        },
        "runs": [run.as_json() for run in runs],
        "summary": [summary.as_json() for summary in summarize(runs)],
    }


def title_of(described):
    """Return the title: the network and the data."""
    return f"{described['model']} on {described['dataset']}"


def figure_of(described, summaries, width="page", strip=True):
    """Draw the figure of a comparison; ``described`` is the ``config`` of its results.json.
    ``strip``: whether failures are listed below."""
    guess = guess_of(described)
    failed = failures(summaries, guess)
    below = {**failed, **losses_of_seeds(summaries)} if strip else {}
    return draw(
        summaries,
        title_of(described),
        setting(described),
        guess.accuracy,
        left_out=failed,
        strip=below,
        width=width,
    )


def report_of(described, summaries, command=None, data=None):
    """Build the :class:`Report`, to which more sections may be added. Failures are on its
    figure."""
    guess = guess_of(described)
    failed, count = failures(summaries, guess), max(len(s.accuracy) for s in summaries)
    report = Report(title_of(described), command=command, seeds=described["seeds"], data=data)
    report.text(
        f"{described['parameters']:,} parameters. All runs of a seed begin with the same weights "
        "and see the samples in the same order."
    )
    report.figure(
        lambda width: figure_of(described, summaries, width, strip=False), _caption(summaries)
    )
    report.figure(lambda width: figure_of(described, summaries, width), None, "accuracy")
    report.strip(
        {**failed, **losses_of_seeds(summaries)}, "Failed" if failed else "Not with every seed"
    )
    own = colours(s.dtype for s in summaries)
    report.section("In numbers").table(
        *_table(summaries), colours={s.name: own[s.dtype] for s in summaries}
    )
    if count > 1:
        shown = epochs_shown(count, 15)
        report.section(
            f"Test accuracy after {'each epoch' if len(shown) == count else 'some epochs'}, in "
            "percent"
        )
        rows = [
            [s.label, *(f"{s.accuracy[e - 1].mean:.2f}" for e in shown)]
            for s in summaries
            if s.accuracy
        ]
        report.table(["dtype", *map(str, shown)], rows)
    return report.footnote(notes(summaries, guess)[0])


def _caption(summaries):
    seeds = max(s.seeds for s in summaries)
    if seeds == 1:
        return (
            "Left: test accuracy after each epoch. Right: final accuracy, and its distance from "
            "float32's with the same seed. One seed does not show how much is luck; --repeats "
            "5 adds intervals."
        )
    return (
        f"Left: test accuracy after each epoch, the mean of {seeds} seeds, in a band of one "
        "standard deviation. Right: final accuracy, and its distance from float32's, seed by "
        "seed, with the 95 % confidence interval of its mean (Student's t)."
    )


def _table(summaries):
    """Return columns and rows, without empty columns."""
    columns = [
        "dtype",
        "recipe",
        "final accuracy",
        "gap to float32",
        "95 % interval",
        "training loss",
        "seconds per epoch",
        "seeds",
    ]
    rows = []
    for s in summaries:
        final, gap = (s.accuracy[-1] if s.accuracy else None), s.gap
        half = None if gap is None else gap.interval
        rows.append(
            [
                s.name,
                None if s.recipe == "all" else s.recipe,
                None if final is None else f"{final.text(2)} %",
                None if gap is None else f"{gap.mean:+.2f}",
                None if half is None else f"{gap.mean - half:+.2f} to {gap.mean + half:+.2f}",
                None if s.train_loss is None else f"{s.train_loss:.4f}",
                None if s.seconds is None else f"{s.seconds.mean:.2f}",
                f"{s.seeds - s.lost[0]} of {s.seeds}" if s.lost[0] else s.seeds,
            ]
        )
    kept = [i for i in range(len(columns)) if i == 0 or any(row[i] is not None for row in rows)]
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def write_markdown(path, described, summaries, command):
    """Replace the comparison's part of a Markdown file, a table by dtype and recipe, or append it.

    Raises:
        OSError: the file cannot be read or written.
    """
    by_place = {
        (summary.name, summary.recipe): summary for summary in summaries if not summary.is_baseline
    }
    baseline = next((summary for summary in summaries if summary.is_baseline), None)
    dtypes, recipes = (list(dict.fromkeys(key[i] for key in by_place)) for i in (0, 1))
    idle, seeds = did_not_learn(summaries, guess_of(described)), len(described["seeds"])
    what = (
        f"{described['train_samples']:,} training and {described['test_samples']:,} test images, "
        f"{described['epochs']} epochs, {described['optimizer']} at {described['lr']:g} "
        f"({described['schedule']} schedule), batch {described['batch_size']}; "
        f"{'one seed' if seeds == 1 else f'mean and standard deviation of {seeds} seeds'}. Test "
        "accuracy in percent"
    )
    if baseline is not None and baseline.accuracy:
        what += (
            f", in parentheses its distance from float32's {baseline.accuracy[-1].text(2)} in "
            "points"
        )
    name = f"{title_of(described)}: {', '.join(described['recipes'])}"
    rows = [
        [dtype, *(_place(by_place.get((dtype, recipe)), idle) for recipe in recipes)]
        for dtype in dtypes
    ]
    parts = [
        f"### {name}",
        f"    {command}",
        f"{what}. torch {versions()['torch']}.",
        markdown_table(["dtype", *recipes], rows),
    ]
    replace_sections(Path(path), "train", {name: "\n\n".join(parts) + "\n"})


def _place(summary, idle):
    if summary is None:
        return ""
    if not summary.accuracy:
        return "diverges" if summary.diverged else "fails"
    gap = "" if summary.gap is None else f" ({summary.gap.mean:+.2f})"
    note = (
        ", did not learn"
        if summary in idle
        else f", some seeds {'diverge' if summary.diverged else 'fail'}"
        if summary.lost[0]
        else ""
    )
    return f"{summary.accuracy[-1].text(2)}{gap}{note}"
