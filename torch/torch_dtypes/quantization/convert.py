"""quantize_ and dequantize_: give a model's layers rules for rounding, and take them away."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..formats.arguments import with_article
from .attention import AttentionState
from .calibrate import calibrate_, check_loader, needs_calibration, take_scales_
from .fitting import build_rounder
from .layer_state import LayerState, place_of
from .layers import attach, detach, is_quantized, state_of
from .operands import Operands, View, build_operands, find_weights, has_own_operands, shape_in_view
from .parameters import has_weights, is_bias, leave_out
from .places import LayerRule, Place
from .products import is_product
from .refusals import (
    check_containers,
    check_effects,
    check_module,
    check_parametrised,
    check_products,
    check_whole,
    warn_of_unreached,
)
from .rounders import Rounder
from .rules import Choice, choose

__all__ = ["dequantize_", "quantize_"]


def quantize_(
    model: nn.Module,
    rules: Mapping[Any, Any] | str | os.PathLike,
    calibrate: Iterable | Mapping[str, torch.Tensor] | None = None,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> nn.Module:
    """Let the layers of a model round their numbers by rules, in place: quantisation,
    quantisation-aware training and low-precision training in one call.

    ::

        torch_dtypes.quantize_(model, {
            nn.Linear: dict(
                weight=torch.q43, activation=torch.q43, error=torch.q52, grad=torch.q52,
                accumulate="format"),
            nn.Conv2d: torch.posit16es2,
            "head.*": dict(weight="int8", activation="int8"),
        }, calibrate=loader)

    A layer computes as before, but on rounded numbers. Forward rounds its inputs (``activation``),
    its parameters (``weight``, ``bias``) and, if a rule says so, its ``output``. Backward first
    rounds the gradient of its output (``error``), and last the gradients of its parameters
    (``grad``). Rounding has the identity's gradient (straight through). Blocks lie along the
    dimension over which each product sums, so their tensors are rounded for each product.
    ``forward``, ``input_grad`` and ``weight_grad`` give one product other operands.

    Parameters stay the same float32 objects under the same names. Optimizers, state dicts and
    initialisers work as before. Rounded tensors replace the parameters only while a layer runs.
    NaN, infinities and values out of range become what each format makes of them.

    Args:
        model: any module.
        rules: a dict, the path of a YAML file with one (``"rules.yaml"``), or the name of a
            recipe (``"nvfp4"``, ``recipe``). docs/reference/rules.md explains each word.
            A key is a module type or its name (``"nn.Linear"``), a module's name, a regular
            expression, or a predicate of ``(module, name)``. An expression must match the whole
            name of a module with parameters of its own, or of any module if its rule names a place
            of attention. One key decides for a module: a name wins
            over an expression, that over a predicate, that over a type. The nearer class wins
            over the farther one.
            A value None leaves a layer as it is. A dtype (or its name) makes everything in the
            layer that dtype. A dict has ``weight``, ``bias``, ``activation``, ``output``,
            ``error``, ``grad``. Each is what ``torch_dtypes.target`` takes, or a dict of
            ``format``, ``rounding`` (a mode), ``clamped`` (``"zero"``: values out of range have no
            gradient), and the options of its scale. ``accumulate`` is a policy
            (``torch_dtypes.accumulate``), or a dict of its arguments, for the layer's three
            products. ``arithmetic="integer"`` and ``accumulator`` make them integer products.
            In a module that computes attention (``quantization.is_attention``), ``query``,
            ``key``, ``value``, ``scores``, ``probabilities`` and ``context`` are operands and
            results of its two products. ``key_cache`` and ``value_cache`` round what enters the
            cache of transformers.
        calibrate: for scales from data, an iterable of batches: tensors, tuples whose first
            element is the input, or dicts of keyword arguments. They run through the model once,
            in evaluation mode and without gradients. Or a state dict of the model, quantised by
            the same rules: its scales are taken, and nothing else (``load_state_dict`` loads it).
        forward: a function that runs a batch of another kind: ``forward(model, batch)``.

    If weight, activation, error and grad are one dtype of this package, the layer runs in it
    natively. Its inputs are cast to the dtype, its kernels compute in the dtype, and its outputs
    are cast back. Else PyTorch's float32 kernels multiply the rounded values. Under a policy, a
    wider format dtype carries these values, and this package's kernels multiply.

    Returns:
        ``model``. A second call replaces all rules of the first. ``summary`` shows the share of
        the parameters that the rules reach, ``summary(model, batch)`` of the multiply-adds too.

    Warns:
        UserWarning: a module outside of ``torch.nn`` holds more than a tenth of the parameters,
            and no rule names it. Experts with 3-D parameters are an example: a rule of
            ``nn.Linear`` does not reach them. A rule for the module, or None, stops the warning.

    Raises:
        ValueError, TypeError: a rule that matches nothing or contradicts another, unknown words
            (the nearest are named), a format that needs a scale without one, a policy that cannot
            be obeyed, a loader that yields something else. The model is then unchanged.

    Sources: Micikevicius et al., "Mixed precision training" (arXiv 1710.03740), for float32
    masters; Bengio, Leonard, Courville (2013), for the estimator; torchao's ``quantize_`` for the
    idiom.

    Example::

        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> rule = dict(weight="q43", activation="q43", error="q52")
        >>> _ = torch_dtypes.quantize_(model, {nn.Linear: rule})
        >>> model(torch.ones(1, 4)).sum().backward()
        >>> model[0].weight.dtype, torch_dtypes.summary(model, show=False)["2"].weight
        (torch.float32, 'q43')
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module to quantise, but got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "expected a Python module to quantise, but got a script; quantize_ before "
            "torch.jit.script"
        )
    check_loader(calibrate, forward)
    choices = choose(model, rules)
    with leave_out(choices.left):
        chosen = _drop_idle(model, choices)
        check_effects(model, chosen)
        check_containers(model, chosen)
        states = {
            name: _build_state(model.get_submodule(name), name, choice)
            for name, choice in _merge_projections(model, chosen).items()
        }
    _check_numbers(model, states)
    needs = [name for name, state in states.items() if needs_calibration(state)]
    if needs and calibrate is None:
        raise ValueError(
            "expected calibrate=, a loader of the model's inputs, for the scales of "
            f"{', '.join(map(repr, needs[:4]))}, but got None; give one, or set when='call' (a "
            "scale from each tensor) or 'delayed' (from those before) in the rule"
        )
    before = {module: state_of(module) for module in model.modules() if is_quantized(module)}
    try:
        _exchange(model, {model.get_submodule(name): state for name, state in states.items()})
        if needs and isinstance(calibrate, Mapping):
            take_scales_(states, calibrate)
        elif needs:
            calibrate_(model, states, calibrate, forward)
    except BaseException:
        _exchange(model, before)
        raise
    with leave_out(choices.left):
        warn_of_unreached(model, choices)
    return model


