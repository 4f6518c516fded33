"""Activation checkpointing: the recomputation runs under the overrides of the first pass, as it
does under that one's autocast, and with its scales.

torch.utils.checkpoint.checkpoint has no place for a third kind of state, but what it calls keeps
the function to run again.
"""

from __future__ import annotations

import functools

from ...policies.recomputing import carry_overrides
from ..table import Hook, Kind


def without_reentrant(stock):
    """checkpoint(use_reentrant=False): the recomputation runs under the first pass's overrides."""

    @functools.wraps(stock)
    def generator(fn, *args, **kwargs):  # which runs it in the recomputation only
        first_pass, again = carry_overrides(fn)
        with first_pass:  # until it is over, for which a generator's caller waits here
            yield from stock(again, *args, **kwargs)

    return generator


def reentrant(stock):
    """checkpoint(use_reentrant=True): the recomputation runs under the first pass's overrides."""

    @functools.wraps(stock)
    def forward(ctx, run_function, *args):
        first_pass, again = carry_overrides(run_function)
        with first_pass:
            outputs = stock(ctx, run_function, *args)
        ctx.run_function = again  # for backward
        return outputs

    return forward


_GENERATOR = "torch.utils.checkpoint._checkpoint_without_reentrant_generator"

HOOKS = [
    # From 2.14 on the function of the old name only calls the one that keeps what runs again.
    Hook(_GENERATOR, Kind.REPLACED, without_reentrant, last="2.13"),
    Hook(f"{_GENERATOR}_impl", Kind.REPLACED, without_reentrant, first="2.14"),
    Hook("torch.utils.checkpoint.CheckpointFunction.forward", Kind.REPLACED, reentrant),
]
