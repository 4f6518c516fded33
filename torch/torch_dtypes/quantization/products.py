"""Products of layers, forward and backward: of operands that each product rounds for itself, and
under an accumulation policy in a dtype that holds both operands exactly."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from ..targets.base import is_recorded
from .derivatives import first_only
from .parameters import is_list
from .rounders import note_layer, tell_layer
from .scale_rules import CONVOLUTIONS, TRANSPOSED, stores_inputs_first

_STRAIGHT = contextlib.nullcontext()
_THREAD = threading.local()
_LINEAR = (nn.Linear,)
_SAVE_OPERANDS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
)


def stock_class(module: nn.Module, kinds: tuple[type, ...]) -> bool:
    """Return whether the module is of one of the kinds and has that kind's forward."""
    kind, own = next((k for k in kinds if isinstance(module, k)), None), base_class(module)
    return kind is not None and all(
        getattr(own, name, None) is getattr(kind, name, None)
        for name in ("forward", "_conv_forward")
    )


def base_class(module: nn.Module) -> type:
    """Return the class that the module had before it was quantised."""
    return getattr(type(module), "_quantized_base", type(module))


def is_linear(module: nn.Module) -> bool:
    return stock_class(module, _LINEAR) or stores_inputs_first(module)


def is_convolution(module: nn.Module) -> bool:
    return stock_class(module, CONVOLUTIONS)


def is_product(module: nn.Module) -> bool:
    """Return whether the module computes one product of its input and its weight, so that rounded
    operands can be passed to the product directly."""
    return is_linear(module) or is_convolution(module)


def sums_over_several(module: nn.Module) -> bool:
    """Return whether blocks along what the module's products sum over have several numbers: not so
    for convolutions with one channel in each group."""
    groups = getattr(module, "groups", 1)
    return has_products(module) and (
        groups == 1 or groups not in (module.in_channels, module.out_channels)
    )


def gives_fresh(module: nn.Module) -> bool:
    """Return whether the output is a new tensor that backward does not need, so that rounding may
    overwrite it. These modules save only their operands."""
    return is_product(module) or stock_class(module, _SAVE_OPERANDS)


