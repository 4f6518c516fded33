"""microxcaling's products: linear layers, convolutions and matrix products whose operands are
rounded to blocks, for each product of both passes.

A layer runs by this package's products of ``quantize_``, of which each rounds its own operands.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

from ...quantization.products import Geometry, LayerProduct, prepare_input
from .elemwise_ops import quantize_elemwise_op
from .inside import stock_within
from .mx_ops import quantize_mx_op
from .quantize import round_both
from .specs import apply_mx_specs, get_backwards_mx_specs, mx_assert_test

# inject_pyt_ops replaces these.
_linear, _matmul, _addmm = F.linear, torch.matmul, torch.addmm
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

# The element format and the rounding mode of each operand of each product.
_LAYER = {
    "forward": (("a_elem_format", "round_mx_output"), ("w_elem_format", "round_mx_output")),
    "input_grad": (
        ("a_elem_format_bp_os", "round_mx_grad_output_grad_input"),
        ("w_elem_format_bp", "round_mx_weight_grad_input"),
    ),
    "weight_grad": (
        ("a_elem_format_bp_ex", "round_mx_grad_output_grad_weight"),
        ("a_elem_format_bp", "round_mx_input_grad_weight"),
    ),
}
# The dimension of the blocks of each operand: the one over which the product sums.
_LINEAR_AXES = {"forward": (-1, -1), "input_grad": (-1, 0), "weight_grad": (-2, -2)}
_CONVOLUTION_AXES = {"forward": (1, 1), "input_grad": (1, 0), "weight_grad": (0, 0)}
_TRANSPOSED_AXES = {"forward": (1, 0), "input_grad": (1, 1), "weight_grad": (0, 0)}


class _Operands:
    """Rounds the two operands of each product of a layer."""

    def __init__(self, specs: Mapping, axes: dict[str, tuple[int, int]]) -> None:
        self._forward, self._backward, self._axes = specs, get_backwards_mx_specs(specs), axes

    def find_outliers(self, x: torch.Tensor) -> None:
        """Return None: microxcaling keeps no channels in another format."""

    @stock_within
    def round(
        self, product: str, first: torch.Tensor, second: torch.Tensor, training: bool, mask: None
    ):
        specs = self._forward if product == "forward" else self._backward
        if product == "forward":  # changes nothing if they are rounded for both passes
            first = quantize_elemwise_op(first, specs, specs["round_output"])
            second = quantize_elemwise_op(second, specs, specs["round_weight"])
        return tuple(
            quantize_mx_op(x, specs, specs[element], axes=axis, round=specs[mode])
            for x, (element, mode), axis in zip(
                (first, second), _LAYER[product], self._axes[product], strict=True
            )
        )


def _round_input(x: torch.Tensor, specs: Mapping) -> torch.Tensor:
    """Round a layer's input or output, and its gradient. Without quantize_backprop, the backward
    pass takes unrounded inputs, so the product rounds them."""
    return round_both(x, specs, specs["round_output"], specs["round_grad_input"])


def _round_weight(w: torch.Tensor | None, specs: Mapping) -> torch.Tensor | None:
    return (
        None
        if w is None
        else round_both(w, specs, specs["round_weight"], specs["round_grad_weight"])
    )


def _multiply(x, weight, bias, geometry, axes, specs) -> torch.Tensor:
    if specs["quantize_backprop"]:
        x, weight = _round_input(x, specs), _round_weight(weight, specs)
    operands = _Operands(specs, axes)
    return LayerProduct.apply(x, weight, bias, None, None, geometry, None, operands, True)


@stock_within
def linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    mx_specs: Mapping | None = None,
    prequantized_weights: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    """Multiply as ``torch.nn.functional.linear``: operands in blocks along what each product sums
    over, results rounded before and after the bias is added."""
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _linear(input, weight, bias)
    specs = apply_mx_specs(mx_specs)
    if input.dim() == 1:
        return linear(input[None], weight, bias, specs)[0]
    y = _multiply(input, weight, None, None, _LINEAR_AXES, specs)
    y = _round_input(y, specs)
    return y if bias is None else _round_input(y + _round_weight(bias, specs), specs)


@stock_within
def _convolve(x, weight, bias, geometry, axes, specs) -> torch.Tensor:
    if x.dim() < weight.dim():
        return _convolve(x[None], weight, bias, geometry, axes, specs)[0]
    y = _multiply(x, weight, _round_weight(bias, specs), geometry, axes, specs)
    return _round_input(y, specs)


def _define_convolution(dims: int):
    stock = _CONVOLUTIONS[dims]

    def convolution(
        input,
        weight,
        bias=None,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        mx_specs=None,
        name=None,
    ):
        mx_assert_test(mx_specs)
        if mx_specs is None:
            return stock(input, weight, bias, stride, padding, dilation, groups)
        if isinstance(padding, str):
            raise ValueError(f"expected padding as numbers, but got {padding!r}; use a layer")
        sizes = (
            (s,) * dims if isinstance(s, int) else tuple(s) for s in (stride, padding, dilation)
        )
        geometry = Geometry(*sizes, False, (0,) * dims, groups)
        specs = apply_mx_specs(mx_specs)
        return _convolve(input, weight, bias, geometry, _CONVOLUTION_AXES, specs)

    convolution.__name__ = convolution.__qualname__ = f"conv{dims}d"
    convolution.__doc__ = (
        f"Convolve as ``torch.nn.functional.conv{dims}d``: operands in blocks along channels, or "
        "along the batch for the weight's gradient."
    )
    return convolution


conv1d, conv2d, conv3d = map(_define_convolution, (1, 2, 3))


class Layer:
    """The options of microxcaling's layers. A layer class has it before torch's class.

    Positional arguments from ``mx_specs`` on are specs and name, wherever they stand.
    """

    def __init__(self, *args, mx_specs: Mapping | None = None, name: str | None = None, **kwargs):
        for i, value in enumerate(args):
            if isinstance(value, Mapping):
                args, (mx_specs, name) = args[:i], (*args[i:], name)[:2]
                break
        super().__init__(*args, **kwargs)
        self.name = name
        self.apply_mx_specs(mx_specs)

    def apply_mx_specs(self, mx_specs: Mapping | None) -> None:
        mx_assert_test(mx_specs)
        self.mx_none, self.mx_specs = mx_specs is None, apply_mx_specs(mx_specs)

    def append_name(self, postfix: str) -> None:
        self.name += postfix


class Linear(Layer, nn.Linear):
    """``torch.nn.Linear`` by ``linear``."""

    def prequantize_weights(self) -> None:
        """Round the parameters in place. They stay float32; the original needs bfloat16."""
        if not self.mx_none:
            with torch.no_grad():
                for p in self.parameters():
                    p.copy_(quantize_elemwise_op(p, self.mx_specs, self.mx_specs["round_weight"]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        specs = None if self.mx_none else self.mx_specs
        return linear(inputs, self.weight, self.bias, specs)


class _Convolution(Layer):
    def forward(self, inputs: torch.Tensor, *output_size) -> torch.Tensor:
        if self.mx_none:
            return super().forward(inputs, *output_size)
        x, geometry = prepare_input(self, inputs, *output_size)
        axes = _TRANSPOSED_AXES if geometry.transposed else _CONVOLUTION_AXES
        return _convolve(x, self.weight, self.bias, geometry, axes, self.mx_specs)


class Conv1d(_Convolution, nn.Conv1d):
    """``torch.nn.Conv1d`` by ``conv1d``."""


class Conv2d(_Convolution, nn.Conv2d):
    """``torch.nn.Conv2d`` by ``conv2d``."""


class Conv3d(_Convolution, nn.Conv3d):
    """``torch.nn.Conv3d`` by ``conv3d``."""


class ConvTranspose2d(_Convolution, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d``, with blocks as in a convolution."""


