"""An optimizer's states in narrow formats: states that must not become 0, and a warning if a format
does not fit."""

from __future__ import annotations

import contextlib
import warnings

import torch

# States of torch.optim by which, or by whose roots, a step divides.
_DIVISORS = (
    "exp_avg_sq",
    "max_exp_avg_sq",
    "exp_inf",
    "sum",
    "square_avg",
    "row_var",
    "col_var",
    "variance",
)
# Other states of torch.optim. Other libraries use these names with the same meanings.
_OTHERS = (
    "exp_avg",
    "momentum_buffer",
    "grad_avg",
    "acc_delta",
    "prev",
    "step_size",
    "ax",
    "d",
    "prev_flat_grad",
    "old_dirs",
    "old_stps",
)
# Steps of a process after which states are checked. After the first, states hold one computed
# value; later they may have overflowed.
_CHECKED = (1, 10, 100, 1000)
_FAR = 1000  # Adam's second moments grow as much


def is_divisor(name: str, values: torch.Tensor) -> bool:
    """Return whether a step may divide by a state or its root.

    The name decides. A state of a name that torch.optim lacks is a divisor if no value is below 0.
    """
    return name in _DIVISORS or (may_divide(name) and bool((values >= 0).all()))


def may_divide(name: str) -> bool:
    """Return whether a step may divide by a state of that name."""
    return name not in _OTHERS


class Fit:
    """Warns once per optimizer if a format does not fit a state. Checks after four of its steps in
    this process."""

    def __init__(self) -> None:
        self._steps = 0
        self._looks = self._told = False
        # For each state: storage, and counts of numbers above 0, of far too large, of infinite.
        self._seen: dict[str, list] = {}

    @contextlib.contextmanager
    def step(self):
        """Run one step, which passes its states to ``look``."""
        self._steps += 1
        self._looks = not self._told and self._steps in _CHECKED
        self._seen.clear()
        yield
        if self._looks:
            self._tell()
        self._looks = False

    def look(self, name: str, storage, values: torch.Tensor, kept: torch.Tensor) -> None:
        """Compare a stored state with its computed values, after the steps in ``_CHECKED``."""
        if not self._looks or storage.is_exact or hasattr(values, "device_mesh"):
            return
        kept = kept.to(values.dtype).abs()
        computed = values.abs()
        seen = self._seen.setdefault(name, [storage, 0, 0, 0])
        seen[1] += int((computed > 0).sum())
        seen[2] += int(((kept > _FAR * computed) & (computed > 0) & kept.isfinite()).sum())
        seen[3] += int(kept.isinf().sum())

    def _tell(self) -> None:
        for name, (storage, count, too_large, infinite) in self._seen.items():
            if infinite:
                what = (
                    f"{infinite} of {count} numbers in {name} beyond the largest number of "
                    f"state={storage}, so that they became infinite"
                )
            elif 2 * too_large > count:
                what = (
                    f"{too_large} of {count} numbers in {name} below 1/{_FAR} of the smallest "
                    f"number of state={storage}, so that steps have another length than in float32"
                )
            else:
                continue
            self._told = True
            warnings.warn(
                f"expected states in the range of their format, but got {what}; use "
                "state='mxfp8_e4m3' or another scaled block format, state=torch.bfloat16, or a "
                f"dictionary without {name!r}",
                stacklevel=7,
            )
            return
