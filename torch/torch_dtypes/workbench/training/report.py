"""The report of a comparison of dtypes: the table on the terminal, the page, ``results.json``, a
table in Markdown."""

import functools
from pathlib import Path

from ..report.colours import colours
from ..report.marked_sections import replace_sections
from ..report.page import Report
from ..report.provenance import versions
from ..report.tables import markdown_table, print_rows
from .data import Guess
from .figure import draw
from .findings import EVEN, did_not_learn, failures, losses_of_seeds, notes, units
from .measures import ACCURACY, LOSS, measures_of
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


def _cells(summary, tokens):
    """Return a row's texts outside its epochs, by heading."""
    measure, other = measures_of(tokens is not None)
    first = "final %" if measure is ACCURACY else measure.name
    second = "accuracy %" if other is ACCURACY else other.name
    cells = dict.fromkeys((first, "gap", second, "s/epoch", *["tokens/s"] * bool(tokens)), "-")
    cells = {"dtype": summary.name, "recipe": summary.recipe} | cells
    if not summary.accuracy:
        cells[first] = (
            f"diverged at epoch {min(epoch for _, epoch in summary.diverged)}"
            if summary.diverged
            else "failed"
        )
        return cells
    cells[first], cells[second] = (summary.final(m).text(m.digits) for m in (measure, other))
    if (gap := summary.gaps[measure.name]) is not None:
        cells["gap"] = gap.text(measure.digits, sign="+")
    cells["s/epoch"] = summary.seconds.text(2)
    if tokens:
        cells["tokens/s"] = _speed(summary, tokens) or "-"
    return cells


def _speed(summary, tokens):
    """Return the tokens a second of a training as a text; None if they are not known."""
    if not tokens or summary.seconds is None or not summary.seconds.mean:
        return None
    return f"{tokens / summary.seconds.mean:,.0f}"


