"""Statistics of tensors and numbers over the runs of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ... import _C
from ...formats.dtypes import format_of, is_format_dtype
from .digits import significant_digits
from .results import Layer, Metric, Settings


def bits_of(dtype: torch.dtype, format: str | None) -> int:
    """Return the bits of a significand: of the format that takes float32's place, or else of a
    dtype."""
    if format is not None:
        return format_of(format).significand_bits
    if is_format_dtype(dtype):
        return _C.format_of(dtype).significand_bits
    return 1 - round(math.log2(torch.finfo(dtype).eps))


class Spread:
    """Elementwise statistics of one tensor over runs, which it does not keep, against the IEEE
    run."""

    def __init__(self, exact: torch.Tensor, format: str | None) -> None:
        self.bits = bits_of(exact.dtype, format)
        self.exact = exact.double()
        self.mean, self.squares = torch.zeros_like(self.exact), torch.zeros_like(self.exact)
        self.far, self.n, self.finite = torch.zeros_like(self.exact), 0, self.exact.isfinite()

    def add(self, x: torch.Tensor) -> None:
        x = x.double()
        self.n += 1
        self.finite &= x.isfinite()
        step = x - self.mean
        self.mean += step / self.n
        self.squares += step * (x - self.mean)
        self.far = torch.maximum(self.far, (x - self.exact).abs())

    def layer(self, name: str, kind: str) -> Layer:
        most = self.bits * math.log10(2)

        def digits(error, of):
            found = torch.where(error == 0, most, -torch.log10(error / of.abs())).clamp(0, most)
            return torch.where(self.finite, found.nan_to_num(0.0), 0.0)

        counts = (self.exact != 0) | (self.far != 0)
        if not counts.any():
            return Layer(name, kind, 0, most, most, most, most)
        found = digits(self.far, self.exact)[counts].sort().values
        classic = digits((self.squares / max(self.n - 1, 1)).sqrt(), self.mean)[counts]
        low = found[int(0.05 * (len(found) - 1))].item()
        return Layer(
            name,
            kind,
            int(counts.sum()),
            found[0].item(),
            low,
            found.median().item(),
            classic.median().item(),
        )


def digits_of_metrics(
    exact: dict[str, float], runs: Sequence[dict[str, float]], bits: int, settings: Settings
) -> list[Metric]:
    """Return the digits of each metric of the IEEE run, over the runs."""
    metrics = []
    for name, value in exact.items():
        # A class that no run predicts has no score.
        values = [run.get(name, math.nan) for run in runs]
        nonparametric = significant_digits(
            values,
            digits=bits,
            probability=settings.probability,
            confidence=settings.confidence,
        )
        classic = significant_digits(values, method="classic", digits=bits)
        metrics.append(Metric(name, value, values, nonparametric, classic))
    return metrics


def minimum_dice(labels: list[torch.Tensor]) -> float:
    """Return the smallest Dice score, 2 |A and B| / (|A| + |B|), over pairs of label maps and the
    labels in either."""
    least = 1.0
    for i, a in enumerate(labels):
        for b in labels[i + 1 :]:
            n = int(max(a.max(), b.max())) + 1
            both = torch.bincount(a[a == b].flatten(), minlength=n).double()
            each = (
                torch.bincount(a.flatten(), minlength=n) + torch.bincount(b.flatten(), minlength=n)
            ).double()
            least = min(least, (2 * both / each)[each > 0].min().item())
    return least
