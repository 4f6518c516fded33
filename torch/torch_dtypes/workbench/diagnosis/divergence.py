"""Explain why a training run is no longer finite, or does not learn."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ... import _C
from ...formats import dtypes
from ...formats.arguments import outline
from ...optim.states import may_divide
from ...quantization.layers import is_quantized, state_of
from ...quantization.parameters import parameter_names, parameter_of
from .calls import Calls
from .reasons import MASTERS, Divergence, layer_of
from .stagnation import explain_stagnation

__all__ = ["Divergence", "explain_divergence"]


_OVERFLOW = "a lower learning rate, normalisation before this layer, or a format with a wider range"
_ROUNDING = (
    "a scale (quantize_ with scale='power_of_two'), a format that saturates, or one with a wider "
    "range"
)


def _is_finite(t: torch.Tensor) -> bool:
    return not t.is_floating_point() or bool(t.detach().isfinite().all())


def tensors_in(value):
    """Yield the tensors in lists, tuples and dictionaries, at any depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def _largest(dtype: torch.dtype) -> str:
    below = f", or below 0, of which {dtype} has none" if _is_unsigned(dtype) else ""
    return f"the largest number of {dtype}, {torch.finfo(dtype).max:g}{below}"


def _is_unsigned(dtype: torch.dtype) -> bool:
    return torch.finfo(dtype).min >= 0


def _explain_update(name: str, p: torch.Tensor, optimizer) -> Divergence:
    kind = (
        "the optimizer"
        if optimizer is None
        else type(getattr(optimizer, "optimizer", optimizer)).__name__
    )
    states = optimizer.state.get(p, {}) if optimizer is not None else {}
    bad = ~p.detach().isfinite()
    for key, state in states.items() if isinstance(states, dict) else ():
        if (
            isinstance(state, torch.Tensor)
            and may_divide(key)
            and state.shape == p.shape
            and (state.detach()[bad] == 0).any()
        ):
            cause = (
                f"{kind} divided by 0 or nearly so: its {key} is 0 there, and eps adds nothing, "
                f"or too little, in {p.dtype}"
            )
            return Divergence(
                name,
                layer_of(name),
                "update",
                cause,
                f"an eps that the dtype can hold, loss scaling, or {MASTERS}",
            )
    cause = (
        f"the gradient was finite, so the step of {kind} left the range: beyond {_largest(p.dtype)}"
    )
    # An initial weight is as likely: rounded to NaN, unless the format saturates.
    if _is_unsigned(p.dtype):
        cause = (
            f"the gradient was finite, so the weight or the step of {kind} left the range: beyond "
            f"{_largest(p.dtype)}"
        )
        return Divergence(name, layer_of(name), "update", cause, "a signed format")
    return Divergence(
        name, layer_of(name), "update", cause, f"a lower learning rate, a larger eps, or {MASTERS}"
    )


def _largest_of(tensors) -> float:
    return max(
        (t.detach().abs().max().item() for t in tensors if t.is_floating_point() and t.numel()),
        default=0.0,
    )


def _describe_overflow(module: torch.nn.Module, activation: float) -> str | None:
    """Describe the numbers that a layer of ``quantize_``, with inputs up to ``activation``, rounds
    beyond its format's largest."""
    if not is_quantized(module):
        return None
    rule = state_of(module).rule
    rounded = {"weight": [], "bias": []}
    for name in parameter_names(module):
        rounded["bias" if "bias" in name.rpartition(".")[2] else "weight"].append(
            parameter_of(module, name)
        )
    for word, place in rule.places().items():
        most = activation if word == "activation" else _largest_of(rounded.get(word, ()))
        if place.scale is None and most > place.target.largest:
            return (
                f"its {word} goes up to {most:g}, and is rounded to {place.target.name}, whose "
                f"largest number is {place.target.largest:g}"
            )
    return None


def _explain_infinity() -> tuple[str, str] | None:
    """Return cause and advice if an operator made an infinity from finite operands in a format
    without infinities."""
    if (first := _C.first_infinity()) is None:
        return None
    operator, dtype = first
    cause = (
        f"{operator} made an infinity of finite operands (log of 0, 1 / 0), which torch.{dtype} "
        "does not have: it is NaN"
    )
    saturating = (
        'overflow="saturate"'
        if _C.format_of(dtypes.dtype(dtype)).kind == _C.Kind.float
        else 'infinity="saturate"'
    )
    return cause, f"a mask made as bool or by masked_fill, or a format of {saturating}"


