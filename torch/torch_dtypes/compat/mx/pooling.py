"""microxcaling's adaptive pooling: means of rounded sums."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

from .products import Layer
from .steps import Steps, find_specs, run

_pool = F.adaptive_avg_pool2d  # inject_pyt_ops replaces it


def _find_ranges(size: int, outputs: int) -> list[slice]:
    """Return the range of input of each output."""
    return [slice(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)]


def adaptive_avg_pool2d(
    input: torch.Tensor,
    output_size: int | tuple[int | None, int | None] | None,
    mx_specs: Mapping | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Average as ``torch.nn.functional.adaptive_avg_pool2d``: rounded sums, rounded quotients. The
    input is not rounded."""
    if (specs := find_specs(mx_specs)) is None:
        return _pool(input, output_size)
    if input.dim() == 3:
        return adaptive_avg_pool2d(input[None], output_size, specs)[0]
    given = output_size if isinstance(output_size, tuple | list) else (output_size,) * 2
    shape = input.shape
    high, wide = (
        _find_ranges(n, n if count is None else count)
        for n, count in zip(shape[2:], given, strict=True)
    )

    def forward(s: Steps, x):
        means = [s.mean(x[:, :, h, w], [2, 3])[:, :, 0, 0] for h in high for w in wide]
        return torch.stack(means, -1).view(*shape[:2], len(high), len(wide)), ()

    def backward(s: Steps, g):
        gradient = g.new_zeros(shape)
        for i, h in enumerate(high):
            for j, w in enumerate(wide):
                share = g[:, :, i, j] / (h.stop - h.start) / (w.stop - w.start)
                gradient[:, :, h, w] = s.add(gradient[:, :, h, w], share[:, :, None, None])
        return (gradient,)

    return run(forward, backward, specs, input)


class AdaptiveAvgPool2d(Layer, nn.AdaptiveAvgPool2d):
    """``torch.nn.AdaptiveAvgPool2d`` by ``adaptive_avg_pool2d``."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        specs = None if self.mx_none else self.mx_specs
        return adaptive_avg_pool2d(input, self.output_size, specs)