class _MatMul(torch.autograd.Function):
    """A matrix product with blocks along what it sums over, and its gradients likewise."""

    @staticmethod
    def forward(ctx, a, b, specs, kinds):
        ctx.specs, ctx.kinds = get_backwards_mx_specs(specs), kinds
        ctx.save_for_backward(a, b)
        mode = specs["round_output"]
        a, b = (quantize_elemwise_op(x, specs, mode) for x in (a, b))
        return _matmul(
            _blocks(a, specs, f"{kinds[0]}_elem_format", -1, "round_mx_output"),
            _blocks(b, specs, f"{kinds[1]}_elem_format", -2, "round_mx_output"),
        )

    @staticmethod
    @stock_within
    def backward(ctx, g):
        (a, b), specs = ctx.saved_tensors, ctx.specs
        error = ("a_elem_format_bp_os", "round_mx_grad_output_grad_input")
        a_back, b_back = (f"{kind}_elem_format_bp" for kind in ctx.kinds)
        mode = "round_mx_input_grad_input"
        ga = _matmul(
            _blocks(g, specs, error[0], -1, error[1]), _blocks(b, specs, b_back, -1, mode).mT
        )
        gb = _matmul(
            _blocks(a, specs, a_back, -2, mode).mT, _blocks(g, specs, error[0], -2, error[1])
        )
        return ga, gb, None, None  # autograd sums over what was broadcast


def _blocks(x: torch.Tensor, specs: Mapping, element: str, axis: int, mode: str) -> torch.Tensor:
    return quantize_mx_op(x, specs, specs[element], axes=axis, round=specs[mode])


@stock_within
def matmul(
    in1: torch.Tensor,
    in2: torch.Tensor,
    bias: torch.Tensor | None = None,
    mx_specs: Mapping | None = None,
    name: str | None = None,
    mode_config: str = "aa",
) -> torch.Tensor:
    """Multiply as ``torch.matmul``, with blocks along what each product sums over.

    Args:
        mode_config: whether each operand has the formats of activations (``a``) or weights
            (``w``).

    Raises:
        AssertionError: another ``mode_config``.
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _matmul(in1, in2) if bias is None else _addmm(bias, in1, in2)
    if mode_config not in ("aa", "aw", "wa"):
        raise AssertionError(f"expected mode_config 'aa', 'aw' or 'wa', but got {mode_config!r}")
    if in1.dim() == 1:
        return matmul(in1[None], in2, bias, mx_specs, name, mode_config).squeeze(-2)
    if in2.dim() == 1:
        return matmul(in1, in2[:, None], bias, mx_specs, name, mode_config).squeeze(-1)
    specs = apply_mx_specs(mx_specs)
    if specs["quantize_backprop"]:
        in1, in2 = _round_input(in1, specs), _round_input(in2, specs)
    y = _round_input(_MatMul.apply(in1, in2, specs, mode_config), specs)
    return y if bias is None else _round_input(y + _round_weight(bias, specs), specs)


def bmm(
    in1: torch.Tensor,
    in2: torch.Tensor,
    mx_specs: Mapping | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Multiply as ``torch.bmm``, by ``matmul``."""
    return matmul(in1, in2, mx_specs=mx_specs)


def addmm(
    bias: torch.Tensor,
    in1: torch.Tensor,
    in2: torch.Tensor,
    mx_specs: Mapping | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Multiply and add as ``torch.addmm``, by ``matmul``."""
    return matmul(in1, in2, bias, mx_specs)
