"""The default generators of random numbers, of the CPU and of the GPUs."""

from __future__ import annotations

import contextlib

import torch
from torch.utils._python_dispatch import _disable_current_modes


def gpus_in_use() -> list[int]:
    """The indices of the GPUs of this process, where it uses some: a function may draw on one that
    none of its operands lies on."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def forked_generators(cuda: bool = False) -> contextlib.AbstractContextManager:
    """A block behind which the default generators go on as before it: GPUs' too where it uses some,
    or CUDA is in use, for a seed is for all."""
    return torch.random.fork_rng(
        devices=range(torch.cuda.device_count()) if cuda else gpus_in_use()
    )


def states(gpus: list[int]) -> bytes:
    """The states of the CPU's generator and of some GPUs': another one after random numbers were
    taken."""
    with _disable_current_modes():  # a recorder, which is to see nothing of this
        found = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]
        return b"".join(state.numpy().tobytes() for state in found)
