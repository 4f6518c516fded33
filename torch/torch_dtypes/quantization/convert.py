"""quantize_ and dequantize_: a model's layers run by rules, and as before."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from .calibrate import calibrate_, check_loader, needs_calibration, take_scales_
from .layer_state import LayerState, is_bias, place_of
from .layers import attach, detach, is_quantized, state_of
from .parameters import has_weights, leaving, masters_of
from .places import LayerRule, Place, missing_dimension, narrowed, turned
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
from .scale_rules import stores_inputs_first

__all__ = ["dequantize_", "quantize_"]


def quantize_(
    model: nn.Module,
    rules: Mapping[Any, Any] | str | os.PathLike,
    calibrate: Iterable | Mapping[str, torch.Tensor] | None = None,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> nn.Module:
    """Lets the layers of a model round their numbers by rules, in place: quantisation,
    quantisation-aware and low-precision training in one call.

    ::

        torch_dtypes.quantize_(model, {
            nn.Linear: dict(
                weight=torch.q43, activation=torch.q43, error=torch.q52, grad=torch.q52,
                accumulate="format"),
            nn.Conv2d: torch.posit16es2,
            "head.*": dict(weight="int8", activation="int8"),
        }, calibrate=loader)

    A layer computes what it computed, of numbers that were rounded before: its inputs
    (``activation``) and parameters (``weight``, ``bias``) in forward, the gradient of its output
    (``error``) before backward, the gradients of its parameters (``grad``) after; by choice its
    ``output``. Rounding has the identity's gradient (straight through). Parameters stay the same
    float32 objects under the same names, so that optimizers, state dicts and initialisers know
    nothing of it; while a layer runs, rounded tensors stand in their place. NaN, infinities and
    what is out of range become what each format makes of them.

    Args:
        model: any module.
        rules: a dict, or the path of a YAML file that has one. Keys: a module type or its name
            (``"nn.Linear"``); a module's name; a regular expression that a module's whole name
            matches (of the modules that have parameters of their own); a predicate of
            ``(module, name)``. A name wins over an expression, that over a predicate, that over a
            type, and a nearer class over a farther one; the winner says all. Values: None leaves a
            layer as it is. A dtype (or its name) makes everything in it that dtype. A dict has
            ``weight``, ``bias``, ``activation``, ``output``, ``error``, ``grad``: each what
            ``torch_dtypes.target`` takes, or a dict of ``format``, ``rounding`` (a mode),
            ``clamped`` (``"zero"``: values out of range have no gradient), and what is said of its
            scale; ``accumulate``: a policy (``torch_dtypes.accumulate``), or a dict of its
            arguments, for the layer's three products; ``arithmetic="integer"`` and ``accumulator``.
            docs/reference/rules.md explains each.
        calibrate: for scales that come from data, an iterable of batches: tensors, tuples whose
            first element is the input, or dicts of keyword arguments. It is run through the model
            once, in evaluation mode and without gradients. Or a state dict of the model as it was
            quantised by these rules, whose scales are taken (and nothing else: ``load_state_dict``
            loads it).
        forward: what runs a batch in calibration, ``forward(model, batch)``, where a batch is
            something else.

    Where weight, activation, error and grad are one dtype of this package, the layer runs in it
    natively: it gets and gives tensors of its surroundings' dtype, and between them its own kernels
    compute in the dtype. Else products are the stock float32 kernels' on rounded values, or, under
    a policy, those of a dtype of ours that holds all of them.

    Returns:
        ``model``. A second call replaces all rules of the first. ``summary`` says what share of the
        parameters the rules reach, and ``summary(model, batch)`` of the multiply-adds too.

    Warns:
        UserWarning: a module that is none of ``torch.nn``, which no rule names, holds more than a
            tenth of the parameters: experts that are 3-D parameters, for instance, of which a rule
            of ``nn.Linear`` knows nothing. A rule, or None, says what is meant.

    Raises:
        ValueError, TypeError: a rule that matches nothing or contradicts another, unknown words
            (the nearest are named), a format that needs a scale without one, a policy that cannot
            be obeyed, a loader that yields something else; the model is as it was then.

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
            "expected modules of Python to quantise, but got a script; quantize_ before "
            "torch.jit.script"
        )
    check_loader(calibrate, forward)
    found = choose(model, rules)
    with leaving(found.left):
        chosen = _called(model, found)
        check_effects(model, chosen)
        check_containers(model, chosen)
        states = {
            name: _state(model.get_submodule(name), name, choice)
            for name, choice in _with_parts(model, chosen).items()
        }
    _check_numbers(model, states)
    needs = [name for name, state in states.items() if needs_calibration(state)]
    if needs and calibrate is None:
        raise ValueError(
            "expected calibrate=, a loader of the model's inputs, for the scales of "
            f"{', '.join(map(repr, needs[:4]))}, but got None. "
            "Or let the rule say when='call' (a scale of each tensor) or 'delayed' (of those "
            "before)"
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
    with leaving(found.left):
        warn_of_unreached(model, found)
    return model


def dequantize_(model: nn.Module) -> nn.Module:
    """Lets every layer of a model run as it did before ``quantize_``, in place: the same
    parameters, bit for bit.

    Args:
        model: any module.

    Returns:
        ``model``; one that has no rules is left as it is.

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
    """Numbers said as scales are float32's, where what comes by will be of at most 32 bits: float64
    tensors come to models with such parameters."""
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
                    f"{name or 'the model'!r}, whose numbers are float32, but got {kind!r}"
                )


def _exchange(model: nn.Module, states: dict[nn.Module, LayerState]) -> None:
    """The rules that there are for others."""
    dequantize_(model)
    for module, state in states.items():
        attach(module, state)
    _leave_fast_paths(model)


def _called(model: nn.Module, chosen: dict[str, Choice]) -> dict[str, Choice]:
    """The choices without modules that only keep others and never run (ModuleList), which a rule of
    many modules passes by."""
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
                f"expected modules that are called, but {name or 'the model'!r} (rule {key}) is a "
                f"{type(module).__name__}, which only keeps "
                "others or parameters. A rule rounds parameters of the module whose forward uses "
                "them; None leaves this one as it is"
            )
    return {name: choice for name, choice in chosen.items() if name not in idle}


def _with_parts(model: nn.Module, chosen: dict[str, Choice]) -> dict[str, Choice]:
    """The choices, without those of modules that never run by themselves: an attention multiplies
    by its output projection's weight itself."""
    kept = dict(chosen)
    for name, module in model.named_modules():
        if not isinstance(module, nn.MultiheadAttention):
            continue
        part = f"{name}.out_proj" if name else "out_proj"
        choice = kept.pop(part, None)
        if choice is None:
            continue
        more = [place for place in choice.rule.places() if place not in ("weight", "bias")]
        if more or choice.rule.accumulate is not None or choice.rule.arithmetic != "float":
            warnings.warn(
                f"{part!r} is a part of a MultiheadAttention, which multiplies by its weight "
                f"itself: of the rule {choice.key} its weight and bias are rounded, and nothing "
                f"else. A rule of nn.MultiheadAttention, or None for {part!r}, says what is "
                "meant.",
                stacklevel=3,
            )
        own = kept.get(name, Choice(LayerRule(), choice.key))
        kept[name] = Choice(own.rule, own.key, choice.rule)
    return kept


def _state(module: nn.Module, name: str, choice: Choice) -> LayerState:
    """What the layer will know, or an error: nothing of the model has changed yet."""
    where, rule = f"{name or 'the model'!r} (rule {choice.key})", choice.rule
    check_module(module, rule, where)
    if rule.accumulate is not None or rule.arithmetic == "integer":
        check_products(module, rule, where)
    state = LayerState(rule, choice.key, module, where)
    check_parametrised(module, state, where)
    if rule.native is None:
        for name in state.names:
            of = choice.part if name.startswith("out_proj.") and choice.part is not None else rule
            if (place := place_of(of, name)) is not None:
                state.parameters[name] = _rounder(
                    place, "bias" if is_bias(name) else "weight", module, name, where
                )
            if rule.grad is not None:
                state.gradients[name] = _rounder(rule.grad, "grad", module, name, where)
    return state


def _rounder(place: Place, role: str, module: nn.Module, name: str, where: str) -> Rounder:
    """A parameter's rounder. Of a layer's gradients, those of a bias have fewer dimensions than
    those of which the rule says one."""
    shape = max((p.shape for p in masters_of(module, name)), key=len)
    if stores_inputs_first(module) and not is_bias(name):
        place = turned(place)
    channels_of = "bias" if is_bias(name) else "weight"
    made = Rounder(place, role, module, channels_of)
    missing = missing_dimension(
        place, None if made.scaler is None else made.scaler.axis, len(shape)
    )
    if missing is None:
        check_whole(place, role, shape, where)
        return made
    if role == "grad" or math.prod(shape) == 1:
        place = narrowed(place, len(shape))
        check_whole(place, role, shape, where)
        return Rounder(place, role, module, channels_of)
    if len(shape) == 1 and made.scaler is not None and missing == made.scaler.axis:
        raise ValueError(
            f"expected {role} of {where} to have a dimension beside that along which its scales "
            f"lie, but got {name}, whose shape is {tuple(shape)}: "
            "each number would have a scale of its own, which rounds nothing; say per='tensor'"
        )
    raise ValueError(
        f"expected {role} of {where} to have the dimension along which its blocks or scales lie, "
        f"but got dimension {missing} of {name}, whose shape is {tuple(shape)}"
    )


# ---- paths of stock PyTorch that would pass quantised layers by ----


def _runs_its_parts(module: nn.Module, args: tuple) -> None:
    """A hook that does nothing: where there is one, nn.TransformerEncoderLayer calls its parts
    instead of one fused kernel with their weights."""


def _leave_fast_paths(model: nn.Module) -> None:
    for module in model.modules():
        if not any(is_quantized(part) for part in module.modules()):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            module.register_forward_pre_hook(_runs_its_parts)
        elif isinstance(module, nn.TransformerEncoder) and getattr(
            module, "use_nested_tensor", False
        ):
            module.use_nested_tensor = False
            module.__dict__["_used_nested_tensor"] = True


def _take_fast_paths(model: nn.Module) -> None:
    for module in model.modules():
        for key in [k for k, hook in module._forward_pre_hooks.items() if hook is _runs_its_parts]:
            del module._forward_pre_hooks[key]
        if module.__dict__.pop("_used_nested_tensor", False):
            module.use_nested_tensor = True
