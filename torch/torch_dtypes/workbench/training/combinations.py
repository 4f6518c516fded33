"""Check which settings of a training go together, for ``train`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ...targets.lookup import target
from .recipes import AFTER, THROUGHOUT


class Misfit(ValueError):
    """A setting that another one excludes. ``option`` is its name, and ``value`` the one that does
    not fit, if it has several."""

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
    """Check that every setting affects at least one of the recipes; the other recipes ignore it.

    Raises:
        Misfit: a setting affects none.
    """
    if momentum and optimizer != "sgd":
        raise Misfit("--momentum is for --optimizer sgd", "momentum")
    if eps is not None and optimizer not in ("adam", "adamw"):
        raise Misfit("--eps is for --optimizer adam or adamw", "eps")
    if loss_scale is not None and not set(recipes) - {"all", *AFTER}:
        raise Misfit(
            "--loss-scale is for --recipe master, mixed or qat: with all, gradients would be "
            "unscaled in the dtype, too; ptq and weights train in float32",
            "loss_scale",
        )
    for name, is_set in (("master", master != "float32"), ("state", state is not None)):
        if is_set and "master" not in recipes:
            raise Misfit(f"--{name} is for --recipe master", name)


def check_policy(policy: str | None, recipe: str, number: object = None) -> None:
    """Check that an accumulation policy affects the sums of a recipe, and of a number if one is
    given.

    Raises:
        Misfit: PyTorch computes those sums itself.
    """
    if policy in (None, "machine"):
        return
    if recipe == "weights":
        message = (
            "expected --accumulate machine for --recipe weights, whose products are float32's, "
            f"but got {policy}; leave one of them out"
        )
        raise Misfit(message, "accumulate", policy)
    if (
        recipe in THROUGHOUT
        and isinstance(number, torch.dtype)
        and (stock_target := target(number)).stock
    ):
        message = (
            f"expected a dtype of this package for --accumulate {policy}, but got {number}, whose "
            "sums are PyTorch's own"
        )
        raise Misfit(f"{message}; use {stock_target.format_name}", "dtype", str(number))
