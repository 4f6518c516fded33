"""Products of layers under an accumulation policy: in a dtype that holds both operands exactly,
forward and backward."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn import functional as F

from .. import _C
from ..formats.caches import cached
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of
from ..formats.layouts import float_format
from ..policies.accumulation import Accumulation, accumulation_block, policy_of_native
from ..policies.accumulation_options import PRESETS
from ..targets.base import is_recorded
from ..targets.lookup import carrier_of
from .derivatives import first_only
from .places import LayerRule

_LINEAR = (nn.Linear,)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_SAVE_OPERANDS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
)


def stock_class(module: nn.Module, kinds: tuple[type, ...]) -> bool:
    """Whether the module is one of the kinds and computes as it."""
    kind, own = next((k for k in kinds if isinstance(module, k)), None), base_class(module)
    return kind is not None and all(
        getattr(own, name, None) is getattr(kind, name, None)
        for name in ("forward", "_conv_forward")
    )


def base_class(module: nn.Module) -> type:
    """The class that the module had before it was quantised."""
    return getattr(type(module), "_quantized_base", type(module))


def is_linear(module: nn.Module) -> bool:
    return stock_class(module, _LINEAR)


def is_convolution(module: nn.Module) -> bool:
    return stock_class(module, (*_CONVOLUTIONS, *_TRANSPOSED))


def is_product(module: nn.Module) -> bool:
    """Whether the module is one product of its input and its weight, whose operands can be given
    apart."""
    return is_linear(module) or is_convolution(module)


def gives_fresh(module: nn.Module) -> bool:
    """Whether the module's output is a tensor of its own that backward has no need of: these save
    their operands alone."""
    return is_product(module) or stock_class(module, _SAVE_OPERANDS)


def has_products(module: nn.Module) -> bool:
    """Whether the module multiplies by operators that a policy reaches."""
    return is_product(module) or isinstance(
        module, (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
    )


def product_arguments(module: nn.Module) -> tuple[str, ...]:
    """The names of what such a layer is called with."""
    return ("input", "output_size") if isinstance(module, _TRANSPOSED) else ("input",)


@dataclass(frozen=True)
class Geometry:
    """The arguments of a convolution operator behind weight and bias; None in their place is a
    linear layer."""

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


def prepared(
    module: nn.Module, x: torch.Tensor, output_size=None
) -> tuple[torch.Tensor, Geometry | None]:
    """The input of the product (padded, where the layer pads by other than zeros on both sides
    alike) and its geometry."""
    if isinstance(module, nn.Linear):
        return x, None
    dims = len(module.kernel_size)
    if isinstance(module, _TRANSPOSED):
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
        return F.linear(x, weight, bias)
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
    """What the layer's forward computes, with other parameters than its own."""
    if isinstance(module, nn.Linear):
        return F.linear(x, weight, bias)
    if isinstance(module, _CONVOLUTIONS):
        return module._conv_forward(x, weight, bias)
    x, geometry = prepared(module, x, output_size)
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
    """The gradients of operands and bias, each product (towards the input, towards the weight)
    under a policy of its own, in the operands' dtype."""
    kind = "cuda" if g.is_cuda else "cpu"  # each has a switch of its own
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return gradients(g, x, weight, has_bias, geometry, needs, policies)
    to_input, to_weight = policies
    gx = gw = gb = None
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


def forward(x, weight, bias, geometry, plan) -> torch.Tensor:
    """A product of stock tensors by the kernels of a dtype of ours that holds them exactly, or by
    float64's."""
    with plan.overrides()[0]:
        y = product(
            plan.carried(x),
            plan.carried(weight),
            None if bias is None else plan.carried(bias),
            geometry,
        )
    return y.to(x.dtype)


def backward(g, x, weight, has_bias: bool, geometry, needs: tuple[bool, bool, bool], plan) -> tuple:
    """Its gradients, of those operands that need one."""
    operands = (plan.carried(t) for t in (g, x, weight))
    found = gradients(*operands, has_bias, geometry, needs, plan.overrides()[1:])
    dtypes = (x.dtype, weight.dtype, weight.dtype)
    return tuple(None if t is None else t.to(d) for t, d in zip(found, dtypes, strict=True))


