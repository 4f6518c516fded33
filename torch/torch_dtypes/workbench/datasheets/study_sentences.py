"""Sentences of a verdict from the rows of studies: ranges, layers, digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..sensitivity.figures import rise_text
from .sentences import Sentence, join_words, share_text

# Tensors that are judged apart: in a narrow format most of their numbers vanish, and float32
# masters, which have float32 states, mend that.
APART = ("optimizer states", "updates")


def judge_ranges(name: str, rows: Sequence[Mapping]) -> list[Sentence]:
    """Name the tensor of which most leaves the range, and the optimizer state. Nothing is said of
    updates, which are added to weights, and are rounded with them."""
    sentences = []
    for is_state in (False, True):
        own = [
            (i, row)
            for i, row in enumerate(rows)
            if row["format"] == name
            and (row["tensor"] == APART[0] if is_state else row["tensor"] not in APART)
        ]
        if not own:
            continue
        i, worst = max(own, key=lambda entry: entry[1]["left"])
        whose = APART[0] if is_state else worst["tensor"]
        kinds = [
            f"{share_text(worst[kind])} {kind}"
            for kind in ("underflow", "overflow")
            if worst[kind] > 0
        ]
        text = (
            f"Of float32's training, the {whose} of {worst['layer']} leave its range most: "
            f"{join_words(kinds or ['infinities become NaN'])}."
        )
        if worst["left"] == 0:
            none = "optimizer state" if is_state else "weight, activation, error or gradient"
            text = f"In float32's training, no {none} leaves its range."
        sentences.append(Sentence(name, text, (("ranges", i),)))
    return sentences


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
    sentences = [Sentence(name, f"Of layers rounded alone, {said}.", (("layers", i),))]
    if all(row["mixture"] for _, row in own):
        others = [(i, row) for i, row in own if row["mixture"] != name]
        said = "in every layer"
        if others:
            left = "no layer" if len(others) == len(own) else "the other layers"
            words = join_words([f"{row['layer']} in {row['mixture']}" for _, row in others])
            said = f"in {left}, and {words}"
        text = f"The mixture whose rises add up to at most float32's deviation has {name} {said}."
        rests = tuple(("layers", i) for i, _ in others or own)
        sentences.append(Sentence(name, text, rests))
    return sentences


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
        f"{answers['low']:.1f}."
    )
    sentences = [Sentence(name, text, (("digits", i),))]
    found = [(i, row) for i, row in own if row["responsible"]]
    if found:
        modules = join_words([row["module"] for _, row in found])
        text = f"{modules} alone makes at least half of their move."
        if len(found) > 1:
            text = f"The smallest sets of modules that make half of their move are of {modules}."
        sentences.append(Sentence(name, text, tuple(("digits", i) for i, _ in found)))
    return sentences
