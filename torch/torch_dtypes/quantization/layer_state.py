"""The state of a layer that runs by a rule."""

from __future__ import annotations

from torch import nn

from .attention import AttentionState
from .integer_layers import IntegerPlan, plan_of_integers
from .operands import Operands, rounds_by_product
from .parameters import is_bias, parameter_names
from .places import CACHE, LayerRule, Place
from .product_plans import ProductPlan, expect_one_policy, plan_of
from .products import gives_fresh, has_products, is_product
from .rounders import Rounder
from .scale_rules import channel_axis

_TABLES = (nn.Embedding, nn.EmbeddingBag)


class LayerState:
    """A quantised layer's rule, with a rounder for each place and each parameter.

    ``operands`` round what each product multiplies; where they are None, a tensor is rounded once
    for all products. ``inner`` has those of the products of each weight, and ``between`` those of
    two activations. ``attention`` is None unless the rule names a place of attention.
    """

    operands: Operands | None = None
    between: Operands | None = None
    attention: AttentionState | None = None

    def __init__(self, rule: LayerRule, key: str, module: nn.Module, where: str) -> None:
        self.rule, self.key = rule, key
        self.is_product = is_product(module)
        self.by_product = rounds_by_product(module, rule)
        self.inner: dict[str, Operands | None] = {}
        once = ("output",) if self.by_product else ("activation", "output", "error")
        if rule.names_attention and not has_products(module):
            # The error is that of attention's products. A layer behind them has its own rule.
            once = tuple(name for name in once if name != "error")
        once += CACHE
        self.rounders = {
            name: Rounder(place, name, module)
            for name, place in rule.places().items()
            if name in once
        }
        self.names = parameter_names(module)  # the tensors that the layer computes with
        self.parameters: dict[str, Rounder] = {}  # keys are from ``names``
        self.gradients: dict[str, Rounder] = {}  # keys likewise; each has its own scale
        self.observing = False  # True while calibration runs
        self.looks_up = isinstance(module, _TABLES) and rule.weight is not None
        self.is_fresh = (
            gives_fresh(module)
            and rule.accumulate is None
            and rule.arithmetic == "float"
            and not self.by_product
        )
        self.plan: ProductPlan | IntegerPlan | None = plan_of(rule, where)
        if rule.arithmetic == "integer":
            _check_scales(module, self, rule, where)
            self.plan = plan_of_integers(rule)
        else:
            expect_one_policy(self.plan, self.is_product, where)
        self.by_block = (
            rule.accumulate is None
            and rule.arithmetic == "float"
            and rule.native is None
            and has_products(module)
        )

    @property
    def has_parts(self) -> bool:
        """Return whether the rule reaches products or a cache within the module's forward."""
        return bool(self.inner) or self.attention is not None or self.rule.names_cache

    def all_rounders(self) -> dict[str, Rounder]:
        return {
            **self.rounders,
            **self.parameters,
            **{f"{name}.grad": r for name, r in self.gradients.items()},
            **(self.operands.rounders() if self.operands is not None else {}),
            **(self.attention.all_rounders() if self.attention is not None else {}),
        }


def _check_scales(module: nn.Module, state: LayerState, rule: LayerRule, where: str) -> None:
    """Refuse scales for integer products that are finer than one per output channel."""
    if state.rounders["activation"].scaler.axis is not None:
        raise ValueError(
            f"expected one scale per tensor for the activation of {where} in integer products, "
            f"but got {rule.activation}; set per='tensor'"
        )
    axis = Rounder(rule.weight, "weight", module).scaler.axis
    if axis not in (None, channel_axis("weight", module)) or (
        axis is not None and getattr(module, "transposed", False) and module.groups > 1
    ):
        raise ValueError(
            f"expected one scale per tensor or per output channel for the weight of {where} in "
            f"integer products, but got {rule.weight}; set per='tensor' or 'channel'"
        )


def place_of(rule: LayerRule, parameter: str) -> Place | None:
    return rule.bias if is_bias(parameter) else rule.weight
