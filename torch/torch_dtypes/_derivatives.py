"""Backward functions that have no derivative of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable

_TWICE = (
    "expected first derivatives alone through {}, but a second one was asked for: their backward pass is not recorded. Leave create_graph=True "
    "out, or {}"
)


def first_only(what: str, instead: str) -> Callable:
    """Makes a ``backward`` one without a second derivative: who asks for it gets an error that says ``what`` has none and what to do ``instead``.

    PyTorch's own ``once_differentiable`` looks at the incoming gradients alone: where they are constants, as those of
    ``loss.backward(create_graph=True)``, it gives gradients that have forgotten what they depend on.
    """

    def decorate(backward: Callable) -> Callable:
        stock = once_differentiable(backward)

        @functools.wraps(backward)
        def wrapper(ctx, *gradients):
            if torch._C._functorch.maybe_current_level() is not None:
                return stock(ctx, *gradients)  # torch.func records always, wanted or not
            with torch.no_grad():
                found = backward(ctx, *gradients)
            if not torch.is_grad_enabled():
                return found
            several = found if isinstance(found, tuple) else (found,)
            places = [i for i, g in enumerate(several) if g is not None]
            raises = torch._C._functions.DelayedError(_TWICE.format(what, instead), len(places))
            marked = raises(*(several[i].detach().requires_grad_() for i in places))
            by_place = dict(zip(places, marked if isinstance(marked, tuple) else (marked,), strict=True))
            result = tuple(by_place.get(i) for i in range(len(several)))
            return result if isinstance(found, tuple) else result[0]

        return wrapper

    return decorate
