"""Scales by hand: an object that sees tensors and says which scale and zero point suit them.

Sources: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference" (arXiv 1712.05877); Micikevicius et al., "FP8 formats for deep
learning" (arXiv 2209.05433), and NVIDIA's Transformer Engine for scales that are delayed.
"""

from __future__ import annotations

import copy

import torch

from .. import _C
from ..formats.arguments import dimension
from ..targets.base import check_dense
from ..targets.lookup import Target, saturate_target, target
from .scale_rules import ScaleRule, scale_rule
from .scalers import Scaler, bounds, joined, placed

__all__ = ["Calibration", "calibration"]


class Calibration:
    """Sees tensors, and gives the scale (and zero point) for rounding others like them. Made by
    ``calibration``; can be copied and pickled."""

    def __init__(self, made: Target, rule: ScaleRule) -> None:
        self.target, self.rule = made, rule
        self._rounds_to = saturate_target(made)
        self._scaler = Scaler(rule, self._rounds_to, "activation", None)
        self._found: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def observe(self, x: torch.Tensor) -> torch.Tensor:
        """Takes note of a tensor, and gives it back. One with an infinity or NaN is passed over, as
        is an empty one.

        Raises:
            TypeError: not a tensor of a stock floating dtype.
        """
        if (
            not isinstance(x, torch.Tensor)
            or not x.is_floating_point()
            or _C.format_of(x.dtype) is not None
        ):
            what = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise TypeError(
                f"expected a tensor of a stock floating dtype to calibrate by, but got {what}"
            )
        check_dense(x, "calibrate by")
        values = x.detach()
        if values.numel() and bool(torch.isfinite(values.sum()) or torch.isfinite(values).all()):
            self._found = None
            if self.rule.when == "delayed":
                before = (
                    placed(pair, values.device)
                    for pair in self._scaler.history[: self.rule.history - 1]
                )
                self._scaler.history = [bounds(values, self._scaler.axis), *before]
            else:
                self._scaler.see(values)
        return x

    @property
    def scale(self) -> torch.Tensor:
        """A scale that broadcasts to the tensors.

        Raises:
            RuntimeError: no tensor was seen.
        """
        return self._both()[0]

    @property
    def zero_point(self) -> torch.Tensor | None:
        """The zero point of affine integers, else None."""
        return self._both()[1]

    def quantize(self, x: torch.Tensor, **options) -> torch.Tensor:
        """``target.quantize`` with this scale and zero point; numbers beyond the largest become it,
        in floats that overflow, too. Where x is on another device than what was seen, they are
        copied there."""
        scale, zero_point = self._both()
        if isinstance(x, torch.Tensor):
            scale, zero_point = placed((scale, zero_point), x.device)
        return self._rounds_to.quantize(x, scale=scale, zero_point=zero_point, **options)

    def _both(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._found is None:
            settled = copy.copy(self._scaler)
            if self.rule.when == "delayed" and settled.history:
                settled.history = [joined(settled.history)]
            if not settled.settle():  # which ends the copy's calibration
                raise RuntimeError(
                    "expected a calibration that has seen a tensor of finite numbers, but got "
                    "one that has not; call observe(x) first"
                )
            self._found = settled.scale, settled.zero_point
        return self._found

    def __repr__(self) -> str:
        return f"<Calibration of {self.target.name}: {self.rule}>"


def calibration(
    value: Target | torch.dtype | _C.Format | str,
    *,
    scale: str = "free",
    axis: int | None = None,
    by: str = "absmax",
    history: int | None = None,
    margin: int = 0,
) -> Calibration:
    """An object that sees tensors and says which scale suits them.

    Of the largest magnitude a that was seen, ``scale`` is 2^margin * a / target.full_scale (the
    largest number; of posits the end of their finest range), in float64 and rounded to float32
    once; 1 where a is 0. Affine integers take the lowest and the highest number, 0 among them: the
    scale is (high - low) / (largest - lowest integer), the zero point the integer nearest to
    lowest - low / scale. Tensors with infinities or NaN are passed over.

    Args:
        value: what ``target`` takes.
        scale: ``"free"``, or ``"power_of_two"``: the next one above.
        axis: one scale for each index of this dimension, -64 to 63 (per channel); default: one for
            the tensor (of integers with an axis: theirs).
        by: ``"absmax"``; ``"percentile(99.9)"``: the magnitude below which that share of what was
            seen lies; ``"mse"``: the best of 64 shares of the largest one (of 7 powers of two), by
            the squared error of what was seen. For the last two a sample of at most a million
            numbers is kept.
        history: the last so many tensors count, as float8 training's delayed scales have it (1: the
            most recent one). Default: all.
        margin: the scale is 2^margin times as large; -64 to 64.

    Raises:
        ValueError: an unknown word, or some that contradict.
        TypeError: a value of another type.

    Example::

        >>> seen = torch_dtypes.calibration("int8")
        >>> _ = seen.observe(torch.tensor([0.5, -2.54]))
        >>> seen.scale, seen.quantize(torch.tensor([1.0]))
        (tensor(0.0200), tensor([1.]))
    """
    made = target(value)
    axis = None if axis is None else dimension("axis", axis)
    options = {
        "scale": scale,
        "per": axis,
        "by": by,
        "when": "calibration" if history is None else "delayed",
        "history": history,
    }
    options = {name: option for name, option in options.items() if option is not None}
    return Calibration(made, scale_rule(made, "activation", {**options, "margin": margin}))
