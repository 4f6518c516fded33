"""An optimizer's eps that is 0 in the parameters' dtype, as Adam's 1e-8 is in ``torch.q52``: the
first gradient that is 0 would make NaN.

A step computes with the dtype's smallest positive number s instead; where eps is added to the root
of a mean of squared gradients (Adagrad, Adam, AdamW, NAdam, RAdam, RMSprop) with the root of s.
Squares of gradients below that root are 0 in the dtype, and a gradient divided by s would make a
step of up to 1/root(s) times the learning rate: finite, but the loss rises. A step may still be the
longer by up to 1/root(1 - beta2), 32 for Adam: a new square brings that share of itself to the
mean, which is 0 for gradients up to root(s / (1 - beta2)). An eps of that size would bound it, and
stop what learns: LeNet-5 on digits reaches 87 % in e5m7 so, and 98 % with root(s).

An eps that the format holds or rounds to a number above 0 in the rounding mode of the step, that of
stock parameters, and 0 itself are never touched. Of Adafactor's two it is ``eps[0]``, whose square
must not be 0. RAdam's is at least the reciprocal of the largest number, since it divides by eps
before it multiplies.
"""

from __future__ import annotations

import math
import warnings

import torch

from .. import _C
from ..formats.caches import clearable_cache
from ..policies.rounding import rounding_block

# These divide by the root of a mean of squares and add eps to the root. Squares below the smallest
# number are 0, of gradients up to its root.
_ADD_TO_ROOT = {"adagrad", "adam", "nadam", "radam", "rmsprop"}
_told = False  # that an eps was raised, in this process


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number, or 0 where nothing positive is rounded to 0."""
    f = _C.format_of(dtype)
    return 0.0 if f.keeps_minpos else f.smallest


@clearable_cache
def is_zero(eps: float, dtype: torch.dtype, mode: str) -> bool:
    """Whether the number may be 0 in the dtype, rounded by a mode."""
    rounding = _C.Rounding.__members__[mode]
    # What is nearly the smallest number may be 0.
    if rounding.draws or not rounding.rounds_up(negative=False, odd=False, half=True, rest=True):
        # Which moves the smallest number to 0, too.
        return eps < smallest(dtype) * (2 if mode == "up_down" else 1)
    with rounding_block(mode):
        return torch.tensor(eps, dtype=torch.float64, device="cpu").to(dtype).item() == 0


def _mode_of(dtype: torch.dtype) -> str:
    """The rounding mode of results of the dtype now."""
    found = _C.rounding_override()
    return (_C.format_of(dtype).rounding if found is None else found).name


def with_eps(dtype: torch.dtype, settings: dict, name: str) -> dict:
    """The settings of a step of the optimizer of that name, with an eps that is not 0 in the
    dtype."""
    global _told
    for key in ("eps", "eps1"):
        eps = settings.get(key)
        if not isinstance(eps, (int, float)) or eps <= 0:
            continue
        mode = _mode_of(dtype)
        least = smallest(dtype) * (4 if mode == "up_down" else 1)
        if key == "eps1":
            least, is_low = math.sqrt(least), eps < math.sqrt(least)
        else:
            is_low = least > 0 and is_zero(eps, dtype, mode)
            if name in _ADD_TO_ROOT:
                least = math.sqrt(least)
            if name == "radam" and least > 0:
                least = max(least, 1 / torch.finfo(dtype).max)
                is_low = is_low or eps < 1 / torch.finfo(dtype).max
        if is_low:
            settings = {**settings, key: least}
            if not _told:
                _told = True
                warnings.warn(
                    f"the optimizer's eps of {eps} is 0 in {dtype} and would let it divide 0 by "
                    f"0: its steps compute with {least:g}. Give an eps "
                    "that the dtype has, or wrap the optimizer in "
                    "torch_dtypes.optim.LowPrecision, whose steps compute in float32.",
                    UserWarning,
                    stacklevel=2,
                )
    return settings
