"""Loss scaling: a factor that lifts gradients into a format's range, constant or found during
training.

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, sections 3.2 and 4. The dynamic
factor follows torch.amp.GradScaler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..formats.arguments import outline

__all__ = ["DynamicScale"]


def _number(name: str, value: object, low: float, high: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected {name} as a number, but got {outline(value)}")
    if not (low < value < high and math.isfinite(value)):
        between = f"between {low:g} and {high:g}" if math.isfinite(high) else f"above {low:g}"
        raise ValueError(f"expected {name} to be a finite number {between}, but got {value!r}")
    return float(value)


def _invertible(name: str, number: float) -> float:
    """Check that float32 holds a factor and its reciprocal: gradients are multiplied by both."""
    for value in (_float32(number), _float32(1 / number)):
        if not (value and math.isfinite(value)):
            raise ValueError(
                f"expected {name} as a number that float32 holds with its reciprocal, but got "
                f"{number!r}"
            )
    return number


def _float32(number: float) -> float:
    """Round to float32, as GradScaler keeps its factor."""
    return torch.tensor(number, dtype=torch.float32, device="cpu").item()


@dataclass(frozen=True)
class DynamicScale:
    """Options of dynamic loss scaling, for ``LowPrecision(grad_scale=...)``.

    A step whose gradients overflow is skipped, and the factor is multiplied by ``backoff``. After
    ``interval`` steps in a row without overflow it is multiplied by ``growth``.

    Args:
        init: the first factor, above 0.
        growth: above 1.
        backoff: between 0 and 1.
        interval: a number of steps, at least 1.

    Raises:
        ValueError: an option is out of range.
        TypeError: an option is no number.

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
    """The factor of one optimizer: 1, a constant, or dynamic by a :class:`DynamicScale`."""

    def __init__(self, value: object) -> None:
        if isinstance(value, str) and value == "dynamic":
            value = DynamicScale()
        elif isinstance(value, str):
            raise ValueError(
                "expected grad_scale as a number, 'dynamic', a DynamicScale or None, but got "
                f"{value!r}"
            )
        self.rule = value if isinstance(value, DynamicScale) else None
        self.is_on = value is not None
        if self.rule:
            self.factor = _float32(self.rule.init)
        elif value is None:
            self.factor = 1.0
        else:
            self.factor = _invertible("grad_scale", _number("grad_scale", value, 0))
        self._good_steps = 0  # steps in a row without overflow

    def update(self, overflowed: bool) -> None:
        """Change a dynamic factor after a step."""
        if overflowed:
            smaller = _float32(self.factor * self.rule.backoff)
            if not (smaller and math.isfinite(_float32(1 / smaller))):
                raise RuntimeError(
                    "expected gradients that a smaller loss scale keeps finite, but got overflow "
                    f"at {self.factor:g} too; find where infinities or NaN begin with "
                    "torch_dtypes.explain_divergence"
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
        """Load a dynamic factor. A constant one, or none, stays."""
        if self.rule and state.get("is_dynamic", True):  # older files lack the key
            self.factor, self._good_steps = state["factor"], state["good_steps"]
