"""A comparison as a table by dtype and recipe, in a marked part of a Markdown file."""

from __future__ import annotations

from pathlib import Path

from .._marked_sections import replace_sections
from ..workbench.provenance import versions
from .report import did_not_learn, guess_of


def _title(described):
    return f"{described['model']} on {described['dataset']}: {', '.join(described['recipes'])}"


def _cell(summary, idle):
    if summary is None:
        return ""
    if not summary.accuracy:
        return "diverges"
    gap = "" if summary.gap is None else f" ({summary.gap.mean:+.2f})"
    note = ", did not learn" if summary in idle else ", some seeds diverge" if summary.diverged else ""
    return f"{summary.accuracy[-1].text(2)}{gap}{note}"


def table(described, summaries, command):
    """The section's text."""
    by_place = {(summary.name, summary.recipe): summary for summary in summaries if not summary.is_baseline}
    baseline = next((summary for summary in summaries if summary.is_baseline), None)
    dtypes, recipes = (list(dict.fromkeys(key[i] for key in by_place)) for i in (0, 1))
    idle, seeds = did_not_learn(summaries, guess_of(described)), len(described["seeds"])
    what = (
        f"{described['train_samples']:,} training and {described['test_samples']:,} test images, {described['epochs']} epochs, "
        f"{described['optimizer']} at {described['lr']:g} ({described['schedule']} schedule), batch {described['batch_size']}; "
        f"{'one seed' if seeds == 1 else f'mean and standard deviation of {seeds} seeds'}. Test accuracy in percent"
    )
    if baseline is not None and baseline.accuracy:
        what += f", in parentheses its distance from float32's {baseline.accuracy[-1].text(2)} in points"
    lines = [f"### {_title(described)}", "", f"    {command}", "", f"{what}. torch {versions()['torch']}.", ""]
    lines += [_line(["dtype", *recipes]), "|" + "---|" * (1 + len(recipes))]
    lines += [_line([dtype, *(_cell(by_place.get((dtype, recipe)), idle) for recipe in recipes)]) for dtype in dtypes]
    return "\n".join(lines) + "\n"


def _line(cells):
    return "| " + " | ".join(cells) + " |"


def write_table(path, described, summaries, command):
    """Replaces the comparison's part of the file, or adds it.

    Raises:
        OSError: the file cannot be read or written.
    """
    name = _title(described)
    replace_sections(Path(path), "train", {name: table(described, summaries, command)})
