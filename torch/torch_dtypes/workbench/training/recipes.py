"""Recipes: which numbers of a training are in a format, and which stay float32.

A network is built in float32 and an ordinary ``nn.Module`` in all of them; what a format means is decided below PyTorch's operators, in
``torch_dtypes.optim.LowPrecision`` and in ``torch_dtypes.quantize_``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import torch

import torch_dtypes

from . import loop
from .generators import forked_generators
from .networks import (
    AFTER,
    QUANTIZING,
    dtype_name,
    quantize,
    resolve_dtype,
)
from .ranks import ALONE
from .records import Run
from .repeatable import repeatable


@dataclass(frozen=True)
class RulesFile:
    """What stands for a format where the rules of a file say it: ``name`` is the file's, for the tables."""

    name: str


@dataclass(frozen=True)
class Trial:
    """A row of the comparison: a recipe, and a dtype, a target or a file of rules for it, with the user's name for that."""

    recipe: str
    number: object
    said: str | None = field(default=None, compare=False)

    @property
    def name(self):
        return dtype_name(self.number)

    @property
    def label(self):
        name = self.said or self.name
        return name if self.recipe == "all" else f"{name} {self.recipe}"


def resolve(name, recipe):
    """What ``name`` means for a recipe: a floating-point dtype or, where layers round, anything that ``torch_dtypes.target`` takes.

    Raises:
        ValueError: it means nothing, or only something that the recipe cannot train in.
    """
    if recipe == "weights":
        made = torch_dtypes.target(name)
        if made.needs_scale:
            raise ValueError(f"expected a format without scales for --recipe weights, but got {name}: that is for {', '.join(QUANTIZING)}")
        return made
    try:
        return resolve_dtype(name)
    except ValueError as error:
        try:
            made = torch_dtypes.target(name)
        except ValueError as other:
            raise (other if recipe in QUANTIZING else error) from None
        if recipe in QUANTIZING:
            return made
        if isinstance(made, torch_dtypes.quantization.FormatTarget) and made.stock is None:  # "posit<12,1>"
            return made.dtype
        raise ValueError(
            f"expected a dtype for --recipe {recipe}, whose network has it throughout, but got {name}: "
            f"blocks and integers are for --recipe {', '.join(QUANTIZING)}"
        ) from None


@torch.no_grad()
def round_weights(model, number):
    """Rounds every parameter of a network, in place and once; buffers (batch normalisation's statistics) stay."""
    made = torch_dtypes.target(number)
    for parameter in model.parameters():
        parameter.copy_(made.quantize(parameter))


def after_training(trained, number, recipe="ptq", config=None, ranks=ALONE):
    """The run of a recipe that begins after a training: ``trained``, a ``loop.Training`` in float32 that has come to its end, tested after rounding.

    Its epochs are those of the training, the last with the rounded network's test. ``config`` says what holds for the rounding, by default
    what held for the training. ``ranks`` share the test.
    """
    data, before = trained.data, trained.run
    config = config or trained.config
    run = Run(dtype_name(number), before.seed, list(before.epochs), before.divergence, recipe)
    if before.diverged_at is None:
        model = copy.deepcopy(trained.model)
        with forked_generators(config.device == "cuda"):
            torch.manual_seed(before.seed)
            if recipe == "weights":
                round_weights(model, number)
            else:
                quantize(model, config, data, number, recipe)
            with repeatable(config.device):
                loss, accuracy = loop.evaluate(model, data.test, torch.float32, config.device, ranks)
        diverged = not loss < float("inf")
        if diverged:
            run.divergence = loop.explanation_of_test(model, data.test, torch.float32, config)
        run.epochs[-1] = replace(run.epochs[-1], test_loss=loss, accuracy=accuracy, diverged=diverged)
    return run


def try_out(config, data, trial):
    """One step of a trial with two images, so that what it lacks is an error before hours of training.

    Returns:
        Whether a parameter was left without a gradient.
    """
    few = replace_split(data, 2)
    small = replace(config, epochs=1, batch_size=2)
    recipe, number = ("all", torch.float32) if trial.recipe in AFTER else (trial.recipe, trial.number)
    training = loop.Training(small, few, number, 0, recipe)
    training.go()
    if trial.recipe in AFTER:
        after_training(training, trial.number, trial.recipe)
    return any(p.requires_grad and p.grad is None for p in training.model.parameters())


def replace_split(data, count):
    """The data set with its first images only."""
    return replace(data, train=data.train.first(count), test=data.test.first(count))
