"""Rounding at one place of a layer: the forward value, the straight-through gradient, and the state
of its scale."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import MutableMapping, Sequence

import torch
from torch import nn

from .. import _C
from ..targets.base import (
    COMPUTED,
    check_dense,
    check_tensor,
    is_eager,
    is_recorded,
    refuse_complex,
)
from ..targets.integers import IntegerFormat
from ..targets.lookup import FormatTarget, saturate_target, target
from .places import Place
from .scalers import Scale, Scaler

_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)

# To which pass an observation counts what is rounded at a place (the order of _C's passes); of
# parameters: their own.
_PASSES = {"activation": 0, "output": 0, "error": 1, "grad": 3}
_WEIGHTS = 2


def _is_observed() -> bool:
    """Whether roundings are counted. In a graph of Dynamo's, which could not trace the question,
    none is."""
    return not torch.compiler.is_dynamo_compiling() and _C.observing()


class NotFinite(ValueError):
    """Infinities or NaN came to a rounder whose scale is being looked for."""

    def __init__(self, rounder: Rounder) -> None:
        super().__init__(
            f"expected finite numbers for a scale ({rounder.role}), but got infinities or NaN"
        )
        self.rounder = rounder


def _written(rounder: Rounder) -> str:
    """A rounder of gradients as a text, from which recorded.py makes one again, in another process
    too."""
    place, scaler = rounder.place, rounder.scaler
    scale = (
        None
        if place.scale is None
        else {
            **dataclasses.asdict(place.scale),
            "per": "tensor" if scaler.axis is None else scaler.axis,
        }
    )
    return json.dumps({"format": place.target.name, "rounding": place.rounding, "scale": scale})


class Rounder:
    """Rounds tensors as a place says; a scale's state is kept here."""

    def __init__(
        self, place: Place, role: str, module: nn.Module, channels_of: str | None = None
    ) -> None:
        self.place = place
        self.role = role
        self.target = (
            saturate_target(place.target)
            if place.scale is not None and place.scale.may_clip
            else place.target
        )
        self.scaler = (
            None
            if place.scale is None
            else Scaler(place.scale, self.target, channels_of or role, module)
        )
        self.text = _written(self)  # as a graph has it
        is_plain = (
            self.scaler is None
            and isinstance(place.target, FormatTarget)
            and place.clamped == "pass"
        )
        # A format and a mode, as _C.round_through takes them, where there is nothing else to
        # rounding.
        self.plain: tuple[str, str | None] | None = (
            (place.target.format_name, place.rounding) if is_plain else None
        )

    def __call__(
        self, x: torch.Tensor, training: bool = False, found: Scale | None = None
    ) -> torch.Tensor:
        """x rounded, with x's gradient straight through. ``found``: the scale of all that share it;
        default: x's own."""
        return self._counted(self._rounded, x, training, found)

    def scale_of(self, tensors: Sequence[torch.Tensor], training: bool = False) -> Scale | None:
        """The scale that the tensors of one call share; None where there is none."""
        return (
            None
            if self.scaler is None or not tensors
            else self._counted(self._found, tensors, training)
        )

    def _counted(self, function, *args):
        """The function's result, what it rounds being counted to this place's pass."""
        if not _is_observed():
            return function(*args)
        before = _C.observe_pass(_PASSES.get(self.role, _WEIGHTS))
        try:
            return function(*args)
        finally:
            _C.observe_pass(before)

    def _found(self, tensors: Sequence[torch.Tensor], training: bool) -> Scale:
        for x in tensors:
            check_tensor(x, self.place.target)
            check_dense(x, f"round ({self.role})")
        return self.scaler(tensors, training)

    def _rounded(self, x: torch.Tensor, training: bool, found: Scale | None) -> torch.Tensor:
        place = self.place
        if self.scaler is None:
            return place.target.quantize(x, rounding=place.rounding, clamped=place.clamped)
        scale, zero_point = self.scaler.of(
            self._found([x], training) if found is None else found, x
        )
        return self.target.quantize(
            x, scale=scale, zero_point=zero_point, rounding=place.rounding, clamped=place.clamped
        )

    def see(self, x: torch.Tensor) -> torch.Tensor:
        """x, as it is, of which calibration takes note."""
        refuse_complex(x, f"to round ({self.role})")
        check_dense(x, f"round ({self.role})")
        if self.scaler is not None and self.scaler.needs_calibration and x.numel():
            if not x.isfinite().all():
                raise NotFinite(self)
            self.scaler.see(x)
        return x

    def state(self) -> dict:
        """What a state dict keeps: for which format it is, too, since other scales would be taken
        for it."""
        kept = {} if self.scaler is None else self.scaler.state()
        return {**kept, **self._identity()} if kept else kept

    def _identity(self) -> dict[str, str | int]:
        """What scales are of. How numbers are rounded makes no difference to them."""
        made = self.place.target.with_rounding("nearest_even")
        made = dataclasses.replace(made, axis=None) if isinstance(made, IntegerFormat) else made
        return {
            "format": made.name,
            "per": "tensor" if self.scaler.axis is None else self.scaler.axis,
        }

    def check_state(self, state: dict) -> None:
        """Raises ValueError for scales of something else; those of a state dict of before 0.2 do
        not say of what they are."""
        if self.scaler is None or not self.scaler.of_use(state):
            return
        own = self._identity()
        given = {**own, **{name: state[name] for name in own if name in state}}
        if given["per"] != own["per"] or _numbers(given["format"]) != _numbers(own["format"]):
            of, wanted = (f"{said['format']} (per {said['per']})" for said in (given, own))
            raise ValueError(
                f"expected scales of {self.role} for {wanted}, but got a state dict's for {of}; "
                "load one of a model with the same rule"
            )

    def load_state(self, state: dict) -> None:
        if self.scaler is not None:
            self.scaler.load_state(state)


