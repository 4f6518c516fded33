"""The forward of a layer with a rule: what it rounds, and how it multiplies."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from .. import _C
from ..formats.arguments import with_article
from ..policies.autocast import find_autocast_devices, out_of_autocast
from ..policies.recomputing import forbid_checkpoints
from ..targets.base import refuse_complex
from ..targets.grid import round_to_grid
from .attention import Attention, AttentionState
from .inner_products import InnerProducts
from .integer_layers import IntegerPlan, find_scales
from .key_value_cache import round_cache
from .layer_state import LayerState
from .parameters import parameter_of, standing_in
from .product_plans import ProductPlan, plan_of_block
from .products import makes_products, multiply, product_arguments, stock_product
from .rounders import Rounder, map_tensors, round_through
from .scale_rules import stores_inputs_first
from .scalers import Scale


def run_by_state(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    if state.observing:
        return _observe(module, state, forward, args, kwargs)
    if kinds := find_autocast_devices():
        return _run_in_autocast(kinds, module, state, forward, args, kwargs)
    if state.rule.native is not None:
        return _run_native(module, state, forward, args, kwargs)
    return _run(module, state, forward, args, kwargs)


@contextlib.contextmanager
def renormalise_rows(module: nn.Module, input: torch.Tensor, *others, **more):
    """Renormalise the rows that are looked up in the float32 weight, for ``max_norm``.

    The layer itself would renormalise the rounded rows, which would then no longer be values of the
    format. So ``max_norm`` is off for the block.
    """
    bound, module.max_norm = module.max_norm, None
    try:
        with torch.no_grad():
            torch.embedding_renorm_(
                parameter_of(module, "weight").detach(), input.contiguous(), bound, module.norm_type
            )
        yield
    finally:
        module.max_norm = bound


def round_parameter(
    state: LayerState,
    name: str,
    parameter: torch.Tensor,
    training: bool,
    shared: Scale | None = None,
) -> torch.Tensor:
    """Round a parameter, and in backward its gradient to the rule's ``grad``."""
    rounder, grad = state.parameters.get(name), state.gradients.get(name)
    return (
        parameter
        if rounder is None and grad is None
        else round_through(parameter, rounder, grad, training, (parameter,), shared=shared)
    )


def _round_inputs(
    module: nn.Module, state: LayerState, args: tuple, kwargs: dict
) -> tuple[tuple, dict, Scale | None]:
    """Round a layer's inputs, and return their shared scale too. The scale depends on all inputs,
    so it is found before the first one is rounded."""
    rounder = state.rounders.get("activation")
    if rounder is None:
        return args, kwargs, None
    training = module.training
    # Most layers have one input.
    if (
        len(args) == 1
        and not kwargs
        and isinstance(args[0], torch.Tensor)
        and args[0].is_floating_point()
    ):
        scale = None if rounder.scaler is None else rounder.scale_of(args, training)
        return (rounder(args[0], training, scale),), kwargs, scale
    scale = _find_shared_scale(
        rounder, training, lambda note: _map_inputs(module, note, args, kwargs)
    )
    return *_map_inputs(module, lambda x: rounder(x, training, scale), args, kwargs), scale


def _find_shared_scale(rounder: Rounder, training: bool, visit) -> Scale | None:
    """Return the scale of the tensors for which ``visit(function)`` calls the function."""
    if rounder.scaler is None:
        return None
    tensors: list[torch.Tensor] = []
    visit(lambda x: tensors.append(x) or x)
    return rounder.scale_of(tensors, training)