class _UnderPolicy(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, geometry, plan):
        return forward(x, weight, bias, geometry, plan)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.geometry, ctx.plan = inputs
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None

    @staticmethod
    @first_only("a quantised layer under a policy", "give its rule accumulate=None")
    def backward(ctx, g):
        return (
            *backward(
                g,
                *ctx.saved_tensors,
                ctx.has_bias,
                ctx.geometry,
                ctx.needs_input_grad[:3],
                ctx.plan,
            ),
            None,
            None,
        )


def written(plan) -> str:
    """A plan as a text, from which product_operator.py makes it again, in another process too."""
    return "; ".join([str(plan.carrier).removeprefix("torch."), *map(str, plan.policies)])


def operator_arguments(geometry) -> tuple:
    """The operator's last arguments; those of a linear layer are None."""
    if geometry is None:
        return None, None, None, False, None, 1
    stride, padding, dilation, transposed, output_padding, groups = geometry.arguments()
    return stride, padding, dilation, transposed, output_padding, groups


@dataclass(frozen=True)
class ProductPlan:
    """How a layer's three products run: the dtype that carries their operands, and the policies of
    forward product, input and weight gradient."""

    carrier: torch.dtype
    policies: tuple[Accumulation, Accumulation, Accumulation]
    text: str = field(init=False, compare=False)  # as a graph has it

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", written(self))

    def overrides(self):
        return _overrides(self.policies)

    def carried(self, t: torch.Tensor) -> torch.Tensor:
        # Batched gradients cannot be detached.
        return (t.detach() if t.requires_grad else t).to(self.carrier)

    def __call__(
        self,
        module: nn.Module,
        state,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        output_size=None,
    ) -> torch.Tensor:
        x, geometry = prepared(module, x, output_size)
        if torch.compiler.is_compiling() or is_recorded():
            return torch.ops.torch_dtypes.product(
                x, weight, bias, self.text, *operator_arguments(geometry)
            )
        return _UnderPolicy.apply(x, weight, bias, geometry, self)


@cached
def _overrides(policies: tuple) -> tuple:
    return tuple(accumulation_block(policy) for policy in policies)


def plan_of(rule: LayerRule, where: str) -> ProductPlan | None:
    """How products run by the rule; None: by stock float32 kernels, which is what ``machine`` and
    ``float32`` mean for float32 values.

    The dtype that carries operands is float32's own format, in which every value of a narrower
    format is exact, as a dtype of ours: so our kernels add up, and what they round is what the
    policy says.

    Raises:
        ValueError: a policy that cannot be obeyed: steps in a format of more than 51 significant
            bits or too large exponents, a chip's beside casts.
    """
    policy = rule.accumulate
    if policy is None or policy.policy in ("machine", "float32"):
        return None
    if policy.policy == "float64":
        return ProductPlan(torch.float64, (Accumulation("machine"),) * 3)
    if policy.policy in PRESETS and rule.native is None:
        raise ValueError(
            f"accumulate of {where}: expected a layer whose places all have one dtype for the "
            f"policy {policy.policy!r}, which goes by operands' "
            "formats: casts carry them in float32's. Name all places alike, or take accumulate "
            "'block(...)' with the chip's numbers"
        )
    carrier = rule.native or carrier_of(torch.float32)
    if rule.native is not None or policy.policy == "exact":
        plan = ProductPlan(carrier, (policy,) * 3)
    else:
        pairs = (("activation", "weight"), ("error", "weight"), ("error", "activation"))
        plan = ProductPlan(
            carrier,
            tuple(_steps(policy, [getattr(rule, name) for name in pair], where) for pair in pairs),
        )
    _try(plan, where)
    return plan


