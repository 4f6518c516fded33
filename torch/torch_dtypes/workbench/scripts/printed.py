"""Digits of the numbers that the runs of a script print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..variability.digits import Digits, significant_digits

# A number that is no part of a word: neither the 2 of conv2, nor that of v1.2.
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan\b|inf(?:inity)?\b)", re.IGNORECASE
)
_FRACTION = re.compile(r"\.|\de", re.IGNORECASE)
_FLOAT64_BITS = 53


@dataclass(frozen=True)
class Printed:
    """A number that each run prints at the same place.

    Attributes:
        line: the number of the line, from 1. text: the words before the number in it.
        values: each run's number, as printed.
        digits: the significant digits that the runs share, at most those printed; NaN if a value is
            not finite.
    """

    line: int
    text: str
    values: tuple[str, ...]
    digits: float

    @property
    def are_all(self) -> bool:
        """Whether the runs print the same."""
        return len(set(self.values)) == 1


@dataclass(frozen=True)
class Comparison:
    """The numbers of all runs, and how far their texts agree.

    Attributes:
        numbers: the numbers with a decimal point or exponent, and the integers that differ.
        differing: the number of lines whose words differ, and that only some runs print.
        estimate: the estimate of all digits, with its probability; None without numbers.
    """

    numbers: list[Printed]
    differing: int
    estimate: Digits | None


def compare_outputs(outputs: Sequence[str]) -> Comparison:
    """Compare the numbers that runs of one script print, line by line.

    A number belongs to a line whose words are the same in each run, whatever space is between.
    Integers, infinities and NaN that are equal in all runs are words too.
    """
    lines = [output.splitlines() for output in outputs]
    places: list[tuple[int, str, tuple[str, ...]]] = []
    differing = max(map(len, lines)) - min(map(len, lines))
    for at, versions in enumerate(zip(*lines, strict=False), 1):
        if len({" ".join(_NUMBER.sub("#", version).split()) for version in versions}) > 1:
            differing += 1
            continue
        columns = zip(*(_NUMBER.finditer(version) for version in versions), strict=True)
        begin = 0
        for matches in columns:
            values, first = tuple(match[0] for match in matches), matches[0]
            if len(set(values)) > 1 or _FRACTION.search(values[0]):
                text = first.string[begin : first.start()]
                places.append((at, text.strip(" \t,;:=([{|"), values))
            begin = first.end()
    if not places:
        return Comparison([], differing, None)
    samples = [[float(v) for v in values] for *_, values in places]
    estimate = significant_digits(
        torch.tensor(samples, dtype=torch.float64, device="cpu").T, digits=_FLOAT64_BITS
    )
    numbers = [
        Printed(line, text, values, _at_most(found, values))
        for (line, text, values), found in zip(places, estimate.decimal.tolist(), strict=True)
    ]
    return Comparison(numbers, differing, estimate)


def _at_most(found: float, values: tuple[str, ...]) -> float:
    """Cut digits at those that were printed; 0 has one."""
    printed = max(len(re.sub(r"[eE].*|\D", "", v).lstrip("0")) or 1 for v in values)
    return found if found != found else min(found, printed)
