"""Optimizers whose weights, gradients and states are kept in number formats."""

from .loss_scale import DynamicScale
from .low_precision import LowPrecision

__all__ = ["DynamicScale", "LowPrecision"]
