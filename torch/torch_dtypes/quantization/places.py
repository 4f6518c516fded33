"""A checked rule of one layer: the places where numbers are rounded, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from .. import _C
from ..formats.arguments import dimension, integer, mode_name, refuse_unknown
from ..formats.patterns import name_pattern
from ..policies.accumulation import Accumulation
from ..targets.base import CLAMPED
from ..targets.block_targets import BlockFormat
from ..targets.integers import IntegerFormat
from ..targets.lookup import Target, target
from ..targets.quantisers import QuantiserTarget, refuse_options
from ..targets.transforms import Hadamard, transform_of
from .scale_rules import ScaleRule, choose_block_rule, scale_rule

PLACES = ("weight", "bias", "activation", "output", "error", "grad")
# The two products of scaled dot product attention: the operands of each, and their results.
ATTENTION = ("query", "key", "value", "scores", "probabilities", "context")
# Keys and values as they enter the cache of transformers.
CACHE = ("key_cache", "value_cache")
ALL_PLACES = (*PLACES, *ATTENTION, *CACHE)
# The products of a layer, and the operands of each.
PRODUCTS = {
    "forward": ("activation", "weight"),
    "input_grad": ("error", "weight"),
    "weight_grad": ("error", "activation"),
}
ARITHMETIC = ("float", "integer")
_KEYS = (*ALL_PLACES, *PRODUCTS, "axis", "accumulate", "arithmetic", "accumulator")
_PLACE_KEYS = (
    "format",
    "axis",
    "rounding",
    "clamped",
    "scale",
    "per",
    "by",
    "when",
    "history",
    "margin",
)
_POLICY_KEYS = tuple(f.name for f in dataclasses.fields(Accumulation))
_CLAMPED_PLACES = ("weight", "bias", "activation")
ACCUMULATOR = name_pattern(r"int(\d+)(_wrap|_saturate)?")


@dataclass(frozen=True)
class Place:
    """A format, a rounding mode and a scale for the numbers at one place of a layer.

    ``axis`` is the dimension of a block format's blocks, if the rule gives one.
    """

    target: Target
    rounding: str | None = None
    clamped: str = "pass"
    scale: ScaleRule | None = None
    axis: int | None = None

    @property
    def by_product(self) -> bool:
        """Return whether blocks lie along the dimension over which a product sums: those of a
        format that names no other, in a rule without ``axis``. A quantiser with a gradient of its
        own rounds once, so that autograd sees it."""
        return self.axis is None and leaves_axis_open(self.target)

    def __str__(self) -> str:
        return " ".join(
            [
                self.target.name,
                *([self.rounding] if self.rounding else []),
                *([f"({self.scale})"] if self.scale else []),
            ]
        )


@dataclass(frozen=True)
class ProductRule:
    """How the operands of one product are rounded, and the transform of both before that, with the
    seed of its signs."""

    activation: Place | None = None
    weight: Place | None = None
    error: Place | None = None
    transform: Hadamard | None = None
    seed: int | None = 0


@dataclass(frozen=True)
class LayerRule:
    """A rule's value after checks. ``native`` is the dtype of the whole layer, None if there is no
    single one.

    ``forward``, ``input_grad`` and ``weight_grad`` are all None unless the rule names a product.
    """

    weight: Place | None = None
    bias: Place | None = None
    activation: Place | None = None
    output: Place | None = None
    error: Place | None = None
    grad: Place | None = None
    forward: ProductRule | None = None
    input_grad: ProductRule | None = None
    weight_grad: ProductRule | None = None
    query: Place | None = None
    key: Place | None = None
    value: Place | None = None
    scores: Place | None = None
    probabilities: Place | None = None
    context: Place | None = None
    key_cache: Place | None = None
    value_cache: Place | None = None
    accumulate: Accumulation | None = None
    arithmetic: str = "float"
    accumulator: str | None = None
    native: torch.dtype | None = None

    def places(self) -> dict[str, Place]:
        return {name: place for name in ALL_PLACES if (place := getattr(self, name)) is not None}

    @property
    def names_products(self) -> bool:
        return self.forward is not None

    @property
    def names_attention(self) -> bool:
        return any(getattr(self, name) is not None for name in ATTENTION)

    @property
    def names_cache(self) -> bool:
        return any(getattr(self, name) is not None for name in CACHE)

    @property
    def rounds_forward(self) -> bool:
        """Return whether an operand of the forward pass is rounded."""
        own = self.products()["forward"]
        operands = (self.weight, self.activation, own.weight, own.activation)
        return any(p is not None for p in operands) or self.names_attention

    def products(self) -> dict[str, ProductRule]:
        """Return the rule of each product. ``weight``, ``activation`` and ``error`` are operands
        wherever a product has them."""
        return {
            product: getattr(self, product)
            or ProductRule(**{name: getattr(self, name) for name in operands})
            for product, operands in PRODUCTS.items()
        }

    def is_only(self, place: str) -> bool:
        """Return whether the rule has this place and nothing else."""
        return self == LayerRule(**{place: getattr(self, place)})


def _place(name: str, value: object, where: str, axis: int | None = None) -> Place | None:
    if value is None or isinstance(value, Place):
        return value
    options: dict = {}
    if isinstance(value, Mapping):
        options = dict(value)
        refuse_unknown(options, _PLACE_KEYS, f"{name} of {where}")
        if "format" not in options:
            raise ValueError(f"expected {name} of {where} with format=, but got {options!r}")
        value = options.pop("format")
    try:
        rounds_to = choose_block_rule(target(value), options)
        rounds_to, axis = _lay_blocks(rounds_to, options.pop("axis", None), axis)
        rounding, clamped = options.pop("rounding", None), options.pop("clamped", "pass")
        mode = None if rounding is None else mode_name(rounding)
        if clamped not in CLAMPED:
            raise ValueError(
                f"expected clamped to be 'pass' (straight through) or 'zero', but got {clamped!r}"
            )
        if clamped == "zero" and name not in _CLAMPED_PLACES:
            raise ValueError(
                f"expected clamped='zero' of weight, bias or activation, but got it of {name}"
            )
        refuse_options(rounds_to, None, clamped)
        scale = scale_rule(rounds_to, name, options)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} of {where}: {error}") from error
    return Place(rounds_to, mode, clamped, scale, axis)


def _lay_blocks(blocks: Target, own: object, of_rule: int | None) -> tuple[Target, int | None]:
    """Lay blocks along the ``axis`` of a place or else of its rule. Return the format, and the axis
    if it decides."""
    is_open = leaves_axis_open(blocks)
    if own is not None and not is_open:
        raise ValueError(
            "expected axis= with blocks along one dimension that the format's name leaves open, "
            f"but got {blocks.name}; leave axis out"
        )
    axis = of_rule if own is None else dimension("axis", own)
    if axis is None or not is_open:
        return blocks, None
    if isinstance(blocks, QuantiserTarget):
        return blocks.along(axis), axis
    shape = dataclasses.replace(blocks.shape, axis=(axis,))
    return dataclasses.replace(blocks, shape=shape), axis


def leaves_axis_open(target: Target) -> bool:
    """Return whether a target's blocks run along one dimension that its name does not give."""
    if isinstance(target, QuantiserTarget):
        return target.axis == -1 and not target.has_own_gradient
    return isinstance(target, BlockFormat) and target.shape.axis == (-1,)


