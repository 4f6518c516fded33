"""Cast: rounding of activations and errors at a place in a model that one chooses by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .places import Place, layer_rule
from .rounders import Rounder, check_scales, load_scales, rounded_through, save_scales

__all__ = ["Cast"]


def _uncalibrated(place: Place, value: Any) -> Place:
    """The place with a scale of each tensor, where nothing else is said: no calibration runs
    through a module that stands by itself."""
    if place.scale is None or place.scale.when != "calibration":
        return place
    if isinstance(value, Mapping) and value.get("when") is not None:
        raise ValueError(
            "expected when='call' (a scale of each tensor) or 'delayed' (of those before) of a "
            "Cast, but got 'calibration', a rule's"
        )
    return dataclasses.replace(place, scale=dataclasses.replace(place.scale, when="call"))


class Cast(nn.Module):
    """Rounds what passes: values to ``forward``, the gradients that come back to ``backward``, each
    once, with the identity's gradient.

    ::

        cast = torch_dtypes.nn.Cast(forward="q43", backward="q52")
        model = nn.Sequential(nn.Linear(784, 100), cast, nn.ReLU(), nn.Linear(100, 10))

    What is NaN, infinite or out of range becomes what the format makes of it
    (``torch_dtypes.chop``). ``torch_dtypes.Cast`` is the same class.

    Args:
        forward, backward: a dtype, format, block or integer format or name
            (``torch_dtypes.target``), or a dict as in ``quantize_``:
            ``dict(format="int8", scale="free", rounding="stochastic")``. A scale is each tensor's
            own, or ``when="delayed"``: of those before. None: nothing is rounded.

    Shape: any; a floating tensor of float16, bfloat16, float32 or float64, and the result is of the
    same dtype and shape.

    Raises:
        ValueError: an unknown name or option, a format that needs a scale without one, or a scale
            by calibration, which is ``quantize_``'s.
        TypeError: something else.

    Example::

        >>> rounds = torch_dtypes.nn.Cast(forward="q43", backward="q52")
        >>> x = torch.tensor([1.3, 0.7], requires_grad=True)
        >>> rounds(x)
        tensor([1.2500, 0.6875], grad_fn=...)
    """

    def __init__(self, forward: Any = None, backward: Any = None) -> None:
        super().__init__()
        given = {
            name: value
            for name, value in (("activation", forward), ("error", backward))
            if value is not None
        }
        if not given:
            raise ValueError(
                "expected forward= or backward=, what values or gradients are rounded to, but "
                "got neither"
            )
        places = {
            name: _uncalibrated(place, given[name])
            for name, place in layer_rule(given, "Cast").places().items()
        }
        self._forward = (
            Rounder(places["activation"], "activation", self) if "activation" in places else None
        )
        self._backward = Rounder(places["error"], "error", self) if "error" in places else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rounded_through(x, self._forward, self._backward, self.training, (x,))

    def _rounders(self) -> dict[str, Rounder]:
        return {
            name: r
            for name, r in (("forward", self._forward), ("backward", self._backward))
            if r is not None
        }

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        save_scales(self._rounders(), destination, prefix)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        check_scales(self._rounders(), local_metadata, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
        load_scales(self._rounders(), local_metadata)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={r.place}" for name, r in self._rounders().items())
