"""The study: run a network with one layer rounded at a time, with all of them, and with mixtures of
formats."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn

from ...formats.arguments import choice, integer, outline
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
    build_rules,
    check_model,
    find_layers,
    find_targets,
    stored_bits_a_weight,
)
from .results import Sensitivity, Settings

METRICS = ("loss", "accuracy", "distance")

_INSTEAD = (
    "a mode belongs in the formats' names, as in 'q43_{mode}', or "
    "torch_dtypes.target('q43').with_rounding({mode!r}), which rules and reports say"
)


class Study:
    """Evaluates a model. Before each run it calls ``shown(what, total)`` with the stage and its
    number of runs (None: unknown).

    It has a copy of the model, so later changes of the user's model affect no mixture. A pickle of
    a result leaves the study out, with the network, the data and functions that may not pickle. A
    deep copy of a result has a study of the same network and data.
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
        self._model = _copy_model(model)
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
        copied = memo[id(self)] = object.__new__(Study)
        vars(copied).update(
            vars(self), _scales=dict(self._scales), found=copy.deepcopy(self.found, memo)
        )
        return copied

    def __reduce__(self):
        return _restore_without_study, ()

    def go(self) -> Sensitivity:
        result, names = self.found, self.found.settings.formats
        self._exact = self._run("float32", 1, {})
        metric = result.settings.metric
        if metric == "accuracy" and "accuracy" not in self._exact.metrics:
            raise ValueError(
                "expected metric='loss' or 'distance' for targets that are no labels of classes, "
                "or outputs that are no tensor, but got 'accuracy'"
            )
        result.float32 = self._value(self._exact)
        if not math.isfinite(result.float32):
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
            result.rises[layer] = {
                name: self._value(outcome) - result.float32 for name, outcome in outcomes.items()
            }
        for name, formats in everywhere.items():
            result.uniform[name] = self._mixture(formats, whole[name], None)
        return result

    def mixture(
        self,
        formats: dict[str, str],
        stage: str,
        budget: tuple[str, float] | None,
        total: int | None = None,
    ) -> Mixture:
        """Measure a mixture."""
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
            self._collect_scales(formats),
            budget,
        )

    def _rules(self, formats: Mapping[str, str]) -> dict[str, dict]:
        recipe, rules = self.found.settings.recipe, {}
        for layer, name in formats.items():
            rules |= build_rules(self._layers[layer], self._targets[name], recipe)
        return rules

    def _run(self, stage: str, total: int | None, formats: Mapping[str, str]) -> Outcome:
        """Run the network with these layers rounded."""
        check_no_block("sensitivity", _INSTEAD)
        self.shown(stage, total)
        self.found.runs += 1
        with _draw_from_seed(self.found.settings.seed), in_policy(self.found.settings.accumulate):
            return Inference(self._round_layers(formats), self._batches, self._criterion).run(
                lambda model: contextlib.nullcontext()
            )

    def _round_layers(self, formats: Mapping[str, str]) -> nn.Module:
        """Return the model with these layers rounded, on the parameters of this study."""
        model = copy.deepcopy(self._model, {id(p): p for p in self._model.parameters()})
        return (
            quantize_(model, self._rules(formats), self._collect_scales(formats))
            if formats
            else model
        )

    def _calibration(self) -> dict:
        """Return the arguments with which ``quantize_`` runs the calibration. By default it takes
        the first of a tuple; for several inputs, ``forward`` takes them all."""
        if len(self._batches[0]) == 2:
            return {"calibrate": self._calibrate}
        several = len(self._batches[0]) - 1
        return {
            "calibrate": self._calibrate,
            "forward": lambda model, batch: model(*batch[:several]),
        }

    def _collect_scales(self, formats: Mapping[str, str]) -> OrderedDict:
        """Return a state dict with the scales of calibration alone. Since calibration runs in
        float32, they do not depend on which layers round."""
        state = OrderedDict()
        state._metadata = {}
        if self.found.settings.recipe == "ptq":
            for layer, name in formats.items():
                if self._targets[name].needs_scale:
                    scales = self._calibrate_scales(name)
                    state._metadata.update(
                        {part.name: scales.get(part.name, {}) for part in self._layers[layer].parts}
                    )
        return state

    def _calibrate_scales(self, name: str) -> Mapping:
        """Return the scales of a format in all layers."""
        if name not in self._scales:
            model = copy.deepcopy(self._model, {id(p): p for p in self._model.parameters()})
            with _draw_from_seed(self.found.settings.seed):
                self._scales[name] = (
                    quantize_(
                        model,
                        self._rules(dict.fromkeys(self._layers, name)),
                        **self._calibration(),
                    )
                    .state_dict()
                    ._metadata
                )
        return self._scales[name]

    def _first_batches(self) -> list[Batch]:
        """Return the first batches, with as many inputs as ``train`` calibrates on."""
        kept, count = [], 0
        for batch in self._batches:
            if count < CALIBRATION_IMAGES:
                kept.append(batch)
                count += len(batch[-1])
        return kept

    def _value(self, outcome: Outcome) -> float:
        """Return the metric, the lower the better; infinite if it, or the loss, is not finite."""
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


