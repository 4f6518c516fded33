"""Select the layers to round, build their rules, and count the bits of their weights in a
format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from ... import _C
from ...formats.arguments import outline
from ...quantization.layers import is_quantized
from ...quantization.parameters import is_bias, masters_of, parameter_names, parameter_of
from ...quantization.places import LayerRule, Place, leaves_axis_open
from ...quantization.products import sums_over_several
from ...quantization.rules import choose
from ...targets.block_targets import BlockFormat
from ...targets.lookup import Target, target
from ...targets.quantisers import is_quantiser
from ..training.recipes import rules_of
from ..training.records import Config

RECIPES = ("ptq", "weights")

_TABLES = (nn.Embedding, nn.EmbeddingBag)  # inputs are indices, not numbers
_WITH_WEIGHTS = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    *_TABLES,
)
_SCALE_BITS = 32  # of a tensor's scale, float32


@dataclass(frozen=True)
class Layer:
    """A layer to round. Layers that share a weight count as one, since a tensor has one format: the
    first, with the others as ``tied``.

    Attributes:
        name, kind: its name in the model, and its type's name.
        shapes: the shapes of its own weights, without biases.
        takes_numbers: whether its inputs can be rounded; those of an embedding are indices.
        tied: later layers that share a weight with it, or with another tied layer; they are rounded
            with it, to its format.
        repeated: the shapes of weights that occur again among all of them.
        by_product: whether blocks can lie along what a product sums over; else they lie along the
            last dimension.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    takes_numbers: bool = True
    tied: tuple[Layer, ...] = ()
    repeated: tuple[tuple[int, ...], ...] = ()
    by_product: bool = True

    @property
    def parts(self) -> tuple[Layer, ...]:
        """This layer and the layers tied to it."""
        return (self, *self.tied)

    @property
    def weights(self) -> list[tuple[int, ...]]:
        """Shapes of all weights, each weight once."""
        left = [shape for part in self.parts for shape in part.shapes]
        for shape in self.repeated:
            left.remove(shape)
        return left

    @property
    def elements(self) -> int:
        """Number of weights, those of tied layers included, each once."""
        return sum(map(math.prod, self.weights))

    @property
    def label(self) -> str:
        """Its name and those of tied layers, as many as there is room for; the model itself has
        none."""
        names = [part.name or "(the model itself)" for part in self.parts]
        return " = ".join(names) if len(names) < 3 else f"{names[0]} = {len(names) - 1} others"