def dequantize_(model: nn.Module) -> nn.Module:
    """Let every layer of a model run as before ``quantize_``, in place. The parameters are the
    same, bit for bit.

    Args:
        model: any module.

    Returns:
        ``model``, unchanged if it has no rules.

    Raises:
        TypeError: not a module.

    Example::

        >>> model = torch_dtypes.quantize_(nn.Linear(2, 1), {nn.Linear: dict(weight="q43")})
        >>> torch_dtypes.summary(torch_dtypes.dequantize_(model), show=False)[""].runs
        ''
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, but got {type(model).__name__}")
    for module in list(model.modules()):
        if is_quantized(module):
            detach(module)
    _take_fast_paths(model)
    return model


def _check_numbers(model: nn.Module, states: dict[str, LayerState]) -> None:
    """Refuse numbers as scales that are out of float32's range, unless the model has float64
    parameters or buffers: then its tensors are expected to be float64."""
    dtypes = {t.dtype for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()}
    if not dtypes or torch.float64 in dtypes:
        return
    limits = torch.finfo(torch.float32)
    for name, state in states.items():
        for role, rounder in state.all_rounders().items():
            kind = None if rounder.scaler is None else rounder.scaler.rule.kind
            if (
                kind is not None
                and not isinstance(kind, str)
                and not limits.tiny <= kind <= limits.max
            ):
                raise ValueError(
                    f"expected a scale from {limits.tiny:.3g} to {limits.max:.3g} for {role} of "
                    f"{name or 'the model'!r} in float32, but got {kind!r}"
                )


def _exchange(model: nn.Module, states: dict[nn.Module, LayerState]) -> None:
    """Replace all rules of the model."""
    dequantize_(model)
    for module, state in states.items():
        attach(module, state)
    _leave_fast_paths(model)


def _drop_idle(model: nn.Module, chosen: dict[str, Choice]) -> dict[str, Choice]:
    """Drop the modules that only keep others and never run (ModuleList). A rule must choose at
    least one module that runs."""
    idle = {
        name
        for name in chosen
        if getattr(type(model.get_submodule(name)), "forward", None) is nn.Module.forward
    }
    heard = {choice.key for name, choice in chosen.items() if name not in idle}
    for name in idle:
        module, key = model.get_submodule(name), chosen[name].key
        if has_weights(module) or key not in heard:
            raise ValueError(
                f"expected a module that is called for the rule {key}, but "
                f"{name or 'the model'!r} is {with_article(type(module).__name__)}, which only "
                "keeps modules or parameters; name the module whose forward uses them, or give "
                "this one None"
            )
    return {name: choice for name, choice in chosen.items() if name not in idle}


def _merge_projections(model: nn.Module, chosen: dict[str, Choice]) -> dict[str, Choice]:
    """Merge the choice of an attention's output projection into the attention's, since the
    attention itself multiplies by that weight."""
    kept = dict(chosen)
    for name, module in model.named_modules():
        if not isinstance(module, nn.MultiheadAttention):
            continue
        part = f"{name}.out_proj" if name else "out_proj"
        choice = kept.pop(part, None)
        if choice is None:
            continue
        reached = ("weight", "bias")
        if has_own_operands(choice.rule):
            reached += ("activation", "error")
        more = [place for place in choice.rule.places() if place not in reached]
        if more or choice.rule.accumulate is not None or choice.rule.arithmetic != "float":
            warnings.warn(
                f"{part!r} is a part of a MultiheadAttention, which itself multiplies by its "
                f"weight. The rule {choice.key} therefore rounds only its weight and bias. Give "
                f"nn.MultiheadAttention a rule, or {part!r} None.",
                stacklevel=3,
            )
        own = kept.get(name, Choice(LayerRule(), choice.key))
        kept[name] = Choice(own.rule, own.key, choice.rule)
    return kept


def _build_state(module: nn.Module, name: str, choice: Choice) -> LayerState:
    """Build a layer's state, or refuse its rule. The model is still unchanged."""
    where, rule = f"{name or 'the model'!r} (rule {choice.key})", choice.rule
    check_module(module, rule, where)
    if rule.accumulate is not None or rule.arithmetic == "integer":
        check_products(module, rule, where)
    state = LayerState(rule, choice.key, module, where)
    weights: list[str] = []
    if state.by_product or choice.part is not None:
        weights = ["weight"] if state.is_product else find_weights(module)

    def build(rule: LayerRule, **options) -> Operands:
        return build_operands(
            module,
            rule,
            lambda place, role, view: _build_operand(place, role, view, module, weights, where),
            where,
            **options,
        )

    if state.by_product:
        state.operands = build(rule)
        state.between = None if state.is_product else build(rule, between=True)
        state.inner = dict.fromkeys(weights, state.operands)
    if rule.names_attention:
        state.attention = AttentionState(module, rule, where, state.between is not None)
    if choice.part is not None and (state.by_product or has_own_operands(choice.part)):
        state.inner["out_proj.weight"] = (
            build(choice.part) if has_own_operands(choice.part) else None
        )
    check_parametrised(module, state, where)
    if rule.native is None:
        for name in state.names:
            of = choice.part if name.startswith("out_proj.") and choice.part is not None else rule
            in_operands = state.inner.get(name) is not None
            if (place := place_of(of, name)) is not None and not in_operands:
                state.parameters[name] = build_rounder(
                    place, "bias" if is_bias(name) else "weight", module, name, where
                )
            if rule.grad is not None:
                state.gradients[name] = build_rounder(rule.grad, "grad", module, name, where)
    return state


