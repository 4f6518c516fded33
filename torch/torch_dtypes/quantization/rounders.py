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
from ..targets.lookup import FormatTarget, saturate_target, target_of_file
from .places import ATTENTION, CACHE, Place
from .scalers import Scale, Scaler

_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)

# The pass to which an observation counts the roundings at a place, as _C numbers passes. Parameters
# have a pass of their own.
_PASSES = {
    **dict.fromkeys(("activation", "output", *ATTENTION, *CACHE), 0),
    "error": 1,
    "grad": 3,
}
_WEIGHTS = 2


def is_observed() -> bool:
    """Return whether roundings are counted. Dynamo cannot trace the question, so graphs of its own
    count none."""
    return not torch.compiler.is_dynamo_compiling() and _C.observing()


def note_layer() -> int | None:
    """Return the layer whose roundings an observation counts now, for its backward pass."""
    return _C.observed_layer() if is_observed() else None


def tell_layer(layer: int | None) -> None:
    """Tell an observation that a backward pass reached this layer."""
    if layer and is_observed():
        _C.observe_backward_layer(None, layer)


class NotFinite(ValueError):
    """Infinities or NaN reached a rounder during calibration."""

    def __init__(self, rounder: Rounder) -> None:
        super().__init__(
            f"expected finite numbers for a scale ({rounder.role}), but got infinities or NaN"
        )
        self.rounder = rounder


class Rounder:
    """Rounds the tensors of one place, and keeps the state of its scale."""

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
        self.text = self._write()
        is_plain = (
            self.scaler is None
            and isinstance(place.target, FormatTarget)
            and place.clamped == "pass"
        )
        # Format and mode for _C.round_through; None if there is a scale or another option.
        self.plain: tuple[str, str | None] | None = (
            (place.target.format_name, place.rounding) if is_plain else None
        )

    def _write(self) -> str:
        """Return the rounder as graphs record it. recorded.py restores it anywhere."""
        place, scale = self.place, None
        if place.scale is not None:
            per = "tensor" if self.scaler.axis is None else self.scaler.axis
            scale = {**dataclasses.asdict(place.scale), "per": per}
        return json.dumps(
            {
                "format": place.target.name,
                "rounding": place.rounding,
                "scale": scale,
                "axis": place.axis,
                "role": self.role,
            }
        )

    def __call__(
        self, x: torch.Tensor, training: bool = False, shared: Scale | None = None
    ) -> torch.Tensor:
        """Round x; the gradient passes straight through. ``shared`` is the scale that x shares with
        other tensors; by default x has its own."""
        return self._count(self._round_tensor, x, training, shared)

    def scale_of(self, tensors: Sequence[torch.Tensor], training: bool = False) -> Scale | None:
        """Return the scale that the tensors of one call share; None if there is none."""
        return (
            None
            if self.scaler is None or not tensors
            else self._count(self._find_scale, tensors, training)
        )

    def _count(self, function, *args):
        """Call the function, and count its roundings to this place's pass."""
        if not is_observed():
            return function(*args)
        before = _C.observe_pass(_PASSES.get(self.role, _WEIGHTS))
        try:
            return function(*args)
        finally:
            _C.observe_pass(before)

    def _find_scale(self, tensors: Sequence[torch.Tensor], training: bool) -> Scale:
        for x in tensors:
            check_tensor(x, self.place.target)
            check_dense(x, f"round ({self.role})")
        return self.scaler(tensors, training)

    def _round_tensor(self, x: torch.Tensor, training: bool, shared: Scale | None) -> torch.Tensor:
        place = self.place
        if self.scaler is None:
            return place.target.quantize(x, rounding=place.rounding, clamped=place.clamped)
        scale, zero_point = self.scaler.of(
            self._find_scale([x], training) if shared is None else shared, x
        )
        return self.target.quantize(
            x, scale=scale, zero_point=zero_point, rounding=place.rounding, clamped=place.clamped
        )

    def see(self, x: torch.Tensor) -> torch.Tensor:
        """Show x to calibration, and return it unchanged."""
        refuse_complex(x, f"to round ({self.role})")
        check_dense(x, f"round ({self.role})")
        if self.scaler is not None and self.scaler.needs_calibration and x.numel():
            if not x.isfinite().all():
                raise NotFinite(self)
            self.scaler.see(x)
        return x

    def state(self) -> dict:
        """Return the scale's entries for a state dict, with the format: a scale of another format
        must not be loaded."""
        kept = {} if self.scaler is None else self.scaler.state()
        return {**kept, **self._identity()} if kept else kept

    def _identity(self) -> dict[str, str | int]:
        """Return the format and the axis to which a scale belongs. The rounding mode does not
        matter."""
        rounds_to = self.place.target.with_rounding("nearest_even")
        if isinstance(rounds_to, IntegerFormat):
            rounds_to = dataclasses.replace(rounds_to, axis=None)
        return {
            "format": rounds_to.name,
            "per": "tensor" if self.scaler.axis is None else self.scaler.axis,
        }

    def check_state(self, state: dict) -> None:
        """Raise ValueError for a scale of another format or axis. State dicts from before 0.2 do
        not name these, and pass."""
        if self.scaler is None or not self.scaler.of_use(state):
            return
        own = self._identity()
        saved = {**own, **{name: state[name] for name in own if name in state}}
        if saved["per"] != own["per"] or _numbers(saved["format"]) != _numbers(own["format"]):
            got, wanted = (f"{one['format']} (per {one['per']})" for one in (saved, own))
            raise ValueError(
                f"expected scales of {self.role} for {wanted}, but got a state dict's for {got}; "
                "load one of a model with the same rule"
            )

    def load_state(self, state: dict) -> None:
        if self.scaler is not None:
            self.scaler.load_state(state)


