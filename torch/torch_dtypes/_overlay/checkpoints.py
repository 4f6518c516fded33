"""Activation checkpointing: the recomputation runs under the overrides of the first pass, as it does under that one's autocast, and with its scales.

torch.utils.checkpoint.checkpoint has no place for a third kind of state, but what it calls keeps the function to run again.
"""

from __future__ import annotations

import functools

from .._recomputing import carried
from .releases import CHECKPOINT_GENERATOR
from .table import Replaced


def without_reentrant(stock):
    """checkpoint(use_reentrant=False): the recomputation runs under the first pass's overrides."""

    @functools.wraps(stock)
    def generator(fn, *args, **kwargs):  # which runs it in the recomputation only
        first_pass, again = carried(fn)
        with first_pass:  # until it is over, for which a generator's caller waits here
            yield from stock(again, *args, **kwargs)

    return generator


def reentrant(stock):
    """checkpoint(use_reentrant=True): the recomputation runs under the first pass's overrides."""

    @functools.wraps(stock)
    def forward(ctx, run_function, *args):
        first_pass, again = carried(run_function)
        with first_pass:
            outputs = stock(ctx, run_function, *args)
        ctx.run_function = again  # for backward
        return outputs

    return forward


HOOKS = [
    Replaced("torch.utils.checkpoint", CHECKPOINT_GENERATOR, without_reentrant),
    Replaced("torch.utils.checkpoint.CheckpointFunction", "forward", reentrant),
]
