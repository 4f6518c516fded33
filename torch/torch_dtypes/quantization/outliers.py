"""Channels of an activation that keep another format: outliers.

A few features of a transformer's activations are many times as large as the rest (Dettmers et al.,
"LLM.int8()", arXiv 2208.07339). In a linear layer these channels of the input, and the columns of
the weight that they multiply, round to a format of their own. To the other numbers they count as 0,
so that no scale depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..formats.arguments import integer
from ..targets.lookup import Target, target


@dataclass(frozen=True)
class Outliers:
    """The channels that keep a format, and that format.

    ``which`` has their indices; or it is a share: of each call's channels, those whose largest
    magnitude is greatest, the lower index first where equal.
    """

    which: tuple[int, ...] | float
    kept: Target

    def __str__(self) -> str:
        share = isinstance(self.which, float)
        count = f"{100 * self.which:.4g}%" if share else f"{len(self.which)}"
        return f"{count} outliers in {self.kept.name}"

    def find(self, x: torch.Tensor) -> torch.Tensor:
        """Return a mask of x's last dimension that is True at outliers."""
        count = x.shape[-1]
        mask = torch.zeros(count, dtype=torch.bool, device=x.device)
        if isinstance(self.which, tuple):
            return mask.index_fill(0, torch.tensor(self.which, device=x.device), True)
        if x.numel() == 0:
            return mask
        largest = x.detach().abs().reshape(-1, count).amax(0)
        order = torch.argsort(largest, descending=True, stable=True)
        return mask.index_fill(0, order[: math.ceil(self.which * count)], True)

    def check(self, features: int, where: str) -> None:
        """Raise ValueError for channels that a layer of so many input features lacks."""
        if isinstance(self.which, tuple) and self.which[-1] >= features:
            raise ValueError(
                f"expected outliers from 0 to {features - 1}, the input features of {where}, but "
                f"got {self.which[-1]}"
            )


def read_outliers(options: dict, name: str) -> Outliers | None:
    """Take ``outliers`` and ``kept`` out of a place's options.

    Raises:
        ValueError, TypeError: another place than ``activation``, no channels, or a format that
            needs a scale.
    """
    which, kept = options.pop("outliers", None), options.pop("kept", None)
    if which is None:
        if kept is not None:
            raise ValueError(f"expected kept= with outliers= only, but got {kept!r}; give outliers")
        return None
    if name != "activation":
        raise ValueError(
            f"expected outliers= of activation, whose weight columns follow, but got it of {name}"
        )
    kept = target("bfloat16" if kept is None else kept)
    if kept.needs_scale or not hasattr(kept, "format_name"):
        raise ValueError(
            f"expected kept= as a format of single numbers without a scale, but got {kept.name}"
        )
    if isinstance(which, float) and 0 < which < 1:
        return Outliers(which, kept)
    if not isinstance(which, Sequence) or isinstance(which, str) or not which:
        raise ValueError(
            "expected outliers as a share between 0 and 1, or as a list of channels, but got "
            f"{which!r}"
        )
    channels = {integer("a channel of outliers", c, 0, 2**31 - 1) for c in which}
    return Outliers(tuple(sorted(channels)), kept)


def read_recorded(fields: list | None) -> Outliers | None:
    """Restore outliers from what a graph recorded."""
    if fields is None:
        return None
    which, kept = fields
    return Outliers(which if isinstance(which, float) else tuple(which), target(kept))