def _build_operand(
    place: Place, role: str, view: View, module: nn.Module, weights: list[str], where: str
) -> Rounder:
    """Build the rounder of an operand. A weight's shape is known, so its blocks are checked."""
    if role == "weight" and place.by_product:
        for name in weights:
            check_whole(place, role, shape_in_view(module, name, view), where)
    elif role == "weight" and is_product(module):
        return build_rounder(place, role, module, "weight", where)
    return Rounder(place, role, module)


# ---- fast paths of PyTorch that would skip quantised layers ----


def _forbid_fused_kernel(module: nn.Module, args: tuple) -> None:
    """Do nothing, as a forward-pre hook. A module with hooks makes nn.TransformerEncoderLayer call
    its parts instead of one fused kernel with their weights."""


def _leave_fast_paths(model: nn.Module) -> None:
    for module in model.modules():
        if not any(is_quantized(part) for part in module.modules()):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            module.register_forward_pre_hook(_forbid_fused_kernel)
        elif isinstance(module, nn.TransformerEncoder) and getattr(
            module, "use_nested_tensor", False
        ):
            module.use_nested_tensor = False
            module.__dict__["_used_nested_tensor"] = True


def _take_fast_paths(model: nn.Module) -> None:
    for module in model.modules():
        for key in [
            k for k, hook in module._forward_pre_hooks.items() if hook is _forbid_fused_kernel
        ]:
            del module._forward_pre_hooks[key]
        if module.__dict__.pop("_used_nested_tensor", False):
            module.use_nested_tensor = True
