"""Backward functions that have no derivative of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable

_TWICE = (
    "expected first derivatives alone through {}, but a second one was asked for: their backward "
    "pass is not recorded. Leave create_graph=True out, or {}"
)


def first_only(what: str, instead: str) -> Callable:
    """Makes a ``backward``, which gives a tuple, one without a second derivative: who asks for it
    gets an error that says ``what`` has none and what to do ``instead``.

    PyTorch's own ``once_differentiable`` looks at the incoming gradients alone: where they are
    constants, as those of ``loss.backward(create_graph=True)``, it gives gradients that have
    forgotten what they depend on.
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
            raises = torch._C._functions.DelayedError(_TWICE.format(what, instead), 1)
            return tuple(None if g is None else raises(g.detach().requires_grad_()) for g in found)

        return wrapper

    return decorate
