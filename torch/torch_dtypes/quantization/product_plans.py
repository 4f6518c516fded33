"""How a layer's products are computed under an accumulation policy: the dtype that holds both
operands exactly, and the policy of each pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch.nn import functional as F

from .. import _C
from ..formats.caches import clearable_cache
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of
from ..formats.layouts import float_format
from ..policies.accumulation import Accumulation, accumulation_block, policy_of_native
from ..targets.lookup import carrier_of
from .places import PRODUCTS, LayerRule


@dataclass(frozen=True)
class ProductPlan:
    """How a layer's three products run: the dtype that carries their operands, and the policies
    of the forward product, the input gradient and the weight gradient."""

    carrier: torch.dtype
    policies: tuple[Accumulation, Accumulation, Accumulation]
    text: str = field(init=False, compare=False)  # the plan as graphs record it

    def __post_init__(self) -> None:
        text = "; ".join([str(self.carrier).removeprefix("torch."), *map(str, self.policies)])
        object.__setattr__(self, "text", text)

    def overrides(self):
        return _overrides(self.policies)

    def carry(self, t: torch.Tensor) -> torch.Tensor:
        # Batched gradients cannot be detached.
        return (t.detach() if t.requires_grad else t).to(self.carrier)


@clearable_cache
def _overrides(policies: tuple) -> tuple:
    return tuple(accumulation_block(policy) for policy in policies)


def plan_of(rule: LayerRule, where: str) -> ProductPlan | None:
    """Return how products run by the rule. None: by PyTorch's float32 kernels, the meaning of
    ``machine`` and ``float32`` for float32 values.

    Operands are carried by a format dtype with float32's format, which holds every narrower
    format's values exactly. So this package's kernels add up, and round only as the policy says.

    Raises:
        ValueError: a policy that cannot be obeyed: it rounds steps to a format of more than 51
            significant bits or too large exponents, or it is a chip's and the layer runs by casts.
    """
    policy = rule.accumulate
    if policy is None or policy.policy in ("machine", "float32"):
        return None
    if policy.policy == "float64":
        return ProductPlan(torch.float64, (Accumulation("machine"),) * 3)
    if policy.chip is not None and rule.native is None:
        raise ValueError(
            f"accumulate of {where}: expected one dtype for weight, activation, error and grad "
            f"with {policy.chip!r}, but got several; use one dtype, or accumulate='block(...)' "
            "with the chip's numbers"
        )
    carrier = rule.native or carrier_of(torch.float32)
    if rule.native is not None or policy.policy == "exact":
        plan = ProductPlan(carrier, (policy,) * 3)
    else:
        operands = (
            [getattr(own, name) for name in PRODUCTS[product]]
            for product, own in rule.products().items()
        )
        plan = ProductPlan(carrier, tuple(_steps(policy, pair, where) for pair in operands))
    _try(plan, where)
    return plan


def plan_of_block(rule: LayerRule, one_product: bool) -> ProductPlan | None:
    """Return how a layer runs in a block of ``accumulate`` if its own rule has no policy: as if its
    rule had the block's.

    Raises:
        ValueError: a policy that cannot be obeyed.
    """
    native = _C.accumulation_override()
    if native is None:
        return None
    _C.count_accumulation_use()
    return _plan_by(rule, policy_of_native(native), one_product)


@clearable_cache
def _plan_by(rule: LayerRule, policy: Accumulation, one_product: bool) -> ProductPlan | None:
    where = (
        "the block around a layer that is rounded by casts "
        f"({', '.join(f'{name}={place}' for name, place in rule.places().items())})"
    )
    plan = plan_of(replace(rule, accumulate=policy), where)
    expect_one_policy(plan, one_product, where)
    return plan


def expect_one_policy(plan: ProductPlan | None, one_product: bool, where: str) -> None:
    """Refuse several policies for a layer of several products, which all run under one."""
    if plan is not None and not one_product and len(set(plan.policies)) > 1:
        raise ValueError(
            f"expected accumulate of {where} with product= and accumulator=, since its products' "
            "operands have several formats (float32 if a place is not named), but got "
            f"{plan.policies[0]}"
        )


def _steps(policy: Accumulation, operands: list, where: str) -> Accumulation:
    """Fill in the formats that the policy leaves open: the operands' common format, or the
    narrowest float that holds both."""
    if policy.policy not in ("format", "chunked") or (
        policy.accumulator is not None and (policy.product is not None or policy.fused)
    ):
        return policy
    targets = [None if place is None else place.target for place in operands]
    if any(
        place is not None and (place.target.dtype is None or place.scale or place.outliers)
        for place in operands
    ):
        names = " and ".join(
            "float32"
            if place is None
            else place.target.name
            + " with a scale" * (place.scale is not None)
            + " with outliers" * (place.outliers is not None)
            for place in operands
        )
        raise ValueError(
            f"accumulate of {where}: expected product= and accumulator= with operands of "
            f"{names}, which have no common format for sums, but got {policy}"
        )
    own = find_common_float(
        *(carrier_of(torch.float32) if t is None else _format_dtype(t) for t in targets)
    )
    product_dtype = None if policy.fused else policy.product or own
    return replace(policy, product=product_dtype, accumulator=policy.accumulator or own)


def _format_dtype(target) -> torch.dtype:
    """Return the format dtype with a target's values, even if a stock dtype has them too."""
    return dtype_of(target.format_name)


@clearable_cache
def find_common_float(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """Return the narrowest IEEE-like float that holds the values of both format dtypes: one of
    them if possible, else for example e5m3 for q43 and q52.

    Raises:
        ValueError: no float of at most 11 exponent bits holds both.
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
        f"{second}; give product= and accumulator="
    )


def _range(dtype: torch.dtype) -> tuple[int, int, int]:
    """Return the significant bits, the largest number's exponent, and the exponent of the last bit
    of the smallest numbers."""
    fmt = format_of(dtype)
    return fmt.significand_bits, fmt.max_exponent, fmt.lsb_exponent


def _try(plan: ProductPlan, where: str) -> None:
    """Compute one small product, so that a policy that the kernels refuse is refused early."""
    one = torch.ones(1, 1, device="cpu")
    for override in plan.overrides():
        try:
            with override:
                F.linear(one.to(plan.carrier), one.to(plan.carrier))
        except RuntimeError as error:
            raise ValueError(f"accumulate of {where}: {str(error).splitlines()[0]}") from error
