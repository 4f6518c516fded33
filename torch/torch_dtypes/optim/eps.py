"""A larger eps for optimizers whose own is 0 in the parameters' dtype, as Adam's 1e-8 is in
``torch.q52``. Else the first gradient that is 0 would make NaN.

Let s be the dtype's smallest positive number.

1. A step computes with eps = s.
2. Adagrad, Adam, AdamW, NAdam, RAdam and RMSprop add eps to the root of a mean of squared
   gradients. Their steps compute with eps = root(s). Squares of gradients below root(s) are 0 in
   the dtype. With eps = s, such a gradient would make a step of up to 1/root(s) times the learning
   rate: finite, but the loss rises.
3. With root(s) a step may still be too long, by up to 1/root(1 - beta2), 32 for Adam. A new square
   adds its share 1 - beta2 to the mean, and that is 0 for gradients up to root(s / (1 - beta2)).
   An eps of that size would bound the step, but stop learning. LeNet-5 on digits in e5m7 then
   reaches 87 %, and 98 % with root(s).

The eps of stock parameters, 0, and an eps that the step's rounding mode rounds to a number above 0
stay as they are. Adafactor has two; ``eps[0]`` counts, whose square must not be 0. RAdam divides by
eps before it multiplies, so its eps is at least the reciprocal of the largest number.
"""

from __future__ import annotations

import math
import warnings

import torch

from .. import _C
from ..formats.caches import clearable_cache
from ..policies.rounding import rounding_block

# Optimizers that divide by the root of a mean of squares, and add eps to the root.
_ADD_TO_ROOT = {"adagrad", "adam", "nadam", "radam", "rmsprop"}
_told = False  # True once this process has warned that an eps was raised


def smallest(dtype: torch.dtype) -> float:
    """Return the smallest positive number, or 0 if the format rounds nothing positive to 0."""
    f = _C.format_of(dtype)
    return 0.0 if f.keeps_minpos else f.smallest


@clearable_cache
def is_zero(eps: float, dtype: torch.dtype, mode: str) -> bool:
    """Return whether the number may be rounded to 0 in the dtype by a mode."""
    rounding = _C.Rounding.__members__[mode]
    # This mode may round any number below the smallest to 0.
    if rounding.draws or not rounding.rounds_up(negative=False, odd=False, half=True, rest=True):
        # up_down may move the smallest number itself to 0.
        return eps < smallest(dtype) * (2 if mode == "up_down" else 1)
    with rounding_block(mode):
        return torch.tensor(eps, dtype=torch.float64, device="cpu").to(dtype).item() == 0


def _mode_of(dtype: torch.dtype) -> str:
    """Return the mode in which results of the dtype are rounded now."""
    override = _C.rounding_override()
    return (_C.format_of(dtype).rounding if override is None else override).name


def with_eps(dtype: torch.dtype, settings: dict, name: str) -> dict:
    """Return the settings of an optimizer's step with an eps that is not 0 in the dtype."""
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
                    f"the optimizer's eps of {eps} is 0 in {dtype}, so it might divide 0 by 0: its "
                    f"steps compute with {least:g}. Give an eps that the dtype holds, or wrap the "
                    "optimizer in torch_dtypes.optim.LowPrecision, whose steps compute in float32.",
                    UserWarning,
                    stacklevel=2,
                )
    return settings