def _map_inputs(module: nn.Module, function, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    if isinstance(module, nn.MultiheadAttention):
        tensors = ("query", "key", "value")  # without the masks
        # A tensor that is given several times stays one object, by which attention recognises
        # self-attention.
        same: dict[int, torch.Tensor] = {}

        def once(x: torch.Tensor) -> torch.Tensor:
            if id(x) not in same:
                same[id(x)] = function(x)
            return same[id(x)]

        args = tuple(map_tensors(a, once) if i < len(tensors) else a for i, a in enumerate(args))
        return args, {k: map_tensors(v, once) if k in tensors else v for k, v in kwargs.items()}
    return map_tensors(args, function), map_tensors(kwargs, function)


def _observe(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    """Run the layer without its rule, while its places observe their tensors."""

    def observer(role: str):
        rounder = state.rounders.get(role)
        return lambda x: x if rounder is None else rounder.see(x)

    _map_inputs(module, observer("activation"), args, kwargs)
    if state.operands is not None:
        for rounder in state.operands.rounders().values():
            if rounder.role == "activation":
                _map_inputs(module, rounder.see, args, kwargs)
    return map_tensors(forward(*args, **kwargs), observer("output"))


def _run(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    inputs, plan = args, state.plan
    if state.by_block and not torch.compiler.is_dynamo_compiling():
        plan = plan_of_block(state.rule, state.is_product)
    args, kwargs, input_scale = _round_inputs(module, state, args, kwargs)
    if not (state.parameters or state.gradients or plan or state.operands or state.has_parts):
        output = forward(*args, **kwargs)
    else:
        training = module.training
        tensors, scales = {}, {"activation": input_scale}
        in_integers = isinstance(plan, IntegerPlan)
        for name in state.gradients or state.parameters:
            if (parameter := parameter_of(module, name)) is not None:
                scale = None  # the parameter's own
                if in_integers and (rounder := state.parameters.get(name)) is not None:
                    scale = scales[name] = rounder.scale_of((parameter,), training)
                tensors[name] = round_parameter(state, name, parameter, training, scale)
        if state.is_product:
            scales = scales if in_integers else None
            output = _product(module, state, plan, forward, tensors, args, kwargs, scales)
        else:
            output = _run_inside(module, state, plan, forward, tensors, args, kwargs)
    return _round_output(module, state, output, inputs, state.is_fresh and plan is None)


def _run_in_autocast(
    kinds: list[str], module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict
):
    """Run a layer by its rule outside of an autocast to a format dtype, which would cast its
    rounded operands. Inputs of such a dtype are decoded."""
    with out_of_autocast(kinds if state.names else ()):
        if state.rule.native is not None:
            return _run_native(module, state, forward, args, kwargs)

        def run(*args, **kwargs):
            return map_tensors(forward(*args, **kwargs), decode)

        return _run(module, state, run, map_tensors(args, decode), map_tensors(kwargs, decode))


def decode(x: torch.Tensor) -> torch.Tensor:
    """Decode a format tensor of at most 16 bits, the kind that autocast makes. Wider ones carry
    operands under a policy."""
    return x if _C.format_of(x.dtype) is None or x.dtype.itemsize > 2 else x.float()


def _round_output(module: nn.Module, state: LayerState, output, inputs: tuple, is_fresh: bool):
    """Round a layer's output, and in backward its gradient to the rule's ``error``. The output may
    be overwritten if ``is_fresh``."""
    rounder, error = state.rounders.get("output"), state.rounders.get("error")
    if rounder is None and error is None:
        return output

    shared = (
        None
        if rounder is None
        else _find_shared_scale(rounder, module.training, lambda note: map_tensors(output, note))
    )

    def leave(y: torch.Tensor) -> torch.Tensor:
        return round_through(y, rounder, error, module.training, inputs, is_fresh, shared)

    return map_tensors(output, leave)


def _run_native(module: nn.Module, state: LayerState, forward, args: tuple, kwargs: dict):
    """Run a layer in one format dtype: cast its operands, and cast the results back to the inputs'
    dtype."""
    dtype = state.rule.native
    entered: list[torch.dtype] = []

    def enter(x: torch.Tensor) -> torch.Tensor:
        refuse_complex(x, f"in a layer that runs in {dtype}")
        entered.append(x.dtype)
        return x.to(dtype)

    args, kwargs = _map_inputs(module, enter, args, kwargs)
    if state.is_product:
        tensors = (
            {}
            if state.plan is not None
            else {n: p.to(dtype) for n in state.names if (p := parameter_of(module, n)) is not None}
        )
        output = _product(module, state, state.plan, forward, tensors, args, kwargs)
    else:
        # Running statistics stay float32, and normalisation wants parameters of the same dtype.
        keeps = (
            isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None
        )
        tensors = {}
        for name in state.names:
            parameter = parameter_of(module, name)
            tensors[name] = round_to_grid(parameter, dtype) if keeps else parameter.to(dtype)
        output = _run_inside(module, state, state.plan, forward, tensors, args, kwargs)
    back = entered[0] if entered else torch.float32
    return map_tensors(output, lambda y: y.to(back) if y.dtype is dtype else y)


def _product(
    module: nn.Module,
    state: LayerState,
    plan,
    forward,
    tensors: dict[str, torch.Tensor],
    args: tuple,
    kwargs: dict,
    scales: dict | None = None,
) -> torch.Tensor:
    """Compute the layer's one product by its plan, or without one by PyTorch's operator."""
    names = product_arguments(module)
    arguments = dict(zip(names, args, strict=False)) | kwargs
    if (
        not isinstance(arguments.get(names[0]), torch.Tensor)
        or len(args) > len(names)
        or not set(arguments) <= set(names)
    ):
        return forward(*args, **kwargs)  # raises the module's own error
    weight, bias = (
        tensors[name] if name in tensors else parameter_of(module, name)
        for name in ("weight", "bias")
    )
    x, output_size = arguments[names[0]], arguments.get("output_size")
    if stores_inputs_first(module):
        weight = weight.t()
    if plan is None and state.operands is None:
        return stock_product(module, x, weight, bias, output_size)
    own = (None, None) if scales is None else find_scales(x, scales)
    return multiply(module, x, weight, bias, output_size, plan, state.operands, own)


def _run_inside(
    module: nn.Module,
    state: LayerState,
    plan: ProductPlan | None,
    forward,
    tensors: dict[str, torch.Tensor],
    args: tuple,
    kwargs: dict,
):
    """Run a layer's own forward with rounded parameters, and its products by the rule."""
    if plan is None and not (state.operands or state.has_parts):
        with standing_in(module, tensors):
            return forward(*args, **kwargs)
    return _run_products(module, state, plan, forward, tensors, args, kwargs)


@torch.compiler.disable
def _run_products(module: nn.Module, state: LayerState, plan, forward, tensors, args, kwargs):
    if plan is not None:
        _map_inputs(
            module,
            lambda x: refuse_complex(x, f"in sums by accumulate={plan.policies[0]}"),
            args,
            kwargs,
        )
    attention = state.attention
    weights = [
        (tensors[name] if name in tensors else parameter_of(module, name), operands)
        for name, operands in state.inner.items()
    ]
    plans = {} if attention is None else _plan_attention(state, attention)
    if attention is not None and not makes_products(module):
        plan = None  # the layers inside have rules of their own
    products, kind = None, with_article(type(module).__name__)
    with contextlib.ExitStack() as stack:
        stack.enter_context(standing_in(module, tensors))
        if plan is not None:
            stack.enter_context(plan.overrides()[0])
        if plan is not None or weights or state.between is not None:
            products = stack.enter_context(InnerProducts(module, plan, weights, state.between))
        if attention is not None:
            own = (*module.parameters(), *module.buffers(), *tensors.values())
            attention = stack.enter_context(Attention(module, attention, own, plans))
        if products is not None or attention is not None:
            stack.enter_context(forbid_checkpoints(kind))
        if state.rule.names_cache:
            stack.enter_context(round_cache(state.rounders, module.training, args, kwargs))
        output = forward(*args, **kwargs)
    if attention is not None and not all(attention.found.values()):
        raise ValueError(
            f"expected attention in the forward of {kind}, whose rule names places of it, but got "
            "none by scaled_dot_product_attention, or by products of activations before and after "
            "a softmax; name them in the rule of the module that computes attention"
        )
    if state.between is not None and not weights and not products.has_multiplied and not attention:
        raise ValueError(
            f"expected products in the forward of {kind}, whose rule names their operands, but got "
            "none; name activation= alone"
        )
    return output


def _plan_attention(state: LayerState, attention: AttentionState) -> dict:
    """Return the plans of a block of ``accumulate`` for both products."""
    return {
        result: plan_of_block(product.rule, True) if state.by_block else None
        for result, product in attention.products.items()
    }
