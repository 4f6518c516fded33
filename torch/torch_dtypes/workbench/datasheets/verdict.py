"""The verdict of a datasheet: sentences that are made from rows, each with the rows it rests on.

A format holds if it loses at most float32's deviation over seeds. It loses something if that is
more than the spread, the larger of the two deviations. Between the two, and without a deviation, a
sentence says that the rows do not tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .plan import RECIPES
from .sentences import Sentence, join_words
from .study_sentences import judge_digits, judge_layers, judge_ranges

TRAINING = tuple(recipe for recipe in RECIPES if recipe != "ptq")
_UNDECIDED = ", which differ by less than their spread, so that the rows do not tell"
_ORDER = {mode: i for i, mode in enumerate(("nearest_even", "stochastic"))}


@dataclass(frozen=True)
class _Row:
    """A row of a part and its place."""

    place: int
    data: Mapping
    part: str = "accuracy"

    @property
    def how(self) -> str:
        """The recipe and rounding mode in words."""
        mode = self.data["rounding"]
        words = "to nearest" if mode == "nearest_even" else mode.replace("_", " ")
        return f"{RECIPES[self.data['recipe']]}, rounded {_adverb(words)}"

    @property
    def number(self) -> str:
        spread = self.data["deviation"]
        mean = f"{self.data['accuracy']:.1f}"
        return f"{mean} %" if spread is None else f"{mean} ± {spread:.1f} %"

    @property
    def is_whole(self) -> bool:
        """Whether every seed came to its end."""
        return self.data["accuracy"] is not None and self.data["done"] == self.data["seeds"]

    @property
    def is_guess(self) -> bool:
        """Whether the accuracy is no more than a deviation above that of a guess."""
        guess, deviation = self.data.get("guess"), self.data["deviation"] or 0.0
        return guess is not None and self.data["accuracy"] <= guess + deviation

    @property
    def rest(self) -> tuple[str, int]:
        return self.part, self.place


def _adverb(words: str) -> str:
    return "stochastically" if words == "stochastic" else words


def find_spread(one: Mapping, other: Mapping) -> float | None:
    """Return the larger of two rows' deviations over seeds; None if either has none."""
    deviations = (one["deviation"], other["deviation"])
    return None if None in deviations else max(deviations)


def verdict(name: str, parts: Mapping[str, Sequence[Mapping]]) -> list[Sentence]:
    """Return the sentences on a format, from the rows of the parts that there are.

    Args:
        name: the format's name. parts: rows by the parts' names, as in the JSON.
    """
    sentences = []
    if "accuracy" in parts:
        sentences += _of_accuracy(name, parts["accuracy"])
    if "ranges" in parts:
        sentences += judge_ranges(name, parts["ranges"])
    if "accumulator" in parts:
        sentences += _of_accumulator(name, parts["accumulator"])
    if "layers" in parts:
        sentences += _as_details(judge_layers(name, parts["layers"]))
    if "digits" in parts:
        sentences += _as_details(judge_digits(name, parts["digits"]))
    return sentences


def _as_details(sentences: Sequence[Sentence]) -> list[Sentence]:
    return [dataclasses.replace(sentence, is_detail=True) for sentence in sentences]


def _of_accuracy(name: str, rows: Sequence[Mapping]) -> list[Sentence]:
    sentences = []
    for task in dict.fromkeys((row["model"], row["dataset"]) for row in rows):
        own = [_Row(i, row) for i, row in enumerate(rows) if (row["model"], row["dataset"]) == task]
        base = next((r for r in own if r.data["recipe"] == "float32"), None)
        where = " on ".join(task)
        if base is None or base.data["accuracy"] is None:
            reason = base.data["reason"] if base is not None else None
            why = f": {reason}" if reason else ""
            rests = () if base is None else (base.rest,)
            text = f"Nothing can be said of {where}, which float32 does not train either{why}."
            sentences.append(Sentence(name, text, rests))
            continue
        if base.is_guess:
            text = (
                f"Nothing can be said of {where}, on which float32 itself learns no more than a "
                f"guess ({base.number})."
            )
            sentences.append(Sentence(name, text, (base.rest,)))
            continue
        mine = [r for r in own if r.data["format"] == name and r is not base]
        sentences += _of_training(name, where, base, mine)
        sentences += _as_details(_of_rounding(name, where, base, mine, own))
    return sentences


