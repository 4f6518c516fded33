"""Other rules after a number of steps, as some recipes end in a wider format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..formats.arguments import integer
from .convert import dequantize_, quantize_

__all__ = ["switch_at"]


def switch_at(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: Mapping[int, Any]
) -> torch.utils.hooks.RemovableHandle:
    """Change a model's rules after given numbers of an optimizer's steps, as the last part of a
    training in a wider format.

    Args:
        model: the model, quantised or not.
        optimizer: the optimizer whose steps count, from this call on.
        steps: rules by numbers of steps (1 or more): whatever ``quantize_`` takes, or None for
            ``dequantize_``. Rules that need ``calibrate=`` are an error at their step.

    Returns:
        A handle. Its ``remove()`` ends the counting.

    Raises:
        TypeError, ValueError: no mapping, or a number of steps below 1.

    Example::

        >>> model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10))
        >>> optimizer = torch.optim.SGD(torch_dtypes.quantize_(model, "nvfp4").parameters())
        >>> steps = {800: "mxfp8", 950: None}
        >>> handle = torch_dtypes.quantization.switch_at(model, optimizer, steps)
    """
    if not isinstance(steps, Mapping) or not steps:
        raise TypeError(f"expected rules by steps, as {{800: 'mxfp8'}}, but got {steps!r}")
    for step in steps:
        integer("a number of steps", step, 1, 1 << 62)
    done = 0

    def count(*_) -> None:
        nonlocal done
        done += 1
        if done in steps:
            rules = steps[done]
            dequantize_(model) if rules is None else quantize_(model, rules)

    return optimizer.register_step_post_hook(count)
