"""The operands of a layer's three products, each rounded for its own product.

Hardware reads blocks along the dimension over which a product sums. So a tensor that stands in two
products is rounded twice, in blocks along two dimensions (Rouhani et al., "Microscaling data
formats for deep learning", arXiv 2310.10537, section 4).

    product      operands                sums over, in nn.Linear    in a convolution
    forward      activation, weight      features of the input      input channels
    input_grad   error, weight           features of the output     output channels
    weight_grad  error, activation       rows of the batch          batch x positions
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from ..targets.transforms import Hadamard, transform_of
from .outliers import Outliers, read_recorded
from .parameters import is_bias, parameter_names, parameter_of
from .places import PRODUCTS, LayerRule, Place, ProductRule
from .products import has_products, is_product, makes_products
from .recorded import read_rounder
from .rounders import Rounder
from .scale_rules import CONVOLUTIONS, TRANSPOSED, stores_inputs_first


@dataclass(frozen=True)
class View:
    """A tensor with the dimension of a product's sum as its last one.

    That is ``axis``, counted from the end, in ``groups`` parts that are summed apart; or, with
    ``others``, all dimensions but ``axis`` together.
    """

    axis: int
    groups: int = 1
    others: bool = False

    def bring(self, x: torch.Tensor) -> torch.Tensor:
        if self.others:
            x = x.movedim(self.axis, 0)
            return x.reshape(x.shape[0], math.prod(x.shape[1:]))
        if self.groups > 1:
            x = x.unflatten(self.axis, (self.groups, -1))
        return x.movedim(self.axis, -1)

    def take_back(self, x: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Undo ``bring`` for a tensor of this shape."""
        if self.others:
            moved = [*shape]
            return x.reshape(moved.pop(self.axis), *moved).movedim(0, self.axis)
        x = x.movedim(-1, self.axis)
        return x.flatten(self.axis - 1, self.axis) if self.groups > 1 else x


def find_views(module: nn.Module) -> dict[str, tuple[View, View]]:
    """Return the views of the operands of each product of a layer."""
    if not is_product(module):  # matrices, one or many
        rows, columns = View(-2), View(-1)
        return {
            "forward": (columns, columns),
            "input_grad": (columns, rows),
            "weight_grad": (rows, rows),
        }
    if not isinstance(module, CONVOLUTIONS):
        rows = View(-1, others=True)
        return {
            "forward": (View(-1), View(-1)),
            "input_grad": (View(-1), View(-2)),
            "weight_grad": (rows, rows),
        }
    dims, groups = len(module.kernel_size), module.groups
    channels, positions = View(-1 - dims, groups), View(-1 - dims, others=True)
    # A weight has the channels of its outputs or, transposed, its inputs first, in groups. Its
    # second dimension has the others, of one group.
    first, second = View(-2 - dims, groups), View(-1 - dims)
    if isinstance(module, TRANSPOSED):
        first, second = second, first
    return {
        "forward": (channels, second),
        "input_grad": (channels, first),
        "weight_grad": (positions, positions),
    }


@dataclass(frozen=True)
class Operand:
    """One operand of one product: how it is rounded, and along what. ``is_turned`` is set for a
    weight that is stored as inputs x outputs, where blocks and scales of its own lie as stored."""

    rounder: Rounder | None
    view: View
    is_turned: bool = False

    def round(
        self, x: torch.Tensor, training: bool, transform: Hadamard | None, seed: int | None
    ) -> torch.Tensor:
        along = self.rounder is not None and self.rounder.place.by_product
        if not along and transform is None:
            return self._round_once(x, training)
        y = self.view.bring(x).contiguous()
        if transform is not None:
            # With zeros behind both operands the product is the same.
            y = F.pad(y, (0, -y.shape[-1] % transform.size))
            y = transform.apply(y, seed=seed)
        if along:
            y = self.rounder(y, training)
        # The rows of a batch stay a matrix: there may be more of them.
        if transform is not None and self.view.others:
            y = y.t()
        else:
            y = self.view.take_back(y, x.shape)
            # Convolutions choose their kernel, and so the last bits, by the layout.
            y = y.contiguous() if self.view.axis < -1 and x.dim() > 2 else y
        return y if along else self._round_once(y, training)

    def _round_once(self, x: torch.Tensor, training: bool) -> torch.Tensor:
        if self.rounder is None:
            return x
        return self.rounder(x.mT, training).mT if self.is_turned else self.rounder(x, training)


