"""Checks that LowPrecision makes before any work."""

from __future__ import annotations

import inspect
import math
import warnings

import torch
from torch.optim import Optimizer

from .. import _C
from ..formats.code_types import compute_type
from .storage import overflow_limit


def refuse_optimizer(optimizer: object) -> None:
    """Refuse an optimizer that cannot run between masters and weights."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, but got {optimizer!r}")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise TypeError(
            "expected an optimizer of dense gradients, but got SparseAdam; use Adam, and "
            "Embedding(sparse=False)"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ValueError(
            "expected differentiable=False, but got True; leave it out, since rounding to a format "
            "has no derivative that a step could record"
        )


def calls_closure(optimizer: Optimizer) -> bool:
    """Return whether a step needs a closure, which it may call several times (LBFGS)."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return True
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def refuse_dynamic(scale, optimizer: Optimizer) -> None:
    """Refuse a dynamic scale, which skips steps, for an optimizer whose step takes several
    gradients."""
    if scale.rule and calls_closure(optimizer):
        raise ValueError(
            f"expected a constant grad_scale or None for {type(optimizer).__name__}, which calls "
            "its closure within a step, but got a dynamic one"
        )


def refuse_unscaled(scale, applied: float | None) -> None:
    """Refuse gradients of a loss that was not scaled."""
    if scale.is_on and applied is None:
        raise RuntimeError(
            f"expected gradients of a loss scaled by {scale.factor:g}, but got a step without "
            "one; with grad_scale, call optimizer.scale(loss).backward() instead of "
            "loss.backward() before optimizer.step()"
        )


def refuse_closure(closure: object, needed_by: str | None = None) -> None:
    """Refuse a closure that cannot be called without arguments."""
    if closure is None and needed_by is not None:
        raise TypeError(
            f"expected a closure, which {needed_by} calls within a step, but got None; give one "
            "that computes the gradients and returns the loss"
        )
    if callable(closure):
        try:
            inspect.signature(closure).bind()
            return
        except ValueError:  # Python does not know a builtin's signature
            return
        except TypeError:
            pass
    raise TypeError(
        "expected None or a closure without arguments that computes the gradients and returns the "
        f"loss, but got {closure!r}; bind its arguments by functools.partial or a lambda"
    )


def refuse_parameter(p, weight, grad, master, scale) -> None:
    """Refuse a parameter that does not fit the formats (each a ``Storage``) and the loss scale."""
    if not p.is_floating_point():
        raise ValueError(f"expected parameters of floating-point dtypes, but got one of {p.dtype}")
    fmt = _C.format_of(p.dtype)
    if fmt is not None and weight.is_given and not _same_values(fmt, weight.format):
        raise ValueError(
            f"expected weight={p.dtype} for parameters of {p.dtype}, but got weight={weight}; "
            "leave weight out, or keep the parameters in float32"
        )
    if scale.rule and (overflow_limit(fmt) is None or grad.overflow_limit() is None):
        wraps = p.dtype if overflow_limit(fmt) is None else grad
        raise ValueError(
            f"expected a format without wrap-around for gradients with a dynamic grad_scale, but "
            f"got {wraps}; use a format that saturates, or a constant grad_scale"
        )
    if (
        master is not None
        and master.dtype is torch.float32
        and compute_type(p.dtype) is torch.float64
    ):
        raise ValueError(
            f"expected master=torch.float64 for parameters of {p.dtype}, which are computed in "
            "float64, but got master=torch.float32"
        )
    for storage in (weight, grad, *([] if master is None else [master])):
        storage.check_shape(p.shape)


def refuse_rounded_variance(groups: list, by_name: dict, state) -> None:
    """Raise ValueError for RMSprop's ``centered=True`` with rounded averages. Rounding may make
    their difference negative, so that it has no root."""
    for name in ("square_avg", "grad_avg"):
        storage = by_name.get(name, state)
        if not storage.is_exact and any(group.get("centered") for group in groups):
            raise ValueError(
                f"expected {name} in float32 with centered=True, since the step takes the root of "
                f"square_avg - grad_avg^2, but got state={storage}; use centered=False, or "
                "state={'momentum_buffer': ...} to leave both in float32"
            )


def refuse_masters(masters: dict, expected: dict) -> None:
    """Refuse loaded masters whose parameters, shapes or dtypes differ from the expected ones. Keys
    are the parameters' indices."""
    if {i: (m.shape, m.dtype) for i, m in masters.items()} != {
        i: (m.shape, m.dtype) for i, m in expected.items()
    }:
        raise ValueError(
            f"expected masters of {_describe_masters(expected)}, but got "
            f"{_describe_masters(masters)}; give LowPrecision the formats with which it was saved"
        )


def has_overflow(params: list, gradients: list, rounded: float) -> bool:
    """Return whether a gradient reaches the limit of its parameter's dtype, or that of its format
    (``rounded``). Of shards, only this rank's part counts."""
    overflows = False
    for p, g in zip(params, gradients, strict=True):
        part = _part(g)  # called for each gradient, since all ranks must join in its sums
        if overflows or not part.numel():
            continue
        # Not "norm >= limit", which is False for NaN.
        overflows = not torch.linalg.vector_norm(part, math.inf).item() < min(
            rounded, overflow_limit(_C.format_of(p.grad.dtype))
        )
    return overflows


def _part(g: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or this rank's part of a DTensor after partial sums are added up."""
    if _mesh(g) is None:
        return g
    from torch.distributed.tensor import Replicate

    return g.redistribute(
        placements=[Replicate() if p.is_partial() else p for p in g.placements]
    ).to_local()


def _mesh(x: torch.Tensor):
    """Return a DTensor's mesh, else None. DTensor's module is not imported, since that is slow."""
    return getattr(x, "device_mesh", None)


def on_any_rank(flag: bool, params: list) -> bool:
    """Return whether the flag is set on any rank that has a part of one of the parameters.

    All these ranks must call it with the same parameters. Without DTensors nothing is sent.
    """
    groups = {}  # each once, in the order of the parameters, which is the same on all ranks
    for p in params:
        mesh = _mesh(p)
        if mesh is not None and mesh.get_coordinate() is not None:
            for group in mesh.get_all_groups():
                groups.setdefault(group.group_name, (group, p.device))
    for group, device in groups.values():
        shared = torch.tensor(int(flag), dtype=torch.int32, device=device)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX, group=group)
        flag = bool(shared)
    return flag


def version(p) -> tuple:
    """Return a value that changes whenever the parameter does."""
    return p._version, p.dtype


def _same_values(a: _C.Format, b: _C.Format | None) -> bool:
    if b is None:
        return False
    b = _C.Format(b)
    b.rounding = a.rounding
    return a == b


def _describe_masters(masters: dict) -> str:
    return ", ".join(f"{i}: {m.dtype} of {tuple(m.shape)}" for i, m in masters.items()) or "none"


def warn_of_no_state(storage, optimizer: str) -> None:
    warnings.warn(
        f"expected an optimizer with states for state={storage}, but got {optimizer} without any; "
        "leave state= out, or give the option that creates them (SGD's momentum=)",
        stacklevel=6,
    )


def refuse_state_names(formats: dict, states: list) -> None:
    """Refuse names in ``state=`` that no state has."""
    known = {
        name for of_parameter in states if isinstance(of_parameter, dict) for name in of_parameter
    }
    for name in formats:
        if name not in known:
            there = ", ".join(map(repr, sorted(known))) or "none"
            raise ValueError(
                f"expected state= with names of the optimizer's states, but got {name!r}; there "
                f"are {there}"
            )
