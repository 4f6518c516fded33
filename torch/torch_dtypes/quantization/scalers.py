"""The state of a scale: a number, a result of calibration, or the bounds of recent tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from ..policies.recomputing import find_once
from ..targets.integers import scale_of
from ..targets.lookup import Target
from .scale_rules import BY, ScaleRule, channel_axis, is_affine

Scale = tuple[torch.Tensor | float, torch.Tensor | None]  # with the zero point of affine integers
# Numbers that calibration keeps of a place for "percentile" and "mse".
_SAMPLES = 1 << 20
TOKENS = "token"


class Scaler:
    """Finds the scale of one place of one layer for each call."""

    def __init__(self, rule: ScaleRule, target: Target, role: str, module: nn.Module) -> None:
        self.rule, self.target = rule, target
        # The dimension with a scale per index, TOKENS (all dimensions but the last), or None.
        self.axis: int | str | None
        if rule.per == "channel":
            self.axis = channel_axis(role, module)
        else:
            self.axis = None if rule.per == "tensor" else rule.per
        self.scale: torch.Tensor | None = None
        self.zero_point: torch.Tensor | None = None
        # Lows and highs of calls, newest first.
        self.history: list[tuple[torch.Tensor, torch.Tensor]] = []
        # Under DistributedDataParallel: the number of newest entries not yet shared with all ranks.
        self.own: int | None = None
        self.samples: list[torch.Tensor] = []
        self.dims = 0  # dimensions of the tensors in ``samples``

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
        """Return the scale that a call's tensors (a layer's inputs, or one tensor) share."""
        if not isinstance(self.rule.kind, str):
            return self.rule.kind, None
        for x in tensors:
            self._check_dimension(x)
            if self.axis == TOKENS and x.shape[:-1] != tensors[0].shape[:-1]:
                raise ValueError(
                    "expected tensors with the same tokens, which share scales, but got shapes "
                    f"{tuple(tensors[0].shape)} and {tuple(x.shape)}; set per='tensor'"
                )
        if self.rule.when == "calibration":
            if self.scale is None:
                raise RuntimeError(
                    "expected a scale from calibration, but got none; call quantize_ with "
                    "calibrate="
                )
            return self._scale_on(tensors[0].device)
        tensors = [x.detach() for x in tensors]
        if self.rule.when == "call":
            return self._find_scale(tensors)
        if not training and self.history:
            history = self._history_on(tensors[0].device)
            # Only entries that all ranks have, if there are several.
            return self._of_bounds(join_bounds(history[self.own or 0 :] or history))
        return find_once(self, lambda: self._use_history(tensors, training))

    # A module's to() does not move the state of its scales, and a loaded one is on the device where
    # it was saved. So the state moves to the device of the tensors.

    def _scale_on(self, device: torch.device) -> Scale:
        scale, zero_point = move_to((self.scale, self.zero_point), device)
        if scale is not self.scale:
            self.scale, self.zero_point = scale, zero_point
        return scale, zero_point

    def _history_on(self, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
        moved = [move_to(pair, device) for pair in self.history]
        if any(pair is not before for pair, before in zip(moved, self.history, strict=True)):
            self.history = moved
        return moved

    def of(self, shared: Scale, x: torch.Tensor) -> Scale:
        """Reshape a shared scale to broadcast to x. Tensors that share a scale may differ in their
        number of dimensions."""
        scale, zero_point = shared
        if (
            self.axis in (None, TOKENS)
            or not isinstance(scale, torch.Tensor)
            or scale.dim() == x.dim()
        ):
            return shared
        shape = [1] * x.dim()
        shape[self.axis] = -1
        return scale.reshape(shape), None if zero_point is None else zero_point.reshape(shape)

    def _bounds(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bounds of all tensors together, 0 if they are empty."""
        if len(tensors) == 1:
            return bounds(tensors[0], self.axis)
        pairs = [bounds(x, self.axis) for x in tensors if x.numel()]
        _check_same([low.numel() for low, _ in pairs], self.axis)
        return join_bounds(pairs) if pairs else bounds(tensors[0], self.axis)

    def _use_history(self, tensors: Sequence[torch.Tensor], training: bool) -> Scale:
        """Return the scale of the calls before, and add this call to the history."""
        lows_and_highs, is_empty = self._bounds(tensors), not any(x.numel() for x in tensors)
        if not is_empty:
            self._check_count(lows_and_highs[0].numel())
        history = self._history_on(lows_and_highs[0].device)
        result = self._of_bounds(join_bounds(history or [lows_and_highs]))
        # An infinity or NaN, in a step that loss scaling will skip, would spoil the scale as long
        # as the history has it.
        if training and not is_empty and all(bool(t.isfinite().all()) for t in lows_and_highs):
            self.history = [lows_and_highs, *history[: self.rule.history - 1]]
            if self.own is not None:
                self.own = min(self.own + 1, self.rule.history)
        return result

    def see(self, x: torch.Tensor) -> None:
        """Observe a tensor during calibration."""
        self._check_dimension(x)
        if self.rule.by == "absmax":
            pair = bounds(x, self.axis)
            self._check_count(pair[0].numel())
            self.history = [join_bounds([*self._history_on(x.device), pair])]
            return
        x, self.dims = x.detach(), x.dim()
        rows = self._rows(x)
        self._check_count(rows.shape[0])
        limit = max(1, _SAMPLES // 16 // rows.shape[0])
        self.samples = [
            *move_to(self.samples, x.device),
            rows[:, :: max(1, -(-rows.shape[1] // limit))].float().clone(),
        ]
        if len(self.samples) > 64:
            self.samples = [torch.cat(self.samples, 1)[:, ::2]]

    def _check_dimension(self, x: torch.Tensor) -> None:
        axis = -1 if self.axis == TOKENS else self.axis
        if axis is not None and not -x.dim() <= axis < x.dim():
            what = f"a tensor with dimension {axis}, which has a scale per index"
            raise ValueError(f"expected {what}, but got shape {tuple(x.shape)}")

    def _check_count(self, count: int) -> None:
        """Refuse a tensor with another number of scales than those before it."""
        if self.samples:
            before = self.samples[0].shape[0]
        else:
            before = self.history[0][0].numel() if self.history else count
        _check_same([before, count], self.axis)

    def settle(self) -> bool:
        """End calibration, and return whether it observed anything."""
        if self.samples:
            self.scale, self.zero_point = (
                self._reshape_column(t, (1,) * self.dims)
                for t in self._find_scale_of_rows(torch.cat(self.samples, 1))
            )
        elif self.history:
            self.scale, self.zero_point = self._of_bounds(self.history[0])
        self.samples, self.history = [], []
        return self.scale is not None

    def state(self) -> dict:
        """Return the entries for a state dict."""
        kept: dict = {
            name: t for name in ("scale", "zero_point") if (t := getattr(self, name)) is not None
        }
        if self.rule.when == "delayed":  # even an empty history, so that loading it clears another
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
        """Return those entries of a state dict that this rule uses."""
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

    def _find_scale(self, tensors: Sequence[torch.Tensor]) -> Scale:
        if self.rule.by == "absmax" or not any(x.numel() for x in tensors):
            return self._of_bounds(self._bounds(tensors))
        rows = [self._rows(x) for x in tensors if x.numel()]
        _check_same([r.shape[0] for r in rows], self.axis)
        scale, zero_point = (
            self._reshape_column(t, tensors[0].shape)
            for t in self._find_scale_of_rows(torch.cat(rows, 1) if len(rows) > 1 else rows[0])
        )
        return scale, zero_point

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape x to one row per scale, with the numbers that share it. A bias has one number per
        row."""
        if self.axis is None:
            return x.reshape(1, -1)
        if self.axis == TOKENS:
            return x.reshape(-1, x.shape[-1])
        channels = x.movedim(self.axis, 0)
        return (channels if x.dim() > 1 else channels.unsqueeze(1)).flatten(1)

    def _reshape_column(self, t: torch.Tensor | None, of: tuple[int, ...]) -> torch.Tensor | None:
        """Reshape a column with one number per row to broadcast to the rounded tensor, which has
        the shape ``of``."""
        if t is None or self.axis is None:
            return None if t is None else t.reshape(())
        if self.axis == TOKENS:
            return t.reshape(*of[:-1], 1)
        shape = [1] * len(of)
        shape[self.axis] = -1
        return t.reshape(shape)

    def _find_scale_of_rows(self, rows: torch.Tensor):
        """Find each row's scale by a percentile, or by the least squared error."""
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
        """Find each row's scale with the least squared error among shares of its bounds.

        The shares are k/64 for k from 64 to 1, or the powers of two from 1 to 1/64.
        """
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


def move_to(
    tensors: Sequence[torch.Tensor | None], device: torch.device
) -> Sequence[torch.Tensor | None]:
    """Copy tensors to a device, unless they are there already or it is "meta"."""
    if device.type == "meta" or all(t is None or t.device == device for t in tensors):
        return tensors
    return tuple(None if t is None else t.to(device) for t in tensors)


def bounds(x: torch.Tensor, axis: int | str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and the largest number of x, or those of each token or of each index of a
    dimension (in a shape that broadcasts)."""
    x = x.detach()
    if x.numel() == 0:
        zero = torch.zeros((), device=x.device)
        return zero, zero
    if axis is None:
        return torch.aminmax(x)
    if axis == TOKENS:
        return torch.aminmax(x, dim=-1, keepdim=True)
    rest = [d for d in range(x.dim()) if d != axis % x.dim()]
    return (x.amin(rest, keepdim=True), x.amax(rest, keepdim=True)) if rest else (x, x)


def _check_same(counts: list[int], axis: int | None) -> None:
    for count in counts:
        if count != counts[0]:
            what = f"expected tensors of one size along dimension {axis}, since they share scales"
            raise ValueError(f"{what}, but got {counts[0]} and {count}; set per='tensor'")


def join_bounds(
    pairs: list[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Join the bounds of several tensors. The result has the first one's shape, since the tensors
    may differ in their number of dimensions."""
    lows, highs = pairs[0]
    for pair in pairs[1:]:
        low, high = pair if pair[0].shape == lows.shape else (t.reshape(lows.shape) for t in pair)
        lows, highs = torch.minimum(lows, low), torch.maximum(highs, high)
    return lows, highs
