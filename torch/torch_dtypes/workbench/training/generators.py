"""The default random generators of the CPU and of the GPUs."""

from __future__ import annotations

import contextlib

import torch
from torch.utils._python_dispatch import _disable_current_modes


def gpus_in_use() -> list[int]:
    """Return the indices of this process's GPUs, if it uses any: a function may draw on one that
    has none of its operands."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def forked_generators(cuda: bool = False) -> contextlib.AbstractContextManager:
    """Restore the default generators after the block. That includes the GPUs' if the process uses
    some, or if ``cuda`` is set, because a seed is for all of them."""
    return torch.random.fork_rng(
        devices=range(torch.cuda.device_count()) if cuda else gpus_in_use()
    )


def states(gpus: list[int]) -> bytes:
    """Return the states of the CPU's generator and of some GPUs'. They differ after random numbers
    were drawn."""
    with _disable_current_modes():  # hides the calls from a recording mode
        tensors = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]
        return b"".join(state.numpy().tobytes() for state in tensors)
