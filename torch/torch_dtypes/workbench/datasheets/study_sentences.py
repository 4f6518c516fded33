"""Sentences of a verdict from the rows of studies: ranges, layers, digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..sensitivity.figures import rise_text
from .sentences import Sentence, join_words, share_text

# Tensors that are judged apart: in a narrow format most of their numbers vanish, and float32
# masters, which have float32 states, mend that.
APART = ("optimizer states", "updates")
_NONE = "In float32's training, no weight, activation, error or gradient leaves its range"


def judge_ranges(name: str, rows: Sequence[Mapping]) -> list[Sentence]:
    """Name the tensor of which most leaves the range, and the optimizer state. Nothing is said of
    updates, which are added to weights, and are rounded with them."""
    own = [(i, row) for i, row in enumerate(rows) if row["format"] == name]
    texts, rests = [], []
    for is_state, of, none in (
        (False, "Of float32's training, the {tensor} of {layer} leave its range most: ", _NONE),
        (True, "among optimizer states, those of {layer} do most: ", "nor does an optimizer state"),
    ):
        kind = [
            entry
            for entry in own
            if (entry[1]["tensor"] == APART[0] if is_state else entry[1]["tensor"] not in APART)
        ]
        if not kind:
            continue
        i, worst = max(kind, key=lambda entry: entry[1]["left"])
        shares = [
            f"{share_text(worst[share])} {share}"
            for share in ("underflow", "overflow")
            if worst[share] > 0
        ]
        said = of.format(**worst) + join_words(shares or ["infinities become NaN"])
        texts.append(said if worst["left"] > 0 else none)
        rests.append(("ranges", i))
    return [Sentence(name, f"{'; '.join(texts)}.", tuple(rests))] if texts else []


def judge_layers(name: str, rows: Sequence[Mapping]) -> list[Sentence]:
    """Name the layer that bears the format least, and the layers to which a mixture gives another
    format. A rise of the loss counts if it is more than float32's deviation over seeds."""
    own = [(i, row) for i, row in enumerate(rows) if row["format"] == name]
    if not own:
        return []
    i, worst = max(own, key=lambda entry: _rise(entry[1]))
    rise, limit = _rise(worst), worst["limit"]
    what = f"{worst['layer']} raises the loss most, by {rise_text(rise).removeprefix('+')}"
    if rise <= 0:
        said = "no layer raises the loss"
    elif not math.isfinite(rise):
        said = f"with {worst['layer']} the loss is not finite"
    elif limit is None:
        said = f"{what}; one seed has no spread, so nothing can be said of the difference"
    elif rise > limit:
        said = f"{what}, more than float32's deviation over seeds, {limit:.2g}"
    else:
        said = f"{what}, no more than float32's deviation over seeds, {limit:.2g}"
    text, rests = f"Of layers rounded alone, {said}", [i]
    if all(row["mixture"] for _, row in own):
        others = [(i, row) for i, row in own if row["mixture"] != name]
        said = "in every layer"
        if others:
            left = "no layer" if len(others) == len(own) else "the other layers"
            words = join_words([f"{row['layer']} in {row['mixture']}" for _, row in others])
            said = f"in {left}, and {words}"
        text += "; the mixture whose rises add up to at most float32's deviation has "
        text += f"{name} {said}"
        rests += [place for place, _ in others or own if place != i]
    return [Sentence(name, f"{text}.", tuple(("layers", place) for place in rests))]


def _rise(row: Mapping) -> float:
    """Return the rise of the loss, NaN as the greatest."""
    rise = float(row["rise"])
    return math.inf if math.isnan(rise) else rise


def judge_digits(name: str, rows: Sequence[Mapping]) -> list[Sentence]:
    """Say how many digits of the answers hold, and which modules move them."""
    own = [(i, row) for i, row in enumerate(rows) if row["format"] == name]
    if not own:
        return []
    i, answers = own[-1]  # the output is last
    text = (
        "With every operation rounded to it, up or down at random, the answers keep "
        f"{answers['digits']:.1f} decimal digits in the median, and 5 % of them at most "
        f"{answers['low']:.1f}"
    )
    found = [(i, row) for i, row in own if row["responsible"]]
    if found:
        modules = join_words([row["module"] for _, row in found])
        moved = f"{modules} alone makes at least half of their move"
        if len(found) > 1:
            moved = f"the smallest sets of modules that make half of their move are of {modules}"
        text += f"; {moved}"
    rests = (("digits", place) for place in (i, *(place for place, _ in found)))
    return [Sentence(name, f"{text}.", tuple(rests))]
