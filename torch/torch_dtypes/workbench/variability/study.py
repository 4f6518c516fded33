"""The study of variability: repeats, statistics of metrics, labels and layers, and the search for
the modules that lose the digits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields

import torch
from torch import nn

from ...formats.arguments import expect_settings, find_mode, mode_name
from ...fuzzing import fuzzy
from ...fuzzing.arguments import check_level
from ...targets.lookup import target
from ..report.progress import OnRun, Shown
from .batches import check_metric, distance
from .delta import Search, responsible
from .digits import check_shares
from .metrics import check_metrics
from .programs import Inference, Outcome, Training
from .results import Epoch, Part, Settings, Variability
from .spreads import Spread, bits_of, digits_of_metrics, minimum_dice

METRICS = ("distance", "loss", "accuracy")
# Seeds of a study: more than it has runs, so that two studies draw different numbers.
_SEEDS = 1_000_003


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
        self._check_metric(exact)
        runs = []
        activations, parameters = (
            {name: Spread(x, s.format) for name, x in tensors.items()}
            for tensors in (exact.activations, exact.parameters)
        )
        output = Spread(exact.output, s.format)
        for i in range(s.repeats):
            outcome = self._run("repeats", s.repeats, i, None, watched=True)
            for name, x in outcome.activations.items():
                activations[name].add(x)
            for name, x in outcome.parameters.items():
                parameters[name].add(x)
            output.add(outcome.output)
            outcome.activations, outcome.parameters = {}, {}
            runs.append(outcome)
            result.unseen.update(outcome.unseen)
        result.bits = bits = bits_of(exact.output.dtype, s.format)
        result.layers = [x.layer(name, self._kinds[name]) for name, x in activations.items()]
        result.parameters = [x.layer(name, "") for name, x in parameters.items()]
        result.output = output.layer("output", "")
        result.metrics = digits_of_metrics(exact.metrics, [r.metrics for r in runs], bits, s)
        for number, epoch in enumerate(exact.epochs):
            of_runs = [r.epochs[number] if number < len(r.epochs) else {} for r in runs]
            result.epochs.append(Epoch(number + 1, digits_of_metrics(epoch, of_runs, bits, s)))
        if exact.labels is not None:
            result.dice = minimum_dice([r.labels for r in runs])
        result.deviation = max(self._distance(r, exact) for r in runs)
        result.tolerance = result.deviation / 2 if s.tolerance is None else s.tolerance
        if s.where:
            self._where(exact)
        return result

    def _check_metric(self, exact: Outcome) -> None:
        known = ("distance", *exact.metrics)
        if self.settings.metric not in known:
            raise ValueError(
                f"expected a metric that the program has, one of {', '.join(known)}, but got "
                f"{self.settings.metric!r}"
            )

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
            torch.equal(*(x.contiguous().view(torch.uint8) for x in pair)) for pair in pairs
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
            spread, operations, worst = Spread(exact.output, s.format), 0, 0.0
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
                digits = spread.layer(name, "").median
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
    metrics: Mapping[str, Callable] | Iterable[Callable | str] | None = None,
    on_run: OnRun | None = None,
    progress: bool | None = None,
    **settings,
) -> Variability:
    """Measure how much a network's answers depend on rounding, and find the modules responsible::

        found = torch_dtypes.variability(model, loader, repeats=20)
        found.print()
        found.write("report")

    The network runs twice in IEEE arithmetic and ``repeats`` times under ``fuzzy``. Then it runs
    with one module perturbed at a time, and with sets of modules until the smallest responsible
    ones are known (delta debugging). It runs in evaluation mode, without gradients, and its modes
    are restored.

    Args:
        model: a network on the CPU, or on a GPU for which this package has kernels.
        metrics: functions of the output for all data and the targets, by name or in a list, beside
            loss and accuracy. They run in stock arithmetic, and return a number, or several as a
            mapping or a one-dimensional tensor. ``"dice"`` is the Dice score of each class.
        batches, criterion, on_run, progress: as ``data`` and the same arguments of
            :func:`sensitivity`.
        settings: ``repeats`` (10, at least 2); ``mode``, ``format``, ``level``,
            ``fused``, as in ``fuzzy``; ``seed`` (0); ``probability``, ``confidence`` (0.95), as in
            ``significant_digits``; ``where`` (True: search for the modules); ``where_repeats`` (3
            runs of each set); ``metric``: ``"distance"`` of the output from the IEEE output,
            relative, in the Euclidean norm, or a metric's name; ``tolerance``: a set of
            modules is responsible if it moves the metric further from IEEE's (None: half of the
            move by all modules). ``format`` (None: each tensor's own numbers).

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
    functions = check_metrics(metrics)
    chosen = check_settings(Settings(**settings), METRICS if not functions else ())
    check_no_block(
        "variability",
        "mode={mode!r} rounds all operations; a format's own mode belongs in its name, as in "
        "'q43_{mode}'",
    )
    fuzzy(model, chosen.mode, format=chosen.format)  # raises its errors
    check_one_mode(chosen)
    shown = Shown(progress, on_run)
    with shown.show_bar():
        program = Inference(model, batches, criterion, functions)
        return Study(program, chosen, shown).go()


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
    own = "nearest_even" if s.format is None else target(s.format).rounding
    if own not in ("nearest_even", mode_name(s.mode)):
        raise ValueError(
            f"expected one rounding mode, but got {mode_name(s.mode)}, and {own} in the name "
            f"{s.format}; leave it out of the name"
        )


def check_settings(s: Settings, metrics: Sequence[str] = METRICS) -> Settings:
    """Return the settings, or raise an error that names the wrong one. ``metrics`` are the metrics
    that a search can go by; empty: known after a run."""
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
    if metrics and s.metric not in metrics:
        raise ValueError(f"expected a metric out of {', '.join(metrics)}, but got {s.metric!r}")
    if s.tolerance is not None and not (math.isfinite(s.tolerance) and s.tolerance >= 0):
        raise ValueError(f"expected a tolerance of at least 0, but got {s.tolerance!r}")
    return s
