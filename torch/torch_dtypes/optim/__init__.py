"""Optimizers whose weights, gradients and states are kept in number formats."""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .loss_scale import DynamicScale
    from .low_precision import LowPrecision

__all__ = ["DynamicScale", "LowPrecision"]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".loss_scale": "DynamicScale",
        ".low_precision": "LowPrecision",
    },
)
