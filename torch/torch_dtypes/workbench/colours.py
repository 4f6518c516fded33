"""A colour that belongs to a format, whatever stands beside it and in which order."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

# Okabe and Ito's palette (jfly.uni-koeln.de/color, 2008), told apart by colour-blind readers, without its faint yellow; then darker ones.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A3E9D", "#8C510A", "#01665E", "#C51B7D", "#4D4D4D", "#B2182B")
GREY = "#555555"
# Formats that are often seen together have places of their own; others take theirs from their name.
_PLACES = {
    "posit16es2": 0, "posit16es1": 5, "posit8es2": 4, "posit8es1": 8, "posit8es0": 9, "posit32es2": 6, "q43": 1, "q52": 2, "e5m10": 3,
    "e8m7": 7, "e8m23": 10, "tf32": 11, "e5m5": 9, "e5m7": 8, "e8m4": 5, "e4m3fn": 6,
}  # fmt: skip


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour of ``PALETTE`` for each canonical name: its own, or the next that is free where several want the same."""
    wanted = sorted(set(names), key=lambda name: (name not in _PLACES, name))
    taken: dict[str, int] = {}
    for name in wanted:
        place = _PLACES.get(name, zlib.crc32(name.encode()) % len(PALETTE))
        for step in range(len(PALETTE)):
            if (place + step) % len(PALETTE) not in taken.values():
                place += step
                break
        taken[name] = place % len(PALETTE)
    return {name: PALETTE[place] for name, place in taken.items()}
