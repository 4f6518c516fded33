"""Scales from data: a model run over a loader, unrounded, with every place that asks for it looking
at what comes by."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .layer_state import LayerState
from .rounders import NotFinite, check_scales, load_scales
from .rules import takes_two


def needs_calibration(state: LayerState) -> bool:
    return any(
        r.scaler is not None and r.scaler.needs_calibration for r in state.all_rounders().values()
    )


def check_loader(loader: object, forward: object) -> None:
    """An error for what can be no loader, and nothing to run its batches, also where no scale asks
    for them.

    Raises:
        TypeError, ValueError: not an iterable of batches, nor a state dict; ``forward`` without
            one, or no function of two arguments.
    """
    if forward is not None and loader is None:
        raise ValueError(
            "expected calibrate=, whose batches forward= runs, but got None beside "
            f"forward={forward!r}"
        )
    if forward is not None and not takes_two(forward):
        raise TypeError(f"expected forward= as a function of (model, batch), but got {forward!r}")
    is_state_dict = isinstance(loader, Mapping) and hasattr(loader, "_metadata")
    if loader is None or is_state_dict:
        return
    if isinstance(loader, (torch.Tensor, Mapping, str, nn.Module)) or not isinstance(
        loader, Iterable
    ):
        what = (
            "a state dict's scales lie in its metadata, which a plain dict has not"
            if isinstance(loader, Mapping)
            else "a single batch in a list is one"
        )
        raise TypeError(
            f"expected calibrate= as an iterable of batches, but got {type(loader).__name__}; "
            f"{what}"
        )


def calibrate_(
    model: nn.Module,
    states: dict[str, LayerState],
    loader: Iterable,
    forward: Callable[[nn.Module, Any], Any] | None,
) -> None:
    """Runs the model over the loader as it was before, in evaluation mode, and settles the scales.

    Raises:
        TypeError, ValueError: not a loader, no batches, a batch that is no input, a layer that no
            batch came to, or infinities or NaN did.
    """
    for state in states.values():
        state.observing = True
    batches = 0
    try:
        with evaluating(model):
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
                        f"of calibrate=, {described(batch)}"
                    ) from error
                batches += 1
    finally:
        for state in states.values():
            state.observing = False
    if not batches:
        raise ValueError(
            "expected calibrate= with at least one batch, but got none; an iterator gives its "
            "batches only once"
        )
    for name, state in states.items():
        for role, rounder in state.all_rounders().items():
            if (
                rounder.scaler is not None
                and rounder.scaler.needs_calibration
                and not rounder.scaler.settle()
            ):
                raise ValueError(
                    "expected batches that come to every layer with a scale, but none came to "
                    f"{name!r} ({role}); give it no rule"
                )


def take_scales_(states: dict[str, LayerState], state_dict: Mapping) -> None:
    """Settles the scales by those that a state dict has beside it.

    Raises:
        ValueError: it has none for a layer that needs one, or those of another format.
    """
    for name, state in states.items():
        check_scales(state.all_rounders(), state_dict._metadata.get(name, {}), name)
        load_scales(state.all_rounders(), state_dict._metadata.get(name, {}))
        if needs_calibration(state):
            raise ValueError(
                f"expected a state dict with the scales of {name!r}, or batches, as calibrate=, "
                "but got one of a model that had none there"
            )


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A block in evaluation mode and without gradients, after which each module is in the mode that
    it was in."""
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
            f"of keyword arguments, but got {described(batch)}; forward=lambda model, batch: ... "
            "runs others"
        )
    try:
        model(**first) if isinstance(first, Mapping) else model(first)
    except NotFinite:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise ValueError(
            f"expected batches of {name} that the model takes, but batch {index}, "
            f"{described(batch)}, gives: {str(error).rstrip('.')}. "
            "forward=lambda model, batch: ... runs others"
        ) from error


def described(value: object) -> str:
    """A batch in few words."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        return (
            f"a {type(value).__name__} of "
            f"({', '.join(described(v) for v in value[:4])}{', ...' if len(value) > 4 else ''})"
        )
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with {', '.join(map(repr, list(value)[:4]))}"
    return f"{'an' if type(value).__name__[0] in 'aeiouAEIOU' else 'a'} {type(value).__name__}"
