"""Steps that call their closure several times (LBFGS). At each call the model holds the step's
current weights, rounded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch


def step_with(wrapper, closure: Callable[[], torch.Tensor]):
    """Run one step of a ``LowPrecision`` around such an optimizer.

    If the closure raises, the weights reached so far are kept, as without the wrapper.
    """
    with torch.no_grad():
        working = {
            p: _separate_tensor(wrapper, p) for p in wrapper._parameters() if p.requires_grad
        }

    originals = [group["params"] for group in wrapper.param_groups]

    def evaluate():
        with torch.no_grad():
            for p, w in working.items():
                if w.data_ptr() != p.data_ptr():
                    p.copy_(wrapper._weights_of(p).keep(w.detach(), None))
        with torch.enable_grad(), _restore_groups(wrapper, originals):
            loss = closure()
        inverse = wrapper._take_factor()
        with torch.no_grad():
            for p, w in working.items():
                w.grad = None if p.grad is None else wrapper._gradient(p) * inverse
        return loss

    try:
        with torch.no_grad(), _exchange_list(wrapper.optimizer, working):
            return wrapper._run(working, evaluate)
    finally:
        with torch.no_grad():
            for p, w in working.items():
                wrapper._keep(p, w)


def _separate_tensor(wrapper, p: torch.Tensor) -> torch.Tensor:
    """Return the tensor that the step updates. It never shares the parameter's memory, since the
    closure writes rounded weights there, unless weights are exact."""
    w = wrapper._prepare_tensor(p, None)
    if wrapper._weights_of(p).is_exact or w.data_ptr() != p.data_ptr():
        return w
    return w.detach().clone().requires_grad_()


@contextlib.contextmanager
def _restore_groups(wrapper, params: list[list]):
    """Put the model's parameters back into the groups for a closure, whose ``zero_grad()`` has to
    clear their gradients."""
    groups = wrapper.param_groups
    before = [group["params"] for group in groups]
    for group, own in zip(groups, params, strict=True):
        group["params"] = own
    try:
        yield
    finally:
        for group, working in zip(groups, before, strict=True):
            group["params"] = working


@contextlib.contextmanager
def _exchange_list(optimizer, working: dict):
    """Exchange the parameters in the list that LBFGS keeps besides its groups."""
    if not hasattr(optimizer, "_params"):
        yield
        return
    params = optimizer._params
    optimizer._params = [working.get(p, p) for p in params]
    try:
        yield
    finally:
        optimizer._params = params
