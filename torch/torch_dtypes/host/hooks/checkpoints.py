"""Hooks of activation checkpointing: the recomputation has the first pass's overrides and scales.

Autocast's state is restored by torch.utils.checkpoint, which has no place for a third kind of
state. But the functions that it calls keep the function to run again.
"""

from __future__ import annotations

import functools

from ...policies.recomputing import carry_overrides
from ..table import Hook, Kind


def without_reentrant(stock):
    """Run the recomputation of use_reentrant=False under the first pass's overrides."""

    @functools.wraps(stock)
    def generator(fn, *args, **kwargs):  # stock runs `again` in the recomputation only
        first_pass, again = carry_overrides(fn)
        with first_pass:  # a generator's caller runs the first pass while this waits
            yield from stock(again, *args, **kwargs)

    return generator


def reentrant(stock):
    """Run the recomputation of use_reentrant=True under the first pass's overrides."""

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
    # From 2.14 on, the function of the old name only calls the one that keeps the function.
    Hook(_GENERATOR, Kind.REPLACED, without_reentrant, last="2.13"),
    Hook(f"{_GENERATOR}_impl", Kind.REPLACED, without_reentrant, first="2.14"),
    Hook("torch.utils.checkpoint.CheckpointFunction.forward", Kind.REPLACED, reentrant),
]
