"""What LowPrecision refuses, before any work."""

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
    """An error for what cannot be run between masters and weights."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, but got {optimizer!r}")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise TypeError(
            "expected an optimizer of dense gradients, but got SparseAdam; use Adam, and "
            "Embedding(sparse=False)"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ValueError(
            "expected differentiable=False, but got True: rounding to a format has no derivative "
            "that a step could record"
        )


def calls_closure(optimizer: Optimizer) -> bool:
    """Whether a step has to be given a closure, which it calls as often as it likes (LBFGS)."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return True
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def refuse_dynamic(scale, optimizer: Optimizer) -> None:
    """An error for a scale that leaves steps out, around an optimizer whose steps are of several
    gradients."""
    if scale.rule and calls_closure(optimizer):
        raise ValueError(
            f"expected a constant grad_scale or none around {type(optimizer).__name__}, which "
            "calls its closure within a step, but got a dynamic one"
        )


def refuse_unscaled(scale, applied: float | None) -> None:
    """An error for gradients of a loss that was not scaled."""
    if scale.is_on and applied is None:
        raise RuntimeError(
            f"expected gradients of a loss scaled by {scale.factor:g}, but got a step without "
            "one; with grad_scale, write optimizer.scale(loss).backward() in place of "
            "loss.backward() before optimizer.step()"
        )


def refuse_closure(closure: object, needed_by: str | None = None) -> None:
    """An error for what cannot be called without arguments."""
    if closure is None and needed_by is not None:
        raise TypeError(
            f"expected a closure, which {needed_by} calls within a step, but got None; it makes "
            "the gradients and returns the loss"
        )
    if callable(closure):
        try:
            inspect.signature(closure).bind()
            return
        except ValueError:  # a builtin's, which Python does not know
            return
        except TypeError:
            pass
    raise TypeError(
        "expected a closure that makes the gradients and returns the loss, called without "
        f"arguments, or None, but got {closure!r}; "
        "functools.partial or a lambda gives it what it needs"
    )


def refuse_parameter(p, weight, grad, master, scale) -> None:
    """An error for a parameter that does not go with the formats (each a ``Storage``) and the loss
    scale."""
    if not p.is_floating_point():
        raise ValueError(f"expected parameters of floating-point dtypes, but got one of {p.dtype}")
    fmt = _C.format_of(p.dtype)
    if fmt is not None and weight.is_given and not _same_values(fmt, weight.format):
        raise ValueError(
            f"expected the parameters' dtype as the format of weights, but got weight={weight} "
            f"beside parameters of {p.dtype}; "
            "leave weight out, or keep the parameters in float32"
        )
    if scale.rule and (overflow_limit(fmt) is None or grad.overflow_limit() is None):
        wraps = p.dtype if overflow_limit(fmt) is None else grad
        raise ValueError(
            f"expected gradients whose overflow shows, for a dynamic grad_scale, but got {wraps}, "
            "which wraps; use a format that saturates, or a constant grad_scale"
        )
    if (
        master is not None
        and master.dtype is torch.float32
        and compute_type(p.dtype) is torch.float64
    ):
        raise ValueError(
            f"expected masters of float64, in which {p.dtype} is computed, but got "
            "master=torch.float32; use master=torch.float64"
        )
    for storage in (weight, grad, *([] if master is None else [master])):
        storage.check_shape(p.shape)


def refuse_rounded_variance(groups: list, by_name: dict, state) -> None:
    """Raises ValueError for RMSprop's ``centered=True`` beside rounded averages, whose difference
    has no root where it is below 0."""
    for name in ("square_avg", "grad_avg"):
        storage = by_name.get(name, state)
        if not storage.is_exact and any(group.get("centered") for group in groups):
            raise ValueError(
                f"expected {name} in float32 with centered=True, but got state={storage}: the "
                "step takes the root of square_avg - grad_avg^2, which rounding makes negative; "
                "use centered=False, or state={'momentum_buffer': ...}, which leaves both in "
                "float32"
            )


def refuse_masters(masters: dict, expected: dict) -> None:
    """An error for loaded masters that are not of the parameters and dtypes of those that there
    are; both by the parameters' numbers."""
    if {i: (m.shape, m.dtype) for i, m in masters.items()} != {
        i: (m.shape, m.dtype) for i, m in expected.items()
    }:
        raise ValueError(
            f"expected masters as {_describe_masters(expected)}, but got {_describe_masters(masters)}; give "
            "LowPrecision the formats that it was saved with"
        )


def has_overflow(params: list, gradients: list, rounded: float) -> bool:
    """Whether a gradient reaches the limit of its parameter's dtype, or of the format (``rounded``)
    that it was rounded to; of shards, whether this rank's part does."""
    found = False
    for p, g in zip(params, gradients, strict=True):
        part = _part(g)  # of every one: where ranks add up for it, all of them have to
        if found or not part.numel():
            continue
        # False for NaN, too
        found = not torch.linalg.vector_norm(part, math.inf).item() < min(
            rounded, overflow_limit(_C.format_of(p.grad.dtype))
        )
    return found


def _part(g: torch.Tensor) -> torch.Tensor:
    """A tensor, or this rank's part of a DTensor, whole sums of it."""
    if _mesh(g) is None:
        return g
    from torch.distributed.tensor import Replicate

    return g.redistribute(
        placements=[Replicate() if p.is_partial() else p for p in g.placements]
    ).to_local()


def _mesh(x: torch.Tensor):
    """A DTensor's mesh. Without its class, whose module takes a while to import."""
    return getattr(x, "device_mesh", None)


def on_any_rank(flag: bool, params: list) -> bool:
    """Whether the flag is set on a rank that has a part of one of the parameters (DTensors). All
    those ranks ask, of the same parameters; where there are no DTensors nothing is sent."""
    groups = {}  # each once, in the order of the parameters, which is the same on all ranks
    for p in params:
        mesh = _mesh(p)
        if mesh is not None and mesh.get_coordinate() is not None:
            for group in mesh.get_all_groups():
                groups.setdefault(group.group_name, (group, p.device))
    for group, device in groups.values():
        said = torch.tensor(int(flag), dtype=torch.int32, device=device)
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MAX, group=group)
        flag = bool(said)
    return flag


def version(p) -> tuple:
    """Changes whenever a parameter does."""
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
        f"expected an optimizer whose states state={storage} rounds, but got {optimizer} as it "
        "was made, which keeps none; leave state= out, or say what makes them (SGD's momentum=)",
        stacklevel=6,
    )


def refuse_state_names(formats: dict, states: list) -> None:
    """Names that no state has, once there are states: their formats would be those of nothing."""
    known = {
        name for of_parameter in states if isinstance(of_parameter, dict) for name in of_parameter
    }
    for name in formats:
        if name not in known:
            there = ", ".join(map(repr, sorted(known))) or "none"
            raise ValueError(
                f"expected state= to name states of the optimizer, but got {name!r}; there are "
                f"{there}"
            )