class Operands:
    """The six operands of a layer's products. ``outliers`` are channels of its input that keep
    another format, with the columns of the weight."""

    def __init__(
        self,
        pairs: dict[str, tuple[Operand, Operand]],
        transforms: dict[str, tuple[Hadamard | None, int | None]],
        outliers: Outliers | None = None,
    ) -> None:
        self.pairs, self.transforms, self.outliers = pairs, transforms, outliers
        self.text = self._write()  # as graphs record them

    def find_outliers(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return a mask of the input's channels that is True at outliers, None without a rule."""
        return None if self.outliers is None else self.outliers.find(x)

    def round(
        self,
        product: str,
        first: torch.Tensor,
        second: torch.Tensor,
        training: bool,
        mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Round the two operands of a product, in the order of ``PRODUCTS``. ``mask`` is that of
        ``find_outliers``."""
        how = training, *self.transforms[product]
        pair = zip(PRODUCTS[product], self.pairs[product], (first, second), strict=True)
        return tuple(
            operand.round(x, *how)
            if mask is None or operand.rounder is None or name == "error"
            else torch.where(
                mask,
                operand.rounder.count(self.outliers.kept.quantize, x),
                operand.round(x.masked_fill(mask, 0.0), *how),
            )
            for name, operand, x in pair
        )

    def has(self, name: str) -> bool:
        """Return whether a product rounds its operand of this name."""
        return any(key.endswith(f".{name}") for key in self.rounders())

    def rounders(self) -> dict[str, Rounder]:
        return {
            f"{product}.{name}": operand.rounder
            for product, pair in self.pairs.items()
            for name, operand in zip(PRODUCTS[product], pair, strict=True)
            if operand.rounder is not None
        }

    def _write(self) -> str:
        own = self.outliers
        return json.dumps(
            {
                "outliers": None if own is None else [own.which, own.kept.name],
                **{
                    product: {
                        "transform": [t and t.name, seed],
                        "operands": [
                            [
                                None if o.rounder is None else o.rounder.text,
                                dataclasses.astuple(o.view),
                                o.is_turned,
                            ]
                            for o in pair
                        ],
                    }
                    for product, pair in self.pairs.items()
                    for t, seed in [self.transforms[product]]
                },
            }
        )


def read_operands(text: str) -> Operands:
    """Restore operands from a text that a graph recorded, in any process."""
    fields = json.loads(text)
    outliers = read_recorded(fields.pop("outliers"))
    return Operands(
        {
            product: tuple(
                Operand(None if kept is None else read_rounder(kept), View(*view), *turned)
                for kept, view, *turned in pair["operands"]
            )
            for product, pair in fields.items()
        },
        {
            product: (name and transform_of(name), seed)
            for product, pair in fields.items()
            for name, seed in [pair["transform"]]
        },
        outliers,
    )


def shape_in_view(module: nn.Module, name: str, view: View) -> torch.Size:
    """Return the shape of a layer's weight in a view. The last size is that of the product's sum,
    at one position of a kernel."""
    weight = torch.empty(parameter_of(module, name).shape, device="meta")
    return view.bring(weight.t() if stores_inputs_first(module) else weight).shape


def has_own_operands(rule: LayerRule) -> bool:
    """Return whether products need operands of their own: the rule names products, or a format's
    blocks lie along what a product sums over. Otherwise each tensor is rounded once for all. So it
    is in integer arithmetic, whose backward pass is of values."""
    places = (rule.weight, rule.activation, rule.error)
    return rule.arithmetic == "float" and (
        rule.names_products
        or any(place.by_product or place.outliers for place in places if place is not None)
    )


def rounds_by_product(module: nn.Module, rule: LayerRule) -> bool:
    """Return whether the layer's products round their own operands. Modules of a user do so for a
    rule that names products, or for their weights of two dimensions or more."""
    if not has_own_operands(rule) or not makes_products(module):
        return False
    return has_products(module) or rule.names_products or bool(find_weights(module))


def find_weights(module: nn.Module) -> list[str]:
    """Return the names of the parameters that a layer's products may have as weights."""
    return [
        name
        for name in parameter_names(module)
        if not is_bias(name) and parameter_of(module, name).dim() > 1
    ]


def build_operands(
    module: nn.Module, rule: LayerRule, build_rounder, where: str, between: bool = False
) -> Operands:
    """Build the operands of a layer's products.

    Args:
        build_rounder: makes the rounder of an operand: of a place, its role, its view.
        between: build those of a product of two activations.

    Raises:
        ValueError: blocks along channels of which each group has one, a transform that does not
            keep the product, or an option that needs the values before rounding.
    """
    rules, roles, views = rule.products(), PRODUCTS, find_views(module)
    if between:
        gradient = ("error", "activation")
        rules = {product: rules["weight_grad"] for product in rules} | {"forward": rules["forward"]}
        roles = dict.fromkeys(PRODUCTS, gradient) | {"forward": ("activation",) * 2}
    pairs = {}
    for product, own in rules.items():
        view = views[product][1]  # the weight's, whose length is known; a batch's is not
        is_known = is_product(module) and not view.others
        length = shape_in_view(module, "weight", view)[-1] if is_known else None
        _check_transform(module, product, own, length, where)
        pair = []
        for name, view in zip(roles[product], views[product], strict=True):
            place = getattr(own, name)
            _check_place(module, product, name, place, length, where)
            rounder = None if place is None else build_rounder(place, name, view)
            is_turned = name == "weight" and stores_inputs_first(module)
            pair.append(Operand(rounder, view, is_turned))
        pairs[product] = tuple(pair)
    outliers = None if rule.activation is None else rule.activation.outliers
    if outliers is not None:
        _check_outliers(module, rule, where)
    return Operands(pairs, {p: (own.transform, own.seed) for p, own in rules.items()}, outliers)


def _check_outliers(module: nn.Module, rule: LayerRule, where: str) -> None:
    scale = rule.activation.scale
    if scale is not None and scale.when != "call" and isinstance(scale.kind, str):
        raise ValueError(
            f"expected when='call' for activation of {where}, whose outliers would count in scales "
            f"of other calls, but got {scale.when!r}; set when='call' or per='token'"
        )
    # The rule of an attention's output projection comes with the attention.
    is_own = is_product(module)
    features = shape_in_view(module, "weight", View(-1))[-1] if is_own else module.embed_dim
    rule.activation.outliers.check(features, where)


def _check_place(
    module: nn.Module, product: str, name: str, place: Place | None, length: int | None, where: str
) -> None:
    if place is None:
        return
    if place.clamped != "pass":
        raise ValueError(
            f"expected clamped='pass' for {name} of {where}, whose products round their own "
            f"operands, but got {place.clamped!r}; set axis=-1 for one rounding for all products"
        )
    if getattr(place.target, "has_own_gradient", False):
        raise ValueError(
            f"expected {name} of {where} without a gradient of its own, since products round their "
            f"operands outside of autograd, but got {place.target.name}; name no product in its "
            "rule, and give blocks axis=-1"
        )
    if not is_product(module):
        _check_inner_place(name, place, where)
    groups = getattr(module, "groups", 1)
    if place.by_product and groups > 1 and length == 1:
        raise ValueError(
            f"expected blocks of several numbers for {name} in {product} of {where}, but got "
            f"{place.target.name} in a convolution of {groups} groups of one channel; leave the "
            "layer out by None, or set axis=-1 for blocks along the last dimension"
        )


def _check_inner_place(name: str, place: Place, where: str) -> None:
    """Refuse state and dimensions of one tensor where products have tensors of several shapes."""
    if place.scale is not None and place.scale.when != "call":
        raise ValueError(
            f"expected when='call' for {name} of {where}, whose products have several tensors "
            f"each, but got {place.scale.when!r}; set when='call'"
        )
    shape = getattr(place.target, "shape", None)
    if shape is None:
        has_axis = getattr(place.target, "axis", None) is not None
    else:
        has_axis = bool(shape.axis) and (shape.axis != (-2, -1) or len(set(shape.size)) > 1)
    if (has_axis and not place.by_product) or (place.scale and place.scale.per != "tensor"):
        raise ValueError(
            f"expected blocks along what each product sums over, or square ones, and one scale per "
            f"tensor for {name} of {where}, whose products have tensors of several shapes, but got "
            f"{place}; leave axis and per out"
        )


def _check_transform(
    module: nn.Module, product: str, own: ProductRule, length: int | None, where: str
) -> None:
    if own.transform is None:
        return
    if product == "weight_grad" and isinstance(module, CONVOLUTIONS):
        raise ValueError(
            f"expected no transform in weight_grad of {where}, a convolution, whose operands have "
            "different positions, but got "
            f"{own.transform.name!r}; leave it out of weight_grad"
        )
    if length is not None and length % own.transform.size:
        raise ValueError(
            f"expected a multiple of {own.transform.size} in the dimension over which {product} of "
            f"{where} sums, for {own.transform.name!r}, but got {length}; leave transform out"
        )
