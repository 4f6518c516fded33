"""Products within a layer's own forward: attention, recurrent layers, modules of a user.

A ``TorchFunctionMode`` sees the functions of PyTorch that the forward calls. Each product among
them goes where a linear layer's goes, ``products.multiply``: with operands that it rounds for
itself, or under an accumulation policy. Functions of several products run step by step.

A product of two activations rounds both as ``activation``, and its gradients as ``weight_grad``
says, whose operands are an error and an activation. So does Microsoft's microxcaling (mx.matmul,
``mode_config="aa"``).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..formats.arguments import with_article
from .attention import attend, attend_heads, find_tensors
from .operands import Operands
from .product_plans import ProductPlan
from .products import is_paused, multiply_matrices
from .recurrent import CELLS, run_recurrent

_Weights = list[tuple[torch.Tensor, Operands | None]]


class InnerProducts(TorchFunctionMode):
    """Runs a block in which a layer's products follow its rule.

    Args:
        weights: the layer's weights, each with the operands of its products, or None.
        between: the operands of products of two activations, or None.
    """

    def __init__(
        self,
        module: nn.Module,
        plan: ProductPlan | None,
        weights: _Weights,
        between: Operands | None,
    ) -> None:
        super().__init__()
        self.plan, self.between, self.training = plan, between, module.training
        self.kind = with_article(type(module).__name__)
        # Tensors made of weights alone, by their ids. They are kept, so that ids stay theirs.
        self.weights = {id(t): (t, operands) for t, operands in weights}
        self.rounds = between is not None or any(operands for _, operands in weights)
        self.has_multiplied = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if is_paused() or not (self.rounds or self.plan):
            return func(*args, **kwargs)
        if name in _REFUSED or (name in _PRODUCTS and "out" in kwargs):
            raise NotImplementedError(
                f"expected products by {', '.join(_ONE_PRODUCT)} in {self.kind} whose rule reaches "
                f"its products, but got {name}{' with out=' * ('out' in kwargs)}; write it by one "
                "of these, give a layer inside a rule of its own, or give this rule axis=-1 and no "
                "accumulate"
            )
        run = _PRODUCTS.get(name)
        result = func(*args, **kwargs) if run is None else run(self, func, *args, **kwargs)
        if name == "__iter__":
            result = list(result)
        if self.rounds:
            self._follow_weights(name, (args, kwargs), result, run is not None)
        return iter(result) if name == "__iter__" else result

    def reaches(self, *factors: torch.Tensor) -> bool:
        """Return whether the rule says how to multiply these: not so for integers, and without a
        policy not for weights alone, whose product is a weight."""
        if not all(t.is_floating_point() for t in factors):
            return False
        own = [t for t in factors if self._is_weight(t)]
        return self.plan is not None or (len(own) < 2 and self._find_operands(*factors) is not None)

    def multiply(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply ``x`` by the transpose of ``weight``, of which either may be a weight."""
        if self._is_weight(x) and not self._is_weight(weight):
            y = self.multiply(weight, x).mT
            return y if bias is None else y + bias
        self.has_multiplied = True
        operands = None if self._is_weight(x) else self._find_operands(x, weight)
        return multiply_matrices(x, weight, bias, self.plan, operands, self.training)

    def transpose(self, t: torch.Tensor) -> torch.Tensor:
        """Return the transpose, a weight if ``t`` is one."""
        made = t.mT
        if self._is_weight(t):
            self.weights[id(made)] = (made, self.weights[id(t)][1])
        return made

    def _is_weight(self, t: torch.Tensor) -> bool:
        return id(t) in self.weights

    def _find_operands(self, *factors: torch.Tensor) -> Operands | None:
        own = [self.weights[id(t)][1] for t in factors if self._is_weight(t)]
        return own[0] if own else self.between

    def _follow_weights(self, name: str, arguments: tuple, result: object, multiplied) -> None:
        """Count the result as a weight if it is made of weights alone."""
        made, given = list(find_tensors(result)), list(find_tensors(arguments))
        own = [self.weights[id(t)] for t in given if self._is_weight(t)]
        if not made or not own or (multiplied and len(own) < len(given)):
            return
        if len(own) < len(given) and name not in _OF_DTYPE:
            raise NotImplementedError(
                f"expected the weights of {self.kind} in products alone, whose rule rounds them "
                f"for each product, but got {name} of a weight and another tensor; give the rule "
                "axis=-1 to round them once"
            )
        if len(own) == len(given) or self._is_weight(given[0]):
            self.weights.update((id(t), (t, own[0][1])) for t in made)


# ---- functions with products: each takes the mode, the function and its arguments ----


def _linear(mode: InnerProducts, func, input, weight, bias=None):
    if not mode.reaches(input, weight):
        return func(input, weight, bias)
    if weight.dim() > 1:
        return mode.multiply(input, weight, bias)
    y = _matmul(mode, func, input, weight)
    return y if bias is None else y + bias


def _matmul(mode: InnerProducts, func, input, *others, **named):
    (other,) = (*others, *named.values())
    if not mode.reaches(input, other):
        return func(input, other)
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    columns = other.unsqueeze(0) if other.dim() == 1 else mode.transpose(other)
    y = mode.multiply(rows, columns)
    y = y.squeeze(-2) if input.dim() == 1 else y
    return y.squeeze(-1) if other.dim() == 1 else y


def _matmul_reversed(mode: InnerProducts, func, other, input):
    return _matmul(mode, func, input, other)


def _addmm(mode: InnerProducts, func, input, *factors, beta=1, alpha=1, **named):
    first, second = (*factors, *named.values())
    if not mode.reaches(first, second):
        return func(input, first, second, beta=beta, alpha=alpha)
    if beta == alpha == 1 and (input.dim(), second.dim()) in ((1, 2), (3, 3)):
        return mode.multiply(first, mode.transpose(second), input)
    y = _matmul(mode, func, first, second)
    return (input if beta == 1 else beta * input) + (y if alpha == 1 else alpha * y)


def _attend(mode: InnerProducts, func, query, key, *args, **kwargs):
    if not mode.reaches(query, key):
        return func(query, key, *args, **kwargs)
    return attend(lambda _, x, w: mode.multiply(x, w), lambda _, y: y, query, key, *args, **kwargs)


def _attend_heads(mode: InnerProducts, func, *args, **kwargs):
    return attend_heads(mode, *args, **kwargs)


def _recur(mode: InnerProducts, func, *args):
    with mode:
        return run_recurrent(func.__name__, *args)


_ONE_PRODUCT = {
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "scaled_dot_product_attention": _attend,
}
_PRODUCTS = {
    **_ONE_PRODUCT,
    **dict.fromkeys(("mv", "dot", "linalg_matmul"), _matmul),
    "__rmatmul__": _matmul_reversed,
    "addmv": _addmm,
    "multi_head_attention_forward": _attend_heads,
    **dict.fromkeys((*CELLS, *(f"{name}_cell" for name in CELLS)), _recur),
}
_REFUSED = frozenset(
    "einsum tensordot inner vdot addbmm addmm_ addbmm_ baddbmm_ addmv_ bilinear chain_matmul "
    "linalg_multi_dot linalg_vecdot cdist convolution conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d conv_tbc _grouped_mm grouped_mm _scaled_mm embedding "
    "embedding_bag _native_multi_head_attention _transformer_encoder_layer_fwd".split()
)
_OF_DTYPE = ("to", "type_as", "expand_as", "view_as", "reshape_as")  # of another tensor's kind
