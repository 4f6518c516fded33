"""Why a training run is no longer finite, or does not learn."""

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


def _finite(t: torch.Tensor) -> bool:
    return not t.is_floating_point() or bool(t.detach().isfinite().all())


def tensors_in(value):
    """The tensors in lists, tuples and dictionaries, at any depth."""
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


def _of_update(name: str, p: torch.Tensor, optimizer) -> Divergence:
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
                f"an eps that the dtype has, loss scaling, or {MASTERS}",
            )
    cause = (
        f"the gradient was finite, so the step of {kind} left the range: beyond {_largest(p.dtype)}"
    )
    # An initial weight is as likely: NaN, where the format does not saturate.
    if _is_unsigned(p.dtype):
        cause = (
            f"the gradient was finite, so the weight or the step of {kind} left the range: beyond "
            f"{_largest(p.dtype)}"
        )
        return Divergence(
            name, layer_of(name), "update", cause, "a format with a sign for what may be below 0"
        )
    return Divergence(
        name, layer_of(name), "update", cause, f"a lower learning rate, a larger eps, or {MASTERS}"
    )


def _largest_of(tensors) -> float:
    return max(
        (t.detach().abs().max().item() for t in tensors if t.is_floating_point() and t.numel()),
        default=0.0,
    )


def _rounding_beyond(module: torch.nn.Module, activation: float) -> str | None:
    """What a layer of ``quantize_``, whose inputs went up to ``activation``, rounds beyond the
    largest number of its format, in words."""
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


def _made_infinity() -> tuple[str, str] | None:
    """The cause and the advice where an operator has made an infinity, of finite operands, in a
    format that has none."""
    if (made := _C.first_infinity()) is None:
        return None
    operator, dtype = made
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


def _of_forward(model: torch.nn.Module, forward: Callable[[], object]) -> Divergence | None:
    found: list[Divergence] = []
    running: Calls[tuple[bool, float]] = Calls()  # were the inputs finite, and how large

    def before(module, inputs):  # a layer in place writes into them
        if not found:
            finite = all(map(_finite, tensors_in(inputs)))
            running.begin(
                module,
                (
                    finite,
                    _largest_of(tensors_in(inputs)) if finite and is_quantized(module) else 0.0,
                ),
            )

    def look(name):
        def hook(module, inputs, output):
            if found:
                return
            finite, largest = running.end(module)
            if all(map(_finite, tensors_in(output))):
                return
            bad = next(t for t in tensors_in(output) if not _finite(t))
            if (made := _made_infinity()) is not None:
                found.append(
                    Divergence(f"the output of {type(module).__name__}", name, "forward", *made)
                )
            elif not finite:
                advice = "data without NaN and infinities, in range of the dtype"
                found.append(
                    Divergence("the input", name, "forward", "the data are not finite", advice)
                )
            elif (place := _rounding_beyond(module, largest)) is not None:
                found.append(
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
                found.append(
                    Divergence(
                        f"the output of {type(module).__name__}", name, "forward", cause, _OVERFLOW
                    )
                )

        return hook

    # Containers' hooks come after their children's, so the first to see it is the innermost.
    handles = [module.register_forward_hook(look(name)) for name, module in model.named_modules()]
    handles += [module.register_forward_pre_hook(before) for module in model.modules()]
    # Statistics, of which this run is none.
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
    if not found and not all(map(_finite, tensors_in(result))):
        why = _made_infinity() or (
            "the model's outputs are finite, the loss of them is not",
            "the loss in float32, or a wider format",
        )
        found.append(Divergence("the loss", "", "forward", *why))
    return found[0] if found else None


def explain_divergence(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    forward: Callable[[], object] | None = None,
) -> Divergence | None:
    """Why a run diverges or does not learn: the first tensor that is not finite, or what stands
    still, its layer and pass, the cause, what to try::

        loss = criterion(model(images), labels)
        if not loss.isfinite():
            loss = lambda: criterion(model(images), labels)
            print(torch_dtypes.explain_divergence(model, optimizer, loss))

    Call it before ``zero_grad()``, while the gradients of the step before are there. Parameters are
    looked at first: one that is not finite had its gradient so in the backward pass (the last such
    layer, where the pass begins), or else the optimizer's step made it. If all are finite,
    ``forward`` runs once more, without gradients (buffers are as before afterwards), and its
    modules' outputs are looked at; of a layer that ``quantize_`` made round it is said what it
    rounds beyond its format's largest number; an operator that made an infinity in a format without
    one (log of 0 in posits) is named. A run that does not diverge pays nothing.

    Where everything is finite, a loss that stays where it is has one of these reasons, looked for
    in this order:

    - All gradients are 0, and those of ``forward`` are not: a clip's or a scale's factor
      underflows.
    - A parameter of one dimension (LayerScale's factor) is 0 throughout, and no gradient comes to a
      weight.
    - Most of a state of ``optimizer``, which is not wrapped in ``LowPrecision``, is the smallest
      number of a posit, or 0 where steps divide by it.
    - Most updates are below half a unit in the last place, by layer. One step of ``optimizer`` in
      float32 is tried, on copies.
    - The loss of ``forward`` is higher by half in evaluation mode, which goes by running
      statistics.

    Args:
        model: its modules give the names.
        optimizer: for what its states say of the cause, and for the step that is tried. It stays as
            it is.
        forward: calls the model on the batch that failed and returns the loss. It may run four
            times; buffers stay as before.

    Returns:
        A :class:`Divergence`, whose text is a sentence, or ``None`` where nothing is found.

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
    if bad := [(name, p) for name, p in named if not _finite(p)]:
        gradients = [(name, p) for name, p in named if p.grad is not None and not _finite(p.grad)]
        # Not trained, but loaded or rounded.
        if optimizer is None and all(p.grad is None for _, p in named):
            name, p = bad[0]
            cause = (
                f"{int((~p.detach().isfinite()).sum())} of its {p.numel()} numbers were loaded "
                "so, or rounded beyond the largest number of a format"
            )
            return Divergence(name, layer_of(name), "forward", cause, _ROUNDING)
        if not gradients:
            return _of_update(*bad[0], optimizer)
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
    if forward is not None and (found := _of_forward(model, forward)) is not None:
        return found
    return explain_stagnation(model, optimizer, forward)
