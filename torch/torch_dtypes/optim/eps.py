"""An optimizer's eps that is 0 in the parameters' dtype."""

from __future__ import annotations

import math
import warnings

import torch

from .. import _C
from .._arguments import said
from .._caches import cached
from ..rounding import rounding_block

# These divide by the root of a mean of squares and add eps to the root. Squares below the smallest number are 0, of gradients up to its root.
_ADD_TO_ROOT = {"adagrad", "adam", "nadam", "radam", "rmsprop"}
# Modes in which a number above 0 is never rounded to 0, or only where it is nearer: what the format itself says of it. The others may always.
_NEAREST = ("nearest_even", "nearest_zero", "nearest_away", "nearest_up", "up", "to_odd")

_raises_eps = True
_told = False  # that an eps was raised, in this process


def set_optimizer_eps(policy: str) -> None:
    """What becomes of an optimizer's ``eps`` that is 0 in the parameters' dtype, as Adam's 1e-8 is in ``torch.q52``.

    Such an ``eps`` does not keep a step from dividing 0 by 0: the first gradient that is 0 makes its parameter NaN.

    Args:
        policy: ``"raise"`` (the default): a step computes with a larger one instead, and says so once a process by a ``UserWarning``.
            Parameter groups keep the number that was given. ``"keep"``: with what was given.

    It is raised to the dtype's smallest positive number, s; where it is added to the root of a mean of squared gradients (Adagrad, Adam, AdamW,
    NAdam, RAdam, RMSprop) to the root of s. For squares of gradients below that root are 0 in the dtype, and a gradient divided by s
    would make a step of up to 1/root(s) times the learning rate: finite, but the loss rises. A step may still be the longer, by up to
    1/root(1 - beta2), 32 for Adam: a new square brings that share of itself to the mean, which is 0 for gradients up to root(s / (1 - beta2)). An
    eps of that size would bound it, and stop what learns: LeNet-5 on digits reaches 87 % in e5m7 so, and 98 % with root(s).

    An ``eps`` that the format holds or rounds to a number above 0, in the rounding mode of the step (those that may round down make 0 of every
    number below s), and that of stock parameters, is never touched; nor is 0 itself. Posits
    round nothing to 0, so theirs stays (but with ``underflow="zero"``). Of Adafactor's two it is ``eps[0]``, whose square must not be 0; RAdam's
    is at least the reciprocal of the largest number, since it divides by ``eps`` before it multiplies. Formats of 8 bits train with such an ``eps``
    by other means only: ``torch_dtypes.optim.LowPrecision`` computes the step in float32.

    Raises:
        ValueError: another policy.

    Example::

        >>> torch_dtypes.set_optimizer_eps("keep")
        >>> torch_dtypes.set_optimizer_eps("raise")
    """
    global _raises_eps
    if not isinstance(policy, str) or policy not in ("raise", "keep"):
        raise ValueError(f"expected policy to be 'raise' or 'keep', but got {said(policy)}")
    _raises_eps = policy == "raise"


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number, or 0 where nothing positive is rounded to 0."""
    f = _C.format_of(dtype)
    return 0.0 if f.keeps_minpos else f.smallest


@cached
def is_zero(eps: float, dtype: torch.dtype, mode: str) -> bool:
    """Whether the number may be 0 in the dtype, rounded by a mode."""
    if mode not in _NEAREST:
        return eps < smallest(dtype) * (2 if mode == "up_down" else 1)  # which moves the smallest number to 0, too
    with rounding_block(mode):
        return torch.tensor(eps, dtype=torch.float64, device="cpu").to(dtype).item() == 0


def _mode_of(dtype: torch.dtype) -> str:
    """The rounding mode of results of the dtype now."""
    found = _C.rounding_override()
    return (_C.format_of(dtype).rounding if found is None else found).name


def with_eps(dtype: torch.dtype, settings: dict, name: str) -> dict:
    """The settings of a step of the optimizer of that name, with an eps that is not 0 in the dtype, where the policy is to raise it."""
    global _told
    if not _raises_eps:
        return settings
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
                    f"the optimizer's eps of {eps} is 0 in {dtype} and would let it divide 0 by 0: its steps compute with {least:g}. Give an eps "
                    "that the dtype has, wrap the optimizer in torch_dtypes.optim.LowPrecision, whose steps compute in float32, or "
                    "torch_dtypes.set_optimizer_eps('keep').",
                    UserWarning, stacklevel=2,
                )  # fmt: skip
    return settings
