"""Which settings of a training go together: the checks that ``train`` and ``sweep`` share."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ...targets.lookup import target
from .recipes import AFTER, THROUGHOUT


class Misfit(ValueError):
    """A setting that another rules out. ``option`` is its name and ``value``, where it has several,
    the one that does not fit."""

    def __init__(self, message: str, option: str, value: str | None = None):
        super().__init__(message)
        self.option, self.value = option, value


def check_settings(
    recipes: Collection[str],
    /,
    *,
    optimizer: str = "adam",
    momentum: float = 0.0,
    eps: float | None = None,
    loss_scale: float | str | None = None,
    master: str = "float32",
    state: str | None = None,
    **_,
) -> None:
    """Sees that every setting has something to act on, in one of the recipes at least; others'
    settings are passed over.

    Raises:
        Misfit: one has nothing.
    """
    if momentum and optimizer != "sgd":
        raise Misfit("--momentum is for --optimizer sgd", "momentum")
    if eps is not None and optimizer != "adam":
        raise Misfit("--eps is for --optimizer adam", "eps")
    if loss_scale is not None and not set(recipes) - {"all", *AFTER}:
        raise Misfit(
            "--loss-scale is for --recipe master, mixed or qat: with all, gradients would be "
            "unscaled in the dtype, too; ptq and weights train in float32",
            "loss_scale",
        )
    for name, given in (("master", master != "float32"), ("state", state is not None)):
        if given and "master" not in recipes:
            raise Misfit(f"--{name} is for --recipe master", name)


def check_policy(policy: str | None, recipe: str, number: object = None) -> None:
    """Sees that an accumulation policy holds for the sums of a recipe, and of a number's where one
    is given.

    Raises:
        Misfit: those sums are PyTorch's own.
    """
    if policy in (None, "machine"):
        return
    if recipe == "weights":
        message = (
            "expected --accumulate machine for --recipe weights, whose products are float32's, "
            f"but got {policy}; leave one of them out"
        )
        raise Misfit(message, "accumulate", policy)
    if recipe in THROUGHOUT and isinstance(number, torch.dtype) and (made := target(number)).stock:
        message = (
            f"expected a dtype of this package for --accumulate {policy}, but got {number}, whose "
            "sums are PyTorch's own"
        )
        raise Misfit(f"{message}; say {made.format_name}", "dtype", str(number))
