"""Rows of an observation's table as texts: shares, ratios and exponents."""

from __future__ import annotations

import math

from .counts import RoundingCounts

_SHARES = (
    "overflow",
    "saturated",
    "underflow",
    "to_zero",
    "subnormal",
    "zeros",
    "nan_made",
    "unchanged",
)
_COLUMNS = (
    "layer",
    "pass",
    "format",
    "numbers",
    "nonzero",
    *(name.replace("_", " ") for name in _SHARES),
    "SNR dB",
    "exponents",
)
_BLOCK_SHARES = ("clipped_blocks", "flushed_blocks")
BLOCK_COLUMNS = ("blocks", *(name.replace("_", " ") for name in _BLOCK_SHARES), "scales")
NOTHING = (
    "nothing was rounded to a number format in this block. For a float model use observe(model, "
    "formats=['q43']); else call the model in the block."
)


def name_layer(layer: str) -> str:
    return layer or "(model)"


def _write_percent(share: float) -> str:
    """Format a share with three digits; empty for 0 and NaN."""
    if not share > 0:
        return ""
    percent = 100 * share
    if percent < 0.01:
        return "<0.01%"
    return f"{percent:.3g}%" if percent < 99.95 else f"{percent:.4g}%"


def _write_decibels(snr: float) -> str:
    if math.isnan(snr):
        return ""
    return "exact" if snr == math.inf else f"{snr:.1f}"


def build_rows(counts: list[RoundingCounts]) -> list[dict[str, str]]:
    """Return texts by column; with those of blocks if there are any."""
    rows = [dict(zip(_COLUMNS, _row(c), strict=True)) for c in counts]
    if any(c.blocks for c in counts):
        for c, row in zip(counts, rows, strict=True):
            row.update(zip(BLOCK_COLUMNS, _block_row(c), strict=True))
    return rows


def describe_counts(c: RoundingCounts) -> str:
    """Describe a record in a line, as ``Statistics.worst``."""
    where = f"{name_layer(c.layer)}, {c.where}"
    if c.trouble == 0:
        kept = f"{where}: no number left the range of {c.format}"
        if math.isfinite(c.snr):
            return f"{kept}, and the signal-to-noise ratio is {_write_decibels(c.snr)} dB"
        return f"{kept}, and none changed" if c.snr > 0 else kept
    verbs = {"overflow": "overflow", "underflow": "underflow", "nan_made": "become NaN"}
    of = f"of {c.nonzero:,} nonzero numbers"
    what = [
        f"{_write_percent(c.share(name))} {of} {verb} in {c.format}"
        for name, verb in verbs.items()
        if c.share(name) > 0
    ]
    if c.compared and c.unchanged:
        same = _write_percent(c.share("unchanged"))
        what.append(f"{same} of the parameters stay as they were in {c.format}")
    return f"{where}: {', '.join(what)}"


def choose_columns(rows: list[dict[str, str]], room: int) -> list[str]:
    """Choose the columns with entries, as many as the room allows."""
    used = [name for name in rows[0] if name in _COLUMNS[:5] or any(row[name] for row in rows)]
    for name in (
        "saturated",
        "blocks",
        "exponents",
        "zeros",
        "subnormal",
        "numbers",
        "to zero",
        "nonzero",
    ):
        if (
            sum(max(len(column), *(len(row[column]) for row in rows)) + 2 for column in used)
            <= room
        ):
            break
        if name in used:
            used.remove(name)
    return used


def _row(c: RoundingCounts) -> tuple[str, ...]:
    shares = [_write_percent(c.share(name)) for name in _SHARES]
    exponents = f"{min(c.exponents)} to {max(c.exponents)}" if c.exponents else ""
    return (
        name_layer(c.layer),
        c.where,
        c.format,
        f"{c.elements:,}",
        f"{c.nonzero:,}",
        *shares,
        _write_decibels(c.snr),
        exponents,
    )


def _block_row(c: RoundingCounts) -> tuple[str, ...]:
    if not c.blocks:
        return ("",) * len(BLOCK_COLUMNS)
    scales = f"2^{min(c.scales)} to 2^{max(c.scales)}" if c.scales else ""
    return f"{c.blocks:,}", *(_write_percent(c.share(name)) for name in _BLOCK_SHARES), scales