def has_products(module: nn.Module) -> bool:
    """Return whether the module multiplies by operators to which policies apply."""
    return is_product(module) or isinstance(
        module, (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
    )


def makes_products(module: nn.Module) -> bool:
    """Return whether rules can reach products within the module's forward: those of the layers with
    products, and of a user's module without layers of its own."""
    if has_products(module):
        return True
    kinds = [k for k in type(module).__mro__ if k.__module__.startswith("torch.nn.")]
    return kinds[0] is nn.Module and not any(
        next(child.parameters(), None) is not None
        for child in module.children()
        if not is_list(child)
    )


def product_arguments(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the arguments of a linear layer's or convolution's forward."""
    if stores_inputs_first(module):
        return ("x",)
    return ("input", "output_size") if isinstance(module, TRANSPOSED) else ("input",)


@dataclass(frozen=True)
class Geometry:
    """Arguments of a convolution operator after weight and bias. None instead of a Geometry means a
    linear layer, or many in one where the weight has more than two dimensions."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    def arguments(self) -> tuple:
        return (
            list(self.stride),
            list(self.padding),
            list(self.dilation),
            self.transposed,
            list(self.output_padding),
            self.groups,
        )


def prepare_input(
    module: nn.Module, x: torch.Tensor, output_size=None
) -> tuple[torch.Tensor, Geometry | None]:
    """Return the input of the product and its geometry.

    The input is padded here if the layer pads by other values than zeros, or unevenly.
    """
    if is_linear(module):
        return x, None
    dims = len(module.kernel_size)
    if isinstance(module, TRANSPOSED):
        output_padding = module._output_padding(
            x,
            output_size,
            list(module.stride),
            list(module.padding),
            list(module.kernel_size),
            dims,
            list(module.dilation),
        )
        return x, Geometry(
            module.stride,
            module.padding,
            module.dilation,
            True,
            tuple(output_padding),
            module.groups,
        )
    padding = module.padding
    if module.padding_mode != "zeros" or padding == "same":
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x, padding = F.pad(x, module._reversed_padding_repeated_twice, mode=mode), (0,) * dims
    elif padding == "valid":
        padding = (0,) * dims
    return x, Geometry(
        module.stride, tuple(padding), module.dilation, False, (0,) * dims, module.groups
    )


def product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry | None
) -> torch.Tensor:
    if geometry is None:
        if weight.dim() <= 2:
            return F.linear(x, weight, bias)
        return x @ weight.mT if bias is None else torch.baddbmm(bias, x, weight.mT)
    batched = x if x.dim() == weight.dim() else x.unsqueeze(0)
    y = torch.convolution(batched, weight, bias, *geometry.arguments())
    return y if batched is x else y.squeeze(0)


def stock_product(
    module: nn.Module,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    output_size=None,
) -> torch.Tensor:
    """Compute the layer's forward with these parameters instead of its own."""
    if is_linear(module):
        return F.linear(x, weight, bias)
    if not isinstance(module, TRANSPOSED):
        return module._conv_forward(x, weight, bias)
    x, geometry = prepare_input(module, x, output_size)
    return product(x, weight, bias, geometry)


def gradients(
    g,
    x,
    weight,
    has_bias: bool,
    geometry: Geometry | None,
    needs: tuple[bool, bool, bool],
    policies: tuple,
):
    """Compute the gradients of operands and bias, in the operands' dtype.

    The input gradient and the weight gradient each have their own policy.
    """
    kind = "cuda" if g.is_cuda else "cpu"  # autocast has a switch for each
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return gradients(g, x, weight, has_bias, geometry, needs, policies)
    to_input, to_weight = policies
    gx = gw = gb = None
    if geometry is None and weight.dim() > 2:
        with to_input:
            gx = g @ weight if needs[0] else None
        with to_weight:
            gw = g.mT @ x if needs[1] else None
        return gx, gw, g if needs[2] and has_bias else None
    if geometry is None:
        rows, wide = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
        if needs[0]:
            with to_input:
                gx = (rows @ weight).reshape(x.shape)
        with to_weight:
            gw = rows.t() @ wide if needs[1] else None
            gb = rows.sum(0) if needs[2] and has_bias else None
        return gx, gw, gb
    batched = x.dim() == weight.dim()
    sizes = [weight.shape[1] * geometry.groups if geometry.transposed else weight.shape[0]]
    call = functools.partial(
        torch.ops.aten.convolution_backward,
        g if batched else g.unsqueeze(0),
        x if batched else x.unsqueeze(0),
        weight,
        sizes,
        *geometry.arguments(),
    )
    if needs[0]:
        with to_input:
            gx = call([True, False, False])[0]
        gx = gx if batched else gx.squeeze(0)
    if needs[1] or (needs[2] and has_bias):
        with to_weight:
            _, gw, gb = call([False, needs[1], needs[2] and has_bias])
    return gx, gw, gb


def forward(
    x, weight, bias, geometry, plan, operands, training: bool = True, scales=(None, None)
) -> torch.Tensor:
    """Multiply rounded operands; under a plan, in its dtype, which holds their values exactly.
    ``plan`` or ``operands`` may be None. With scales, the plan is one of integers."""
    if scales[0] is not None:
        return plan.multiply(x, weight, bias, geometry, *scales)
    if operands is not None:
        x, weight = operands.round("forward", x, weight, training, operands.find_outliers(x))
    if plan is None:
        return product(x, weight, bias, geometry)
    with plan.overrides()[0]:
        bias = None if bias is None else plan.carry(bias)
        y = product(plan.carry(x), plan.carry(weight), bias, geometry)
    return y.to(x.dtype)


def backward(
    g,
    x,
    weight,
    has_bias: bool,
    geometry,
    needs: tuple[bool, bool, bool],
    plan,
    operands,
    training: bool = True,
) -> tuple:
    """Compute the gradients of those operands of ``forward`` that need one. A bias's is the sum of
    the error, which no product rounds."""
    dtypes = (x.dtype, weight.dtype, weight.dtype)
    if operands is None:
        results = _gradients(g, x, weight, has_bias, geometry, needs, plan)
    else:
        gx = gw = gb = None
        mask = operands.find_outliers(x)
        if needs[0]:
            e, w = operands.round("input_grad", g, weight, training, mask)
            gx = _gradients(e, x, w, False, geometry, (True, False, False), plan)[0]
        if needs[1]:
            rounded = operands.round("weight_grad", g, x, training, mask)
            gw = _gradients(*rounded, weight, False, geometry, (False, True, False), plan)[1]
        if needs[2] and has_bias:
            gb = _gradients(g, x, weight, True, geometry, (False, False, True), plan)[2]
        results = (gx, gw, gb)
    return tuple(None if t is None else t.to(d) for t, d in zip(results, dtypes, strict=True))


def _gradients(g, x, weight, has_bias, geometry, needs, plan) -> tuple:
    if plan is None:  # in the dtype to which autocast may have cast the forward product
        operands, policies = (g, x.to(g.dtype), weight.to(g.dtype)), (_STRAIGHT, _STRAIGHT)
    else:
        operands, policies = tuple(plan.carry(t) for t in (g, x, weight)), plan.overrides()[1:]
    return gradients(*operands, has_bias, geometry, needs, policies)


class LayerProduct(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, scale, weight_scale, geometry, plan, operands, training):
        scales = scale, weight_scale
        return forward(x, weight, bias, geometry, plan, operands, training, scales)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, scale, _, ctx.geometry, plan, ctx.operands, ctx.training = inputs
        # The gradients of an integer product are those of the values behind the integers.
        ctx.plan = plan if scale is None else None
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        ctx.layer = note_layer()

    @staticmethod
    @first_only(
        "a quantised layer under a policy, in integers, or with operands that each product rounds",
        "give its rule accumulate=None, no arithmetic, and axis=-1 for blocks",
    )
    def backward(ctx, g):
        saved = ctx.saved_tensors  # a checkpoint runs the layer again here, and not paused
        tell_layer(ctx.layer)
        how = ctx.plan, ctx.operands, ctx.training
        with _pause():
            results = backward(
                g, *saved, ctx.has_bias, ctx.geometry, ctx.needs_input_grad[:3], *how
            )
        return *results, *[None] * 6


def multiply(
    module, x, weight, bias, output_size, plan, operands, scales=(None, None)
) -> torch.Tensor:
    """Compute a layer's product by its plan and its operands, of which one may be None. ``scales``
    are of a plan of integers."""
    x, geometry = prepare_input(module, x, output_size)
    return _multiply(x, weight, bias, geometry, plan, operands, module.training, scales)


def multiply_matrices(x, weight, bias, plan, operands, training: bool) -> torch.Tensor:
    """Compute x times the transpose of a weight of two dimensions or more by a plan and operands.
    Leading dimensions broadcast, as in torch.matmul. A bias is a row, or with three dimensions a
    matrix for each product."""
    if weight.dim() == 2:
        rows = x.reshape(-1, x.shape[-1])
        y = _multiply(rows, weight, bias, None, plan, operands, training)
        return y.reshape(*x.shape[:-1], weight.shape[0])
    batch = torch.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    x, weight = (t.expand(*batch, *t.shape[-2:]) for t in (x, weight))
    bias = None if bias is None else bias.expand(*batch, x.shape[-2], weight.shape[-2])
    return _multiply(x, weight, bias, None, plan, operands, training)


def _multiply(
    x, weight, bias, geometry, plan, operands, training: bool, scales=(None, None)
) -> torch.Tensor:
    # Dynamo knows no state of a thread, and meets no function mode here.
    with _STRAIGHT if torch.compiler.is_dynamo_compiling() else _pause():
        if torch.compiler.is_compiling() or is_recorded():
            text = write_plan(plan, operands)
            arguments = *scales, text, *operator_arguments(geometry)
            return torch.ops.torch_dtypes.product(x, weight, bias, *arguments)
        return LayerProduct.apply(x, weight, bias, *scales, geometry, plan, operands, training)


def is_paused() -> bool:
    """Return whether a product runs in this thread, whose operators no rule reaches again."""
    return getattr(_THREAD, "paused", False)


@contextlib.contextmanager
def _pause() -> Iterator[None]:
    before, _THREAD.paused = is_paused(), True
    try:
        yield
    finally:
        _THREAD.paused = before


def write_plan(plan, operands) -> str:
    """Return a plan and operands as a text, from which product_operator.py restores them, in any
    process."""
    written = "" if plan is None else plan.text
    return written if operands is None else f"{written}\n{operands.text}"


def operator_arguments(geometry) -> tuple:
    """Return the last arguments of the operator in graphs. A linear layer has None for most."""
    if geometry is None:
        return None, None, None, False, None, 1
    stride, padding, dilation, transposed, output_padding, groups = geometry.arguments()
    return stride, padding, dilation, transposed, output_padding, groups
