"""The default generators of random numbers, of the CPU and of the GPUs."""

from __future__ import annotations

import contextlib

import torch


def forked_generators(cuda: bool = False) -> contextlib.AbstractContextManager:
    """A block behind which the default generators go on as before it: GPUs' too where it uses some, or CUDA is in use, for a seed is for all."""
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda or torch.cuda.is_initialized() else [])
