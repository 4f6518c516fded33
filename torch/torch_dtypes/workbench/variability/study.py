"""The study of variability: repeats, statistics of metrics, labels and layers, and the search for
the modules that lose the digits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import fields

import torch
from torch import nn

from ...formats.arguments import expect_settings, find_mode, mode_name
from ...formats.dtypes import format_of
from ...fuzzing import fuzzy
from ...fuzzing.arguments import check_level
from ...targets.lookup import target
from ..report.progress import OnRun, Shown
from .batches import check_metric, distance
from .delta import Search, responsible
from .digits import check_shares, significant_digits
from .programs import Inference, Outcome, Training
from .results import Layer, Metric, Part, Settings, Variability

METRICS = ("distance", "loss", "accuracy")
# Seeds of a study: more than it has runs, so that two studies draw different numbers.
_SEEDS = 1_000_003


class Spread:
    """Elementwise statistics of one tensor over runs, which it does not keep, against the IEEE
    run."""

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
    """Return the smallest Dice score, 2 |A and B| / (|A| + |B|), over pairs of label maps and the
    labels in either."""
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
    """Runs the study of a program. Before each run it calls ``on_run(what, total)`` with the stage
    and its number of runs (None: unknown)."""

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
        s, result = self.settings, self.found
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
            result.unseen.update(outcome.unseen)
        bits = self._bits()
        result.layers = [
            spread.layer(name, self._kinds[name], bits) for name, spread in spreads.items()
        ]
        result.output = output.layer("output", "", bits)
        for name, value in exact.metrics.items():
            values = [r.metrics[name] for r in runs]
            nonparametric = significant_digits(
                values, digits=bits, probability=s.probability, confidence=s.confidence
            )
            result.metrics.append(
                Metric(
                    name,
                    value,
                    values,
                    nonparametric,
                    significant_digits(values, method="classic", digits=bits),
                )
            )
        if exact.labels is not None:
            result.dice = minimum_dice([r.labels for r in runs])
        if s.metric not in ("distance", *exact.metrics):
            raise ValueError(
                "expected a metric that the program has, one of distance, "
                f"{', '.join(exact.metrics)}, but got {s.metric}"
            )
        result.deviation = max(self._distance(r, exact) for r in runs)
        result.tolerance = result.deviation / 2 if s.tolerance is None else s.tolerance
        if s.where:
            self._where(exact)
        return result

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
            "level": s.level,
            "fused": s.fused,
            "seed": s.seed * _SEEDS + repeat,
        }

        def block(model: nn.Module):
            return fuzzy(model, **options, modules=names, nested=False)

        return self._count(what, total, lambda: self.program.run(block, watched))

    def _bits(self) -> int:
        return format_of(self.settings.format).significand_bits

    def _distance(self, outcome: Outcome, exact: Outcome) -> float:
        """Return how far a run is from the IEEE run in the chosen metric; infinite if a number is
        not finite."""
        if self.settings.metric == "distance":
            result = distance(outcome.output, exact.output)
        else:
            result = abs(
                outcome.metrics[self.settings.metric] - exact.metrics[self.settings.metric]
            )
        return result if math.isfinite(result) else math.inf

    def _where(self, exact: Outcome) -> None:
        s, result = self.settings, self.found
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
                    break  # the module computes nothing by itself
                spread.add(outcome.output)
                worst = max(worst, self._distance(outcome, exact))
            if operations:
                deviations[name] = worst
                digits = spread.layer(name, "", self._bits()).median
                result.parts.append(
                    Part(
                        name, self._kinds[name], operations, worst, digits, worst > result.tolerance
                    )
                )

        def fails(chosen: tuple[str, ...]) -> bool:
            for i in range(s.where_repeats):
                if (
                    self._distance(
                        self._run("search for the modules responsible", None, i, chosen), exact
                    )
                    > result.tolerance
                ):
                    return True
            return False

        search = Search(fails)
        search.known.update(
            {frozenset((name,)): worst > result.tolerance for name, worst in deviations.items()}
        )
        result.responsible = responsible(list(deviations), search)


def variability(
    model: nn.Module,
    batches: Iterable[tuple],
    *,
    criterion: Callable | None = None,
    on_run: OnRun | None = None,
    progress: bool | None = None,
    **settings,
) -> Variability:
    """Measure how much a float32 network's answers depend on rounding, and find the modules
    responsible::

        found = torch_dtypes.variability(model, loader, repeats=20)
        found.print()
        found.write("report")

    The network runs twice in IEEE arithmetic and ``repeats`` times under ``fuzzy``. Then it runs
    with one module perturbed at a time, and with sets of modules until the smallest responsible
    ones are known (delta debugging). It runs in evaluation mode, without gradients, and its modes
    are restored.

    Args:
        model: a float32 network on the CPU, or on a GPU for which this package has kernels.
        batches, criterion, on_run, progress: as ``data`` and the same arguments of
            :func:`sensitivity`.
        settings: ``repeats`` (10, at least 2); ``mode``, ``format``, ``level``,
            ``fused``, as in ``fuzzy``; ``seed`` (0); ``probability``, ``confidence`` (0.95), as in
            ``significant_digits``; ``where`` (True: search for the modules); ``where_repeats`` (3
            runs of each set); ``metric``: ``"distance"`` of the output from the IEEE output,
            relative, in the Euclidean norm, or ``"loss"``, ``"accuracy"``; ``tolerance``: a set of
            modules is responsible if it moves the metric further from IEEE's (None: half of the
            move by all modules).

    Returns:
        A :class:`Variability`: ``.metrics``, ``.layers``, ``.dice``, ``.parts``, ``.responsible``,
        ``.print()``, ``.write(folder)``.

    Raises:
        ValueError, TypeError: unsuitable settings, model or batches, before any run; a ``with
            rounding(...)`` block around it; a criterion that does not return one number.

    Example::

        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> batches = [(torch.randn(16, 4), torch.randint(2, (16,)))]
        >>> found = torch_dtypes.variability(model, batches, repeats=4, where=False)
        >>> found.deterministic, [metric.name for metric in found.metrics]
        (True, ['loss', 'accuracy'])
    """
    expect_settings("variability", settings, [f.name for f in fields(Settings)])
    chosen = check_settings(Settings(**settings))
    check_no_block(
        "variability",
        "mode={mode!r} rounds all operations; a format's own mode belongs in its name, as in "
        "'q43_{mode}'",
    )
    fuzzy(model, chosen.mode, format=chosen.format)  # raises its errors
    check_one_mode(chosen)
    shown = Shown(progress, on_run)
    with shown.show_bar():
        return Study(Inference(model, batches, criterion), chosen, shown).go()


def check_no_block(what: str, instead: str) -> None:
    """Refuse an open ``with rounding(...)`` block: it would change the measurement, and no report
    could mention it."""
    if (mode := find_mode(None)) is not None:
        raise ValueError(
            f"expected {what} outside of blocks of torch_dtypes.rounding, but got one of {mode!r} "
            f"around it: {instead.format(mode=mode)}"
        )


def check_one_mode(s: Settings) -> None:
    """Refuse another rounding mode in the format's name, because it would be dropped."""
    own = target(s.format).rounding
    if own not in ("nearest_even", mode_name(s.mode)):
        raise ValueError(
            f"expected one rounding mode, but got {mode_name(s.mode)}, and {own} in the name "
            f"{s.format}; leave it out of the name"
        )


def check_settings(s: Settings) -> Settings:
    """Return the settings, or raise an error that names the wrong one."""
    for name, least in (("repeats", 2), ("where_repeats", 1), ("seed", 0)):
        value = getattr(s, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"expected {name} of at least {least}, but got {value!r}")
    most = (2**63 - 1 - s.repeats) // _SEEDS
    if s.seed > most:
        raise ValueError(f"expected seed from 0 to {most}, but got {s.seed}")
    check_level(s.level, s.fused, None)
    check_shares(s.probability, s.confidence)
    check_metric(s.metric)
    if s.metric not in METRICS:
        raise ValueError(f"expected a metric out of {', '.join(METRICS)}, but got {s.metric!r}")
    if s.tolerance is not None and not (math.isfinite(s.tolerance) and s.tolerance >= 0):
        raise ValueError(f"expected a tolerance of at least 0, but got {s.tolerance!r}")
    return s
