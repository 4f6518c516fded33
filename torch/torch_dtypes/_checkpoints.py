"""Activation checkpointing: the recomputation runs under the overrides of the first pass, as it does under that one's autocast.

torch.utils.checkpoint.checkpoint has no place for a third kind of state, but what it calls keeps the function to run again.
"""

from __future__ import annotations

import functools

from torch.utils import checkpoint

from . import _C


def _repeatable(function):
    """The function, to be called later under the overrides that hold now on this thread, also where there are none."""
    rounding, accumulation = _C.rounding_override(), _C.set_accumulation_override(None)
    _C.set_accumulation_override(accumulation)  # exchanging is the only way to read it

    def repeat(*args, **kwargs):
        around = _C.set_rounding_override(rounding), _C.set_accumulation_override(accumulation)
        try:
            return function(*args, **kwargs)
        finally:
            _C.set_rounding_override(around[0])
            _C.set_accumulation_override(around[1])

    return repeat


def install() -> None:
    """Puts functions in front of the two that checkpoint() and checkpoint_sequential() call: with use_reentrant=False, and with True."""
    generator, forward = checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction.forward

    @functools.wraps(generator)
    def without_reentrant(fn, *args, **kwargs):  # which runs it in the recomputation only
        return generator(_repeatable(fn), *args, **kwargs)

    @functools.wraps(forward)
    def reentrant(ctx, run_function, *args):
        outputs = forward(ctx, run_function, *args)
        ctx.run_function = _repeatable(run_function)  # for backward
        return outputs

    checkpoint._checkpoint_without_reentrant_generator = without_reentrant
    checkpoint.CheckpointFunction.forward = staticmethod(reentrant)
