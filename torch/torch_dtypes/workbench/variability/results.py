"""Settings and results of a study of variability."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..report.page import Report, Reported
from . import report
from .digits import Digits


@dataclass(frozen=True)
class Settings:
    """The arguments of ``variability``: how the program is perturbed and judged."""

    repeats: int = 10
    mode: str = "stochastic"
    format: str | None = None  # in float32's place; None: each tensor's own numbers
    level: str = "operator"
    fused: bool = True
    seed: int = 0
    probability: float = 0.95
    confidence: float = 0.95
    where: bool = True
    where_repeats: int = 3
    metric: str = "distance"
    tolerance: float | None = None


@dataclass(frozen=True)
class Metric:
    """One number of the program, over the repeats."""

    name: str
    exact: float  # in IEEE arithmetic
    values: list[float]
    nonparametric: Digits
    classic: Digits


@dataclass(frozen=True)
class Layer:
    """The activations of one module, or one parameter, over the repeats, as quantiles of their
    elements' digits."""

    name: str
    kind: str
    elements: int  # elements that are not 0 in every run
    least: float
    low: float  # 5 % of the elements have no more digits
    median: float
    classic: float  # median of the classic estimate


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch of a training, over the repeats."""

    epoch: int
    metrics: list[Metric]


@dataclass(frozen=True)
class Part:
    """One module, perturbed alone."""

    name: str
    kind: str
    operations: int
    deviation: float  # largest deviation of the chosen metric over the repeats
    digits: float  # median of the output's elements
    fails: bool


@dataclass
class Variability(Reported):
    """The results of a study; ``report.py`` shows them."""

    settings: Settings
    what: str
    samples: int
    metrics: list[Metric] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    parameters: list[Layer] = field(default_factory=list)  # after a training
    epochs: list[Epoch] = field(default_factory=list)  # of a training
    bits: int = 24  # of the output's significands
    output: Layer | None = None
    dice: float | None = None
    deterministic: bool = True
    unseen: dict[str, int] = field(default_factory=dict)
    deviation: float = math.nan  # of the chosen metric, with all modules perturbed
    tolerance: float = math.nan
    parts: list[Part] = field(default_factory=list)
    responsible: list[list[str]] = field(default_factory=list)
    runs: int = 0
    title: str = "Numerical variability"

    _stem = "variability"

    def report(self, command: str | None = None) -> Report:
        """Build the :class:`Report`."""
        return report.report_of(self, command)

    def as_json(self) -> dict:
        """Return plain data: every number of every run."""
        return report.as_json(self)