def _of_training(name: str, where: str, base: _Row, mine: Sequence[_Row]) -> list[Sentence]:
    """Say what the format takes to train as float32 does, and what the plainest way loses."""
    trainings = sorted(
        (r for r in mine if r.data["recipe"] in TRAINING),
        key=lambda r: (TRAINING.index(r.data["recipe"]), _ORDER.get(r.data["rounding"], 2)),
    )
    if not trainings:
        return []
    done = [r for r in trainings if r.data["gap"] is not None]
    if not done:
        reason = trainings[0].data["reason"] or "its runs are not done"
        text = (
            f"Nothing can be said of training {where} in {name}: no run came to its end ({reason})."
        )
        return [Sentence(name, text, (trainings[0].rest,))]
    seeds = base.data["seeds"]
    if seeds < 2 or base.data["deviation"] is None:
        best = max(done, key=lambda r: r.data["gap"])
        text = (
            f"{name} trains {where} to {best.number} {best.how}, float32 to {base.number}; one "
            "seed has no spread, so nothing can be said of the difference."
        )
        return [Sentence(name, text, (best.rest, base.rest))]
    holding = next((r for r in done if _holds(r, base)), None)
    sentences = []
    if holding is not None:
        text = (
            f"{name} trains {where} to within a deviation of float32 {holding.how}: "
            f"{holding.number} against {base.number} over {seeds} seeds."
        )
        sentences.append(Sentence(name, text, (holding.rest, base.rest)))
    else:
        best = max(done, key=lambda r: r.data["gap"])
        lost = "" if best.is_whole else f" in {best.data['done']} of its {seeds} runs"
        text = (
            f"No training tried keeps {name} within a deviation of float32 on {where}: the best, "
            f"{best.how}, has {best.number}{lost} against {base.number}"
            f"{'' if _loses(best, base) else _UNDECIDED}."
        )
        sentences.append(Sentence(name, text, (best.rest, base.rest)))
    first = trainings[0]
    if first is not holding:
        sentences.append(Sentence(name, _plainest(name, first, base), (first.rest, base.rest)))
    return sentences


def _plainest(name: str, row: _Row, base: _Row) -> str:
    """Say what is lost by the training that takes the least."""
    how = row.how[0].upper() + row.how[1:]
    if row.data["gap"] is None:
        return f"{how}, no run of {name} came to its end: {row.data['reason']}."
    count = f"{row.data['done']} of {row.data['seeds']}"
    of = "" if row.is_whole else f"; {count} runs came to their end"
    if row.is_guess:
        return f"{how}, it learns no more than a guess ({row.number}){of}."
    if find_spread(row.data, base.data) is None:
        return f"{how}, it has {row.number} in its one run that came to its end."
    if not _loses(row, base):
        return f"{how}, it has {row.number} against {base.number}{_UNDECIDED}{of}."
    return f"{how}, it loses {-row.data['gap']:.1f} points ({row.number}){of}."


def _of_rounding(
    name: str, where: str, base: _Row, mine: Sequence[_Row], every: Sequence[_Row]
) -> list[Sentence]:
    """Say what rounding after training loses, beside the references."""
    rounded = [r for r in mine if r.data["recipe"] == "ptq"]
    nearest = next((r for r in rounded if r.data["rounding"] == "nearest_even"), None)
    row = nearest or next(iter(rounded), None)
    if row is None:
        return []
    if row.data["gap"] is None:
        text = f"After training, nothing can be said of {name} on {where}: {row.data['reason']}."
        return [Sentence(name, text, (row.rest,))]
    spread = find_spread(row.data, base.data)
    if spread is None:
        said = f"it has {row.number}, float32 {base.number}; one seed has no spread"
    elif _loses(row, base):
        said = f"it loses {-row.data['gap']:.1f} points ({row.number} against {base.number})"
    elif _holds(row, base):
        said = f"it stays within a deviation of float32 ({row.number} against {base.number})"
    else:
        said = f"it has {row.number} against {base.number}{_UNDECIDED}"
    others = [
        r
        for r in every
        if r.data["recipe"] == "ptq"
        and r.data["format"] != name
        and r.data["rounding"] == row.data["rounding"]
        and r.data["accuracy"] is not None
    ]
    words, rests = _compare(row, others)
    text = f"Rounded after training, {said}{words}."
    return [Sentence(name, text, (row.rest, base.rest, *rests))]


def _of_accumulator(name: str, rows: Sequence[Mapping]) -> list[Sentence]:
    """Name the narrowest accumulator from which on all wider ones hold after training, and say how
    a training with it went."""
    own = [_Row(i, row, "accumulator") for i, row in enumerate(rows) if row["format"] == name]
    after = [r for r in own if r.data["recipe"] == "ptq"]
    base = next((r for r in after if r.data["significant_bits"] is None), None)
    tried = [r for r in after if r is not base]
    if base is None or not tried:
        return []
    if base.data["deviation"] is None or all(r.data["deviation"] is None for r in tried):
        reason = base.data["reason"] or tried[0].data["reason"] or "one seed has no spread"
        text = f"Nothing can be said of the accumulator of {name}: {reason}."
        return [Sentence(name, text, (base.rest,))]
    words, rests = [], []
    for chunk in dict.fromkeys(r.data["chunk"] for r in tried):
        found = find_narrowest(name, rows, chunk)
        if found is None:
            words.append(f"none tried in {_sums_words(chunk)}")
            continue
        least = min(r.data["significant_bits"] for r in tried)
        last = ", the narrowest tried," if rows[found]["significant_bits"] == least else ""
        words.append(f"{rows[found]['accumulator']} or wider{last} in {_sums_words(chunk)}")
        rests.append(("accumulator", found))
    text = (
        f"After training, these accumulators keep it within a deviation of float32's sums: "
        f"{join_words(words)}."
    )
    sentences = [Sentence(name, text, (*rests, base.rest))]
    trained = [r for r in own if r.data["recipe"] != "ptq"]
    return sentences + _as_details(_of_trained_sums(name, trained))


