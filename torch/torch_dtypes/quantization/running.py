"""How a layer runs by its rule: what is rounded, and by which product."""

from __future__ import annotations

import contextlib
import functools

import torch
from torch import nn

from .. import _C
from ..policies.autocast import in_autocast_of_ours, out_of_autocast
from ..targets.base import refuse_complex
from ..targets.grid import round_to_grid
from .integer_layers import IntegerPlan
from .layer_state import LayerState
from .parameters import parameter_of, standing_in
from .product_plans import ProductPlan, plan_of_block
from .products import product_arguments, stock_product
from .regions import under_policy
from .rounders import Rounder, mapped, rounded_through
from .scalers import Scale


def run_by_state(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    if state.observing:
        return _observed(module, state, forward, args, kwargs)
    if kinds := in_autocast_of_ours():
        return _run_in_autocast(kinds, module, state, forward, args, kwargs)
    if state.rule.native is not None:
        return _run_native(module, state, forward, args, kwargs)
    return _run(module, state, forward, args, kwargs)


@contextlib.contextmanager
def renormalised(module: nn.Module, input: torch.Tensor, *others, **more):
    """The rows that are looked up, as ``max_norm`` has them: in the master, which is then rounded;
    else the rounded rows would be, and be no values of the format."""
    bound, module.max_norm = module.max_norm, None
    try:
        with torch.no_grad():
            torch.embedding_renorm_(
                parameter_of(module, "weight").detach(), input.contiguous(), bound, module.norm_type
            )
        yield
    finally:
        module.max_norm = bound


def rounded_parameter(
    state: LayerState,
    name: str,
    parameter: torch.Tensor,
    training: bool,
    found: Scale | None = None,
) -> torch.Tensor:
    """A parameter rounded, whose gradient comes back rounded to ``grad``."""
    rounder, grad = state.parameters.get(name), state.gradients.get(name)
    return (
        parameter
        if rounder is None and grad is None
        else rounded_through(parameter, rounder, grad, training, (parameter,), found=found)
    )


def _rounded_inputs(
    module: nn.Module, state: LayerState, args: tuple, kwargs: dict
) -> tuple[tuple, dict, Scale | None]:
    """A layer's inputs rounded, and the scale that they share, which is looked for before the first
    one is rounded."""
    rounder = state.rounders.get("activation")
    if rounder is None:
        return args, kwargs, None
    training = module.training
    # As a rule.
    if (
        len(args) == 1
        and not kwargs
        and isinstance(args[0], torch.Tensor)
        and args[0].is_floating_point()
    ):
        found = None if rounder.scaler is None else rounder.scale_of(args, training)
        return (rounder(args[0], training, found),), kwargs, found
    found = _shared(rounder, training, lambda note: _mapped_inputs(module, note, args, kwargs))
    return *_mapped_inputs(module, lambda x: rounder(x, training, found), args, kwargs), found


def _shared(rounder: Rounder, training: bool, visit) -> Scale | None:
    """The scale of the tensors for which ``visit(function)`` calls the function."""
    if rounder.scaler is None:
        return None
    tensors: list[torch.Tensor] = []
    visit(lambda x: tensors.append(x) or x)
    return rounder.scale_of(tensors, training)


def _mapped_inputs(module: nn.Module, function, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    if isinstance(module, nn.MultiheadAttention):  # and not its masks
        tensors = ("query", "key", "value")
        same: dict[int, torch.Tensor] = {}  # self-attention looks whether they are one object

        def once(x: torch.Tensor) -> torch.Tensor:
            if id(x) not in same:
                same[id(x)] = function(x)
            return same[id(x)]

        args = tuple(mapped(a, once) if i < len(tensors) else a for i, a in enumerate(args))
        return args, {k: mapped(v, once) if k in tensors else v for k, v in kwargs.items()}
    return mapped(args, function), mapped(kwargs, function)


def _observed(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    """The layer as it was, while its places look at what comes by."""

    def looks(role: str):
        rounder = state.rounders.get(role)
        return lambda x: x if rounder is None else rounder.see(x)

    _mapped_inputs(module, looks("activation"), args, kwargs)
    return mapped(forward(*args, **kwargs), looks("output"))


def _run(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    inputs, plan = args, state.plan
    if state.by_block and not torch.compiler.is_dynamo_compiling():
        plan = plan_of_block(state.rule, state.is_product)
    args, kwargs, found = _rounded_inputs(module, state, args, kwargs)
    if not state.parameters and not state.gradients and plan is None:
        output = forward(*args, **kwargs)
    else:
        training = module.training
        tensors, scales = {}, {"activation": found}
        in_integers = isinstance(plan, IntegerPlan)
        for name in state.gradients or state.parameters:
            if (parameter := parameter_of(module, name)) is not None:
                scale = None  # its own
                if in_integers and (rounder := state.parameters.get(name)) is not None:
                    scale = scales[name] = rounder.scale_of((parameter,), training)
                tensors[name] = rounded_parameter(state, name, parameter, training, scale)
        if state.is_product:
            plan = functools.partial(plan, scales=scales) if in_integers else plan
            output = _product(module, state, plan, forward, tensors, args, kwargs)
        elif plan is None:
            with standing_in(module, tensors):
                output = forward(*args, **kwargs)
        else:
            output = _carried(module, state, plan, forward, args, kwargs, tensors)
    return _leaving(module, state, output, inputs, state.is_fresh and plan is None)


def _run_in_autocast(
    kinds: list[str], module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict
):
    """In an autocast with a dtype of ours, which would cast a layer's rounded operands to it, the
    rule holds. What comes in the dtype is decoded."""
    with out_of_autocast(kinds if state.names else ()):
        if state.rule.native is not None:
            return _run_native(module, state, forward, args, kwargs)

        def run(*args, **kwargs):
            return mapped(forward(*args, **kwargs), decoded)

        return _run(module, state, run, mapped(args, decoded), mapped(kwargs, decoded))


def decoded(x: torch.Tensor) -> torch.Tensor:
    """A tensor of a dtype of ours of at most 16 bits, which is what autocast makes, as float32.
    What carries operands under a policy is wider."""
    return x if _C.format_of(x.dtype) is None or x.dtype.itemsize > 2 else x.float()


def _leaving(module: nn.Module, state: LayerState, output, inputs: tuple, is_fresh: bool):
    """A layer's output rounded, its gradient to be rounded to ``error``. is_fresh: whether it may
    be written to."""
    rounder, error = state.rounders.get("output"), state.rounders.get("error")
    if rounder is None and error is None:
        return output

    found = (
        None
        if rounder is None
        else _shared(rounder, module.training, lambda note: mapped(output, note))
    )

    def leave(y: torch.Tensor) -> torch.Tensor:
        return rounded_through(y, rounder, error, module.training, inputs, is_fresh, found)

    return mapped(output, leave)


def _run_native(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    """Everything in one dtype: operands cast to it, our kernels, the results cast back to the
    inputs' dtype."""
    dtype = state.rule.native
    entered: list[torch.dtype] = []

    def enter(x: torch.Tensor) -> torch.Tensor:
        refuse_complex(x, f"in a layer that runs in {dtype}")
        entered.append(x.dtype)
        return x.to(dtype)

    args, kwargs = _mapped_inputs(module, enter, args, kwargs)
    if state.is_product:
        tensors = (
            {}
            if state.plan is not None
            else {n: p.to(dtype) for n in state.names if (p := parameter_of(module, n)) is not None}
        )
        output = _product(module, state, state.plan, forward, tensors, args, kwargs)
    else:
        # Normalisation with running statistics, which stay float32, takes parameters of float32
        # beside them.
        keeps = (
            isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None
        )
        tensors = {}
        for name in state.names:
            parameter = parameter_of(module, name)
            tensors[name] = round_to_grid(parameter, dtype) if keeps else parameter.to(dtype)
        if state.plan is None:
            with standing_in(module, tensors):
                output = forward(*args, **kwargs)
        else:
            output = _under_policy(module, state.plan, forward, args, kwargs, tensors)
    back = entered[0] if entered else torch.float32
    return mapped(output, lambda y: y.to(back) if y.dtype is dtype else y)


def _product(
    module: nn.Module,
    state: LayerState,
    plan,
    forward,
    tensors: dict[str, torch.Tensor],
    args: tuple,
    kwargs: dict,
) -> torch.Tensor:
    """The layer's one product, by the plan of its accumulation, else by the stock operator."""
    names = product_arguments(module)
    given = dict(zip(names, args, strict=False)) | kwargs
    if (
        not isinstance(given.get("input"), torch.Tensor)
        or len(args) > len(names)
        or not set(given) <= set(names)
    ):
        return forward(*args, **kwargs)  # whose error it is
    weight, bias = (
        tensors[name] if name in tensors else parameter_of(module, name)
        for name in ("weight", "bias")
    )
    if plan is None:
        return stock_product(module, given["input"], weight, bias, given.get("output_size"))
    return plan(module, state, given["input"], weight, bias, given.get("output_size"))


def _carried(
    module: nn.Module,
    state: LayerState,
    plan: ProductPlan,
    forward,
    args: tuple,
    kwargs: dict,
    tensors: dict[str, torch.Tensor],
):
    """A layer of several products in the dtype that carries float32's numbers (or in float64),
    under its policy."""

    entered: list[torch.dtype] = []

    def enter(x: torch.Tensor) -> torch.Tensor:
        refuse_complex(x, f"in sums by accumulate={plan.policies[0]}")
        entered.append(x.dtype)
        return x.to(plan.carrier)

    args, kwargs = _mapped_inputs(module, enter, args, kwargs)
    everything = {name: parameter_of(module, name) for name in state.names} | tensors
    parameters = {name: enter(t) for name, t in everything.items()}
    back = next((t.dtype for t in everything.values()), entered[0] if entered else torch.float32)
    output = _under_policy(module, plan, forward, args, kwargs, parameters)
    return mapped(output, lambda y: y if y.is_complex() else y.to(back))


def _under_policy(
    module: nn.Module,
    plan: ProductPlan,
    forward,
    args: tuple,
    kwargs: dict,
    tensors: dict[str, torch.Tensor],
):
    in_place = functools.partial(standing_in, module)
    is_stock, has_fused_path = (
        plan.carrier is torch.float64,
        isinstance(module, nn.MultiheadAttention),
    )
    return under_policy(
        plan.overrides()[0], forward, args, kwargs, tensors, in_place, is_stock, has_fused_path
    )