def print_table(console, summaries, title, guess=EVEN, tokens=None):
    """Print the comparison, one row per dtype and recipe, to a ``rich.console.Console``.

    The columns are the accuracy in percent after each epoch, or the perplexity of a text, the final
    one, its distance from float32, the loss, or the accuracy of a text, and the seconds per epoch.
    Figures are means over the seeds. A narrow terminal shows a selection of epochs. Lines below
    name the runs that diverged.

    Args:
        tokens: the bytes of a text in an epoch; None for other data.
    """
    measure, _ = measures_of(tokens is not None)
    count = max((len(summary.accuracy) for summary in summaries), default=0)
    rows = [_cells(summary, tokens) for summary in summaries]
    names = 2
    if all(summary.recipe == "all" for summary in summaries):
        names = 1
        for row in rows:
            del row["recipe"]
    headers = list(rows[0])
    rows = [list(row.values()) for row in rows]
    fixed = sum(2 + max(map(len, column)) for column in zip(headers, *rows, strict=True))
    # A file has no width to fit.
    room = (
        (console.width - fixed) // (2 + max(5, len(f"ep {count}")))
        if console.is_terminal
        else count
    )
    shown = epochs_shown(count, room)
    epochs = (
        [
            f"{s.series[measure.name][epoch - 1].mean:.{measure.digits - 1}f}"
            if s.accuracy
            else "-"
            for epoch in shown
        ]
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
    for note in notes(summaries, guess, tokens is not None):
        console.print(note, highlight=False, soft_wrap=not console.is_terminal)


# Settings that stand in the sentence where they are not the default.
_SETTINGS = {
    "weight_decay": "weight decay {:g}",
    "warmup": "warm-up of {} steps",
    "clip": "gradients clipped at {:g}",
}


def setting(described):
    """Describe the conditions of the figures, other than the dtypes, in a sentence."""
    schedule = "" if described["schedule"] == "constant" else f", {described['schedule']} schedule"
    for key, words in _SETTINGS.items():
        schedule += f", {words.format(described[key])}" if described.get(key) else ""
    momentum = f", momentum {described['momentum']:g}" if described["momentum"] else ""
    sums = "" if described["accumulate"] == "machine" else f", sums by {described['accumulate']}"
    epochs, seeds = described["epochs"], len(described["seeds"])
    ranks = f" on {described['ranks']} processes" if "ranks" in described else ""
    return (
        f"{described['optimizer']} at {described['lr']:g}{momentum}{schedule}, batch "
        f"{described['batch_size']}{ranks}, {epochs} epoch{'s' * (epochs > 1)}{sums}; "
        f"{_samples(described)}; "
        f"{seeds} seed{'s' * (seeds > 1)}; a guess has {described['guess']:.3g} %"
    )


def _samples(described):
    """Describe how many inputs there are, and how long windows of a text are."""
    text = described.get("text")
    what = f"windows of {text['window']} bytes" if text else "samples"
    train, test = (described[f"{part}_samples"] for part in ("train", "test"))
    return f"{train:,} training and {test:,} test {what}"


def tokens_of(described):
    """Return the bytes of a text in an epoch; None for other data."""
    text = described.get("text")
    return described["train_samples"] * text["window"] if text else None


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
    tokens = tokens_of(described)
    return {
        "config": described,
        "versions": versions(),
        "units": {
            "accuracy": "percent of the test data" if not tokens else "percent of the next bytes",
            "gap_to_float32": "points",
            "loss": "mean cross-entropy, nats",
            **({"perplexity": "exp(loss), by bytes"} if tokens else {}),
            "seconds": "training part of an epoch",
        },
        "runs": [run.as_json() for run in runs],
        "summary": [
            summary.as_json(bool(tokens))
            | (
                {"tokens_per_second": tokens / summary.seconds.mean}
                if tokens and summary.seconds and summary.seconds.mean
                else {}
            )
            for summary in summarize(runs)
        ],
    }


def title_of(described):
    """Return the title: the network and the data."""
    return f"{described['model']} on {described['dataset']}"


def figure_of(described, summaries, width="page", strip=True, measure=None):
    """Draw the figure of a comparison; ``described`` is the ``config`` of its results.json.
    ``strip``: whether failures are listed below. ``measure``: by default accuracy, or perplexity of
    a text."""
    guess = guess_of(described)
    measure = measure or measures_of(tokens_of(described) is not None)[0]
    failed = failures(summaries, guess)
    below = {**failed, **losses_of_seeds(summaries)} if strip else {}
    return draw(
        summaries,
        title_of(described),
        setting(described),
        guess.accuracy if measure is ACCURACY else None,
        left_out=failed,
        strip=below,
        width=width,
        measure=measure,
    )


def report_of(described, summaries, command=None, data=None):
    """Build the :class:`Report`, to which more sections may be added. Failures are on its
    figure."""
    guess, tokens = guess_of(described), tokens_of(described)
    measure, other = measures_of(tokens is not None)
    failed, count = failures(summaries, guess), max(len(s.accuracy) for s in summaries)
    report = Report(title_of(described), command=command, seeds=described["seeds"], data=data)
    report.text(
        f"{described['parameters']:,} parameters. All runs of a seed begin with the same weights "
        "and see the samples in the same order."
        + (f" The text's SHA-256 is {described['text']['sha256']}." if tokens else "")
    )
    for each in (measure, other):
        draw_one = functools.partial(figure_of, described, summaries, measure=each)
        report.figure(
            lambda width, draw_one=draw_one: draw_one(width, strip=False),
            _caption(summaries, each),
        )
        report.figure(draw_one, None, each.name)
    report.strip(
        {**failed, **losses_of_seeds(summaries)}, "Failed" if failed else "Not with every seed"
    )
    own = colours(s.dtype for s in summaries)
    report.section("In numbers").table(
        *_table(summaries, tokens), colours={s.name: own[s.dtype] for s in summaries}
    )
    if count > 1:
        shown = epochs_shown(count, 15)
        report.section(
            f"Test {measure.name} after "
            f"{'each epoch' if len(shown) == count else 'some epochs'}"
            + ", in percent"
            * (measure is ACCURACY)
        )
        rows = [
            [s.label, *(f"{s.series[measure.name][e - 1].mean:.{measure.digits}f}" for e in shown)]
            for s in summaries
            if s.accuracy
        ]
        report.table(["dtype", *map(str, shown)], rows)
    return report.footnote(units(tokens is not None))


def _caption(summaries, measure):
    what = f"Left: test {measure.name} after each epoch"
    final = f"Right: final {measure.name}"
    seeds = max(s.seeds for s in summaries)
    if seeds == 1:
        return (
            f"{what}. {final}, and its distance from float32's with the same seed. One seed does "
            "not show how much is luck; --repeats 5 adds intervals."
        )
    return (
        f"{what}, the mean of {seeds} seeds, in a band of one standard deviation. {final}, and its "
        "distance from float32's, seed by seed, with the 95 % confidence interval of its mean "
        "(Student's t)."
    )


def _table(summaries, tokens):
    """Return columns and rows, without empty columns."""
    measure = measures_of(tokens is not None)[0]
    columns = [
        "dtype",
        "recipe",
        f"final {measure.name}",
        "gap to float32",
        "95 % interval",
        "test loss",
        *["accuracy"] * bool(tokens),
        "training loss",
        "tokens per second" if tokens else "seconds per epoch",
        "seeds",
    ]
    rows = []
    for s in summaries:
        final, gap, loss = s.final(measure), s.gaps[measure.name], s.final(LOSS)
        half, digits = None if gap is None else gap.interval, measure.digits
        right = f"{s.final(ACCURACY).text(2)} %" if s.accuracy else None
        rows.append(
            [
                s.name,
                None if s.recipe == "all" else s.recipe,
                None if final is None else f"{final.text(digits)}{measure.unit}",
                None if gap is None else f"{gap.mean:+.{digits}f}",
                None
                if half is None
                else f"{gap.mean - half:+.{digits}f} to {gap.mean + half:+.{digits}f}",
                None if loss is None else loss.text(LOSS.digits),
                *[right] * bool(tokens),
                None if s.train_loss is None else f"{s.train_loss:.4f}",
                _speed(s, tokens) if tokens else s.seconds and f"{s.seconds.mean:.2f}",
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
    measure = measures_of(tokens_of(described) is not None)[0]
    digits, unit = measure.digits, " in percent" * (measure is ACCURACY)
    what = (
        f"{_samples(described)}, {described['epochs']} epochs, {described['optimizer']} at "
        f"{described['lr']:g} ({described['schedule']} schedule), batch {described['batch_size']}; "
        f"{'one seed' if seeds == 1 else f'mean and standard deviation of {seeds} seeds'}. Test "
        f"{measure.name}{unit} and test loss in nats"
    )
    if baseline is not None and baseline.accuracy:
        what += (
            f", in parentheses the distance from float32's {baseline.final(measure).text(digits)}"
            + " in points" * (measure is ACCURACY)
            + f", whose loss is {baseline.final(LOSS).text(LOSS.digits)}"
        )
    name = f"{title_of(described)}: {', '.join(described['recipes'])}"
    rows = [
        [dtype, *(_place(by_place.get((dtype, recipe)), idle, measure) for recipe in recipes)]
        for dtype in dtypes
    ]
    parts = [
        f"### {name}",
        f"    {command}",
        f"{what}. torch {versions()['torch']}.",
        markdown_table(["dtype", *recipes], rows),
    ]
    replace_sections(Path(path), "train", {name: "\n\n".join(parts) + "\n"})


def _place(summary, idle, measure):
    if summary is None:
        return ""
    if not summary.accuracy:
        return "diverges" if summary.diverged else "fails"
    gap, digits = summary.gaps[measure.name], measure.digits
    shown = "" if gap is None else f" ({gap.mean:+.{digits}f})"
    note = (
        ", did not learn"
        if summary in idle
        else f", some seeds {'diverge' if summary.diverged else 'fail'}"
        if summary.lost[0]
        else ""
    )
    value, loss = summary.final(measure).text(digits), summary.final(LOSS).text(LOSS.digits)
    return f"{value}{shown}, loss {loss}{note}"
