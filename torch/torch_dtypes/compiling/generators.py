"""The random numbers that a run of a graph may take: of the CPU's generator, and of its operands' GPUs'."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.utils._python_dispatch import _disable_current_modes


def gpus_of(values: Iterable) -> list[int]:
    """The indices of the GPUs on which tensors among the values lie."""
    return sorted({v.device.index for v in values if isinstance(v, torch.Tensor) and v.device.type == "cuda"})


def states(gpus: list[int]) -> bytes:
    """The states of the CPU's generator and of some GPUs': another one after random numbers were taken."""
    with _disable_current_modes():  # a recorder, which is to see nothing of this
        found = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]
        return b"".join(state.numpy().tobytes() for state in found)
