"""The part of explain_divergence for runs with finite numbers that do not learn, or evaluate
badly."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import torch

from ... import _C
from ...formats.code_types import compute_type
from ...optim import LowPrecision
from ...optim.checks import calls_closure
from ...optim.states import is_divisor
from ...optim.storage import of_dtype
from .reasons import MASTERS, Divergence, layer_of

# The share of lost updates, or of a state's numbers, above which they are the explanation.
_MOST = 0.5


def explain_stagnation(
    model: torch.nn.Module, optimizer, forward: Callable[[], object] | None
) -> Divergence | None:
    """Return the reason, if one is found, from the gradients and states of the last step, one trial
    step on copies, and one pass in evaluation mode."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    reason = None
    if (
        optimizer is not None
        and not calls_closure(optimizer)
        and not any(hasattr(p, "device_mesh") for p in named.values())
    ):
        fresh = _compute_gradients(model, named, forward, optimizer)
        kept = {name: p.grad for name, p in named.items() if p.grad is not None}
        reason = (
            _explain_clipping(kept, fresh)
            or _explain_factors(named, fresh or kept)
            or _explain_states(named, optimizer)
            or _explain_updates(
                named,
                optimizer,
                fresh or {name: _unscale(g, optimizer) for name, g in kept.items()},
            )
        )
    return reason or (
        _explain_evaluation(model, forward) if forward is not None and model.training else None
    )


# Runs of the model


@contextlib.contextmanager
def _restore_state(model: torch.nn.Module):
    """Restore the model's buffers, modes and the random state after the block."""
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device for p in model.parameters() if p.is_cuda}
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for b, was in buffers:
                    b.copy_(was)


def _unscale(gradient: torch.Tensor, optimizer) -> torch.Tensor:
    return gradient.detach().to(compute_type(gradient.dtype)) / getattr(
        optimizer, "loss_scale", 1.0
    )


def _compute_gradients(model, named: dict, forward, optimizer) -> dict[str, torch.Tensor]:
    """Compute the gradients of one more pass, in float32; empty if ``forward`` returns no loss with
    gradients."""
    if forward is None:
        return {}
    with _restore_state(model), torch.enable_grad():
        loss = forward()
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            return {}
        gradients = torch.autograd.grad(
            loss * getattr(optimizer, "loss_scale", 1.0), [*named.values()], allow_unused=True
        )
    return {
        name: _unscale(g, optimizer)
        for name, g in zip(named, gradients, strict=True)
        if g is not None
    }


# Possible reasons


def _explain_clipping(kept: dict, fresh: dict) -> Divergence | None:
    if (
        not kept
        or any(g.any() for g in kept.values())
        or not any(fresh[name].any() for name in kept if name in fresh)
    ):
        return None
    name = next(name for name in kept if name in fresh and fresh[name].any())
    cause = (
        "backward makes gradients above 0, and all that came to the step are 0: a factor by "
        f"which they were multiplied is 0 in {kept[name].dtype}"
    )
    advice = (
        "clipping and scaling in float32 (gradients of torch_dtypes.optim.LowPrecision(..., "
        "grad_scale=)), or a larger bound"
    )
    return Divergence(name + ".grad", layer_of(name), "update", cause, advice, "became 0")


def _explain_factors(named: dict, gradients: dict) -> Divergence | None:
    """Look for a factor of a layer (LayerScale) that is 0, and a weight without gradient."""
    dead = [name for name, g in gradients.items() if named[name].dim() > 1 and not g.any()]
    for name, p in named.items():
        if (
            not dead
            or p.dim() > 1
            or "bias" in name.rpartition(".")[2]
            or _C.format_of(p.dtype) is None
            or p.detach().any()
        ):
            continue
        smallest = _C.format_of(p.dtype).smallest
        cause = (
            f"a factor is 0 in all its {p.numel()} places ({p.dtype} has no positive numbers below "
            f"{smallest:g}), and no gradient comes to {dead[0]}"
        )
        return Divergence(
            name,
            layer_of(name),
            "forward",
            cause,
            "a larger initial value, or this parameter in float32",
            "is 0",
        )
    return None


def _explain_states(named: dict, optimizer) -> Divergence | None:
    """Look for a state of a plain optimizer that is mostly the smallest number of a format without
    underflow, or 0 where the step divides by it."""
    if isinstance(optimizer, LowPrecision):
        return None
    kind = type(optimizer).__name__
    for name, p in named.items():
        fmt, states = _C.format_of(p.dtype), optimizer.state.get(p, {})
        for key, state in states.items() if fmt is not None and isinstance(states, dict) else ():
            if (
                not isinstance(state, torch.Tensor)
                or state.dtype is not p.dtype
                or state.shape != p.shape
                or not p.numel()
            ):
                continue
            values = state.detach().to(compute_type(p.dtype)).abs()
            if fmt.keeps_minpos:
                count, what = (
                    int((values == fmt.smallest).sum()),
                    f"the smallest number of {p.dtype}, {fmt.smallest:g}, to which smaller "
                    "ones round",
                )
            else:
                moves = p.grad is not None and p.grad.detach() != 0
                count, what = (
                    int(((values == 0) & moves).sum()) if is_divisor(key, state) else 0,
                    f"0 in {p.dtype}, and steps divide by them",
                )
            if count > _MOST * p.numel():
                cause = (
                    f"{kind} rounds after each operator, and {count} of {p.numel()} numbers of "
                    f"its {key} are {what}"
                )
                advice = (
                    f"torch_dtypes.optim.LowPrecision({kind}(...)), whose steps compute in float32"
                )
                return Divergence(
                    name, layer_of(name), "update", cause, advice, "does not move as in float32"
                )
    return None


