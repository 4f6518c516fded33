"""A colour that belongs to a format, whatever stands beside it and in which order; the one palette
of all figures."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from ...formats import naming
from ...targets.lookup import FormatTarget, target

# Okabe and Ito's palette (jfly.uni-koeln.de/color, 2008), told apart by colour-blind readers,
# without its faint yellow; then darker ones. Each with what stands for it on a dark ground.
_TONES = {
    "#0072B2": "#4DA8E0", "#D55E00": "#FF8A3D", "#009E73": "#2FC99A", "#CC79A7": "#E79BC6",
    "#E69F00": "#F5B93B", "#56B4E9": "#86CDF7", "#7A3E9D": "#B988DB", "#8C510A": "#C98B46",
    "#01665E": "#35A89E", "#C51B7D": "#F062AE", "#5B7F00": "#A3C940", "#B2182B": "#F0606F",
}  # fmt: skip
PALETTE = tuple(_TONES)
GREY = "#555555"  # float32's, to which the others are compared, and of what is no format
RULE = "#DDDDDD"  # grids
ON_DARK = {**_TONES, GREY: "#A9AFB6", RULE: "#3A3F45"}
# Formats that are often seen together have places of their own; others take theirs from their name.
_PLACES = {
    "posit16es2": 0,      "posit16es1": 5,      "posit8es2": 4,       "posit8es1": 8,
    "posit8es0": 9,       "posit32es2": 6,      "q43": 1,             "q52": 2,
    "e5m10": 3,           "e8m7": 7,            "tf32": 11,           "e5m5": 9,
    "e5m7": 8,            "e8m4": 5,            "e4m3fn": 6,          "e4m3fn_saturate": 6,
}  # fmt: skip
_BASELINE = "e8m23"


def format_name(name: str) -> str:
    """The canonical name of what a name means, without its rounding mode: ``bf16``, ``bfloat16``
    and ``e8m7_down`` are ``e8m7``.

    What is no name of something to round to, such as a library's, stays as it is.
    """
    plain = naming.split_rounding(name.removeprefix("torch."))[0]
    try:
        made = target(plain)
    except ValueError:
        return name
    return naming.name_of_format(made.format) if isinstance(made, FormatTarget) else made.name


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: float32's is ``GREY``; any other format's is its own of ``PALETTE``,
    or the next that is free where several want the same. Names of one format, and its rounding
    modes, share it.
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
