"""Scales from data: the model runs over a loader without rounding. Each place that needs a scale
observes the tensors that reach it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..formats.arguments import with_article
from .layer_state import LayerState
from .rounders import NotFinite, check_scales, load_scales
from .rules import takes_two


def needs_calibration(state: LayerState) -> bool:
    return any(
        r.scaler is not None and r.scaler.needs_calibration for r in state.all_rounders().values()
    )


def check_loader(loader: object, forward: object) -> None:
    """Refuse a bad loader or ``forward``, even if no scale needs calibration.

    Raises:
        TypeError: ``loader`` is neither an iterable of batches nor a state dict, or ``forward`` is
            no function of two arguments.
        ValueError: ``forward`` without a loader.
    """
    if forward is not None and loader is None:
        raise ValueError(
            "expected calibrate= with the batches that forward= runs, but got None with "
            f"forward={forward!r}; give a loader, or leave forward out"
        )
    if forward is not None and not takes_two(forward):
        raise TypeError(f"expected forward= as a function of (model, batch), but got {forward!r}")
    is_state_dict = isinstance(loader, Mapping) and hasattr(loader, "_metadata")
    if loader is None or is_state_dict:
        return
    if isinstance(loader, (torch.Tensor, Mapping, str, nn.Module)) or not isinstance(
        loader, Iterable
    ):
        advice = (
            "give the state dict itself, since a plain copy loses the metadata with the scales"
            if isinstance(loader, Mapping)
            else "put a single batch into a list"
        )
        raise TypeError(
            f"expected calibrate= as an iterable of batches, but got {type(loader).__name__}; "
            f"{advice}"
        )


def calibrate_(
    model: nn.Module,
    states: dict[str, LayerState],
    loader: Iterable,
    forward: Callable[[nn.Module, Any], Any] | None,
) -> None:
    """Run the model without its rules over the loader, in evaluation mode, and set the scales.

    Raises:
        TypeError: a batch of another type than the model's inputs.
        ValueError: there are no batches, the model refuses one, no batch reached a layer, or
            infinities or NaN did.
    """
    for state in states.values():
        state.observing = True
    batches = 0
    try:
        with evaluation_mode(model):
            for batch in loader:
                try:
                    run_batch(model, batch, forward, batches)
                except NotFinite as error:
                    name = next(
                        name
                        for name, state in states.items()
                        if error.rounder in state.all_rounders().values()
                    )
                    raise ValueError(
                        f"expected finite numbers for the scale of {name!r} "
                        f"({error.rounder.role}), but got infinities or NaN from batch {batches} "
                        f"of calibrate=, {describe_batch(batch)}"
                    ) from error
                batches += 1
    finally:
        for state in states.values():
            state.observing = False
    if not batches:
        raise ValueError(
            "expected calibrate= with at least one batch, but got none; give a new iterator, since "
            "one gives its batches only once"
        )
    for name, state in states.items():
        for role, rounder in state.all_rounders().items():
            if (
                rounder.scaler is not None
                and rounder.scaler.needs_calibration
                and not rounder.scaler.settle()
            ):
                raise ValueError(
                    "expected batches that reach every layer with a scale, but none reached "
                    f"{name!r} ({role}); give it no rule"
                )


def take_scales_(states: dict[str, LayerState], state_dict: Mapping) -> None:
    """Take the scales from a state dict's metadata.

    Raises:
        ValueError: the state dict has no scale for a layer that needs one, or a scale of another
            format.
    """
    for name, state in states.items():
        check_scales(state.all_rounders(), state_dict._metadata.get(name, {}), name)
        load_scales(state.all_rounders(), state_dict._metadata.get(name, {}))
        if needs_calibration(state):
            raise ValueError(
                f"expected calibrate= as a state dict with the scales of {name!r}, but got one "
                "without them; give one of a model with the same rule, or batches"
            )


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode and without gradients, then restore each module's mode."""
    modes = {m: m.training for m in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def run_batch(
    model: nn.Module,
    batch: object,
    forward: Callable[[nn.Module, Any], Any] | None,
    index: int,
    name: str = "calibrate=",
) -> None:
    if forward is not None:
        forward(model, batch)
        return
    first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    if not isinstance(first, (torch.Tensor, Mapping)):
        raise TypeError(
            f"expected batches of {name} as tensors, tuples whose first element is one, or dicts "
            f"of keyword arguments, but got {describe_batch(batch)}; "
            "forward=lambda model, batch: ... runs others"
        )
    try:
        model(**first) if isinstance(first, Mapping) else model(first)
    except NotFinite:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise ValueError(
            f"expected batches of {name} that the model takes, but batch {index}, "
            f"{describe_batch(batch)}, gives: {str(error).rstrip('.')}. "
            "forward=lambda model, batch: ... runs others"
        ) from error


def describe_batch(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        parts = [*map(describe_batch, value[:4]), *(["..."] if len(value) > 4 else [])]
        return f"a {type(value).__name__} of ({', '.join(parts)})"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with {', '.join(map(repr, list(value)[:4]))}"
    return with_article(type(value).__name__)
