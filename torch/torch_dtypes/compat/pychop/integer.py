"""Pychop's integers with a scale and a zero point, by this package's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...formats.arguments import outline
from ...targets.integers import integer_format, scale_of
from .arrays import library, take
from .chopper import Chopper

__all__ = ["Chopi"]


class Chopi(Chopper):
    """Rounds arrays to integers of ``bits`` bits: ``quantize`` gives integers, ``dequantize``
    (integers - zero_point) * scale in float32, and a call both, in the array's dtype.

    Scale and zero point cover the numbers from the lowest to the highest, and 0. ``quantize`` of a
    tensor computes them anew; that of an array does where ``calibrate`` was not called before.
    Numbers beyond become the outermost integers, NaN the zero point.

    Args:
        bits: 2 to 16. Integers go from -2^(bits-1) to 2^(bits-1) - 1.
        symmetric: whether the zero point is 0.
        per_channel: whether each index of dimension ``axis`` has a scale of its own.

    Raises:
        TypeError: ``bits`` is no integer, or complex numbers.
        ValueError: ``bits`` out of range, no numbers, or ``dequantize`` before a scale is known.
        IndexError: an array has no dimension ``axis``.
    """

    def __init__(
        self, bits: int = 8, symmetric: bool = False, per_channel: bool = False, axis: int = 0
    ) -> None:
        self.bits, self.symmetric, self.per_channel, self.axis = bits, symmetric, per_channel, axis
        self._integers = integer_format(bits, symmetric=bool(symmetric))
        self.qmin, self.qmax = self._integers.lowest, self._integers.largest
        self.scale = self.zero_point = None

    def calibrate(self, x: Any) -> None:
        """Compute scale and zero point for numbers such as x's."""
        self._calibrate(_to_torch(take(x)))

    def _calibrate(self, x: torch.Tensor) -> None:
        if not x.numel() or x.is_complex():
            raise (TypeError if x.is_complex() else ValueError)(
                f"expected real numbers to find a scale for, but got {outline(x)}"
            )
        dims = None
        if self.per_channel and x.dim() > 1:
            if not -x.dim() <= self.axis < x.dim():
                raise IndexError(f"expected axis within {x.dim()} dimensions, but got {self.axis}")
            dims = [d for d in range(x.dim()) if d != self.axis % x.dim()]
        low, high = (x.amin(dims, True), x.amax(dims, True)) if dims else torch.aminmax(x)
        self.scale, self.zero_point = scale_of(self._integers, low, high, power_of_two=False)

    def _numbers(self) -> dict:
        """Return scale and zero point as arguments; one number is faster than a tensor."""
        scale, point = self.scale, self.zero_point
        if scale.numel() == 1 and scale.isfinite():
            scale, point = scale.item(), None if point is None else point.item()
        return {"scale": scale, "zero_point": point}

    def quantize(self, X: Any) -> Any:
        x = take(X)
        values = _to_torch(x)
        if self.scale is None or isinstance(x, torch.Tensor):
            self._calibrate(values)
        codes = self._integers.encode(values, **self._numbers())
        return codes if isinstance(x, torch.Tensor) else library(x).asarray(codes.numpy())

    def dequantize(self, q: Any) -> Any:
        if self.scale is None:
            raise ValueError("expected quantize or calibrate before dequantize, but got neither")
        codes = q if isinstance(q, torch.Tensor) else torch.from_numpy(np.array(q))
        x = self._integers.decode(codes, **self._numbers())
        return x if isinstance(q, torch.Tensor) else library(q).asarray(x.numpy())

    def __call__(self, X: Any) -> Any:
        """Round X to integers and back. The gradient passes straight through."""
        x = take(X)
        values = _to_torch(x)
        if self.scale is None or isinstance(x, torch.Tensor):
            self._calibrate(values.detach())
        rounded = self._integers.quantize(values, **self._numbers())
        return rounded if isinstance(x, torch.Tensor) else library(x).asarray(rounded.numpy())


def _to_torch(x: Any) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    values = np.asarray(x)
    exact = values.astype(np.float64) if values.dtype.kind in "iu" else values
    return torch.from_numpy(np.require(exact, requirements=["C", "W"]))
