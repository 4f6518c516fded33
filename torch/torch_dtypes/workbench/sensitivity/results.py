"""Results of a study: sensitivities, and the mixtures that are chosen by them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..report.folders import write_text
from ..report.page import Report, Reported
from . import report
from .choosing import SLACK, Mixture, assign
from .figures import heatmap_figure
from .layers import Layer

if TYPE_CHECKING:
    from .study import Study

_TRADE_OFF_BUDGETS = 12  # closer at few bits, because the first bits matter most


@dataclass(frozen=True)
class Settings:
    """The arguments of ``sensitivity``, and the policy of a surrounding block of ``accumulate``."""

    formats: tuple[str, ...]
    recipe: str = "ptq"
    metric: str = "loss"
    seed: int = 0
    accumulate: str | None = None


@dataclass
class Sensitivity(Reported):
    """The results of a study. A notebook shows its report.

    Attributes:
        settings: ``formats`` (as given), ``recipe``, ``metric``, ``seed``, ``accumulate`` (the
            policy of a surrounding block, or None).
        samples: the number of inputs. runs: the number of evaluations of the network.
        layers: the rounded layers, in the model's order: ``name``, ``kind``, ``elements``
            (weights), ``tied`` (layers that share a weight with it).
        float32: the metric of the model in float32; for ``accuracy`` the error rate in percent, for
            ``distance`` 0.
        rises: by layer and format, the rise of the metric if only this layer is rounded; infinite
            if the metric is not finite then.
        uniform: for each format, the ``Mixture`` that has it in all layers. mixtures: the chosen
            mixtures, in order.
    """

    settings: Settings
    samples: int
    layers: list[Layer]
    float32: float = math.nan
    rises: dict[str, dict[str, float]] = field(default_factory=dict)
    uniform: dict[str, Mixture] = field(default_factory=dict)
    mixtures: list[Mixture] = field(default_factory=list)
    runs: int = 0
    title: str = "Sensitivity of layers to formats"
    _stem = "sensitivity"
    # None for a result from a pickle.
    _study: Study | None = field(default=None, repr=False, compare=False)
    _trade_off: list[Mixture] | None = field(default=None, repr=False)

    def rows(self) -> list[dict]:
        """Return a row for each layer and format: layer, kind, elements, format, bits (a weight, by
        the format's own figure), rise."""
        bits = {name: mixture.bits for name, mixture in self.uniform.items()}
        return [
            {
                "layer": x.name,
                "kind": x.kind,
                "elements": x.elements,
                "format": name,
                "bits": bits[name],
                "rise": self.rises[x.name][name],
            }
            for x in self.layers
            for name in self.settings.formats
        ]

    def choose(self, *, bits: float | None = None, metric: float | None = None) -> Mixture:
        """Choose the mixture of formats with the least sum of rises within a budget, and measure
        it.

        Args:
            bits: the budget of bits a weight, averaged over all weights, by the formats' own
                figures: the mixture has the least sum of rises within it.
            metric: the largest sum of rises: the mixture has the fewest bits within it.

        Raises:
            ValueError: both or neither of them, a number that is not finite, a budget that no
                mixture fits, a layer that is finite in no format; a result from a pickle.
            ModuleNotFoundError: without scipy.
        """
        if (bits is None) == (metric is None):
            raise ValueError(
                "expected one of bits= and metric=, but got "
                f"{'none' if bits is None else f'bits={bits!r} and metric={metric!r}'}"
            )
        kind, limit = ("bits", bits) if metric is None else ("metric", metric)
        if (
            isinstance(limit, bool)
            or not isinstance(limit, (int, float))
            or not math.isfinite(limit)
        ):
            raise ValueError(f"expected a finite number for {kind}=, but got {limit!r}")
        check_bits({name: mixture.bits for name, mixture in self.uniform.items()})
        formats = self._assign(kind, float(limit))
        study = self._expect_study()
        with study.shown.show_bar():
            mixture = study.mixture(formats, "mixtures", (kind, float(limit)))
        self.mixtures = [*(m for m in self.mixtures if m.budget != mixture.budget), mixture]
        return mixture

    def trade_off(self) -> list[Mixture]:
        """Return mixtures for budgets from the fewest bits to the most, each measured once; none if
        a layer is finite in no format, or the bits of a format are not known.

        Raises:
            ModuleNotFoundError: without scipy.
            ValueError: a result from a pickle without them.
        """
        if self._trade_off is None:
            different = {}
            known = not any(math.isnan(m.bits) for m in self.uniform.values())
            if known and all(
                any(map(math.isfinite, rises.values())) for rises in self.rises.values()
            ):
                first, last = least_bits(self), max(m.bits for m in self.uniform.values())
                budgets = [
                    first + (last - first) * (k / (_TRADE_OFF_BUDGETS - 1)) ** 2
                    for k in range(_TRADE_OFF_BUDGETS)
                ]
                different = {
                    tuple(formats.values()): formats
                    for formats in (self._assign("bits", budget) for budget in budgets)
                }
            self._trade_off = self._measure(list(different.values())) if different else []
        return self._trade_off

    def _measure(self, mixtures: list[dict[str, str]]) -> list[Mixture]:
        study = self._expect_study()
        with study.shown.show_bar():
            return [
                study.mixture(formats, "trade-off", None, len(mixtures)) for formats in mixtures
            ]

    def _expect_study(self) -> Study:
        """Return the study, which measures mixtures."""
        if self._study is None:
            raise ValueError(
                "expected a result with its network and data, to measure a mixture, but got one "
                "from a pickle, which has only measurements; call choose() or trade_off() before "
                "pickling, or sensitivity() again"
            )
        return self._study

    def _assign(self, kind: str, limit: float) -> dict[str, str]:
        """Choose the format of each layer within a limit."""
        names = self.settings.formats
        for layer in self.layers:
            if not any(map(math.isfinite, self.rises[layer.name].values())):
                raise ValueError(
                    f"expected a format with a finite metric for {layer.name!r}, but it has no "
                    f"finite {self.settings.metric} in {', '.join(names)}"
                )
        elements = sum(x.elements for x in self.layers)
        rises = [[self.rises[x.name][name] for name in names] for x in self.layers]
        costs = [[x.elements * self.uniform[name].bits for name in names] for x in self.layers]
        if kind == "bits":
            columns = assign(rises, costs, limit * elements * (1 + SLACK))
        else:
            slack = SLACK * math.fsum(abs(x) for row in rises for x in row if math.isfinite(x))
            columns = assign(costs, rises, limit + slack)
        if columns is None:
            least = least_bits(self) if kind == "bits" else math.fsum(map(min, rises))
            what = (
                "bits a weight, the fewest that these formats take"
                if kind == "bits"
                else f"of the {self.settings.metric}, the least sum of rises"
            )
            raise ValueError(f"expected a budget of at least {least:.6g} {what}, but got {limit:g}")
        return {layer.name: names[j] for layer, j in zip(self.layers, columns, strict=True)}

    def heatmap(self, width: str = "page"):
        """Draw a matplotlib figure: layers by formats, coloured by the rise; darker is worse.
        ``width``: ``"page"``, or ``"column"`` of a paper."""
        return heatmap_figure(self, width)

    def as_json(self) -> dict:
        """Return plain data: every measured number."""
        return report.as_json(self)

    def report(self, command: str | None = None) -> Report:
        """Build the :class:`Report`. It measures the mixtures of the trade-off once, except for a
        result from a pickle."""
        return report.report_of(self, command)

    def write(self, folder: str | os.PathLike, command: str | None = None) -> list[Path]:
        """Write ``sensitivity.html`` (one file, which needs no network), ``sensitivity.json``,
        tables as CSV, and figures as PNG, SVG and PDF. For each chosen mixture, write
        ``rules-<budget>.yaml``, which ``quantize_`` reads. A result from a pickle has only the
        mixtures measured before.

        Raises:
            OSError: a file cannot be written.
            ModuleNotFoundError: without scipy, for the mixtures of the trade-off, or PyYAML.
        """
        if self._study is not None:
            self.trade_off()
        written = super().write(folder, command)
        for m in self.mixtures:
            written.insert(-2, Path(folder) / report.file_name(m))
            write_text(written[-3], report.rules_text(self, m))
        return written

    def _repr_html_(self) -> str:
        return report.report_of(self, measure=False).fragment()  # showing it runs nothing

    def __repr__(self) -> str:
        return f"<Sensitivity of {len(self.layers)} layers to {', '.join(self.settings.formats)}>"


def check_bits(formats: dict[str, float]) -> None:
    """Raise ValueError if the bits a weight of a format, by its name, are not known."""
    for name, bits in formats.items():
        if math.isnan(bits):
            raise ValueError(
                f"expected formats whose bits a weight are known, to choose a mixture, but got "
                f"{name}; give the quantiser an attribute bits"
            )


def least_bits(result: Sensitivity) -> float:
    """Return the fewest bits a weight of a mixture in which each layer alone is finite."""
    total = sum(x.elements for x in result.layers)
    finite = (
        [
            result.uniform[name].bits
            for name, x in result.rises[layer.name].items()
            if math.isfinite(x)
        ]
        for layer in result.layers
    )
    return (
        math.fsum(
            layer.elements * min(bits) for layer, bits in zip(result.layers, finite, strict=True)
        )
        / total
    )
