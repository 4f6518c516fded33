"""Which layers are rounded, by which rule, and what their weights take in a format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from ... import _C
from ..._arguments import said
from ...quantization.blocks import BlockFormat
from ...quantization.layers import is_bias, is_quantized
from ...quantization.parameters import parameter_names, parameter_of
from ...quantization.places import LayerRule, Place
from ...quantization.rules import choose
from ...quantization.targets import Target, target

RECIPES = ("ptq", "weights")

_TABLES = (nn.Embedding, nn.EmbeddingBag)  # no numbers come in
_WITH_WEIGHTS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, *_TABLES)
_SCALE_BITS = 32  # of a tensor's scale, float32


@dataclass(frozen=True)
class Layer:
    """A layer that is rounded.

    Attributes:
        name, kind: in the model, and its type's.
        shapes: of its weights, without biases.
        takes_numbers: whether what comes in can be rounded; an embedding takes indices.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    takes_numbers: bool = True

    @property
    def elements(self) -> int:
        """How many weights it has."""
        return sum(map(math.prod, self.shapes))


def check_model(model: object) -> None:
    """Sees that a model is float32 and has no rules yet.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise TypeError(f"expected a torch.nn.Module of Python, but got {type(model).__name__}")
    for name, module in model.named_modules():
        if is_quantized(module):
            raise ValueError(f"expected a model in float32, but {name or 'the model'!r} rounds by a rule: call torch_dtypes.dequantize_(model)")
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ValueError(f"expected initialised parameters, but {name} is not: run the model once on a batch")
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            ours = " of this package" if _C.format_of(parameter.dtype) is not None else ""
            raise TypeError(f"expected a model in float32, but {name} is {parameter.dtype}{ours}: call model.float()")


def targets_of(formats: object) -> dict[str, Target]:
    """What each format means, by its name as it was said.

    Raises:
        TypeError, ValueError: an unknown format, one that is said twice, or none.
    """
    if isinstance(formats, (str, Target, torch.dtype, _C.Format)):
        formats = [formats]
    if not isinstance(formats, Iterable):
        raise TypeError(f"expected formats= as a list of names, dtypes or targets, but got {said(formats)}")
    found: dict[str, Target] = {}
    for value in formats:
        made = target(value)
        if made in found.values():
            raise ValueError(f"expected formats that differ, but got {made.name} twice")
        found[value if isinstance(value, str) else made.name] = made
    if not found:
        raise ValueError("expected at least one format, but got none")
    return found


def layers_of(model: nn.Module, keys: object = None) -> list[Layer]:
    """The layers of a model that are rounded, in its order: those with weights of products and tables, or those that ``keys`` match.

    An attention's output projection is a part of its attention.

    Raises:
        TypeError, ValueError: a key that matches nothing, or no layer at all.
    """
    found = {}
    parts = {module.out_proj for module in model.modules() if isinstance(module, nn.MultiheadAttention)}
    matched = None if keys is None else _matched(model, keys)
    for name, module in model.named_modules():
        if module in parts or (name not in matched if matched is not None else not isinstance(module, _WITH_WEIGHTS)):
            continue
        shapes = tuple(tuple(parameter_of(module, p).shape) for p in parameter_names(module) if not is_bias(p))
        if shapes and type(module).forward is not nn.Module.forward:  # a ParameterList only keeps
            found[name] = Layer(name, type(module).__name__, shapes, not isinstance(module, _TABLES))
    if not found:
        of = "" if keys is None else f", but none that layers={said(keys)} matches has any"
        what = "expected a model with layers that have weights to round (linear ones, convolutions, ...)"
        raise ValueError(f"{what}{of or f', but {type(model).__name__} has none'}")
    return list(found.values())


def _matched(model: nn.Module, keys: object) -> set[str]:
    """The names of the modules that keys of rules match."""
    keys = [keys] if isinstance(keys, (str, type, re.Pattern)) or callable(keys) else keys
    if not isinstance(keys, Iterable) or isinstance(keys, nn.Module) or not (keys := list(keys)):
        raise TypeError(f"expected layers= as types, names, regular expressions or predicates, as quantize_'s rules have, but got {said(keys)}")
    anything = LayerRule(weight=Place(target("float32")))
    return set(choose(model, dict.fromkeys(keys, anything)))


def rule_of(layer: Layer, made: Target, recipe: str) -> dict:
    """The rule of a layer in a format, as ``quantize_`` and its YAML files take it: that of the recipe ``ptq``, or of its weights alone."""
    from ...training.recipes import rules_of
    from ...training.records import Config

    rule = dict(rules_of(Config(), made.name, "ptq")[nn.Linear])
    if recipe == "weights" or not layer.takes_numbers:
        del rule["activation"]
    if isinstance(rule["weight"], dict) and max(map(len, layer.shapes)) < 2:  # a scale of its own would round no number
        rule["weight"] = {**rule["weight"], "per": "tensor"}
    return rule


def stored_bits(made: Target, shape: tuple[int, ...]) -> int:
    """Bits of a tensor packed as ``quantize`` packs it, each block's scale counted, a shorter block's too; integers without their scales."""
    bits = math.prod(shape) * made.bits
    if isinstance(made, BlockFormat):
        blocks = math.prod(made.fitting(len(shape)).shape.grid_shape(shape))
        bits += blocks * made._scale.bits + _SCALE_BITS * made.tensor_scale
    return bits


def bits_a_weight(layers: list[Layer], formats: dict[str, str], targets: dict[str, Target]) -> float:
    """The mean over all weights of the bits that their layers' formats take, by the formats' own figure."""
    return math.fsum(x.elements * targets[formats[x.name]].bits_per_value for x in layers) / sum(x.elements for x in layers)


def stored_bits_a_weight(layers: list[Layer], formats: dict[str, str], targets: dict[str, Target]) -> float:
    """The same of the weights as they are packed."""
    bits = sum(stored_bits(targets[formats[x.name]], shape) for x in layers for shape in x.shapes)
    return bits / sum(x.elements for x in layers)
