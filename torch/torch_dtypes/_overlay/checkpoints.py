"""Activation checkpointing: the recomputation runs under the overrides of the first pass, as it does under that one's autocast, and with its scales.

torch.utils.checkpoint.checkpoint has no place for a third kind of state, but what it calls keeps the function to run again.
"""

from __future__ import annotations

import functools

from .. import _C
from .._recomputing import Record, recording, repeating
from .releases import CHECKPOINT_GENERATOR
from .table import Replaced

# Each returns what it was.
_EXCHANGES = (_C.set_rounding_override, _C.set_few_bits_override, _C.set_accumulation_override, _C.set_mixed_operands_override)


def _repeatable(function, record: Record):
    """The function, to be called later under the overrides that hold now on this thread, also where there are none, with the scales recorded."""
    overrides = (_C.rounding_override(), _C.few_bits_override(), _C.accumulation_override(), _C.mixed_operands_override())

    def repeat(*args, **kwargs):
        around = [exchange(value) for exchange, value in zip(_EXCHANGES, overrides, strict=True)]
        try:
            with repeating(record):
                return function(*args, **kwargs)
        finally:
            for exchange, value in zip(_EXCHANGES, around, strict=True):
                exchange(value)

    return repeat


def without_reentrant(stock):
    """checkpoint(use_reentrant=False): the recomputation runs under the first pass's overrides."""

    @functools.wraps(stock)
    def generator(fn, *args, **kwargs):  # which runs it in the recomputation only
        record: Record = {}
        with recording(record):  # until the first pass, for which a generator's caller waits here, is over
            yield from stock(_repeatable(fn, record), *args, **kwargs)

    return generator


def reentrant(stock):
    """checkpoint(use_reentrant=True): the recomputation runs under the first pass's overrides."""

    @functools.wraps(stock)
    def forward(ctx, run_function, *args):
        record: Record = {}
        with recording(record):
            outputs = stock(ctx, run_function, *args)
        ctx.run_function = _repeatable(run_function, record)  # for backward
        return outputs

    return forward


HOOKS = [
    Replaced("torch.utils.checkpoint", CHECKPOINT_GENERATOR, without_reentrant),
    Replaced("torch.utils.checkpoint.CheckpointFunction", "forward", reentrant),
]
