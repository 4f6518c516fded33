"""Loss scaling: the factor that lifts gradients into a format's range, constant or found while
training.

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, sections 3.2 and 4; the rule of
the dynamic factor is torch.amp.GradScaler's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..formats.arguments import shorten

__all__ = ["DynamicScale"]


def _number(name: str, value: object, low: float, high: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected {name} as a number, but got {shorten(value)}")
    if not (low < value < high and math.isfinite(value)):
        between = f"between {low:g} and {high:g}" if math.isfinite(high) else f"above {low:g}"
        raise ValueError(f"expected {name} to be a finite number {between}, but got {value!r}")
    return float(value)


def _invertible(name: str, number: float) -> float:
    """A factor that float32 has, and its reciprocal: gradients are multiplied by both."""
    for value in (_float32(number), _float32(1 / number)):
        if not (value and math.isfinite(value)):
            raise ValueError(
                f"expected {name} as a number of which float32 has the reciprocal, too, but got "
                f"{number!r}"
            )
    return number


def _float32(number: float) -> float:
    """As GradScaler keeps its factor."""
    return torch.tensor(number, dtype=torch.float32, device="cpu").item()


@dataclass(frozen=True)
class DynamicScale:
    """Dynamic loss scaling: what ``LowPrecision(grad_scale=...)`` takes for a factor that is found
    while training.

    A step whose gradients overflowed is left out and multiplies the factor by ``backoff``;
    ``interval`` steps in a row without one multiply it by ``growth``.

    Args:
        init: the first factor, above 0.
        growth: above 1.
        backoff: between 0 and 1.
        interval: steps, at least 1.

    Raises:
        ValueError: one is out of range.
        TypeError: one is no number.

    Example::

        >>> torch_dtypes.optim.DynamicScale(init=1024.0, interval=500).backoff
        0.5
    """

    init: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self):
        _invertible("init", _number("init", self.init, 0))
        _number("growth", self.growth, 1)
        _number("backoff", self.backoff, 0, 1)
        if isinstance(self.interval, bool) or not isinstance(self.interval, int):
            raise TypeError(f"expected interval as an integer, but got {self.interval!r}")
        if self.interval < 1:
            raise ValueError(f"expected interval to be at least 1, but got {self.interval}")


class Scale:
    """The factor of one optimizer: 1, a constant, or one that moves by the rule of a
    :class:`DynamicScale`."""

    def __init__(self, given: object) -> None:
        if isinstance(given, str) and given == "dynamic":
            given = DynamicScale()
        elif isinstance(given, str):
            raise ValueError(
                "expected grad_scale as a number, 'dynamic', a DynamicScale or None, but got "
                f"{given!r}"
            )
        self.rule = given if isinstance(given, DynamicScale) else None
        self.is_on = given is not None
        if self.rule:
            self.factor = _float32(self.rule.init)
        elif given is None:
            self.factor = 1.0
        else:
            self.factor = _invertible("grad_scale", _number("grad_scale", given, 0))
        self._good_steps = 0  # without overflow, in a row

    def update(self, overflowed: bool) -> None:
        """After a step of a dynamic factor."""
        if overflowed:
            smaller = _float32(self.factor * self.rule.backoff)
            if not (smaller and math.isfinite(_float32(1 / smaller))):
                raise RuntimeError(
                    "expected gradients that a smaller loss scale keeps finite, but got overflow "
                    f"at {self.factor:g} too: they are infinite or NaN "
                    "whatever the scale. torch_dtypes.explain_divergence says where that begins"
                )
            self.factor, self._good_steps = smaller, 0
            return
        self._good_steps += 1
        if self._good_steps == self.rule.interval:
            grown = _float32(self.factor * self.rule.growth)
            self.factor, self._good_steps = grown if math.isfinite(grown) else self.factor, 0

    def state_dict(self) -> dict:
        return {
            "factor": self.factor,
            "good_steps": self._good_steps,
            "is_dynamic": self.rule is not None,
        }

    def load_state_dict(self, state: dict) -> None:
        """Takes over a factor that was found. One that was given, or none, stays as this one has
        it."""
        if self.rule and state.get("is_dynamic", True):  # which older files do not say
            self.factor, self._good_steps = state["factor"], state["good_steps"]
