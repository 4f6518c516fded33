"""The study: repeats, what they say of metrics, labels and layers, and the search for the modules
that the digits are lost in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import fields

import torch
from torch import nn

from ...formats.arguments import boolean, expect_settings, find_mode, mode_name
from ...formats.dtypes import format_of
from ...fuzzing import fuzzy
from ...targets.lookup import target
from ..report.progress import OnRun, Shown
from .batches import check_metric, distance
from .delta import Search, responsible
from .digits import check_shares, significant_digits
from .programs import Inference, Outcome, Training
from .results import Layer, Metric, Part, Settings, Variability

METRICS = ("distance", "loss", "accuracy")
# Of a study: more than it has runs, so that those of two studies draw other numbers.
_SEEDS = 1_000_003


class Spread:
    """Elementwise statistics of one tensor over runs, without the runs: against the IEEE one."""

    def __init__(self, exact: torch.Tensor) -> None:
        self.exact = exact.double()
        self.mean, self.squares = torch.zeros_like(self.exact), torch.zeros_like(self.exact)
        self.far, self.n, self.finite = torch.zeros_like(self.exact), 0, self.exact.isfinite()

    def add(self, x: torch.Tensor) -> None:
        x = x.double()
        self.n += 1
        self.finite &= x.isfinite()
        step = x - self.mean
        self.mean += step / self.n
        self.squares += step * (x - self.mean)
        self.far = torch.maximum(self.far, (x - self.exact).abs())

    def layer(self, name: str, kind: str, bits: int) -> Layer:
        most = bits * math.log10(2)

        def digits(error, of):
            found = torch.where(error == 0, most, -torch.log10(error / of.abs())).clamp(0, most)
            return torch.where(self.finite, found.nan_to_num(0.0), 0.0)

        counts = (self.exact != 0) | (self.far != 0)
        if not counts.any():
            return Layer(name, kind, 0, most, most, most, most)
        found = digits(self.far, self.exact)[counts].sort().values
        classic = digits((self.squares / max(self.n - 1, 1)).sqrt(), self.mean)[counts]
        low = found[int(0.05 * (len(found) - 1))].item()
        return Layer(
            name,
            kind,
            int(counts.sum()),
            found[0].item(),
            low,
            found.median().item(),
            classic.median().item(),
        )


def minimum_dice(labels: list[torch.Tensor]) -> float:
    """The smallest Dice score of two maps of labels and a label that one of them has: 2 |A and B| /
    (|A| + |B|)."""
    least = 1.0
    for i, a in enumerate(labels):
        for b in labels[i + 1 :]:
            n = int(max(a.max(), b.max())) + 1
            both = torch.bincount(a[a == b].flatten(), minlength=n).double()
            each = (
                torch.bincount(a.flatten(), minlength=n) + torch.bincount(b.flatten(), minlength=n)
            ).double()
            least = min(least, (2 * both / each)[each > 0].min().item())
    return least


class Study:
    """Runs a program's study, telling ``on_run(what, total)`` before each run how many there will
    be in that stage (None: not known)."""

    def __init__(
        self, program: Inference | Training, settings: Settings, on_run: OnRun | None = None
    ) -> None:
        self.program, self.settings = program, settings
        self._on_run = on_run or (lambda what, total: None)
        self.found = Variability(settings, program.what, sum(len(t) for *_, t in program.batches))
        self._kinds = {
            name: type(module).__name__ for name, module in program.model.named_modules()
        }

    def go(self) -> Variability:
        s, found = self.settings, self.found
        exact = self._exact()
        runs = []
        spreads = {name: Spread(x) for name, x in exact.activations.items()}
        output = Spread(exact.output)
        for i in range(s.repeats):
            outcome = self._run("repeats", s.repeats, i, None, watched=True)
            for name, x in outcome.activations.items():
                spreads[name].add(x)
            output.add(outcome.output)
            outcome.activations = {}
            runs.append(outcome)
            found.unseen.update(outcome.unseen)
        bits = self._bits()
        found.layers = [
            spread.layer(name, self._kinds[name], bits) for name, spread in spreads.items()
        ]
        found.output = output.layer("output", "", bits)
        for name, value in exact.metrics.items():
            values = [r.metrics[name] for r in runs]
            nonparametric = significant_digits(
                values, digits=bits, probability=s.probability, confidence=s.confidence
            )
            found.metrics.append(
                Metric(
                    name,
                    value,
                    values,
                    nonparametric,
                    significant_digits(values, method="classic", digits=bits),
                )
            )
        if exact.labels is not None:
            found.dice = minimum_dice([r.labels for r in runs])
        if s.metric not in ("distance", *exact.metrics):
            raise ValueError(
                "expected a metric that the program has, one of distance, "
                f"{', '.join(exact.metrics)}, but got {s.metric}"
            )
        found.deviation = max(self._distance(r, exact) for r in runs)
        found.tolerance = found.deviation / 2 if s.tolerance is None else s.tolerance
        if s.where:
            self._where(exact)
        return found

    def _exact(self) -> Outcome:
        first, second = (
            self._count(
                "IEEE arithmetic",
                2,
                lambda: self.program.run(lambda model: contextlib.nullcontext(), True),
            )
            for _ in range(2)
        )
        same = first.metrics == second.metrics or any(map(math.isnan, first.metrics.values()))
        pairs = [
            (first.output, second.output),
            *((x, second.activations[name]) for name, x in first.activations.items()),
        ]
        self.found.deterministic = same and all(
            torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs
        )
        return first

    def _count(self, what: str, total: int | None, run: Callable[[], Outcome]) -> Outcome:
        self._on_run(what, total)
        self.found.runs += 1
        return run()

    def _run(
        self,
        what: str,
        total: int | None,
        repeat: int,
        names: tuple[str, ...] | None,
        watched: bool = False,
    ) -> Outcome:
        s = self.settings
        options = {
            "mode": s.mode,
            "format": s.format,
            "dot_products": s.dot_products,
            "seed": s.seed * _SEEDS + repeat,
        }

        def block(model: nn.Module):
            return fuzzy(model, **options, modules=names, nested=False)

        return self._count(what, total, lambda: self.program.run(block, watched))

    def _bits(self) -> int:
        return format_of(self.settings.format).significand_bits

    def _distance(self, outcome: Outcome, exact: Outcome) -> float:
        """How far a run is from the one in IEEE arithmetic, in the chosen metric; infinite where a
        number is not finite."""
        if self.settings.metric == "distance":
            result = distance(outcome.output, exact.output)
        else:
            result = abs(
                outcome.metrics[self.settings.metric] - exact.metrics[self.settings.metric]
            )
        return result if math.isfinite(result) else math.inf

    def _where(self, exact: Outcome) -> None:
        s, found = self.settings, self.found
        deviations: dict[str, float] = {}
        names = self.program.modules()
        for name in names:
            spread, operations, worst = Spread(exact.output), 0, 0.0
            for i in range(s.where_repeats):
                outcome = self._run(
                    "one module at a time", len(names) * s.where_repeats, i, (name,)
                )
                operations = outcome.operations
                if not operations:
                    break  # it computes nothing by itself
                spread.add(outcome.output)
                worst = max(worst, self._distance(outcome, exact))
            if operations:
                deviations[name] = worst
                digits = spread.layer(name, "", self._bits()).median
                found.parts.append(
                    Part(
                        name, self._kinds[name], operations, worst, digits, worst > found.tolerance
                    )
                )

        def fails(chosen: tuple[str, ...]) -> bool:
            for i in range(s.where_repeats):
                if (
                    self._distance(
                        self._run("search for the modules responsible", None, i, chosen), exact
                    )
                    > found.tolerance
                ):
                    return True
            return False

        search = Search(fails)
        search.known.update(
            {frozenset((name,)): worst > found.tolerance for name, worst in deviations.items()}
        )
        found.responsible = responsible(list(deviations), search)


def variability(
    model: nn.Module,
    batches: Iterable[tuple],
    *,
    criterion: Callable | None = None,
    on_run: OnRun | None = None,
    progress: bool | None = None,
    **settings,
) -> Variability:
    """How much a float32 network's answers depend on rounding, and which of its modules decide
    that::

        found = torch_dtypes.variability(model, loader, repeats=20)
        found.print()
        found.write("report")

    The network runs twice in IEEE arithmetic, ``repeats`` times under ``fuzzy``, then with one
    module perturbed at a time, and with sets of modules until the smallest that are responsible are
    known (delta debugging). It runs in evaluation mode, without gradients, and is as before
    afterwards.

    Args:
        model: float32, on the CPU, or on a GPU for which this package has kernels.
        batches, criterion, on_run, progress: as ``data`` and these of :func:`sensitivity`.
        settings: ``repeats`` (10, at least 2), ``mode``, ``format``, ``dot_products`` (those of
            ``fuzzy``), ``seed`` (0), ``probability``, ``confidence`` (0.95; those of
            ``significant_digits``), ``where`` (True: look for the modules), ``where_repeats`` (3
            runs of each set), ``metric`` (``"distance"`` of the output from IEEE's, relative, in
            the Euclidean norm; ``"loss"``, ``"accuracy"``), ``tolerance``: a set of modules is
            responsible where the metric is further from IEEE's than that (None: half of what
            rounding every operation does).

    Returns:
        A :class:`Variability`: ``.metrics``, ``.layers``, ``.dice``, ``.parts``, ``.responsible``,
        ``.print()``, ``.write(folder)``.

    Raises:
        ValueError, TypeError: settings, a model or batches that do not serve, before anything is
            run; a ``with rounding(...)`` block around it; a criterion that returns no one number.

    Example::

        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> batches = [(torch.randn(16, 4), torch.randint(2, (16,)))]
        >>> found = torch_dtypes.variability(model, batches, repeats=4, where=False)
        >>> found.deterministic, [metric.name for metric in found.metrics]
        (True, ['loss', 'accuracy'])
    """
    expect_settings("variability", settings, [f.name for f in fields(Settings)])
    chosen = checked(Settings(**settings))
    check_no_block(
        "variability",
        "mode={mode!r} is that of all operations, and a format's own belongs in its name, as in "
        "'q43_{mode}'",
    )
    fuzzy(model, chosen.mode, format=chosen.format)  # its errors
    check_one_mode(chosen)
    shown = Shown(progress, on_run)
    with shown.going():
        return Study(Inference(model, batches, criterion), chosen, shown).go()


def check_no_block(what: str, instead: str) -> None:
    """Sees that no ``with rounding(...)`` block is open, which would change what is measured, and
    no report could say it."""
    if (mode := find_mode(None)) is not None:
        raise ValueError(
            f"expected {what} outside of blocks of torch_dtypes.rounding, but got one of {mode!r} "
            f"around it: {instead.format(mode=mode)}"
        )


def check_one_mode(s: Settings) -> None:
    """Sees that a format's name says no other rounding mode: it would be dropped."""
    own = target(s.format).rounding
    if own not in ("nearest_even", mode_name(s.mode)):
        raise ValueError(
            f"expected one rounding mode, but got {mode_name(s.mode)}, and {own} in the name "
            f"{s.format}; leave it out of the name"
        )


def checked(s: Settings) -> Settings:
    """The settings, or an error that says which is wrong."""
    for name, least in (("repeats", 2), ("where_repeats", 1), ("seed", 0)):
        value = getattr(s, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"expected {name} of at least {least}, but got {value!r}")
    most = (2**63 - 1 - s.repeats) // _SEEDS
    if s.seed > most:
        raise ValueError(f"expected seed from 0 to {most}, but got {s.seed}")
    boolean("dot_products", s.dot_products)
    check_shares(s.probability, s.confidence)
    check_metric(s.metric)
    if s.metric not in METRICS:
        raise ValueError(f"expected a metric out of {', '.join(METRICS)}, but got {s.metric!r}")
    if s.tolerance is not None and not (math.isfinite(s.tolerance) and s.tolerance >= 0):
        raise ValueError(f"expected a tolerance of at least 0, but got {s.tolerance!r}")
    return s
