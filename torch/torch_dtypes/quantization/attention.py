"""Scaled dot product attention by a rule: its operands, its results, and how its products add up.

    scores  = query x key^T x scale        operands query, key; the result is scores
    context = dropout(softmax(mask(scores))) x value
                                           operands probabilities, value; the result is context

Each product rounds its own operands, as a linear layer's does (operands.py). A block format's
blocks lie along what the product sums over, forward and backward. ``error`` is the gradient in the
backward pass of both. Scores are rounded before the mask, which a narrow format could not hold.

A ``TorchFunctionMode`` finds attention in a module's forward: in ``scaled_dot_product_attention``,
in ``nn.MultiheadAttention``, and as two products of activations around a softmax.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .operands import Operand, Operands, View
from .places import ATTENTION, PRODUCTS, LayerRule, Place, ProductRule
from .product_plans import ProductPlan, plan_of
from .products import is_paused, multiply_matrices
from .rounders import Rounder

_OPERANDS = {"scores": ("query", "key"), "context": ("probabilities", "value")}
_ROWS, _COLUMNS = View(-2), View(-1)
_VIEWS = {
    "forward": (_COLUMNS, _COLUMNS),
    "input_grad": (_COLUMNS, _ROWS),
    "weight_grad": (_ROWS, _ROWS),
}
_MATMUL = frozenset({"matmul", "bmm", "mm", "__matmul__", "linalg_matmul"})
_ADDED = frozenset({"baddbmm", "addmm"})
_SCALINGS = frozenset(
    "mul div true_divide multiply divide mul_ div_ multiply_ divide_ true_divide_".split()
)
_QUESTIONS = frozenset(
    "__get__ size dim ndimension numel nelement stride __len__ is_contiguous is_floating_point "
    "element_size get_device".split()
)
_SOFTMAX = frozenset({"softmax", "_safe_softmax"})


def is_attention(module: nn.Module, name: str = "") -> bool:
    """Return whether a module computes attention, as a key of ``quantize_``'s rules.

    These are ``nn.MultiheadAttention``, and other modules whose class has "Attention" in its name
    and which hold no such module.

    Args:
        module: any module.
        name: not used. A key is a function of ``(module, name)``.

    Example::

        >>> torch_dtypes.quantization.is_attention(nn.MultiheadAttention(4, 1), "")
        True
    """
    own = [m for m in module.modules() if "Attention" in type(m).__name__]
    return own == [module]


def may_attend(module: nn.Module) -> bool:
    """Return whether a rule may name attention's places: of PyTorch's own modules,
    ``nn.MultiheadAttention`` alone computes it in its own forward."""
    return isinstance(module, nn.MultiheadAttention) or not type(module).__module__.startswith(
        "torch.nn."
    )


@dataclass(frozen=True)
class AttentionProduct:
    """How one of the two products runs. Operands and plan may be None, and then it is stock."""

    rule: LayerRule
    operands: Operands | None
    plan: ProductPlan | None

    def multiply(
        self, x: torch.Tensor, other: torch.Tensor, plan: ProductPlan | None, training: bool
    ) -> torch.Tensor:
        """Multiply x by the transpose of the other operand. ``plan`` holds if the rule has none."""
        plan = self.plan or plan
        if self.operands is None and plan is None:
            return x @ other.mT
        return multiply_matrices(x, other, None, plan, self.operands, training)


class AttentionState:
    """The rule of an attention: both products, and the rounders of their results."""

    def __init__(self, module: nn.Module, rule: LayerRule, where: str, by_product: bool) -> None:
        """``by_product`` is set where the module's products round their own operands: an operand
        of attention that the rule does not name is then an ``activation``."""
        for name in ATTENTION:
            _check_place(name, getattr(rule, name), where)
        self.products = {
            result: _build_product(module, rule, names, where, by_product)
            for result, names in _OPERANDS.items()
        }
        self.rounders = {
            result: Rounder(place, result, module)
            for result in _OPERANDS
            if (place := getattr(rule, result)) is not None
        }

    def all_rounders(self) -> dict[str, Rounder]:
        own = {
            f"{result}.{name}": rounder
            for result, product in self.products.items()
            if product.operands is not None
            for name, rounder in product.operands.rounders().items()
        }
        return {**own, **self.rounders}


def _check_place(name: str, place: Place | None, where: str) -> None:
    if place is None:
        return
    if getattr(place.target, "has_own_gradient", False):
        raise ValueError(
            f"expected {name} of {where} without a gradient of its own, since the products of "
            f"attention round their operands outside of autograd, but got {place.target.name}"
        )
    if place.scale is not None and place.scale.when != "call" and isinstance(place.scale.kind, str):
        raise ValueError(
            f"expected when='call' for {name} of {where}, since attention's tensors have another "
            f"length in each call, but got {place.scale.when!r}; set when='call'"
        )


def _build_product(
    module: nn.Module, rule: LayerRule, names: tuple[str, str], where: str, by_product: bool
) -> AttentionProduct:
    """Build one product, by a rule in which its operands are a layer's ``activation`` and
    ``weight``. As in a product of two activations, both gradients go by ``weight_grad``."""
    own = rule.products()

    def build(product: str) -> ProductRule:
        of = own["forward" if product == "forward" else "weight_grad"]
        places = {"error": of.error if product != "forward" else None}
        for operand, name in zip(("activation", "weight"), names, strict=True):
            place = getattr(rule, name) or (of.activation if by_product else None)
            places[operand] = place if operand in PRODUCTS[product] else None
        return dataclasses.replace(of, **places)

    rules = {product: build(product) for product in PRODUCTS}
    roles = {"activation": names[0], "weight": names[1], "error": "error"}
    pairs = {
        product: tuple(
            # A value comes transposed, with its tokens last.
            Operand(_build_rounder(getattr(own, name), roles[name], module), view, turned)
            for name, view in zip(PRODUCTS[product], _VIEWS[product], strict=True)
            for turned in [roles[name] == "value"]
        )
        for product, own in rules.items()
    }
    operands = Operands(pairs, {p: (own.transform, own.seed) for p, own in rules.items()})
    rounds = operands.rounders() or any(own.transform for own in rules.values())
    as_layer = LayerRule(**rules, accumulate=rule.accumulate)
    return AttentionProduct(as_layer, operands if rounds else None, plan_of(as_layer, where))


def _build_rounder(place: Place | None, role: str, module: nn.Module) -> Rounder | None:
    return None if place is None else Rounder(place, role, module)


class Attention(TorchFunctionMode):
    """Runs a block in which attention follows its rule.

    Args:
        module: the module whose forward the block runs.
        state: its rule.
        weights: parameters, or the tensors in their places, and buffers. Their products are not
            attention.
        plans: how each product adds up where the rule has no policy, or None.
    """

    def __init__(
        self,
        module: nn.Module,
        state: AttentionState,
        weights: Iterable[torch.Tensor],
        plans: dict[str, ProductPlan | None],
    ) -> None:
        super().__init__()
        self.state, self.plans, self.training = state, plans, module.training
        self.found = dict.fromkeys(_OPERANDS, 0)  # products that the mode has met
        # Tensors by their ids. They are kept, so that ids stay theirs.
        self.weights = {id(t): t for t in weights}
        self.shares: dict[int, torch.Tensor] = {}  # made of a softmax
        self.raw: dict[int, torch.Tensor] = {}  # scores, until something other than a scale follows
        self.rounded: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # scores and their values

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if is_paused():
            return func(*args, **kwargs)
        if name == "multi_head_attention_forward":
            return attend_heads(self, *args, **kwargs)
        if name in _QUESTIONS:
            result = func(*args, **kwargs)
            if next(find_tensors(result), None) is None:
                return result
        if name in _SCALINGS and (result := self._scale(func, *args, **kwargs)) is not None:
            return result
        args, kwargs = self._exchange(args), self._exchange(kwargs)
        if name == "scaled_dot_product_attention":
            return attend(self.multiply, self.round, *args, **kwargs)
        if name in _MATMUL and (pair := self._find_pair(*args, *kwargs.values())):
            return self._multiply(*pair)
        if name in _ADDED and (pair := self._find_pair(*args[1:], *_factors(kwargs))):
            return self._add(pair, *args[:1], **kwargs)
        result = func(*args, **kwargs)
        self._follow(name, find_tensors((args, kwargs), 1), result)
        return result

    def multiply(self, result: str, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        self.found[result] += 1
        return self.state.products[result].multiply(x, other, self.plans[result], self.training)

    def round(self, result: str, y: torch.Tensor) -> torch.Tensor:
        rounder = self.state.rounders.get(result)
        return y if rounder is None else rounder(y, self.training)

    def _find_pair(self, *factors) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the factors of a product of two activations, else None."""
        pair = tuple(find_tensors(factors))
        is_pair = len(pair) == 2 == len(factors) and not any(map(self._is_weight, pair))
        return pair if is_pair else None

    def _is_weight(self, t: torch.Tensor) -> bool:
        return id(t) in self.weights or isinstance(t, nn.Parameter)

    def _multiply(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        if id(first) in self.shares:
            return self.round("context", self.multiply("context", first, second.mT))
        if id(second) in self.shares:  # the transposed product
            return self.round("context", self.multiply("context", second.mT, first)).mT
        y = self.multiply("scores", first, second.mT)
        if "scores" in self.state.rounders:
            self.raw[id(y)] = y
        return y

    def _add(self, pair, input, *_, beta=1, alpha=1, **named) -> torch.Tensor:
        """Add a mask to scaled scores, as baddbmm."""
        y = self._multiply(*pair)
        if alpha != 1:
            y = self._scale(torch.mul, y, alpha) if id(y) in self.raw else alpha * y
        if beta == 0:  # the input may be uninitialised
            return y
        return self._exchange(y) + (input if beta == 1 else beta * input)

    def _scale(self, func, *factors, **named) -> torch.Tensor | None:
        """Return scaled scores that are not rounded yet, None if the factors are others."""
        others = [t for t in factors if id(t) not in self.raw]
        are_numbers = all(not isinstance(t, torch.Tensor) or t.numel() == 1 for t in others)
        if len(others) != len(factors) - 1 or not are_numbers or named:
            return None
        y = func(*factors)
        self.raw[id(y)] = y
        return y

    def _exchange(self, value):
        """Replace scores in nested tuples, lists and dicts by their rounded values."""
        if not self.raw and not self.rounded:
            return value
        if isinstance(value, torch.Tensor):
            if (raw := self.raw.pop(id(value), None)) is not None:
                self.rounded[id(value)] = raw, self.round("scores", raw)
            return self.rounded.get(id(value), (value, value))[1]
        if isinstance(value, dict):
            return {name: self._exchange(one) for name, one in value.items()}
        if type(value) in (tuple, list):
            return type(value)(map(self._exchange, value))
        return value

    def _follow(self, name: str, given: Iterator[torch.Tensor], result: object) -> None:
        """Note results that are made of a softmax, or of weights alone."""
        given = list(given)
        if name in _SOFTMAX or any(id(t) in self.shares for t in given):
            kept = self.shares
        elif given and all(map(self._is_weight, given)):
            kept = self.weights
        else:
            return
        kept.update((id(t), t) for t in find_tensors(result, 1))


def _factors(named: dict) -> list:
    return [named[name] for name in ("batch1", "batch2", "mat1", "mat2") if name in named]


def find_tensors(value: object, least: int = 2) -> Iterator[torch.Tensor]:
    """Yield the floating tensors of at least so many dimensions in nested tuples, lists and
    dicts."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.dim() >= least:
            yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from find_tensors(one, least)
    elif isinstance(value, dict):
        yield from find_tensors(tuple(value.values()), least)


def attend(
    multiply,
    round_result,
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
) -> torch.Tensor:
    """Compute scaled_dot_product_attention by the code of its documentation.

    Args:
        multiply: multiplies by the transpose of its last argument. The first one is "scores" or
            "context".
        round_result: rounds "scores" or "context".
    """
    if enable_gqa:
        key, value = (_repeat_heads(t, query.shape[-3]) for t in (key, value))
    scores = multiply("scores", query, key)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = round_result("scores", scores)
    masks = [] if attn_mask is None else [attn_mask]
    if is_causal:
        masks.append(torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril())
    for mask in masks:
        scores = (
            scores.masked_fill(~mask, -math.inf)
            if mask.dtype is torch.bool
            else (scores + mask).to(scores.dtype)
        )
    shares = F.dropout(torch._safe_softmax(scores, -1), dropout_p, training=dropout_p > 0)
    return round_result("context", multiply("context", shares, value.mT))


def _repeat_heads(t: torch.Tensor, heads: int) -> torch.Tensor:
    """Give each group of a query's heads its own head of a key or value."""
    if not t.shape[-3] or heads % t.shape[-3]:
        raise ValueError(
            "expected a number of query heads that is a multiple of key's and value's with "
            f"enable_gqa=True, but got {heads} and {t.shape[-3]}; give heads that divide"
        )
    return t.repeat_interleave(heads // t.shape[-3], -3)


def attend_heads(mode: TorchFunctionMode, *args, **kwargs):
    """Run PyTorch's own code of attention with heads, whose products the mode sees. The function
    would ask for a mode again, and so never run."""
    own = F.multi_head_attention_forward
    names = {**vars(F), "has_torch_function": lambda _: False}
    run = types.FunctionType(own.__code__, names, own.__name__, own.__defaults__)
    with mode:
        return run(*args, **kwargs)
