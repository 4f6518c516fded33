"""The tables and figures of an observation in a report."""

from __future__ import annotations

import contextlib

from ..report.colours import colours
from ..report.page import Report
from .rows import BLOCK_COLUMNS
from .statistics import Statistics


def add_counts(report: Report, stats: Statistics, stem: str, limit: int = 12) -> None:
    """Add the rows of most trouble and a figure for each format. ``stem`` begins the names of
    figures' files."""
    rows = stats.rows(limit)
    report.text(
        "Shares of the rounded nonzero numbers, the worst first. docs/reference/rounding-counts.md "
        "defines each count."
    )
    used = [
        name for name in rows[0] if name not in BLOCK_COLUMNS and any(row[name] for row in rows)
    ]
    report.table(used, [[row[name] for name in used] for row in rows], dense=True)
    # Formats without scales have more trouble, so that no row of blocks may be among the worst.
    if blocks := [row for row in stats.rows() if row.get("blocks")][:limit]:
        report.table(
            (shown := ("layer", "pass", "format", "SNR dB", *BLOCK_COLUMNS)),
            [[row[name] for name in shown] for row in blocks],
            dense=True,
        )
    with_blocks = {c.format for c in stats.values() if c.blocks}
    for name in colours(stats.formats()):
        with contextlib.suppress(ValueError):  # zeros have no exponents to draw
            figure = stats.plot(name)
            caption = (
                f"Exponents of the numbers before they were rounded to {name}, by layer and pass"
                + (
                    ", whose range differs by block."
                    if name in with_blocks
                    else ", against its range."
                )
            )
            report.figure(figure, caption, f"{stem}_{name}")
            if name in with_blocks:
                figure = stats.plot_scales(name)
                caption = f"Exponents of the scales of blocks in {name}, by layer and pass."
                report.figure(figure, caption, f"{stem}_{name}_scales")
