"""What stock float32 has to be where formats are compared with it."""

from __future__ import annotations

import contextlib

import torch


def repeatable(device: str) -> contextlib.AbstractContextManager:
    """A block for comparisons on a device by its type: on a GPU, convolutions in float32 would
    otherwise run in TF32 and be no baseline, and may pick an algorithm that adds in a different
    order each time.
    """
    if device == "cpu":
        return contextlib.nullcontext()
    return torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    )
