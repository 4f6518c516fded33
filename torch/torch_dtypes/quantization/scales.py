"""Scales by hand: an object that observes tensors and computes their scale and zero point.

Sources: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference" (arXiv 1712.05877). Delayed scales: Micikevicius et al., "FP8
formats for deep learning" (arXiv 2209.05433), and NVIDIA's Transformer Engine.
"""

from __future__ import annotations

import copy

import torch

from .. import _C
from ..formats.arguments import dimension
from ..targets.base import check_dense
from ..targets.lookup import Target, saturate_target, target
from .scale_rules import ScaleRule, scale_rule
from .scalers import Scaler, bounds, join_bounds, move_to

__all__ = ["Calibration", "calibration"]


class Calibration:
    """Observes tensors, and computes the scale (and zero point) for rounding others like them. Made
    by ``calibration``; can be copied and pickled."""

    def __init__(self, target: Target, rule: ScaleRule) -> None:
        self.target, self.rule = target, rule
        self._rounds_to = saturate_target(target)
        self._scaler = Scaler(rule, self._rounds_to, "activation", None)
        self._settled: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def observe(self, x: torch.Tensor) -> torch.Tensor:
        """Observe a tensor, and return it. An empty tensor, or one with an infinity or NaN, is
        ignored.

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
            self._settled = None
            if self.rule.when == "delayed":
                before = (
                    move_to(pair, values.device)
                    for pair in self._scaler.history[: self.rule.history - 1]
                )
                self._scaler.history = [bounds(values, self._scaler.axis), *before]
            else:
                self._scaler.see(values)
        return x

    @property
    def scale(self) -> torch.Tensor:
        """The scale, in a shape that broadcasts to the tensors.

        Raises:
            RuntimeError: no tensor was observed.
        """
        return self._both()[0]

    @property
    def zero_point(self) -> torch.Tensor | None:
        """The zero point of affine integers, else None."""
        return self._both()[1]

    def quantize(self, x: torch.Tensor, **options) -> torch.Tensor:
        """Call ``target.quantize`` with this scale and zero point, which are copied to x's device.

        Numbers beyond the largest become the largest, also in floats that would overflow.
        """
        scale, zero_point = self._both()
        if isinstance(x, torch.Tensor):
            scale, zero_point = move_to((scale, zero_point), x.device)
        return self._rounds_to.quantize(x, scale=scale, zero_point=zero_point, **options)

    def _both(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._settled is None:
            settled = copy.copy(self._scaler)
            if self.rule.when == "delayed" and settled.history:
                settled.history = [join_bounds(settled.history)]
            if not settled.settle():  # on the copy, so that this calibration can go on
                raise RuntimeError(
                    "expected a calibration that has seen a tensor of finite numbers, but got "
                    "one that has not; call observe(x) first"
                )
            self._settled = settled.scale, settled.zero_point
        return self._settled

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
    """Return an object that observes tensors and computes a scale for them.

    With the largest observed magnitude a, ``scale`` is 2^margin * a / target.full_scale, or 1 if a
    is 0. ``full_scale`` is the largest number, or the end of a posit's finest range. The scale is
    computed in float64 and rounded to float32 once.

    Affine integers take the lowest and the highest number, of which 0 is always one. Their scale is
    (high - low) / (largest - lowest integer). Their zero point is the integer nearest to
    lowest - low / scale. Tensors with infinities or NaN are ignored.

    Args:
        value: what ``target`` takes.
        scale: ``"free"``, or ``"power_of_two"``: rounded up to a power of two.
        axis: one scale for each index of this dimension, -64 to 63 (per channel). Default: the
            axis of integers that have one, else one scale for the tensor.
        by: ``"absmax"``. ``"percentile(99.9)"``: the magnitude below which that share of the
            observed numbers lies. ``"mse"``: the one of 64 shares of the largest magnitude (or of
            7 powers of two) with the least squared error. The last two keep a sample of at most a
            million numbers.
        history: only so many of the newest tensors count, as in float8 training with delayed
            scales. Default: all.
        margin: the scale is 2^margin times as large; -64 to 64.

    Raises:
        ValueError: an unknown word, or words that contradict each other.
        TypeError: a value of another type.

    Example::

        >>> seen = torch_dtypes.calibration("int8")
        >>> _ = seen.observe(torch.tensor([0.5, -2.54]))
        >>> seen.scale, seen.quantize(torch.tensor([1.0]))
        (tensor(0.0200), tensor([1.]))
    """
    rounds_to = target(value)
    axis = None if axis is None else dimension("axis", axis)
    options = {
        "scale": scale,
        "per": axis,
        "by": by,
        "when": "calibration" if history is None else "delayed",
        "history": history,
    }
    options = {name: option for name, option in options.items() if option is not None}
    return Calibration(
        rounds_to, scale_rule(rounds_to, "activation", {**options, "margin": margin})
    )