def _product_rules(
    value: Mapping, places: dict[str, Place], axis: int | None, where: str
) -> dict[str, ProductRule]:
    """Read the rules of products. A place of the whole rule is an operand in every product that
    does not name its own."""
    named = {product: value[product] for product in PRODUCTS if value.get(product) is not None}
    if not named:
        return {}
    rules = {}
    for product, operands in PRODUCTS.items():
        of = f"{product} of {where}"
        own = named.get(product, {})
        if not isinstance(own, Mapping):
            raise TypeError(
                f"expected {of} as a dict of {', '.join(map(repr, operands))}, but got {own!r}"
            )
        refuse_unknown(own, (*operands, "transform"), of)
        rules[product] = ProductRule(
            **{
                name: _place(name, own[name], of, axis) if name in own else places.get(name)
                for name in operands
            },
            **_transform(own.get("transform"), of),
        )
    return rules


def _transform(value: object, where: str) -> dict:
    """Read a product's transform: a name, or a dict of ``name`` and ``seed``."""
    if value is None:
        return {}
    options = dict(value) if isinstance(value, Mapping) else {"name": value}
    refuse_unknown(options, ("name", "seed"), f"transform of {where}")
    try:
        transform, seed = transform_of(options.get("name")), options.get("seed", 0)
        return {
            "transform": transform,
            "seed": None if seed is None else integer("seed", seed, 0, 2**64 - 1),
        }
    except (TypeError, ValueError) as error:
        raise type(error)(f"transform of {where}: {error}") from error


def _accumulation(value: object, where: str) -> Accumulation | None:
    if value is None or isinstance(value, Accumulation):
        return value
    if isinstance(value, Mapping):
        refuse_unknown(value, _POLICY_KEYS, f"accumulate of {where}")
        if "policy" not in value:
            raise ValueError(
                f"expected accumulate of {where} with policy=, but got {dict(value)!r}"
            )
    try:
        return Accumulation(**value) if isinstance(value, Mapping) else Accumulation(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"accumulate of {where}: {error}") from error


