"""Colours of formats. Each format keeps its colour in all figures, next to any others and in any
order."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from ...formats import naming
from ...targets.lookup import FormatTarget, target

# Okabe and Ito's palette (jfly.uni-koeln.de/color, 2008), which colour-blind readers can tell
# apart, without its faint yellow; then darker colours. Each maps to its colour on a dark ground.
_TONES = {
    "#0072B2": "#4DA8E0", "#D55E00": "#FF8A3D", "#009E73": "#2FC99A", "#CC79A7": "#E79BC6",
    "#E69F00": "#F5B93B", "#56B4E9": "#86CDF7", "#7A3E9D": "#B988DB", "#8C510A": "#C98B46",
    "#01665E": "#35A89E", "#C51B7D": "#F062AE", "#5B7F00": "#A3C940", "#B2182B": "#F0606F",
}  # fmt: skip
PALETTE = tuple(_TONES)
GREY = "#555555"  # of float32, the baseline, and of names that are no formats
RULE = "#DDDDDD"  # grids
ON_DARK = {**_TONES, GREY: "#A9AFB6", RULE: "#3A3F45"}
# Places of formats that are often shown together. Others get a place from a hash of their name.
_PLACES = {
    "posit16es2": 0,      "posit16es1": 5,      "posit8es2": 4,       "posit8es1": 8,
    "posit8es0": 9,       "posit32es2": 6,      "q43": 1,             "q52": 2,
    "e5m10": 3,           "e8m7": 7,            "tf32": 11,           "e5m5": 9,
    "e5m7": 8,            "e8m4": 5,            "e4m3fn": 6,          "e4m3fn_saturate": 6,
}  # fmt: skip
_BASELINE = "e8m23"


def format_name(name: str) -> str:
    """Return a format's canonical name without its rounding mode: ``bf16``, ``bfloat16`` and
    ``e8m7_down`` are ``e8m7``.

    Other names, such as a library's, stay as they are.
    """
    plain = naming.split_rounding(name.removeprefix("torch."))[0]
    try:
        parsed = target(plain)
    except ValueError:
        return name
    return naming.name_of_format(parsed.format) if isinstance(parsed, FormatTarget) else parsed.name


def colours(names: Iterable[str]) -> dict[str, str]:
    """Choose a colour for each name: ``GREY`` for float32, else the format's own of ``PALETTE``, or
    the next free one if several want the same. Names and rounding modes of one format share it.
    """
    names = list(names)
    families = {name: format_name(name) for name in names}
    wanted = sorted(
        set(families.values()) - {_BASELINE}, key=lambda family: (family not in _PLACES, family)
    )
    taken: dict[str, int] = {}
    for family in wanted:
        place = _PLACES.get(family, zlib.crc32(family.encode()) % len(PALETTE))
        for step in range(len(PALETTE)):
            if (place + step) % len(PALETTE) not in taken.values():
                place += step
                break
        taken[family] = place % len(PALETTE)
    return {
        name: GREY if families[name] == _BASELINE else PALETTE[taken[families[name]]]
        for name in names
    }
