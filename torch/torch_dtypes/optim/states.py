"""An optimizer's states in narrow formats: which of them must not become 0, and a warning where a
format does not fit them."""

from __future__ import annotations

import contextlib
import warnings

import torch

# The states of torch.optim by which a step divides, or by whose roots.
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
# Its other states. Other libraries give these names to the same things.
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
# Steps of a process after which states are looked at: after the first they are what was computed,
# and later ones may have overflowed.
_CHECKED = (1, 10, 100, 1000)
_FAR = 1000  # Adam's second moments grow by as much


def is_divisor(name: str, values: torch.Tensor) -> bool:
    """Whether a step may divide by a state, or by its root: by its name, and for a name that
    torch.optim has not, if no value is below 0."""
    return name in _DIVISORS or (may_divide(name) and bool((values >= 0).all()))


def may_divide(name: str) -> bool:
    """Whether a state of that name is none of torch.optim's that no step divides by."""
    return name not in _OTHERS


class Fit:
    """Says once, of one optimizer, that a format does not fit a state: looked for after four of its
    steps in this process."""

    def __init__(self) -> None:
        self._steps = 0
        self._looks = self._told = False
        # By state: its storage, numbers, those kept too large, infinite ones.
        self._seen: dict[str, list] = {}

    @contextlib.contextmanager
    def step(self):
        """One step, whose states come to ``look``."""
        self._steps += 1
        self._looks = not self._told and self._steps in _CHECKED
        self._seen.clear()
        yield
        if self._looks:
            self._tell()
        self._looks = False

    def look(self, name: str, storage, values: torch.Tensor, kept: torch.Tensor) -> None:
        """Compares a state with what was computed, after the steps for which that is done."""
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
                    f"{infinite} of {count} numbers in {name} are infinite, having gone beyond "
                    f"the largest number of state={storage}"
                )
            elif 2 * too_large > count:
                what = (
                    f"{too_large} of {count} numbers in {name} are less than 1/{_FAR} of the "
                    f"smallest number of state={storage}, as which they are "
                    "kept, so that steps have another length than in float32"
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
