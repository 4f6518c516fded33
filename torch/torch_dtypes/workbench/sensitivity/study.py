"""The study: a network with one layer rounded at a time, with all of them, and with mixtures of
formats."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn

from ...formats.arguments import choice, integer, said
from ...policies.accumulation import in_policy, policy_of_block
from ...quantization.calibrate import check_loader
from ...quantization.convert import quantize_
from ...targets.lookup import Target
from ..report.progress import OnRun, Shown
from ..training.generators import forked_generators
from ..training.recipes import CALIBRATION_IMAGES
from ..variability.batches import Batch, check_metric, distance
from ..variability.programs import Inference, Outcome
from ..variability.study import check_no_block
from .choosing import Mixture
from .layers import (
    RECIPES,
    Layer,
    bits_a_weight,
    check_model,
    layers_of,
    rules_in,
    stored_bits_a_weight,
    targets_of,
)
from .results import Sensitivity, Settings

METRICS = ("loss", "accuracy", "distance")

_INSTEAD = (
    "a mode belongs in the formats' names, as in 'q43_{mode}', or "
    "torch_dtypes.target('q43').with_rounding({mode!r}), which rules and reports say"
)


class Study:
    """Evaluates a model, telling ``shown(what, total)`` before each run how many there will be in
    that stage (None: not known).

    It has a copy of the model: what becomes of the user's afterwards changes no mixture that is
    measured later. A pickle of a result leaves it out, and with it the network, the data and
    functions that may be no module's; a deep copy of a result has a study of the same network and
    data.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable,
        settings: Settings,
        targets: Mapping[str, Target],
        layers: list[Layer],
        criterion: Callable | None = None,
        calibrate: Iterable | None = None,
        shown: Shown | None = None,
    ) -> None:
        self._model = _copied(model)
        self._batches, self._criterion = (
            Inference(self._model, batches, criterion).batches,
            criterion,
        )
        self._targets, self._layers = dict(targets), {x.name: x for x in layers}
        self._calibrate = self._first_batches() if calibrate is None else list(calibrate)
        self.shown = shown or Shown(False, None)
        self._scales: dict[str, Mapping] = {}
        self._exact: Outcome | None = None
        self.found = Sensitivity(
            settings, sum(len(targets) for *_, targets in self._batches), layers, _study=self
        )
        if not self.found.samples:
            raise ValueError("expected data with at least one input, but got none")

    def __deepcopy__(self, memo: dict) -> Study:
        made = memo[id(self)] = object.__new__(Study)
        vars(made).update(
            vars(self), _scales=dict(self._scales), found=copy.deepcopy(self.found, memo)
        )
        return made

    def __reduce__(self):
        return _left_out, ()

    def go(self) -> Sensitivity:
        found, names = self.found, self.found.settings.formats
        self._exact = self._run("float32", 1, {})
        metric = found.settings.metric
        if metric == "accuracy" and "accuracy" not in self._exact.metrics:
            raise ValueError(
                "expected metric='loss' or 'distance' for targets that are no labels of classes, "
                "or outputs that are no tensor, but got 'accuracy'"
            )
        found.float32 = self._value(self._exact)
        if not math.isfinite(found.float32):
            raise ValueError(
                "expected a finite loss of the model in float32, but got "
                f"{self._exact.metrics['loss']} on these data"
            )
        everywhere = {name: dict.fromkeys(self._layers, name) for name in names}
        whole = {
            name: self._value(self._run("each format in all layers", len(names), formats))
            for name, formats in everywhere.items()
        }
        for layer in self._layers:
            outcomes = {
                name: self._run(
                    "one layer at a time", len(names) * len(self._layers), {layer: name}
                )
                for name in names
            }
            found.rises[layer] = {
                name: self._value(outcome) - found.float32 for name, outcome in outcomes.items()
            }
        for name, formats in everywhere.items():
            found.uniform[name] = self._mixture(formats, whole[name], None)
        return found

    def mixture(
        self,
        formats: dict[str, str],
        stage: str,
        budget: tuple[str, float] | None,
        total: int | None = None,
    ) -> Mixture:
        """A mixture, measured."""
        return self._mixture(formats, self._value(self._run(stage, total, formats)), budget)

    def _mixture(
        self, formats: dict[str, str], measured: float, budget: tuple[str, float] | None
    ) -> Mixture:
        layers = list(self._layers.values())
        bits, stored = (
            of(layers, formats, self._targets) for of in (bits_a_weight, stored_bits_a_weight)
        )
        predicted = math.fsum(
            [
                self.found.float32,
                *(self.found.rises[layer][name] for layer, name in formats.items()),
            ]
        )
        return Mixture(
            formats,
            self._rules(formats),
            bits,
            stored,
            predicted,
            measured,
            self._scales_of(formats),
            budget,
        )

    def _rules(self, formats: Mapping[str, str]) -> dict[str, dict]:
        recipe, rules = self.found.settings.recipe, {}
        for layer, name in formats.items():
            rules |= rules_in(self._layers[layer], self._targets[name], recipe)
        return rules

    def _run(self, stage: str, total: int | None, formats: Mapping[str, str]) -> Outcome:
        """The whole network with these layers rounded."""
        check_no_block("sensitivity", _INSTEAD)
        self.shown(stage, total)
        self.found.runs += 1
        with _seeded(self.found.settings.seed), in_policy(self.found.settings.accumulate):
            return Inference(self._rounded(formats), self._batches, self._criterion).run(
                lambda model: contextlib.nullcontext()
            )

    def _rounded(self, formats: Mapping[str, str]) -> nn.Module:
        """The model with these layers rounded; its parameters are this study's own."""
        made = copy.deepcopy(self._model, {id(p): p for p in self._model.parameters()})
        return quantize_(made, self._rules(formats), self._scales_of(formats)) if formats else made

    def _calibration(self) -> dict:
        """How ``quantize_`` runs the batches of calibration: by itself on the first of a tuple; on
        all inputs where the data have several."""
        if len(self._batches[0]) == 2:
            return {"calibrate": self._calibrate}
        several = len(self._batches[0]) - 1
        return {
            "calibrate": self._calibrate,
            "forward": lambda model, batch: model(*batch[:several]),
        }

    def _scales_of(self, formats: Mapping[str, str]) -> OrderedDict:
        """A state dict with the scales of calibration alone. They are the same whichever layers
        round: calibration runs in float32."""
        state = OrderedDict()
        state._metadata = {}
        if self.found.settings.recipe == "ptq":
            for layer, name in formats.items():
                if self._targets[name].needs_scale:
                    scales = self._calibrated(name)
                    state._metadata.update(
                        {part.name: scales.get(part.name, {}) for part in self._layers[layer].parts}
                    )
        return state

    def _calibrated(self, name: str) -> Mapping:
        """The scales of a format in all layers."""
        if name not in self._scales:
            made = copy.deepcopy(self._model, {id(p): p for p in self._model.parameters()})
            with _seeded(self.found.settings.seed):
                self._scales[name] = (
                    quantize_(
                        made, self._rules(dict.fromkeys(self._layers, name)), **self._calibration()
                    )
                    .state_dict()
                    ._metadata
                )
        return self._scales[name]

    def _first_batches(self) -> list[Batch]:
        """The first batches, with as many inputs as ``train`` calibrates on."""
        kept, count = [], 0
        for batch in self._batches:
            if count < CALIBRATION_IMAGES:
                kept.append(batch)
                count += len(batch[-1])
        return kept

    def _value(self, outcome: Outcome) -> float:
        """The metric, the lower the better; infinite where it, or the loss, is not finite."""
        metric = self.found.settings.metric
        if metric == "distance":
            value = distance(outcome.output, self._exact.output)
        else:
            value = (
                outcome.metrics["loss"] if metric == "loss" else 100 - outcome.metrics["accuracy"]
            )
        return (
            value if math.isfinite(value) and math.isfinite(outcome.metrics["loss"]) else math.inf
        )