def _restore_without_study() -> None:
    """Return None, the study of a result from a pickle."""


def _copy_model(model: nn.Module) -> nn.Module:
    """Copy a model with its parameters. Tensors that pruning or weight normalisation computed from
    parameters have a graph, so they are copied detached."""
    copies = {
        id(t): t.detach().clone()
        for m in model.modules()
        for t in vars(m).values()
        if isinstance(t, torch.Tensor) and not t.is_leaf
    }
    return copy.deepcopy(model, copies)


@contextlib.contextmanager
def _draw_from_seed(seed: int) -> Iterator[None]:
    """Draw random numbers from the seed in a block; the generators continue as before after it."""
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
    """Measure how sensitive each layer of a float32 network is to formats, and find the mixture of
    formats for a budget of bits (mixed-precision assignment)::

        found = torch_dtypes.sensitivity(model, loader, ["q43", "mxfp4", "int8"])
        found.print()
        mixture = found.choose(bits=6)
        torch_dtypes.quantize_(model, mixture.rules, calibrate=mixture.scales)

    The sensitivity of a layer l to a format f is metric(the network with l alone rounded to f) -
    metric(the network in float32). It is infinite where a metric or the loss is not finite. All
    formats are also measured in all layers at once. ``choose`` finds exactly the assignment with
    the least sum of sensitivities within a mean number of bits a weight. Then it measures it, since
    rises need not add up. docs/how-to/find-sensitive-layers.md explains them.

    The model and torch's random numbers are restored. A copy, which the result keeps, runs in
    evaluation mode, without gradients. Layers that share a weight (a tied embedding and output
    layer) count as one: ``rises`` and ``formats`` have the first name, ``rules`` have them all. A
    pickle of the result has the measurements without model and data, so ``choose`` before.

    Args:
        model: a float32 model on one device, without rules of ``quantize_``.
        data: batches ``(inputs, targets)`` on that device, kept in memory: a DataLoader or a list.
            Inputs are a tensor or a dict of keyword arguments; several are
            ``(first, second, ..., targets)``. Integer targets are labels of classes.
        formats: names, dtypes, blocks, integers, quantisers, as in ``torch_dtypes.target``.
            ``"float32"`` counts as a format of 32 bits.
        layers: the layers to round, as in the rules of ``quantize_``: one or several module types,
            names, regular expressions over names or predicates. None: all linear and bilinear
            layers, convolutions, recurrent layers, attentions (each with its output projection) and
            embeddings.
        recipe: ``"ptq"`` rounds a layer's weights and its input activations. Integers have a scale
            for each output channel, and for activations one by calibration. ``"weights"`` rounds
            only the weights, with the same scales. Biases stay.
        metric: ``"loss"``; ``"accuracy"``, as the error rate in percent, for labels only;
            ``"distance"`` of the outputs from float32's, relative, in the Euclidean norm, over all
            floating-point numbers of a dict or a tuple.
        criterion: a function of an output (also a dict or tuple) and its targets that returns a
            mean as one number, a 0-d tensor or a float; None: cross-entropy for labels, else the
            mean squared error.
        calibrate: batches for the scales of integers' activations, as in ``quantize_``, or with as
            many inputs as ``data`` has; None: the first batches of ``data``, up to 256 inputs.
        seed: the seed of stochastic formats, 0 to 2^63 - 1: each run draws from it, so rises are a
            sample.
        on_run: a function to call before each run with the stage's name and its number of runs, or
            None.
        progress: whether to show progress on standard error: a bar on a terminal or in a notebook,
            else a line for each stage. None: only as a bar, and only without ``on_run``.

    Returns:
        A :class:`Sensitivity`: ``.rises[layer][format]``, ``.uniform``, ``.choose(bits=...)``,
        ``.print()``, ``.heatmap()``, ``.write(folder)``.

    Raises:
        ValueError: an unknown or repeated format; no layer; data without inputs; a model with
            rules, or with a loss in float32 that is not finite; a format to which a layer cannot be
            rounded; a surrounding ``with rounding(...)`` block, since formats' names give the
            modes.
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
    targets = find_targets(formats)
    check_metric(metric)
    settings = Settings(
        tuple(targets),
        choice("recipe", recipe, RECIPES),
        choice("metric", metric, METRICS),
        integer("seed", seed, 0, 2**63 - 1),
        policy_of_block(),
    )
    chosen = find_layers(model, layers)
    check_loader(calibrate, None)
    if isinstance(calibrate, Mapping):
        raise TypeError(
            f"expected calibrate= as an iterable of batches, but got {outline(calibrate)}"
        )
    shown = Shown(progress, on_run)
    with forked_generators(), shown.show_bar():  # a DataLoader or a model may draw random numbers
        return Study(model, data, settings, targets, chosen, criterion, calibrate, shown).go()