def check_model(model: object) -> None:
    """Check that a model is float32 and has no rules yet.

    Raises:
        TypeError, ValueError: another object or model.
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise TypeError(f"expected a torch.nn.Module of Python, but got {type(model).__name__}")
    for name, module in model.named_modules():
        if is_quantized(module):
            raise ValueError(
                f"expected a model in float32, but {name or 'the model'!r} rounds by a rule: call "
                "torch_dtypes.dequantize_(model)"
            )
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ValueError(
                f"expected initialised parameters, but {name} is not: run the model once on a batch"
            )
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            ours = " of this package" if _C.format_of(parameter.dtype) is not None else ""
            raise TypeError(
                f"expected a model in float32, but {name} is {parameter.dtype}{ours}: call "
                "model.float()"
            )


def find_targets(formats: object) -> dict[str, Target]:
    """Return the targets of formats, by the names as given.

    Raises:
        TypeError, ValueError: an unknown format, one that is given twice, or none.
    """
    if isinstance(formats, (str, Target, torch.dtype, _C.Format)) or is_quantiser(formats):
        formats = [formats]
    if not isinstance(formats, Iterable):
        raise TypeError(
            f"expected formats= as a list of names, dtypes or targets, but got {outline(formats)}"
        )
    targets: dict[str, Target] = {}
    for value in formats:
        a_target = target(value)
        if a_target in targets.values():
            raise ValueError(f"expected formats that differ, but got {a_target.name} twice")
        targets[value if isinstance(value, str) else a_target.name] = a_target
    if not targets:
        raise ValueError("expected at least one format, but got none")
    return targets


def find_layers(model: nn.Module, keys: object = None) -> list[Layer]:
    """Find the layers of a model to round, in its order: those with weights of products and tables,
    or those that ``keys`` match.

    An attention's output projection is a part of its attention. Layers that share a weight are one
    layer.

    Raises:
        TypeError, ValueError: a key that matches nothing, or no layer at all.
    """
    layers, weights = [], []
    parts = {
        module.out_proj for module in model.modules() if isinstance(module, nn.MultiheadAttention)
    }
    matched = None if keys is None else _match_names(model, keys)
    for name, module in model.named_modules():
        if module in parts or (
            name not in matched if matched is not None else not isinstance(module, _WITH_WEIGHTS)
        ):
            continue
        names = [p for p in parameter_names(module) if not is_bias(p)]
        shapes = tuple(tuple(parameter_of(module, p).shape) for p in names)
        # A ParameterList has no forward
        if shapes and type(module).forward is not nn.Module.forward:
            layers.append(
                Layer(
                    name,
                    type(module).__name__,
                    shapes,
                    not isinstance(module, _TABLES),
                    by_product=sums_over_several(module),
                )
            )
            weights.append([tuple(map(id, masters_of(module, p))) for p in names])
    if not layers:
        of = "" if keys is None else f", but none that layers={outline(keys)} matches has any"
        what = (
            "expected a model with layers that have weights to round (linear ones, convolutions, "
            "...)"
        )
        raise ValueError(f"{what}{of or f', but {type(model).__name__} has none'}")
    return _merge_tied(layers, weights)


def _merge_tied(layers: list[Layer], weights: list[list[tuple[int, ...]]]) -> list[Layer]:
    """Merge layers that share a weight. ``weights`` has, for each weight of each layer, the ids of
    the parameters that it is or is made of."""
    groups: list[list[int]] = []
    for i, own in enumerate(weights):
        ids = {one for of in own for one in of}
        sharing = [
            group for group in groups if any(ids & set(of) for j in group for of in weights[j])
        ]
        groups = [group for group in groups if group not in sharing] + [
            sorted([*(j for group in sharing for j in group), i])
        ]
    merged = []
    for first, *others in sorted(groups):
        seen, repeated = set(), []
        for j in (first, *others):
            for of, shape in zip(weights[j], layers[j].shapes, strict=True):
                repeated += [shape] if of in seen else []
                seen.add(of)
        merged.append(
            replace(layers[first], tied=tuple(layers[j] for j in others), repeated=tuple(repeated))
        )
    return merged


def _match_names(model: nn.Module, keys: object) -> set[str]:
    """Return the names of the modules that the keys of rules match."""
    keys = [keys] if isinstance(keys, (str, type, re.Pattern)) or callable(keys) else keys
    if not isinstance(keys, Iterable) or isinstance(keys, nn.Module) or not (keys := list(keys)):
        raise TypeError(
            "expected layers= as types, names, regular expressions or predicates, as quantize_'s "
            f"rules have, but got {outline(keys)}"
        )
    anything = LayerRule(weight=Place(target("float32")))
    return set(choose(model, dict.fromkeys(keys, anything)))


def build_rules(layer: Layer, a_target: Target, recipe: str) -> dict[str, dict]:
    """Return the rules of a layer, and of those tied to it, in a format, by name."""
    return {part.name: _build_rule(part, a_target, recipe) for part in layer.parts}


def _build_rule(layer: Layer, a_target: Target, recipe: str) -> dict:
    """Return the rule of a layer in a format for ``quantize_`` and its YAML files: the rule of the
    recipe ``ptq``, or only its weights' part."""
    rule = dict(rules_of(Config(), a_target.name, "ptq")[nn.Linear])
    if recipe == "weights" or not layer.takes_numbers:
        del rule["activation"]
    # For 1-d weights, a scale for each number would round nothing.
    if isinstance(rule["weight"], dict) and max(map(len, layer.shapes)) < 2:
        rule["weight"] = {**rule["weight"], "per": "tensor"}
    if leaves_axis_open(a_target) and not layer.by_product:
        rule["axis"] = -1
    return rule


def stored_bits(a_target: Target, shape: tuple[int, ...]) -> float:
    """Return the bits of a tensor as ``quantize`` packs it, with the scale of each block, also of a
    shorter one; for integers without scales. NaN if they are not known."""
    bits = math.prod(shape) * a_target.bits
    if isinstance(a_target, BlockFormat):
        blocks = math.prod(a_target.adapt_to(len(shape)).shape.grid_shape(shape))
        bits += blocks * a_target._scale.bits + _SCALE_BITS * a_target.tensor_scale
    return bits


def bits_a_weight(
    layers: list[Layer], formats: dict[str, str], targets: dict[str, Target]
) -> float:
    """Return the bits of a weight by the formats' own figures, averaged over all weights."""
    return math.fsum(x.elements * targets[formats[x.name]].bits_per_value for x in layers) / sum(
        x.elements for x in layers
    )


def stored_bits_a_weight(
    layers: list[Layer], formats: dict[str, str], targets: dict[str, Target]
) -> float:
    """Return the bits of a weight as packed, averaged over all weights."""
    bits = sum(stored_bits(targets[formats[x.name]], shape) for x in layers for shape in x.weights)
    return bits / sum(x.elements for x in layers)
