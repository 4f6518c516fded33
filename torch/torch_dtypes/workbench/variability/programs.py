"""Programs to repeat: a network's answers to test data, or its training before them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from ...fuzzing import Fuzzy
from ..training import loop
from ..training.repeatable import repeatable
from .batches import (
    answer,
    check_criterion,
    compute_loss,
    concatenate,
    load_batches,
    numbers_in,
    tensors_in,
)
from .metrics import Functions, compute_metrics

# Makes the block, with its arithmetic, in which a model runs.
Block = Callable[[nn.Module], contextlib.AbstractContextManager]

_ACTIVATION_SAMPLES = 16  # inputs whose activations are compared, elementwise


@dataclass
class Outcome:
    """The result of one run.

    Attributes:
        metrics: numbers by name.
        output: the network's output for all inputs, ``(N, ...)``; several tensors are
            concatenated in one dimension.
        labels: the class of the largest output; None if the targets are no labels, or the output is
            not one tensor.
        activations: outputs of the modules without submodules, by name, for the first inputs.
        parameters: values after a training, by name. epochs: the metrics after each of its epochs.
        operations: the number of operators that the run computed in the block's arithmetic. unseen:
            the operators left to stock arithmetic, counted by name.
    """

    metrics: dict[str, float]
    output: torch.Tensor
    labels: torch.Tensor | None
    activations: dict[str, torch.Tensor] = field(default_factory=dict)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    epochs: list[dict[str, float]] = field(default_factory=list)
    operations: int = 0
    unseen: dict[str, int] = field(default_factory=dict)


class Inference:
    """Repeats a network's answers to data.

    Args:
        model: a network, on one device.
        batches: ``(inputs, targets)`` in order, on the model's device, kept in memory. Inputs are a
            tensor or a dict of keyword arguments; several are ``(first, second, ..., targets)``.
            Integer targets are labels of classes.
        criterion: a function of an output and its targets that returns a mean; None: cross-entropy
            for labels, else the mean squared error.
        metrics: functions of the output for all data, one tensor, and the targets, by name.
    """

    what = "inference"

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable,
        criterion: Callable | None = None,
        metrics: Functions | None = None,
    ) -> None:
        check_criterion(criterion)
        self.model, self._criterion, self._metrics = model, criterion, metrics or {}
        self.batches = load_batches(batches)
        self._of_labels = not any(targets.is_floating_point() for *_, targets in self.batches)

    def modules(self) -> list[str]:
        return [name for name, _ in self.model.named_modules()]

    @torch.no_grad()
    def run(self, block: Block, watched: bool = False) -> Outcome:
        """Go through the data once. With ``watched``, keep activations."""
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            return self._run(block(self.model), watched)
        finally:
            # Per module, because a frozen BatchNorm stays in evaluation mode
            for module, training in modes:
                module.training = training

    def _run(self, block: contextlib.AbstractContextManager, watched: bool) -> Outcome:
        activations: dict[str, torch.Tensor] = {}
        hooks = [] if not watched else _hooks(self.model, activations)
        outputs, total, count, is_one = [], 0.0, 0, True
        try:
            with repeatable(next(tensors_in(self.batches[0])).device.type), block:
                for batch in self.batches:
                    output, targets = answer(self.model, batch), batch[-1]
                    total += compute_loss(output, targets, self._criterion) * len(targets)
                    count += len(targets)
                    outputs.append(numbers_in(output))
                    is_one = is_one and isinstance(output, torch.Tensor)
                    for hook in hooks:
                        hook.remove()
        finally:
            for hook in hooks:
                hook.remove()
        output = concatenate(outputs)
        metrics, labels = {"loss": total / count}, None
        if self._of_labels and is_one and output.dim() > 1:
            labels_found, targets = (
                output.argmax(1),
                concatenate([targets for *_, targets in self.batches]),
            )
            # With a user's criterion, classes may be in another dimension.
            if labels_found.shape == targets.shape:
                labels, metrics["accuracy"] = (
                    labels_found,
                    100 * (labels_found == targets).double().mean().item(),
                )
        if self._metrics:
            targets = concatenate([targets for *_, targets in self.batches])
            metrics |= compute_metrics(self._metrics, output, targets)
        used, unseen = (
            (sum(block.operations.values()), dict(block.unseen))
            if isinstance(block, Fuzzy)
            else (0, {})
        )
        return Outcome(metrics, output, labels, activations, operations=used, unseen=unseen)


class Training:
    """Repeats a network's training, from the same weights on data in the same order, and its
    answers after it.

    Args:
        config, data, seed: as in ``training.loop.Training``.
    """

    what = "training"

    def __init__(self, config, data, seed: int) -> None:
        self.config, self.data, self.seed = config, data, seed
        self.batches = test_batches(data.test, config)
        self.model = self._new().model

    def _new(self):
        return loop.Training(self.config, self.data, torch.float32, self.seed)

    def modules(self) -> list[str]:
        return [name for name, _ in self.model.named_modules()]

    def run(self, block: Block, watched: bool = False) -> Outcome:
        training = self._new()
        arithmetic = block(training.model)
        with arithmetic:
            training.go()
        used, unseen = (
            (sum(arithmetic.operations.values()), dict(arithmetic.unseen))
            if isinstance(arithmetic, Fuzzy)
            else (0, {})
        )
        outcome = Inference(training.model, self.batches).run(block, watched)
        epochs = training.run.epochs
        outcome.metrics["training loss"] = epochs[-1].train_loss if epochs else math.nan
        outcome.parameters = {
            name: p.detach().clone() for name, p in training.model.named_parameters()
        }
        outcome.epochs = [
            {"training loss": e.train_loss, "loss": e.test_loss, "accuracy": e.accuracy}
            for e in epochs
        ]
        outcome.operations += used
        outcome.unseen = {
            name: outcome.unseen.get(name, 0) + unseen.get(name, 0)
            for name in {**outcome.unseen, **unseen}
        }
        return outcome


def test_batches(split, config, size: int = 256) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a data set's test examples as batches of ``size``, on the device of ``config``, a
    ``training.records.Config``."""
    batches = (split.batch(index) for index in torch.arange(len(split)).split(size))
    return [(inputs.to(config.device), targets.to(config.device)) for inputs, targets in batches]


def _hooks(model: nn.Module, into: dict[str, torch.Tensor]) -> list:
    def keep(name):
        def hook(module, args, output):
            first = output[0] if isinstance(output, (tuple, list)) and output else output
            if isinstance(first, torch.Tensor) and first.is_floating_point() and name not in into:
                into[name] = first[:_ACTIVATION_SAMPLES].detach().clone()

        return hook

    leaves = [
        (name, module) for name, module in model.named_modules() if not any(module.children())
    ]
    return [module.register_forward_hook(keep(name)) for name, module in leaves]
