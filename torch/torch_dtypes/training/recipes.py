"""Recipes: which numbers of a training are in a format, and which stay float32.

A network is built in float32 and an ordinary ``nn.Module`` in all of them; what a format means is decided below PyTorch's operators, in
``torch_dtypes.optim.LowPrecision`` and in ``torch_dtypes.quantize_``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import nn

from . import loop
from .models import build_model
from .records import Run

RECIPES = {
    "all": "weights, activations, gradients and the optimizer's state in the dtype",
    "master": "the network and its gradients in the dtype, float32 masters: the weights are their rounding after each step",
    "mixed": "a float32 network whose layers round weights, activations, errors and gradients",
    "qat": "quantisation-aware: layers round weights and activations, gradients stay float32",
    "ptq": "trained in float32, then weights and activations rounded, with scales from training images",
}
_QUANTIZING = ("mixed", "qat", "ptq")  # which take whatever torch_dtypes.target takes

_LAYERS = (nn.Conv2d, nn.Linear)
_CALIBRATION_IMAGES = 256


@dataclass(frozen=True)
class Trial:
    """A row of the comparison: a recipe, and a dtype or target for it."""

    recipe: str
    number: object

    @property
    def name(self):
        return loop.dtype_name(self.number)

    @property
    def label(self):
        return self.name if self.recipe == "all" else f"{self.name} {self.recipe}"


def resolve(name, recipe):
    """What ``name`` means for a recipe: a floating-point dtype or, where layers round, anything that ``torch_dtypes.target`` takes.

    Raises:
        ValueError: it means nothing, or only something that the recipe cannot train in.
    """
    from torch_dtypes import target

    try:
        return loop.resolve_dtype(name)
    except ValueError as error:
        try:
            made = target(name)
        except ValueError as other:
            raise (other if recipe in _QUANTIZING else error) from None
        if recipe in _QUANTIZING:
            return made
        raise ValueError(
            f"expected a dtype for --recipe {recipe}, whose network has it throughout, but got {name}: "
            f"blocks and integers are for --recipe {', '.join(_QUANTIZING)}"
        ) from None


def set_up(config, data, number, recipe):
    """A network fresh from torch's default generator and its optimizer.

    Returns:
        ``(model, optimizer, dtype)``, the last that of the images.
    """
    from torch_dtypes.optim import LowPrecision

    model = build_model(config.model, data.channels, image_size=config.image_size).to(config.device)
    dtype = torch.float32
    if recipe in ("all", "master"):
        dtype = number
        model.to(dtype)
    else:
        quantize(model, config, data, number, recipe)
    optimizer = loop.build_optimizer(config, model.parameters())
    if recipe == "master":
        optimizer = LowPrecision(optimizer, master=master_of(config, number), state=config.state, grad_scale=config.loss_scale)
    elif config.loss_scale is not None and recipe != "all":
        optimizer = LowPrecision(optimizer, grad_scale=config.loss_scale)
    return model, optimizer, dtype


def master_of(config, number):
    """The ``master`` of ``LowPrecision``: float64 where a dtype has more digits than float32."""
    if config.master == "none":
        return None
    if config.master == "float32":
        return torch.float64 if torch.finfo(number).eps < torch.finfo(torch.float32).eps else torch.float32
    return config.master


def rules_of(config, number, recipe):
    """The rules of ``torch_dtypes.quantize_``: of a file, or the same for every convolution and linear layer."""
    if config.rules is not None:
        return config.rules
    places = ("weight", "activation", "error", "grad") if recipe == "mixed" else ("weight", "activation")
    return {layer: dict.fromkeys(places, number) for layer in _LAYERS}


def quantize(model, config, data, number, recipe):
    """Makes the network's layers round, with scales from the first training images where the rules ask for them."""
    import torch_dtypes

    images, _ = data.train.batch(torch.arange(min(_CALIBRATION_IMAGES, len(data.train))), config.image_size)
    batches = [batch.to(config.device) for batch in images.split(config.batch_size)]
    torch_dtypes.quantize_(model, rules_of(config, number, recipe), calibrate=batches)


def after_training(trained, number):
    """The run of the recipe ``ptq``: ``trained``, a ``loop.Training`` in float32 that has come to its end, tested after quantisation.

    Its epochs are those of the training, the last with the quantised network's test.
    """
    config, data, before = trained.config, trained.data, trained.run
    run = Run(loop.dtype_name(number), before.seed, list(before.epochs), before.divergence, "ptq")
    if before.diverged_at is None:
        model = copy.deepcopy(trained.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(before.seed)
            quantize(model, config, data, number, "ptq")
            loss, accuracy = loop.evaluate(model, data.test, torch.float32, config.device, config.image_size)
        diverged = not loss < float("inf")
        run.epochs[-1] = replace(run.epochs[-1], test_loss=loss, accuracy=accuracy, diverged=diverged)
    return run


def try_out(config, data, trial):
    """One step of a trial with two images, so that what it lacks is an error before hours of training."""
    few = replace_split(data, 2)
    small = replace(config, epochs=1, batch_size=2)
    recipe, number = ("all", torch.float32) if trial.recipe == "ptq" else (trial.recipe, trial.number)
    training = loop.Training(small, few, number, 0, recipe)
    training.go()
    if trial.recipe == "ptq":
        after_training(training, trial.number)


def replace_split(data, count):
    """The data set with its first images only."""

    def first(split):
        return type(split)(split.pixels[:count], split.labels[:count])

    return replace(data, train=first(data.train), test=first(data.test))
