"""How a layer's products are computed under an accumulation policy: the dtype that holds both
operands exactly, and the policy of each pass."""

from __future__ import annotations

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
from .places import LayerRule
from .products import UnderPolicy, operator_arguments, prepared, written


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
        return UnderPolicy.apply(x, weight, bias, geometry, self)


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
