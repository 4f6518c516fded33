"""Steps that call their closure as often as they like (LBFGS): at each call the model has the
weights that the step is at, rounded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch


def step_with(wrapper, closure: Callable[[], torch.Tensor]):
    """One step of a ``LowPrecision`` around such an optimizer. Where the closure raises, what was
    reached is kept, as of the optimizer alone."""
    with torch.no_grad():
        working = {p: _separate_tensor(wrapper, p) for p in wrapper._parameters() if p.requires_grad}

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
    """What the step updates: not the parameter's memory, into which its rounding is written
    meanwhile."""
    w = wrapper._prepare_tensor(p, None)
    if wrapper._weights_of(p).is_exact or w.data_ptr() != p.data_ptr():
        return w
    return w.detach().clone().requires_grad_()


@contextlib.contextmanager
def _restore_groups(wrapper, params: list[list]):
    """The groups' own parameters, whose gradients a closure's ``zero_grad()`` means."""
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
    """LBFGS has a list of its parameters beside its groups'."""
    if not hasattr(optimizer, "_params"):
        yield
        return
    params = optimizer._params
    optimizer._params = [working.get(p, p) for p in params]
    try:
        yield
    finally:
        optimizer._params = params