def _numbers(name: str) -> str:
    """A name that stock dtypes share with formats of the same numbers."""
    try:
        return getattr(target(name), "format_name", name)
    except ValueError:  # of a table that this process does not know
        return name


def rounded_through(
    x: torch.Tensor,
    forward: Rounder | None,
    backward: Rounder | None,
    training: bool,
    callers: tuple = (),
    fresh: bool = False,
    found: Scale | None = None,
) -> torch.Tensor:
    """x rounded as ``forward`` says, its gradient (once it is complete) as ``backward`` says;
    either may be None.

    Two formats without scales are one node of autograd's graph, which rounds in the memory that is
    there, if it may; else a hook calls the rounder. The bits are the same.

    Args:
        callers: tensors that x may be, and that are not to be touched.
        fresh: x is an operator's result that nothing has seen or saved for backward.
        found: the scale of forward, where x is not the only one that it is of.
    """
    if _is_one_node(x, forward, backward, fresh):
        try:
            return _C.round_through(
                x, forward and forward.plain, backward and backward.plain, fresh
            )
        except NotImplementedError:
            check_dense(x, "round")
            raise
    refuse_complex(x, "where values or gradients are rounded")
    y = x if forward is None else forward(x, training, found)
    if backward is not None and is_recorded():
        return torch.ops.torch_dtypes.round_gradient(y, backward.text)
    if backward is not None and y.requires_grad and torch.is_grad_enabled():
        if torch.compiler.is_dynamo_compiling() and backward.plain is None:
            return _RoundedGradient.apply(y, backward, training)
        if y.is_leaf or any(y is t for t in callers):
            y = y.view_as(y)  # a hook would stay with the caller's tensor
        y.register_hook(GradientHook(backward, training))
    return y


def _is_one_node(
    x: torch.Tensor, forward: Rounder | None, backward: Rounder | None, fresh: bool
) -> bool:
    if _is_observed():  # which counts exact values, and tells a rounder's pass
        return False
    if (
        not is_eager()
        or torch._C._get_tracing_state() is not None
        or type(x) not in _PLAIN_TENSORS
        or x.dtype not in COMPUTED
    ):
        return False
    if forward is None and not fresh:
        # An alias, where there is nothing to round, would hide what is written into it.
        return False
    return (forward is None or forward.plain is not None) and (
        backward is None or backward.plain is not None
    )


class _RoundedGradient(torch.autograd.Function):
    """What a hook does, for Dynamo, which knows too little of a hook's gradient to trace what goes
    by its shape."""

    @staticmethod
    def forward(ctx, x, rounder, training):
        ctx.rounder, ctx.training = rounder, training
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.rounder(gradient, ctx.training), None, None


class GradientHook:
    """A tensor's hook that rounds the gradient: an error where it is a layer's output, a weight
    gradient where it is a weight."""

    def __init__(self, rounder: Rounder, training: bool) -> None:
        self.rounder, self.training = rounder, training
        self.layer = _C.observed_layer() if _is_observed() else None

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        # An output's hook runs before those that say where the backward pass is.
        if self.layer and _is_observed():
            _C.observe_backward_layer(None, self.layer)
        return self.rounder(gradient, self.training)


def save_scales(rounders: dict[str, Rounder], destination, prefix: str) -> None:
    """Puts scales beside a state dict, into its metadata: its keys stay those of the layer as it
    was."""
    found = {name: kept for name, r in rounders.items() if (kept := r.state())}
    if found and hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]]["scales"] = found


def check_scales(rounders: dict[str, Rounder], metadata: dict, prefix: str) -> None:
    """Raises ValueError for a state dict's scales that are for other formats, or lie along other
    dimensions."""
    try:
        for name, kept in metadata.get("scales", {}).items():
            if name in rounders:
                rounders[name].check_state(kept)
    except ValueError as error:
        raise ValueError(f"{prefix.rstrip('.') or 'the model'!r}: {error}") from error


def load_scales(rounders: dict[str, Rounder], metadata: dict) -> None:
    """Takes scales from a state dict's metadata, where there are any."""
    for name, kept in metadata.get("scales", {}).items():
        if name in rounders:
            rounders[name].load_state(kept)


def mapped(value, function):
    """The value with every floating or complex tensor in it (in tuples, lists, dicts and
    dataclasses) replaced; others, and kinds of containers, stay."""
    if isinstance(value, torch.Tensor):
        return function(value) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, function) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, function) for v in value)
    if isinstance(value, dict):
        return type(value)((k, mapped(v, function)) for k, v in value.items())
    if isinstance(value, MutableMapping):
        made = copy.copy(value)
        for key in value:
            made[key] = mapped(value[key], function)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for f in dataclasses.fields(value):
            if hasattr(value, f.name):
                # A frozen one's, too.
                object.__setattr__(made, f.name, mapped(getattr(value, f.name), function))
        return made
    return value