def layer_rule(value: object, where: str) -> LayerRule | None:
    """Check a rule's value. None leaves a layer as it is, a dtype makes everything in it that
    dtype, a dict has places and options.

    Raises:
        ValueError, TypeError: the rule, which errors call ``where``, has unknown words or
            contradicts itself.
    """
    if value is None or isinstance(value, LayerRule):
        return value
    if not isinstance(value, Mapping):
        place = _place("everything", value, where)
        if place.target.dtype is None or place.scale is not None:
            raise ValueError(
                f"expected a dtype (or its name) for everything of {where}, or a dict of weight=, "
                f"activation=, ..., but got {value!r}"
            )
        return LayerRule(*(place for _ in PLACES), native=place.target.dtype)
    refuse_unknown(value, _KEYS, f"the rule {where}")
    axis = None if value.get("axis") is None else dimension("axis", value["axis"])
    places = {
        name: place
        for name in ALL_PLACES
        if (place := _place(name, value.get(name), where, axis)) is not None
    }
    products = _product_rules(value, places, axis, where)
    rule = LayerRule(
        **places,
        **products,
        accumulate=_accumulation(value.get("accumulate"), where),
        **_integers(value, places, where),
    )
    if rule == LayerRule():
        raise ValueError(
            f"expected the rule {where} with one of {', '.join(map(repr, _KEYS))}, but got "
            f"{dict(value)!r}; give None to leave a layer as it is"
        )
    return dataclasses.replace(rule, native=_one_dtype(rule))


def _is_integer(target: Target) -> bool:
    return isinstance(target, IntegerFormat)


def _accumulator_name(value: object, where: str) -> str:
    """Return the canonical name of an accumulator's integers."""
    name = "int32" if value is None else value
    match = ACCUMULATOR.fullmatch(name) if isinstance(name, str) else None
    if not match or not 2 <= int(match[1]) <= 32:
        raise ValueError(
            f"expected accumulator of {where} as the name of integers of 2 to 32 bits, as 'int32' "
            f"(wraps around) or 'int20_saturate', but got {value!r}"
        )
    return name.removesuffix("_wrap")


def _integers(value: Mapping, places: dict[str, Place], where: str) -> dict:
    arithmetic, accumulator = value.get("arithmetic", "float"), value.get("accumulator")
    if arithmetic not in ARITHMETIC:
        raise ValueError(
            f"expected arithmetic of {where} as 'float' or 'integer', but got {arithmetic!r}"
        )
    if arithmetic == "float":
        if accumulator is not None:
            raise ValueError(
                f"expected accumulator of {where} with arithmetic='integer' only, but got "
                f"{accumulator!r}; use accumulate= for other sums"
            )
        return {}
    if value.get("accumulate") is not None:
        raise ValueError(
            f"expected accumulator= with arithmetic='integer' of {where}, but got "
            f"accumulate={value['accumulate']!r}"
        )
    if named := [product for product in PRODUCTS if value.get(product) is not None]:
        raise ValueError(
            f"expected weight= and activation= with arithmetic='integer' of {where}, but got "
            f"{named[0]}="
        )
    for name in ("weight", "activation"):
        if name not in places or not _is_integer(places[name].target):
            what = places[name].target.name if name in places else "nothing"
            raise ValueError(
                f"expected an integer {name} (as 'int8') with arithmetic='integer' of {where}, "
                f"but got {what}"
            )
    if "bias" in places:
        raise ValueError(
            f"expected no bias= with arithmetic='integer' of {where}, which adds it as an "
            f"integer, but got {places['bias']}"
        )
    return {"arithmetic": "integer", "accumulator": _accumulator_name(accumulator, where)}


def _one_dtype(rule: LayerRule) -> torch.dtype | None:
    """Return the one format dtype of weight, activation, error and grad; None if there is none, or
    if a place has other options."""
    first = rule.weight
    if first is None or first.scale is not None or first.clamped != "pass":
        return None
    if rule.names_products or not {*PLACES}.issuperset(rule.places()):
        return None
    if any(getattr(rule, name) != first for name in ("activation", "error", "grad")):
        return None
    if any(getattr(rule, name) not in (None, first) for name in ("bias", "output")):
        return None
    dtype = (first.target.with_rounding(first.rounding) if first.rounding else first.target).dtype
    return dtype if dtype is not None and _C.format_of(dtype) is not None else None