def _explain_updates(named: dict, optimizer, gradients: dict) -> Divergence | None:
    """Look for updates that rounding to nearest loses, by one step on copies."""
    lost = {}
    for name, (start, moved) in _try_step(named, optimizer, gradients).items():
        rounds = _find_rounding(optimizer, named[name])
        if rounds is not None and (changes := moved != start).any():
            lost[name] = (int((changes & (rounds(moved) == start)).sum()), int(changes.sum()))
    lost_in_all, in_all = (
        (sum(column) for column in zip(*lost.values(), strict=True)) if lost else (0, 0)
    )
    if lost_in_all <= _MOST * in_all or not in_all:
        return None
    worst = max(lost, key=lambda name: lost[name][0])
    layers: dict[str, list[int]] = {}
    for name, (few, of) in lost.items():
        layer = layers.setdefault(layer_of(name) or "the model", [0, 0])
        layer[0], layer[1] = layer[0] + few, layer[1] + of
    shares = ", ".join(f"{layer} {100 * few / of:.0f} %" for layer, (few, of) in layers.items())
    cause = (
        f"{100 * lost_in_all / in_all:.0f} % of a step's updates are below half a unit in the "
        f"last place and are lost ({shares})"
    )
    advice = (
        f"{MASTERS}, stochastic rounding (torch_dtypes.with_rounding), or a larger learning rate"
    )
    return Divergence(worst, layer_of(worst), "update", cause, advice, "stands still")


def _find_rounding(optimizer, p: torch.Tensor) -> Callable | None:
    """Return the rounding of the tensor that the step adds to; None if it is exact, or random."""
    if isinstance(optimizer, LowPrecision):
        storage, mode = optimizer._master or optimizer._weights_of(p), optimizer._mode
    else:
        storage, mode = of_dtype(p.dtype), None
    if storage.is_exact:
        return None
    fmt = storage.format
    own = _C.rounding_override() or (fmt.rounding if fmt is not None else _C.Rounding.nearest_even)
    if "stochastic" in (mode or own.name) or (mode or own.name) == "up_down":
        return None
    dtype = compute_type(p.dtype)
    return lambda values: storage.values(values.detach().to(dtype), "nearest_even")


def _try_step(
    named: dict, optimizer, gradients: dict
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return, for each parameter with a gradient, its value (or its master's) before and after one
    step in float32."""
    inner = optimizer.optimizer if isinstance(optimizer, LowPrecision) else optimizer
    copies, memo = {}, {}
    for name, p in named.items():
        start = optimizer._masters.get(p, p) if isinstance(optimizer, LowPrecision) else p
        copies[name] = torch.nn.Parameter(start.detach().to(compute_type(p.dtype), copy=True))
        copies[name].grad = gradients.get(name)
        memo[id(p)] = copies[name]
    trial = copy.deepcopy(inner, memo)
    for p in copies.values():
        states = trial.state.get(p, {})
        for key, state in states.items() if isinstance(states, dict) else ():
            if isinstance(state, torch.Tensor) and state.is_floating_point() and key != "step":
                states[key] = state.to(p.dtype)
    starts = {name: p.detach().clone() for name, p in copies.items()}
    with torch.random.fork_rng(devices={p.device for p in copies.values() if p.is_cuda}):
        trial.step()
    return {name: (starts[name], p.detach()) for name, p in copies.items() if p.grad is not None}


def _explain_evaluation(model: torch.nn.Module, forward: Callable[[], object]) -> Divergence | None:
    """Run the same input once more in evaluation mode. Running statistics are the reason if the
    loss is higher by half and they are far from the input's."""
    far: dict[str, float] = {}

    def look(name):
        def hook(module, inputs):
            x = inputs[0].detach().to(compute_type(inputs[0].dtype))
            var, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
            kept_mean, kept_var = (
                t.detach().to(x.dtype) for t in (module.running_mean, module.running_var)
            )
            scale = torch.maximum(var, kept_var).sqrt().clamp_min(module.eps)
            far[name] = ((mean - kept_mean).abs() / scale).max().item() + (
                (var / scale**2) - (kept_var / scale**2)
            ).abs().max().item()

        return hook

    layers = {
        name: m
        for name, m in model.named_modules()
        if isinstance(getattr(m, "running_var", None), torch.Tensor)
    }
    if not layers:
        return None
    handles = [m.register_forward_pre_hook(look(name)) for name, m in layers.items()]
    try:
        with _restore_state(model), torch.no_grad():
            trained = forward()
            model.eval()
            evaluated = forward()
    finally:
        for handle in handles:
            handle.remove()
    if not far or not all(
        isinstance(loss, torch.Tensor) and loss.numel() == 1 for loss in (trained, evaluated)
    ):
        return None
    before, after = trained.item(), evaluated.item()
    name = max(far, key=far.get)
    if not after > before + max(0.5 * abs(before), 0.1):
        return None
    dtype = layers[name].running_var.dtype
    cause = (
        f"the loss of this input is {after:.3g} in evaluation mode and {before:.3g} in training "
        f"mode, and the running statistics in {dtype} are far "
        "from the input's: updates of a tenth of the difference may be lost"
    )
    advice = (
        "this layer in float32, while others keep their dtype (module.float() after "
        "model.to(dtype)), or quantize_, which leaves it so"
    )
    return Divergence(
        f"the running statistics of {type(layers[name]).__name__}",
        name,
        "evaluation",
        cause,
        advice,
        "stand far off",
    )
