"""Activation checkpointing: the recomputation runs under the overrides of the first pass, as it does under that one's autocast.

torch.utils.checkpoint.checkpoint has no place for a third kind of state, but what it calls keeps the function to run again.
"""

from __future__ import annotations

import functools

from torch.utils import checkpoint

from .. import _C

# Each sets an override of this thread and returns what it was, which is the only way to read most of them.
_EXCHANGES = (_C.set_rounding_override, _C.set_accumulation_override, _C.set_mixed_operands_override)


def _repeatable(function):
    """The function, to be called later under the overrides that hold now on this thread, also where there are none."""
    overrides = [exchange(None) for exchange in _EXCHANGES]
    for exchange, value in zip(_EXCHANGES, overrides, strict=True):
        exchange(value)

    def repeat(*args, **kwargs):
        around = [exchange(value) for exchange, value in zip(_EXCHANGES, overrides, strict=True)]
        try:
            return function(*args, **kwargs)
        finally:
            for exchange, value in zip(_EXCHANGES, around, strict=True):
                exchange(value)

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
