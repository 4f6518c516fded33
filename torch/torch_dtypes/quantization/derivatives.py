"""Backward functions without a second derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable

_TWICE = (
    "expected first derivatives through {}, but got a second one, whose backward pass is not "
    "recorded; leave create_graph=True out, or {}"
)


def first_only(what: str, instead: str) -> Callable:
    """Decorate a ``backward`` that returns a tuple: a second derivative raises an error. It names
    the layer (``what``) and the remedy (``instead``).

    PyTorch's own ``once_differentiable`` looks only at the incoming gradients. If these are
    constants, as in ``loss.backward(create_graph=True)``, it silently drops dependencies.
    """

    def decorate(backward: Callable) -> Callable:
        stock = once_differentiable(backward)

        @functools.wraps(backward)
        def wrapper(ctx, *gradients):
            if torch._C._functorch.maybe_current_level() is not None:
                return stock(ctx, *gradients)  # torch.func always records
            with torch.no_grad():
                results = backward(ctx, *gradients)
            if not torch.is_grad_enabled():
                return results
            delayed = torch._C._functions.DelayedError(_TWICE.format(what, instead), 1)
            return tuple(
                None if g is None else delayed(g.detach().requires_grad_()) for g in results
            )

        return wrapper

    return decorate