def _of_trained_sums(name: str, rows: Sequence[_Row]) -> list[Sentence]:
    """Say how trainings with narrow sums went, beside that with float32's."""
    base = next((r for r in rows if r.data["significant_bits"] is None), None)
    sentences = []
    for row in rows if base is not None else ():
        if row is base:
            continue
        sums = f"sums in {row.data['accumulator']} in {_sums_words(row.data['chunk'])}"
        how = f"{epochs_text(row.data)} {RECIPES[row.data['recipe']]}"
        if not (row.is_whole and base.is_whole) or base.is_guess:
            why = row.data["reason"] or base.data["reason"] or "its runs are not done"
            if base.is_whole and base.is_guess:
                why = f"float32's sums learn no more than a guess ({base.number})"
            text = f"Nothing can be said of {how} with {sums}: {why}."
            sentences.append(Sentence(name, text, (row.rest, base.rest)))
            continue
        lost = base.data["accuracy"] - row.data["accuracy"]
        beside = f"{row.number} against {base.number} with float32's sums"
        spread = find_spread(row.data, base.data)
        if lost <= (base.data["deviation"] or 0.0):
            said = f"keep it within a deviation: {beside}"
        elif lost > spread:
            said = f"lose {lost:.1f} points: {beside}"
        else:
            said = f"have {beside}{_UNDECIDED}"
        sentences.append(Sentence(name, f"In {how}, {sums} {said}.", (row.rest, base.rest)))
    return sentences


def sums_text(chunk: int | None) -> str:
    return "running" if chunk is None else f"chunks of {chunk}"


def _sums_words(chunk: int | None) -> str:
    return "one running sum" if chunk is None else sums_text(chunk)


def epochs_text(row: Mapping) -> str:
    """Write the epochs of a training."""
    return f"{row['epochs']} epoch{'s' * (row['epochs'] != 1)}"


def find_narrowest(name: str, rows: Sequence[Mapping], chunk: int | None) -> int | None:
    """Return the place of the narrowest accumulator after training with which, and with all wider
    ones, a format loses at most the deviation of float32's sums; None if there is none."""
    own = [
        (i, row) for i, row in enumerate(rows) if row["format"] == name and row["recipe"] == "ptq"
    ]
    base = next((row for _, row in own if row["significant_bits"] is None), None)
    tried = [(i, row) for i, row in own if row["significant_bits"] and row["chunk"] == chunk]
    narrowest = None
    for i, row in sorted(tried, key=lambda entry: -entry[1]["significant_bits"]):
        spread = None if base is None else find_spread(row, base)
        is_whole = row["done"] == row["seeds"]
        if spread is None or not is_whole:
            break
        if base["accuracy"] - row["accuracy"] > base["deviation"]:
            break
        narrowest = i
    return narrowest


def _compare(row: _Row, others: Sequence[_Row]) -> tuple[str, list[tuple[str, int]]]:
    """Sort other formats into better ones, worse ones, and those within the spread."""
    better, worse, alike = [], [], []
    for other in others:
        spread = find_spread(row.data, other.data)
        if spread is None:
            continue
        difference = other.data["accuracy"] - row.data["accuracy"]
        kind = alike if abs(difference) <= spread else better if difference > 0 else worse
        kind.append(other)
    words = [
        f"{join_words([r.data['format'] for r in kind])} {verb}"
        for kind, verb in (
            (better, "more than the spread better"),
            (worse, "more than the spread worse"),
            (alike, "no different by more than the spread"),
        )
        if kind
    ]
    return ("; " + ", ".join(words) if words else ""), [r.rest for r in (*better, *worse, *alike)]


def _holds(row: _Row, base: _Row) -> bool:
    """Whether every seed came to its end, with a mean loss of at most float32's deviation."""
    spread = find_spread(row.data, base.data)
    return row.is_whole and spread is not None and -row.data["gap"] <= base.data["deviation"]


def _loses(row: _Row, base: _Row) -> bool:
    """Whether the mean loss is more than the spread."""
    spread = find_spread(row.data, base.data)
    return spread is not None and -row.data["gap"] > spread
