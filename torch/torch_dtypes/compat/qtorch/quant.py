"""QPyTorch's rounding: functions of a tensor, and quantizers with a number for each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from ...quantization.cast import Cast
from ...targets.chop import chop
from ...targets.gradients import straight_through
from .number import (
    BlockFloatingPoint,
    FixedPoint,
    FloatingPoint,
    Number,
    Posit,
    expect,
    find_block,
    find_fixed,
    find_float,
    find_multiples,
    find_posit,
)

__all__ = [
    "Quantizer",
    "block_quantize",
    "fixed_point_quantize",
    "float_quantize",
    "posit_quantize",
    "quantizer",
]


def _check(x: object, rounding: object) -> None:
    expect(isinstance(x, torch.Tensor), f"x as a torch tensor, but got {type(x).__name__}")
    _check_rounding(rounding)
    if not x.is_floating_point():
        raise RuntimeError(
            f"expected x as a tensor of floating-point numbers, but got {x.dtype}; convert it, "
            "x.float()"
        )


def _check_rounding(rounding: object) -> None:
    expect(
        rounding in ("stochastic", "nearest"), f"'stochastic' or 'nearest', but got {rounding!r}"
    )


def fixed_point_quantize(
    x: torch.Tensor,
    wl: int,
    fl: int,
    clamp: bool = True,
    symmetric: bool = False,
    rounding: str = "stochastic",
) -> torch.Tensor:
    """Round x to fixed point of ``wl`` bits, ``fl`` of them after the point. The result has no
    gradient, as in QPyTorch: ``quantizer`` has one.

    Raises:
        AssertionError: x is no tensor, or an unknown rounding.
        ValueError: ``wl`` and ``fl`` of no format.
        RuntimeError: x has integers.
    """
    _check(x, rounding)
    return chop(x.detach(), find_fixed(wl, fl, clamp, symmetric), FixedPoint.mode(rounding))


def block_quantize(
    x: torch.Tensor, wl: int, dim: int = -1, rounding: str = "stochastic"
) -> torch.Tensor:
    """Round x to block floating point of ``wl`` bits: one exponent for the tensor (dim=-1), or for
    each index of dimension ``dim``. The result has no gradient.

    Raises:
        AssertionError: x is no tensor, or an unknown rounding.
        IndexError: x has no dimension ``dim``.
        ValueError: ``wl`` is not 2 to 24.
        RuntimeError: x has integers.
    """
    _check(x, rounding)
    if not -1 <= dim < x.dim():
        raise IndexError(f"expected dim from -1 to {x.dim() - 1}, but got {dim}")
    return chop(x.detach(), find_block(wl, dim), BlockFloatingPoint.mode(rounding))


def float_quantize(
    x: torch.Tensor, exp: int, man: int, rounding: str = "stochastic"
) -> torch.Tensor:
    """Round x to floats of ``exp`` exponent and ``man`` fraction bits. ``"nearest"`` rounds ties
    away from zero, and numbers beyond the range become the largest. The result has no gradient.

    Raises:
        AssertionError: x is no tensor, or an unknown rounding.
        ValueError: ``exp`` is not 1 to 8, or ``man`` not 0 to 23.
        RuntimeError: x has integers.
    """
    _check(x, rounding)
    return chop(x.detach(), find_float(exp, man), FloatingPoint.mode(rounding))


def posit_quantize(
    x: torch.Tensor, nsize: int, es: int, scale: float = 1.0, rounding: str = "nearest"
) -> torch.Tensor:
    """Round x times ``scale`` to posits, and divide by ``scale`` (qtorch_plus). The result has no
    gradient.

    Raises:
        AssertionError: x is no tensor, or an unknown rounding.
        ValueError: a posit that this package lacks.
        RuntimeError: x has integers.
    """
    _check(x, rounding)
    posit = find_posit(nsize, es)
    if scale == 1:
        return chop(x.detach(), posit, Posit.mode(rounding))
    return chop(x.detach() * scale, posit, Posit.mode(rounding)) / scale


class _Rounding:
    """The function that ``quantizer`` returns."""

    def __init__(self, forward, backward, clamped, hooks) -> None:
        # ``clamped`` is the number and the mode by which clamped values are found.
        self._cast = Cast(forward, backward) if forward or backward else None
        self._clamped = clamped
        self._hooks = tuple(hooks)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = x if self._clamped is None else _clamp(x, *self._clamped)
        if self._cast is not None:
            y = self._cast(y)
        if self._hooks and y.requires_grad:
            y = y.view_as(y)  # the rounding of the gradient is a hook of y, and comes last
            for hook in self._hooks:
                y.register_hook(hook)
        return y


def _clamp(x: torch.Tensor, number: FixedPoint, rounding: str) -> torch.Tensor:
    """Round x to fixed point. The gradient is 0 where the rounded number was beyond the range."""
    values = find_multiples(number.fl).quantize(x.detach(), rounding=number.mode(rounding))
    end = 2.0 ** (number.wl - number.fl - 1)
    step = 2.0**-number.fl
    clamped = values.clamp(step - end if number.symmetric else -end, end - step)
    return straight_through(x, clamped, clamped == values)


def quantizer(
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
    clamping_grad_zero: bool = False,
    backward_hooks: Iterable[Callable] = (),
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that rounds a tensor to one number, and its gradient to another.

    Args:
        forward_number, backward_number: None rounds nothing.
        forward_rounding, backward_rounding: ``"stochastic"`` or ``"nearest"``.
        clamping_grad_zero: whether the gradient is 0 where a fixed-point number was clamped.
        backward_hooks: functions that the gradient passes, in this order, before it is rounded.

    Raises:
        AssertionError: an argument of another type, an unknown rounding, or clamping_grad_zero with
            a number that does not clamp.
        ValueError: clamping_grad_zero with a number that is no fixed point.
    """
    for number in (forward_number, backward_number):
        expect(number is None or isinstance(number, Number), f"a Number, but got {number!r}")
    _check_rounding(forward_rounding)
    _check_rounding(backward_rounding)
    forward = forward_number and forward_number.place(forward_rounding)
    backward = backward_number and backward_number.place(backward_rounding)
    clamped = None
    if clamping_grad_zero and forward_number is not None:
        if not isinstance(forward_number, FixedPoint):
            raise ValueError(
                f"expected a FixedPoint with clamping_grad_zero, but got {forward_number!r}"
            )
        expect(forward_number.clamp, "clamp=True with clamping_grad_zero, but got clamp=False")
        forward, clamped = None, (forward_number, forward_rounding)
    return _Rounding(forward, backward, clamped, backward_hooks)


class Quantizer(nn.Module):
    """``quantizer`` as a module; ``quantize`` is its function."""

    def __init__(
        self,
        forward_number: Number | None = None,
        backward_number: Number | None = None,
        forward_rounding: str = "stochastic",
        backward_rounding: str = "stochastic",
    ) -> None:
        super().__init__()
        self.quantize = quantizer(
            forward_number, backward_number, forward_rounding, backward_rounding
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.quantize(x)
