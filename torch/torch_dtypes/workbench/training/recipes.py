"""Recipes: which numbers of a training have a format, and which stay float32.

In all of them, a network is built in float32 and is an ordinary ``nn.Module``. Formats act below
PyTorch's operators, in ``torch_dtypes.optim.LowPrecision`` and in ``torch_dtypes.quantize_``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

import torch_dtypes

from ...quantization.products import sums_over_several
from ...quantization.recipes import RECIPES as published
from .muon import MuonWithAdamW
from .sources import build_network

RECIPES = {
    "all": "weights, activations, gradients and the optimizer's state in the dtype",
    "master": (
        "the network and its gradients in the dtype, float32 masters: the weights are their "
        "rounding after each step"
    ),
    "mixed": "a float32 network whose layers round weights, activations, errors and gradients",
    "qat": "quantisation-aware: layers round weights and activations, gradients stay float32",
    "ptq": (
        "trained in float32, then weights and activations rounded, integers with scales from "
        "training images"
    ),
    "weights": "trained in float32, then weights and biases rounded, once",
    **{name: f"formats of its own ({made.source})" for name, made in published.items()},
}
PUBLISHED = tuple(published)  # recipes of quantize_ by name, which need no format
# Recipes whose layers round: they take all targets of torch_dtypes.target.
QUANTIZING = ("mixed", "qat", "ptq")
AFTER = ("ptq", "weights")  # recipes that start from a training in float32
THROUGHOUT = ("all", "master")  # recipes whose network has the dtype

OPTIMIZERS = ("adam", "adamw", "sgd", "muon")
_LAYERS = (nn.Conv2d, nn.Linear)
CALIBRATION_IMAGES = 256


def resolve_dtype(name):
    """Return the floating-point ``torch.dtype`` called ``name``: ``torch.<name>`` if that is a
    dtype, otherwise ``torch_dtypes.dtype(name)``.

    Raises:
        ValueError: an unknown name, or a dtype that cannot be trained in.
    """
    name = name.removeprefix("torch.")
    dtype = getattr(torch, name.lower(), None)
    if not isinstance(dtype, torch.dtype):
        dtype = torch_dtypes.dtype(name)
    if not dtype.is_floating_point:
        raise ValueError(f"expected a floating-point dtype, but got {name}")
    return dtype


def dtype_name(number):
    """Return the name of a dtype, without ``torch.``, or of another target."""
    return str(number).removeprefix("torch.") if isinstance(number, torch.dtype) else number.name


def build_optimizer(config, parameters):
    """Build the optimizer of ``config`` over ``parameters``; muon's over a model, which
    tells the hidden layers.

    Raises:
        ValueError: an unknown name.
    """
    settings = {"lr": config.lr or config.default_lr}
    if config.weight_decay is not None:
        settings["weight_decay"] = config.weight_decay
    if config.optimizer == "muon":
        return MuonWithAdamW(parameters, **settings)
    if config.optimizer in ("adam", "adamw"):
        build = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
        return build(parameters, **settings, **({} if config.eps is None else {"eps": config.eps}))
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=config.momentum, **settings)
    raise ValueError(
        f"expected an optimizer out of {', '.join(OPTIMIZERS)}, but got {config.optimizer!r}"
    )


@dataclass(frozen=True)
class RulesFile:
    """Stands for a format where rules give it: those of a file or a published recipe. ``name`` is
    theirs, for the tables."""

    name: str


@dataclass(frozen=True)
class Trial:
    """A row of the comparison: a recipe with a dtype, a target or a file of rules, and the user's
    name for that."""

    recipe: str
    number: object
    said: str | None = field(default=None, compare=False)

    @property
    def name(self):
        return dtype_name(self.number)

    @property
    def label(self):
        name = self.said or self.name
        return name if self.recipe in ("all", name) else f"{name} {self.recipe}"


def resolve(name, recipe):
    """Return the meaning of ``name`` for a recipe: a floating-point dtype or, if its layers round,
    any target of ``torch_dtypes.target``.

    Raises:
        ValueError: the name means nothing, or the recipe cannot train in it.
    """
    if recipe == "weights":
        a_target = torch_dtypes.target(name)
        if a_target.needs_scale:
            raise ValueError(
                f"expected a format without scales for --recipe weights, but got {name}: that is "
                f"for {', '.join(QUANTIZING)}"
            )
        return a_target
    try:
        return resolve_dtype(name)
    except ValueError as error:
        try:
            a_target = torch_dtypes.target(name)
        except ValueError as other:
            raise (other if recipe in QUANTIZING else error) from None
        if recipe in QUANTIZING:
            return a_target
        # Names such as "posit<12,1>".
        if isinstance(a_target, torch_dtypes.quantization.FormatTarget) and a_target.stock is None:
            return a_target.dtype
        raise ValueError(
            f"expected a dtype for --recipe {recipe}, whose network has it throughout, but got "
            f"{name}: blocks and integers are for --recipe {', '.join(QUANTIZING)}"
        ) from None


def set_up(config, data, number, recipe):
    """Build a network, initialised from torch's default generator, and its optimizer.

    Returns:
        ``(model, optimizer, dtype)``, the last for the images.
    """
    model = build_network(config, data).to(config.device)
    dtype = torch.float32
    if recipe in THROUGHOUT:
        dtype = number
        model.to(dtype)
    else:
        quantize(model, config, data, number, recipe)
    optimizer = build_optimizer(config, model if config.optimizer == "muon" else model.parameters())
    if recipe == "master":
        optimizer = torch_dtypes.optim.LowPrecision(
            optimizer,
            master=master_of(config, number),
            state=config.state,
            grad_scale=config.loss_scale,
        )
    elif config.loss_scale is not None and recipe != "all":
        optimizer = torch_dtypes.optim.LowPrecision(optimizer, grad_scale=config.loss_scale)
    return model, optimizer, dtype


def master_of(config, number):
    """Return the ``master`` of ``LowPrecision``: float64 if a dtype has more digits than
    float32."""
    if config.master == "none":
        return None
    if config.master == "float32":
        return (
            torch.float64
            if torch.finfo(number).eps < torch.finfo(torch.float32).eps
            else torch.float32
        )
    return config.master


def rules_of(config, number, recipe):
    """Return the rules of ``torch_dtypes.quantize_``: a published recipe's, a file's, or the same
    for every convolution and linear layer.

    Formats round weights and activations as they are. Gradients are far below the range of most
    formats. So each tensor is scaled by a power of two, which brings its largest magnitude to the
    end of the range (for posits, of their finest range). Integers have a scale for each output
    channel of weights. The scales of their activations come from training images in ``ptq``, from
    earlier steps in ``qat``, and in ``mixed`` from each tensor, as for gradients. Blocks have their
    own scales, and round gradients stochastically, because with four bits networks learn only so
    (NVIDIA, "Pretraining large language models with NVFP4", arXiv 2509.25149, section 4).
    """
    if recipe in PUBLISHED:
        return recipe
    if config.rules is not None:
        return config.rules
    rule = (
        _integer_rule(number, recipe)
        if torch_dtypes.target(number).needs_scale
        else _format_rule(number)
    )
    places = (
        ("weight", "activation", "error", "grad") if recipe == "mixed" else ("weight", "activation")
    )
    sums = {} if config.accumulate is None else {"accumulate": config.accumulate}
    return {layer: {place: rule[place] for place in places} | sums for layer in _LAYERS}


def _format_rule(number):
    target = torch_dtypes.target(number)
    is_format = isinstance(target, torch_dtypes.quantization.FormatTarget)
    gradient = (
        {"format": number, "scale": "power_of_two"}
        if is_format
        else {"format": number, "rounding": "stochastic"}
    )
    return {"weight": number, "activation": number, "error": gradient, "grad": gradient}


def _integer_rule(number, recipe):
    activations = {"ptq": "calibration", "qat": "delayed", "mixed": "call"}[recipe]
    return {
        "weight": {"format": number, "per": "channel"},
        "activation": {"format": number, "when": activations},
        "error": number,
        "grad": number,
    }


def quantize(model, config, data, number, recipe):
    """Make the network's layers round, with scales from the first training images if the rules need
    them."""
    images, _ = data.train.batch(torch.arange(min(CALIBRATION_IMAGES, len(data.train))))
    batches = [batch.to(config.device) for batch in images.split(config.batch_size)]
    rules = rules_of(config, number, recipe)
    if isinstance(rules, dict):  # a user's network may have one kind alone
        rules = {
            layer: rule
            for layer, rule in rules.items()
            if any(isinstance(module, layer) for module in model.modules())
        } | _depthwise_rules(model, rules)
        if not rules:
            names = " or ".join(layer.__name__ for layer in _LAYERS)
            raise ValueError(
                f"expected a network with {names} layers for --recipe {recipe}, but "
                f"{config.model} has none"
            )
    torch_dtypes.quantize_(model, rules, calibrate=batches)


def _depthwise_rules(model, rules):
    """Return rules for convolutions of one channel per group: blocks along the last dimension,
    since there are no several channels."""
    return {
        name: rules[nn.Conv2d] | {"axis": -1}
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and not sums_over_several(module)
    }


@torch.no_grad()
def round_weights(model, number):
    """Round every parameter of a network, once and in place. Buffers (statistics of batch
    normalisation) stay."""
    a_target = torch_dtypes.target(number)
    for parameter in model.parameters():
        parameter.copy_(a_target.quantize(parameter))