def _numbers(name: str) -> str:
    """Return a name that a stock dtype shares with the format of the same values."""
    try:
        return getattr(target_of_file(name), "format_name", name)
    except ValueError:  # a table that this process does not know
        return name


def round_through(
    x: torch.Tensor,
    forward: Rounder | None,
    backward: Rounder | None,
    training: bool,
    callers: tuple = (),
    fresh: bool = False,
    shared: Scale | None = None,
) -> torch.Tensor:
    """Round x by ``forward``, and its gradient, once complete, by ``backward``. Either may be None.

    Two formats without scales take one node of autograd's graph, which rounds in place where it
    may. Else a hook calls the rounder. The bits are the same.

    Args:
        callers: the caller's tensors. If x is one of them, its memory and hooks stay untouched.
        fresh: x is a new result that nobody has seen or saved for backward, so it may be
            overwritten.
        shared: the scale of ``forward``, if x shares it with other tensors.
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
    y = x if forward is None else forward(x, training, shared)
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
    if is_observed():  # counts need exact values and the rounder's pass, which the node lacks
        return False
    if (
        not is_eager()
        or torch._C._get_tracing_state() is not None
        or type(x) not in _PLAIN_TENSORS
        or x.dtype not in COMPUTED
    ):
        return False
    if forward is None and not fresh:
        # With nothing to round, the node would return an alias, which hides writes into it.
        return False
    return (forward is None or forward.plain is not None) and (
        backward is None or backward.plain is not None
    )


class _RoundedGradient(torch.autograd.Function):
    """GradientHook as a function for Dynamo, which does not know the shape of a hook's gradient."""

    @staticmethod
    def forward(ctx, x, rounder, training):
        ctx.rounder, ctx.training = rounder, training
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.rounder(gradient, ctx.training), None, None


class GradientHook:
    """Tensor hook that rounds the gradient: the error of a layer's output, or a weight's
    gradient."""

    def __init__(self, rounder: Rounder, training: bool) -> None:
        self.rounder, self.training = rounder, training
        self.layer = note_layer()

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        # An output's hook runs before the hooks that tell the observation its layer.
        tell_layer(self.layer)
        return self.rounder(gradient, self.training)


def save_scales(rounders: dict[str, Rounder], destination, prefix: str) -> None:
    """Save scales in a state dict's metadata, so that its keys stay those of a plain layer."""
    scales = {name: kept for name, r in rounders.items() if (kept := r.state())}
    if scales and hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]]["scales"] = scales


def check_scales(rounders: dict[str, Rounder], metadata: dict, prefix: str) -> None:
    """Raise ValueError for a state dict's scales of other formats or other dimensions."""
    try:
        for name, kept in metadata.get("scales", {}).items():
            if name in rounders:
                rounders[name].check_state(kept)
    except ValueError as error:
        raise ValueError(f"{prefix.rstrip('.') or 'the model'!r}: {error}") from error


def load_scales(rounders: dict[str, Rounder], metadata: dict) -> None:
    """Load scales from a state dict's metadata, if it has any."""
    for name, kept in metadata.get("scales", {}).items():
        if name in rounders:
            rounders[name].load_state(kept)


def map_tensors(value, function):
    """Replace every floating or complex tensor in a value by ``function`` of it.

    Tensors are found in tuples, lists, dicts and dataclasses; the types of containers are kept.
    """
    if isinstance(value, torch.Tensor):
        return function(value) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, function) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, function) for v in value)
    if isinstance(value, dict):
        return type(value)((k, map_tensors(v, function)) for k, v in value.items())
    if isinstance(value, MutableMapping):
        result = copy.copy(value)
        for key in value:
            result[key] = map_tensors(value[key], function)
        return result
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = copy.copy(value)
        for f in dataclasses.fields(value):
            if hasattr(value, f.name):
                # object's __setattr__ also sets fields of a frozen dataclass.
                object.__setattr__(result, f.name, map_tensors(getattr(value, f.name), function))
        return result
    return value