def _left_out() -> None:
    """The study of a result that comes from a pickle."""


def _copied(model: nn.Module) -> nn.Module:
    """A copy with parameters of its own; of tensors that pruning or weight normalisation have made
    of parameters, too, which know their graph."""
    made = {
        id(t): t.detach().clone()
        for m in model.modules()
        for t in vars(m).values()
        if isinstance(t, torch.Tensor) and not t.is_leaf
    }
    return copy.deepcopy(model, made)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers of the seed; those of before go on behind the block."""
    with forked_generators():
        torch.manual_seed(seed)
        yield


def sensitivity(
    model: nn.Module,
    data: Iterable[tuple],
    formats: Iterable,
    *,
    layers: object = None,
    recipe: str = "ptq",
    metric: str = "loss",
    criterion: Callable | None = None,
    calibrate: Iterable | None = None,
    seed: int = 0,
    on_run: OnRun | None = None,
    progress: bool | None = None,
) -> Sensitivity:
    """Which formats each layer of a float32 network bears, and which mixture of them fits a budget
    of bits (mixed-precision assignment)::

        found = torch_dtypes.sensitivity(model, loader, ["q43", "mxfp4", "int8"])
        found.print()
        mixture = found.choose(bits=6)
        torch_dtypes.quantize_(model, mixture.rules, calibrate=mixture.scales)

    The sensitivity of a layer l to a format f is metric(the network with l alone rounded to f) -
    metric(the network in float32), infinite where they or the loss are not finite. All formats are
    also measured in all layers at once. ``choose`` finds the assignment with the least sum of
    sensitivities within a mean number of bits a weight, exactly, and measures it, since rises need
    not add up. docs/how-to/find-sensitive-layers.md shows an example.

    The model is as before afterwards, as are torch's random numbers. A copy, which the result
    keeps, runs in evaluation mode, without gradients. Layers that share a weight (a tied embedding
    and output layer) are one: ``rises`` and ``formats`` have it by the name of the first, ``rules``
    have them all. A pickle of the result has what was measured, without model and data: ``choose``
    first.

    Args:
        model: float32, on one device, without rules of ``quantize_``.
        data: batches ``(inputs, targets)`` on that device, kept in memory: a DataLoader or a list.
            Inputs are a tensor or a dict of keyword arguments; several are
            ``(first, second, ..., targets)``. Integer targets are labels of classes.
        formats: what ``torch_dtypes.target`` takes: names, dtypes, blocks, integers. ``"float32"``
            is one, of 32 bits.
        layers: which are rounded: module types, names, regular expressions over names or
            predicates, one or several, as ``quantize_``'s rules have them. None: all linear and
            bilinear layers, convolutions, recurrent layers, attentions (each with its output
            projection) and embeddings.
        recipe: ``"ptq"`` rounds a layer's weights and the activations that come in, integers with a
            scale of each output channel, and of activations by calibration; ``"weights"`` its
            weights alone, with the same scales. Biases stay.
        metric: ``"loss"``; ``"accuracy"``, as the error rate in percent, of labels alone;
            ``"distance"`` of the outputs from float32's, relative, in the Euclidean norm, over all
            floating-point numbers of a dict or a tuple.
        criterion: of an output, a dict or a tuple too, and its targets, a mean over them as one
            number, a 0-d tensor or a float; None: cross-entropy for labels, else the mean squared
            error.
        calibrate: batches for the scales of integers' activations, as ``quantize_`` takes them, or
            with as many inputs as ``data`` has; None: the first batches of ``data``, until there
            are 256 inputs.
        seed: of stochastic formats: each run draws from it, 0 to 2^63 - 1, so that rises are a
            sample.
        on_run: called before each run with the stage's name and how many runs it has, or None.
        progress: whether standard error shows how far it is: a bar on a terminal or in a notebook,
            else a line for each stage. None: where a bar can be shown and there is no ``on_run``.

    Returns:
        A :class:`Sensitivity`: ``.rises[layer][format]``, ``.uniform``, ``.choose(bits=...)``,
        ``.print()``, ``.heatmap()``, ``.write(folder)``.

    Raises:
        ValueError: an unknown format, or one twice; no layer; data without inputs; a model with
            rules, or whose loss is not finite in float32; a format that a layer cannot be rounded
            to; a ``with rounding(...)`` block around it: a mode is said by formats' names.
        TypeError: a model in another dtype than float32, or arguments of other types.

    Sources: HAWQ (Dong et al., arXiv 1905.03696), HAWQ-V3 (Yao et al., arXiv 2011.10680).

    Example::

        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> data = [(torch.randn(16, 4), torch.randint(2, (16,)))]
        >>> found = torch_dtypes.sensitivity(model, data, ["q43", "e5m7"])
        >>> found.choose(bits=8).formats
        {'0': 'q43', '2': 'q43'}
        >>> sorted(found.rises), found.uniform["e5m7"].bits
        (['0', '2'], 13.0)
    """
    check_model(model)
    targets = targets_of(formats)
    check_metric(metric)
    settings = Settings(
        tuple(targets),
        choice("recipe", recipe, RECIPES),
        choice("metric", metric, METRICS),
        integer("seed", seed, 0, 2**63 - 1),
        policy_of_block(),
    )
    chosen = layers_of(model, layers)
    check_loader(calibrate, None)
    if isinstance(calibrate, Mapping):
        raise TypeError(f"expected calibrate= as an iterable of batches, but got {said(calibrate)}")
    shown = Shown(progress, on_run)
    with forked_generators(), shown.going():  # a DataLoader draws, and so may a model
        return Study(model, data, settings, targets, chosen, criterion, calibrate, shown).go()
