"""Settings under which stock float32 is a baseline for formats."""

from __future__ import annotations

import contextlib

import torch


def repeatable(device: str) -> contextlib.AbstractContextManager:
    """Make comparisons on a type of device repeatable in a block. On a GPU, convolutions in float32
    would otherwise run in TF32, and might use an algorithm that adds in a different order each
    time.
    """
    if device == "cpu":
        return contextlib.nullcontext()
    return torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    )
