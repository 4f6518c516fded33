"""Channels of a layer's input that are much larger than the rest."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import nn

from ...quantization.products import is_product, product_arguments
from ...quantization.scale_rules import channel_axis

Channels = dict[str, torch.Tensor]


@dataclass(frozen=True)
class OutlierChannels:
    """The outliers that enter one layer.

    Attributes:
        layer: the module's qualified name.
        channels: the indices of the channels, the largest first. of: the number of all channels.
        largest: the largest magnitude. median: the median of all channels' largest magnitudes.
    """

    layer: str
    channels: tuple[int, ...]
    of: int
    largest: float
    median: float

    @property
    def share(self) -> float:
        """The share of the channels that are outliers."""
        return len(self.channels) / self.of

    @property
    def times(self) -> float:
        """The largest magnitude over the median."""
        return self.largest / self.median if self.median else float("inf")


class ChannelMagnitudes:
    """The largest magnitudes of the channels that entered linear layers and convolutions, by
    layer, in float64 on the CPU."""

    def __init__(self) -> None:
        self.largest: Channels = {}

    def see(self, layer: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """Note the input of a layer with one product."""
        if not is_product(module):
            return
        x = args[0] if args else kwargs.get(product_arguments(module)[0])
        axis = channel_axis("activation", module)
        if not isinstance(x, torch.Tensor) or not x.numel() or x.dim() < -axis:
            return
        rows = x.detach().double().abs().nan_to_num(0.0, posinf=torch.inf).movedim(axis, -1)
        found = rows.reshape(-1, rows.shape[-1]).amax(0).cpu()
        before = self.largest.get(layer)
        self.largest[layer] = found if before is None else torch.maximum(before, found)


def find_outliers(channels: Channels, times: float) -> list[OutlierChannels]:
    """Find the outliers of each layer, as ``Statistics.outliers``."""
    if isinstance(times, bool) or not isinstance(times, (int, float)) or not times >= 1:
        raise ValueError(f"expected times as a number of at least 1, but got {times!r}")
    rows = []
    for layer, largest in channels.items():
        median = float(largest.median())
        order = torch.argsort(largest, descending=True, stable=True)
        own = tuple(order[: int((largest > times * median).sum())].tolist())
        if own:
            rows.append(OutlierChannels(layer, own, largest.numel(), float(largest.max()), median))
    return sorted(rows, key=lambda row: -row.times)


def merge_channels(first: Channels | None, second: Channels | None) -> Channels | None:
    """Return the largest magnitudes of two stretches of one run."""
    if first is None or second is None:
        return first if second is None else second
    return {
        layer: functools.reduce(torch.maximum, [c[layer] for c in (first, second) if layer in c])
        for layer in {**first, **second}
    }