def plan_of_block(rule: LayerRule, one_product: bool) -> ProductPlan | None:
    """How a layer whose rule says nothing of sums runs in a block of ``accumulate``: as though its
    rule had the block's policy.

    Raises:
        ValueError: a policy that cannot be obeyed.
    """
    native = _C.accumulation_override()
    if native is None:
        return None
    _C.count_accumulation_use()
    return _plan_by(rule, policy_of_native(native), one_product)


@cached
def _plan_by(rule: LayerRule, policy: Accumulation, one_product: bool) -> ProductPlan | None:
    where = (
        "the block around a layer that is rounded by casts "
        f"({', '.join(f'{name}={place}' for name, place in rule.places().items())})"
    )
    plan = plan_of(replace(rule, accumulate=policy), where)
    expect_one_policy(plan, one_product, where)
    return plan


def expect_one_policy(plan: ProductPlan | None, one_product: bool, where: str) -> None:
    """Of a layer of several products, which run under one."""
    if plan is not None and not one_product and len(set(plan.policies)) > 1:
        several = "operands of several formats (float32, where nothing is said)"
        raise ValueError(
            f"expected product= and accumulator= in accumulate of {where}: its products are of "
            f"{several}"
        )


def _steps(policy: Accumulation, operands: list, where: str) -> Accumulation:
    """The policy with its formats said: where it leaves them open they are the operands' own, or
    the narrowest float that holds both."""
    if policy.policy not in ("format", "chunked") or (
        policy.accumulator is not None and (policy.product is not None or policy.fused)
    ):
        return policy
    targets = [None if place is None else place.target for place in operands]
    if any(
        place is not None and (place.target.dtype is None or place.scale is not None)
        for place in operands
    ):
        names = " and ".join(
            "float32"
            if place is None
            else place.target.name + " with a scale" * (place.scale is not None)
            for place in operands
        )
        raise ValueError(
            f"accumulate of {where}: expected product= and accumulator= beside operands of "
            f"{names}, which have no one format for sums"
        )
    own = holding(*(carrier_of(torch.float32) if t is None else _format_dtype(t) for t in targets))
    product_dtype = None if policy.fused else policy.product or own
    return replace(policy, product=product_dtype, accumulator=policy.accumulator or own)


def _format_dtype(target) -> torch.dtype:
    """The dtype of this package with a target's numbers, also where a stock one has them."""
    return dtype_of(target.format_name)


@cached
def holding(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """The narrowest IEEE-like float that holds the numbers of both dtypes of ours, e5m3 for q43 and
    q52; one of them, if it does.

    Raises:
        ValueError: none of at most 11 exponent bits does.
    """
    if first == second:
        return first
    ranges = [_range(d) for d in (first, second)]
    digits, top, bottom = (pick(r[i] for r in ranges) for i, pick in enumerate((max, max, min)))
    for dtype in (first, second):
        fmt = format_of(dtype)
        ordinary = fmt.kind == _C.Kind.float and fmt.subnormals == _C.Subnormals.gradual
        own = _range(dtype)
        if ordinary and own[0] >= digits and own[1] >= top and own[2] <= bottom:
            return dtype
    for exp_bits in range(2, 12):
        bias = 2 ** (exp_bits - 1) - 1
        if bias >= top and 1 - bias - (digits - 1) <= bottom:
            return float_format(exp_bits, max(digits - 1, 1))
    raise ValueError(
        f"expected operands that a float of at most 11 exponent bits holds, but got {first} and "
        f"{second}"
    )


def _range(dtype: torch.dtype) -> tuple[int, int, int]:
    """Significant bits, the binade of the largest number, and that of the last bit of the smallest
    numbers."""
    fmt = format_of(dtype)
    return fmt.significand_bits, fmt.max_exponent, fmt.lsb_exponent


def _try(plan: ProductPlan, where: str) -> None:
    """Asks the kernels for one product, so that what they refuse is refused before any work."""
    one = torch.ones(1, 1, device="cpu")
    for override in plan.overrides():
        try:
            with override:
                F.linear(one.to(plan.carrier), one.to(plan.carrier))
        except RuntimeError as error:
            raise ValueError(f"accumulate of {where}: {str(error).splitlines()[0]}") from error
