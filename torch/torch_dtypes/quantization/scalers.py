"""The state of a scale: a number, what calibration found, or what recent tensors were."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from ..policies.recomputing import once
from ..targets.lookup import Target
from .scale_rules import BY, ScaleRule, channel_axis, is_affine

Scale = tuple[torch.Tensor | float, torch.Tensor | None]  # and the zero point of affine integers
# Numbers that calibration keeps of a place, where more than the largest is asked for.
_SAMPLES = 1 << 20


class Scaler:
    """The scale of one place of one layer: asked for with each tensor that is rounded there."""

    def __init__(self, rule: ScaleRule, target: Target, role: str, module: nn.Module) -> None:
        self.rule, self.target = rule, target
        if rule.per == "channel":
            self.axis = channel_axis(role, module)
        else:
            self.axis = None if rule.per == "tensor" else rule.per
        self.scale: torch.Tensor | None = None
        self.zero_point: torch.Tensor | None = None
        # Lows and highs, the newest first.
        self.history: list[tuple[torch.Tensor, torch.Tensor]] = []
        # Under DistributedDataParallel: how many of them, the newest, other ranks do not know.
        self.own: int | None = None
        self.samples: list[torch.Tensor] = []
        self.dims = 0  # of what is rounded

    @property
    def is_affine(self) -> bool:
        return is_affine(self.target)

    @property
    def needs_calibration(self) -> bool:
        return (
            self.rule.when == "calibration"
            and self.scale is None
            and isinstance(self.rule.kind, str)
        )

    def __call__(self, tensors: Sequence[torch.Tensor], training: bool) -> Scale:
        """The scale of a call's tensors, which share it: a layer's inputs, or one tensor."""
        if not isinstance(self.rule.kind, str):
            return self.rule.kind, None
        for x in tensors:
            self._check_dimension(x)
        if self.rule.when == "calibration":
            if self.scale is None:
                raise RuntimeError(
                    "expected a scale that calibration found, but got none; call quantize_ with "
                    "calibrate="
                )
            return self._scale_on(tensors[0].device)
        tensors = [x.detach() for x in tensors]
        if self.rule.when == "call":
            return self._found(tensors)
        if not training and self.history:
            history = self._history_on(tensors[0].device)
            # What all ranks have, where there are several.
            return self._of_bounds(joined(history[self.own or 0 :] or history))
        return once(self, lambda: self._delayed(tensors, training))

    # A module's to() leaves the state of its scales where it was, and a state dict's lies where
    # that was saved: it comes to the tensors.

    def _scale_on(self, device: torch.device) -> Scale:
        scale, zero_point = placed((self.scale, self.zero_point), device)
        if scale is not self.scale:
            self.scale, self.zero_point = scale, zero_point
        return scale, zero_point

    def _history_on(self, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
        found = [placed(pair, device) for pair in self.history]
        if any(pair is not before for pair, before in zip(found, self.history, strict=True)):
            self.history = found
        return found

    def of(self, found: Scale, x: torch.Tensor) -> Scale:
        """A scale in the shape that broadcasts to one of the tensors that share it, which may be of
        several dimensions."""
        scale, zero_point = found
        if self.axis is None or not isinstance(scale, torch.Tensor) or scale.dim() == x.dim():
            return found
        shape = [1] * x.dim()
        shape[self.axis] = -1
        return scale.reshape(shape), None if zero_point is None else zero_point.reshape(shape)

    def _bounds(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of all numbers that there are; 0 where there are none."""
        if len(tensors) == 1:
            return bounds(tensors[0], self.axis)
        found = [bounds(x, self.axis) for x in tensors if x.numel()]
        _check_same([low.numel() for low, _ in found], self.axis)
        return joined(found) if found else bounds(tensors[0], self.axis)

    def _delayed(self, tensors: Sequence[torch.Tensor], training: bool) -> Scale:
        """The scale of the calls before; this one is among those of the next."""
        lows_and_highs, is_empty = self._bounds(tensors), not any(x.numel() for x in tensors)
        if not is_empty:
            self._check_count(lows_and_highs[0].numel())
        history = self._history_on(lows_and_highs[0].device)
        result = self._of_bounds(joined(history or [lows_and_highs]))
        # An infinity or NaN (a step that loss scaling will skip) would keep the scale out of use
        # for as long as it is remembered.
        if training and not is_empty and all(bool(t.isfinite().all()) for t in lows_and_highs):
            self.history = [lows_and_highs, *history[: self.rule.history - 1]]
            if self.own is not None:
                self.own = min(self.own + 1, self.rule.history)
        return result

    def see(self, x: torch.Tensor) -> None:
        """Takes a tensor of calibration into account."""
        self._check_dimension(x)
        if self.rule.by == "absmax":
            found = bounds(x, self.axis)
            self._check_count(found[0].numel())
            self.history = [joined([*self._history_on(x.device), found])]
            return
        x, self.dims = x.detach(), x.dim()
        rows = self._rows(x)
        self._check_count(rows.shape[0])
        limit = max(1, _SAMPLES // 16 // rows.shape[0])
        self.samples = [
            *placed(self.samples, x.device),
            rows[:, :: max(1, -(-rows.shape[1] // limit))].float().clone(),
        ]
        if len(self.samples) > 64:
            self.samples = [torch.cat(self.samples, 1)[:, ::2]]

    def _check_dimension(self, x: torch.Tensor) -> None:
        if self.axis is not None and not -x.dim() <= self.axis < x.dim():
            what = f"a tensor with dimension {self.axis}, for each index of which there is a scale"
            raise ValueError(f"expected {what}, but got shape {tuple(x.shape)}")

    def _check_count(self, count: int) -> None:
        """What comes by has as many scales as what came before; a layer's inputs share them."""
        if self.samples:
            before = self.samples[0].shape[0]
        else:
            before = self.history[0][0].numel() if self.history else count
        _check_same([before, count], self.axis)

    def settle(self) -> bool:
        """Ends calibration: whether anything was seen."""
        if self.samples:
            self.scale, self.zero_point = (
                self._shaped(t, self.dims) for t in self._found_of_rows(torch.cat(self.samples, 1))
            )
        elif self.history:
            self.scale, self.zero_point = self._of_bounds(self.history[0])
        self.samples, self.history = [], []
        return self.scale is not None

    def state(self) -> dict:
        """What a state dict keeps."""
        kept: dict = {
            name: t for name in ("scale", "zero_point") if (t := getattr(self, name)) is not None
        }
        if self.rule.when == "delayed":  # empty, too: what is loaded may have none yet
            pairs = [
                torch.stack([t.reshape(self.history[0][0].shape) for t in pair])
                for pair in self.history
            ]
            kept["history"] = (
                torch.stack(pairs)
                if pairs
                else torch.zeros(0, 2, dtype=torch.float32, device="cpu")
            )
        return kept

    def of_use(self, state: dict) -> dict:
        """What of a state dict's the rule goes by."""
        names = {"calibration": ("scale", "zero_point"), "delayed": ("history",)}.get(
            self.rule.when, ()
        )
        return {name: state[name] for name in names if name in state}

    def load_state(self, state: dict) -> None:
        of_use = self.of_use(state)
        if "history" in of_use:
            self.history = [tuple(pair.unbind()) for pair in of_use["history"].unbind()][
                : self.rule.history
            ]
            self.own = None if self.own is None else len(self.history)
        else:
            self.scale, self.zero_point = (
                of_use.get("scale", self.scale),
                of_use.get("zero_point", self.zero_point),
            )

    def _found(self, tensors: Sequence[torch.Tensor]) -> Scale:
        if self.rule.by == "absmax" or not any(x.numel() for x in tensors):
            return self._of_bounds(self._bounds(tensors))
        rows = [self._rows(x) for x in tensors if x.numel()]
        _check_same([r.shape[0] for r in rows], self.axis)
        scale, zero_point = (
            self._shaped(t, tensors[0].dim())
            for t in self._found_of_rows(torch.cat(rows, 1) if len(rows) > 1 else rows[0])
        )
        return scale, zero_point

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """A row for each scale, with the numbers that it is of; a bias has one in each."""
        if self.axis is None:
            return x.reshape(1, -1)
        channels = x.movedim(self.axis, 0)
        return (channels if x.dim() > 1 else channels.unsqueeze(1)).flatten(1)

    def _shaped(self, t: torch.Tensor | None, dims: int) -> torch.Tensor | None:
        """A column of one number for each row in a shape that broadcasts to what is rounded."""
        if t is None or self.axis is None:
            return None if t is None else t.reshape(())
        shape = [1] * dims
        shape[self.axis] = -1
        return t.reshape(shape)

    def _found_of_rows(self, rows: torch.Tensor):
        """By a percentile, or by the least squared error, of each row."""
        if self.rule.by == "mse":
            return self._least_error(rows)
        share = float(BY.fullmatch(self.rule.by)[1]) / 100
        high = rows if self.is_affine else rows.abs()
        highs = high.kthvalue(max(1, math.ceil(share * rows.shape[1])), 1, keepdim=True)[0]
        lows = (
            rows.kthvalue(max(1, math.floor((1 - share) * rows.shape[1])), 1, keepdim=True)[0]
            if self.is_affine
            else -highs
        )
        return self._of_bounds((lows, highs))

    def _least_error(self, rows: torch.Tensor):
        """The best of bounds that are shares of the outermost numbers: to 1/64 in steps of a 64th,
        or of powers of two."""
        shares = (
            [2.0**-k for k in range(7)]
            if self.rule.kind == "power_of_two"
            else [k / 64 for k in range(64, 0, -1)]
        )
        lows, highs = bounds(rows, 0)
        best = best_scale = best_point = None
        for share in shares:
            scale, point = self._of_bounds((lows * share, highs * share))
            error = (
                (
                    self.target.quantize(
                        rows, scale=scale, zero_point=point, rounding="nearest_even"
                    )
                    - rows
                )
                .double()
                .square()
                .sum(1, keepdim=True)
            )
            better = error < best if best is not None else torch.ones_like(error, dtype=torch.bool)
            best = error if best is None else torch.where(better, error, best)
            best_scale = scale if best_scale is None else torch.where(better, scale, best_scale)
            best_point = point if best_point is None else torch.where(better, point, best_point)
        return best_scale, best_point

    def _of_bounds(self, lows_and_highs):
        return scale_of(
            self.target, *lows_and_highs, self.rule.kind == "power_of_two", self.rule.margin
        )


def placed(
    tensors: Sequence[torch.Tensor | None], device: torch.device
) -> Sequence[torch.Tensor | None]:
    """They themselves, or copies of them on a device that has numbers."""
    if device.type == "meta" or all(t is None or t.device == device for t in tensors):
        return tensors
    return tuple(None if t is None else t.to(device) for t in tensors)


def bounds(x: torch.Tensor, axis: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and the largest number, of all or of each index of a dimension (in a shape that
    broadcasts)."""
    x = x.detach()
    if x.numel() == 0:
        zero = torch.zeros((), device=x.device)
        return zero, zero
    if axis is None:
        return torch.aminmax(x)
    rest = [d for d in range(x.dim()) if d != axis % x.dim()]
    return (x.amin(rest, keepdim=True), x.amax(rest, keepdim=True)) if rest else (x, x)


def _check_same(counts: list[int], axis: int | None) -> None:
    for count in counts:
        if count != counts[0]:
            what = f"expected tensors of one size along dimension {axis}, which share scales"
            raise ValueError(f"{what}, but got {counts[0]} and {count}; say per='tensor'")


def joined(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The bounds of several tensors together, in the first one's shape: tensors may have several
    dimensions."""
    lows, highs = pairs[0]
    for pair in pairs[1:]:
        low, high = pair if pair[0].shape == lows.shape else (t.reshape(lows.shape) for t in pair)
        lows, highs = torch.minimum(lows, low), torch.maximum(highs, high)
    return lows, highs


def scale_of(
    target: Target, lows: torch.Tensor, highs: torch.Tensor, power_of_two: bool, margin: int = 0
):
    """The scale (and the zero point of affine integers) at which the numbers from lows to highs
    just fit; NaN where one is infinite or NaN."""
    lows, highs = (t.double() for t in (lows, highs))
    affine = is_affine(target)
    if affine:
        lows, highs = lows.clamp(max=0.0), highs.clamp(min=0.0)  # 0 is a number
        scale = (highs - lows) / (target.largest - target.lowest)
    else:
        scale = torch.maximum(lows.abs(), highs.abs()) / target.full_scale
    zero_or_nan = scale - scale
    scale = torch.where(scale == 0, 1.0, scale) * 2.0**margin
    limits = torch.finfo(torch.float32)
    scale = scale.clamp(limits.smallest_normal, 2.0**127 if power_of_two else limits.max)
    if power_of_two:
        fraction, exponent = torch.frexp(scale)
        scale = torch.ldexp(torch.ones_like(scale), exponent - (fraction == 0.5).int())
    scale = (scale + zero_or_nan).float()
    if not affine:
        return scale, None
    zero_point = (
        (target.lowest - (lows / scale).round())
        .nan_to_num(0.0)
        .clamp(target.lowest, target.largest)
    )
    return scale, zero_point.to(torch.int32)
