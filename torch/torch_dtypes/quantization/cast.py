"""Cast: a module that rounds activations and errors where a user puts it in a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .places import Place, layer_rule
from .rounders import Rounder, check_scales, load_scales, round_through, save_scales

__all__ = ["Cast"]


def _scale_each_call(place: Place, value: Any) -> Place:
    """Give the place a scale per tensor instead of calibration, which never runs through a Cast."""
    if place.scale is None or place.scale.when != "calibration":
        return place
    if isinstance(value, Mapping) and value.get("when") is not None:
        raise ValueError(
            "expected a Cast's when to be 'call' (from each tensor) or 'delayed' (from those "
            "before), but got 'calibration'; calibrate with quantize_"
        )
    return dataclasses.replace(place, scale=dataclasses.replace(place.scale, when="call"))


class Cast(nn.Module):
    """Rounds the values that pass to ``forward``, and their gradients to ``backward``, each once.
    Rounding has the identity's gradient.

    ::

        cast = torch_dtypes.nn.Cast(forward="q43", backward="q52")
        model = nn.Sequential(nn.Linear(784, 100), cast, nn.ReLU(), nn.Linear(100, 10))

    NaN, infinities and values out of range become what the format makes of them
    (``torch_dtypes.chop``). ``torch_dtypes.Cast`` is the same class.

    Args:
        forward, backward: a dtype, format, block or integer format, quantiser or name
            (``torch_dtypes.target``), or a dict as in ``quantize_``:
            ``dict(format="int8", scale="free", rounding="stochastic")``. A scale comes from each
            tensor, or with ``when="delayed"`` from those before. None: nothing is rounded.

    Shape: any; the tensor is float16, bfloat16, float32 or float64. The result has the same dtype
    and shape.

    Raises:
        ValueError: an unknown name or option, a format that needs a scale without one, or a scale
            by calibration, which only ``quantize_`` has.
        TypeError: a value of another type.

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
                "expected a format for forward= or backward=, but got neither; give at least one"
            )
        places = {
            name: _scale_each_call(place, given[name])
            for name, place in layer_rule(given, "Cast").places().items()
        }
        self._forward = (
            Rounder(places["activation"], "activation", self) if "activation" in places else None
        )
        self._backward = Rounder(places["error"], "error", self) if "error" in places else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return round_through(x, self._forward, self._backward, self.training, (x,))

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
