"""Rounding at one place of a layer: the forward value, the straight-through gradient, and the state of its scale."""

from __future__ import annotations

import torch
from torch import nn

from .places import Place
from .scale_rules import Scaler


class Rounder:
    """Rounds tensors as a place says; a scale's state is kept here."""

    def __init__(self, place: Place, role: str, module: nn.Module) -> None:
        self.place = place
        self.role = role
        self.last_scale: torch.Tensor | float | None = None  # of the call now running: integer arithmetic goes by it
        self.scaler = None if place.scale is None else Scaler(place.scale, place.target, role, module)

    def __call__(self, x: torch.Tensor, training: bool = False) -> torch.Tensor:
        """x rounded, with x's gradient straight through."""
        place = self.place
        if self.scaler is None:
            return place.target.quantize(x, rounding=place.rounding, clamped=place.clamped)
        scale, zero_point = self.scaler(x, training)
        self.last_scale = scale
        return place.target.quantize(x, scale=scale, zero_point=zero_point, rounding=place.rounding, clamped=place.clamped)

    def see(self, x: torch.Tensor) -> torch.Tensor:
        """x, as it is, of which calibration takes note."""
        if self.scaler is not None and self.scaler.needs_calibration and x.numel():
            if not x.isfinite().all():
                raise ValueError(f"expected finite numbers for a scale ({self.role}), but got infinities or NaN")
            self.scaler.see(x)
        return x

    def state(self) -> dict:
        return {} if self.scaler is None else self.scaler.state()

    def load_state(self, state: dict) -> None:
        if self.scaler is not None:
            self.scaler.load_state(state)


class GradientHook:
    """A tensor's hook that rounds the gradient: an error where it is a layer's output, a weight gradient where it is a weight."""

    def __init__(self, rounder: Rounder, training: bool) -> None:
        self.rounder, self.training = rounder, training

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return self.rounder(gradient, self.training)


def save_scales(rounders: dict[str, Rounder], destination, prefix: str) -> None:
    """Puts scales beside a state dict, into its metadata: its keys stay those of the layer as it was."""
    found = {name: kept for name, r in rounders.items() if (kept := r.state())}
    if found and hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]]["scales"] = found


def load_scales(rounders: dict[str, Rounder], metadata: dict) -> None:
    """Takes scales from a state dict's metadata, where there are any."""
    for name, kept in metadata.get("scales", {}).items():
        if name in rounders:
            rounders[name].load_state(kept)


def mapped(value, function):
    """The value with every floating tensor in it (in tuples, lists and dicts) replaced; others, and kinds of containers, stay."""
    if isinstance(value, torch.Tensor):
        return function(value) if value.is_floating_point() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, function) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, function) for v in value)
    if isinstance(value, dict):
        return type(value)((k, mapped(v, function)) for k, v in value.items())
    return value
