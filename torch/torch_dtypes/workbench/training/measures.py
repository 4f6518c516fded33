"""Measures of a network on test data: accuracy, loss, and the perplexity of a text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .records import Epoch


@dataclass(frozen=True)
class Measure:
    """A number of an epoch, and how it is written and drawn.

    Attributes:
        name: its name in tables, figures and file names.
        unit: the unit behind a number, with a blank before it.
        of_gap: the unit of a difference, in a sentence.
        digits: the digits after the point. least: the shortest range that an axis shows.
        most: the largest possible value.
        of: a function of an :class:`Epoch`.
    """

    name: str
    unit: str
    of_gap: str
    digits: int
    least: float
    most: float
    of: Callable[[Epoch], float]


def perplexity(loss: float) -> float:
    """Return exp(loss), for a mean cross-entropy in nats; infinite beyond float64's range."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


ACCURACY = Measure("accuracy", " %", "points", 2, 1.0, 100.0, lambda epoch: epoch.accuracy)
LOSS = Measure("loss", "", "nats", 4, 0.02, math.inf, lambda epoch: epoch.test_loss)
PERPLEXITY = Measure(
    "perplexity", "", "perplexity", 3, 0.1, math.inf, lambda epoch: perplexity(epoch.test_loss)
)
MEASURES = (ACCURACY, LOSS, PERPLEXITY)


def measures_of(is_text: bool) -> tuple[Measure, Measure]:
    """Return the measure by which a report compares, and the one beside it."""
    return (PERPLEXITY, ACCURACY) if is_text else (ACCURACY, LOSS)
