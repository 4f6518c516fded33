"""The base of Pychop's choppers: objects that round the array with which they are called."""

from __future__ import annotations

from typing import Any

import torch

from ...formats import naming
from ...formats.arguments import integer, whole_number
from ...targets.chop import chop
from . import math_func
from .arrays import take

# Pychop's names of modes, in each of its modules.
_NAMES = {
    "nearest": 1,
    "nearest_even": 1,
    "plus_inf": 2,
    "plus_infinity": 2,
    "minus_inf": 3,
    "minus_infinity": 3,
    "toward_zero": 4,
    "towards_zero": 4,
    "stoc_prop": 5,
    "stochastic_prop": 5,
    "stoc_equal": 6,
    "stochastic_equal": 6,
    "cadna": 10,
}
# CADNA rounds up or down with probability 1/2 each.
_MODES = {**naming.PYCHOP_MODES, 10: "stochastic_equal"}
RANDOM = ("stochastic", "stochastic_equal")


def find_mode(rmode: object, error: type[Exception] = ValueError) -> str:
    """Return this package's mode for Pychop's number or name."""
    number = _NAMES.get(rmode) if isinstance(rmode, str) else whole_number(rmode)
    if number not in _MODES:
        raise error(
            f"expected rmode from 1 to 10, or one of {', '.join(map(repr, _NAMES))}, but got "
            f"{rmode!r}"
        )
    return _MODES[number]


class Chopper:
    """Rounds arrays to a target. ``quantize`` is the same as a call; each function of ``math_func``
    is a method."""

    _target: Any
    _mode: str
    _generator: torch.Generator | None = None
    _flip_prob = 0.0

    def __call__(self, X: Any) -> Any:
        """Round X. The gradient passes straight through."""
        return chop(take(X), self._target, self._mode, self._generator, self._flip_prob)

    def quantize(self, X: Any) -> Any:
        return self(X)

    def _seed(self, random_state: int | None) -> None:
        """Let random modes and flips draw from this object's own generator."""
        if random_state is not None:
            random_state = integer("random_state", random_state, 0, 2**64 - 1)
        if self._mode in RANDOM or self._flip_prob:
            self._generator = torch.Generator()
            if random_state is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(random_state)

    def _announce(self, verbose: int) -> None:
        if verbose:
            print(f"unit roundoff: {self.u:e}")


def _define_method(function: math_func.Function):
    def method(self, *args, **options):
        return function.apply(self, args, options)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


for _function in math_func.FUNCTIONS.values():
    setattr(Chopper, _function.__name__, _define_method(_function))