def _explain_forward(model: torch.nn.Module, forward: Callable[[], object]) -> Divergence | None:
    divergences: list[Divergence] = []
    # Whether the inputs were finite, and the largest of them
    running: Calls[tuple[bool, float]] = Calls()

    def before(module, inputs):  # before the call, because a layer may overwrite its inputs
        if not divergences:
            finite = all(map(_is_finite, tensors_in(inputs)))
            running.begin(
                module,
                (
                    finite,
                    _largest_of(tensors_in(inputs)) if finite and is_quantized(module) else 0.0,
                ),
            )

    def look(name):
        def hook(module, inputs, output):
            if divergences:
                return
            finite, largest = running.end(module)
            if all(map(_is_finite, tensors_in(output))):
                return
            bad = next(t for t in tensors_in(output) if not _is_finite(t))
            if (infinity := _explain_infinity()) is not None:
                divergences.append(
                    Divergence(f"the output of {type(module).__name__}", name, "forward", *infinity)
                )
            elif not finite:
                advice = "data without NaN and infinities, in range of the dtype"
                divergences.append(
                    Divergence("the input", name, "forward", "the data are not finite", advice)
                )
            elif (place := _describe_overflow(module, largest)) is not None:
                divergences.append(
                    Divergence(
                        f"the output of {type(module).__name__}", name, "forward", place, _ROUNDING
                    )
                )
            else:
                kind = "an infinity" if bad.detach().isinf().any() else "NaN"
                cause = (
                    f"{kind} out of finite operands: a result beyond {_largest(bad.dtype)}, or 0 "
                    "/ 0"
                )
                divergences.append(
                    Divergence(
                        f"the output of {type(module).__name__}", name, "forward", cause, _OVERFLOW
                    )
                )

        return hook

    # Hooks of containers run after those of their children, so the innermost module sees it first.
    handles = [module.register_forward_hook(look(name)) for name, module in model.named_modules()]
    handles += [module.register_forward_pre_hook(before) for module in model.modules()]
    # Buffers with statistics, for which this run must not count.
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    _C.forget_infinity()
    try:
        with torch.no_grad():
            result = forward()
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for buffer, was in buffers:
                buffer.copy_(was)
    if not divergences and not all(map(_is_finite, tensors_in(result))):
        why = _explain_infinity() or (
            "the model's outputs are finite, the loss of them is not",
            "the loss in float32, or a wider format",
        )
        divergences.append(Divergence("the loss", "", "forward", *why))
    return divergences[0] if divergences else None


def explain_divergence(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    forward: Callable[[], object] | None = None,
) -> Divergence | None:
    """Explain why a run diverges or does not learn: the tensor at fault, its layer and pass, the
    likely cause, and advice::

        loss = criterion(model(images), labels)
        if not loss.isfinite():
            loss = lambda: criterion(model(images), labels)
            print(torch_dtypes.explain_divergence(model, optimizer, loss))

    Call it before ``zero_grad()``, while the last step's gradients are there. It looks at
    parameters first. If one is not finite, its gradient was not finite in the backward pass, or the
    optimizer's step caused it. Of several such layers it names the last, where the backward pass
    begins. If all are finite, it runs ``forward`` once more, without gradients, looks at the
    outputs of modules, and restores buffers. For a layer of ``quantize_`` it tells the numbers
    beyond its format's largest. It names an operator that made an infinity in a format without one
    (log of 0 in posits). A run that does not diverge pays nothing.

    Where everything is finite, it looks for these reasons of a loss that does not fall, in this
    order:

    - All gradients are 0, and those of ``forward`` are not: the factor of a clip or a scale
      underflows.
    - A 1-d parameter (LayerScale's factor) is 0 throughout, and a weight gets no gradient.
    - Most numbers in a state of ``optimizer`` are a posit's smallest number, or 0 where steps
      divide by them. An optimizer in ``LowPrecision`` has no such states.
    - Most updates of a step are below half a unit in the last place. It tries one step of
      ``optimizer`` in float32, on copies, and tells the share of each layer.
    - The loss of ``forward`` is higher by half in evaluation mode, which uses running statistics.

    Args:
        model: the module; its modules give the names.
        optimizer: the optimizer, for its states and for the trial step. It does not change.
        forward: a function that runs the model on the failed batch and returns the loss. It may run
            four times; buffers are restored.

    Returns:
        A :class:`Divergence`, whose text is a sentence, or ``None`` if nothing is found.

    Raises:
        TypeError: ``model`` is no module, ``optimizer`` no optimizer, or ``forward`` no function.

    Example::

        >>> model = nn.Sequential(nn.Linear(1, 1)).to(torch.q43)
        >>> x = torch.full((1, 1), 200.0).to(torch.q43)
        >>> with torch.no_grad():
        ...     _ = model[0].weight.fill_(2.0)
        >>> found = torch_dtypes.explain_divergence(model, forward=lambda: model(x))
        >>> found.layer, found.where
        ('0', 'forward')
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, but got {model!r}")
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"expected an optimizer of the model, or None, but got {outline(optimizer)}"
        )
    if forward is not None and not callable(forward):
        raise TypeError(
            "expected forward as a function without arguments that computes the loss, or None, "
            f"but got {outline(forward)}"
        )
    named = list(model.named_parameters())
    if bad := [(name, p) for name, p in named if not _is_finite(p)]:
        gradients = [
            (name, p) for name, p in named if p.grad is not None and not _is_finite(p.grad)
        ]
        # Not trained: the parameters were loaded or rounded so.
        if optimizer is None and all(p.grad is None for _, p in named):
            name, p = bad[0]
            cause = (
                f"{int((~p.detach().isfinite()).sum())} of its {p.numel()} numbers were loaded "
                "so, or rounded beyond the largest number of a format"
            )
            return Divergence(name, layer_of(name), "forward", cause, _ROUNDING)
        if not gradients:
            return _explain_update(*bad[0], optimizer)
        name, p = gradients[-1]
        kind = "an infinity" if p.grad.isinf().any() else "NaN"
        cause = f"{kind} in a gradient, beyond {_largest(p.grad.dtype)} or from 0 / 0 in the loss"
        return Divergence(
            name + ".grad",
            layer_of(name),
            "backward",
            cause,
            "a smaller loss scale, gradient clipping, or a format with a wider range",
        )
    if forward is not None and (divergence := _explain_forward(model, forward)) is not None:
        return divergence
    return explain_stagnation(model, optimizer, forward)
