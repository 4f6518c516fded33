"""Registers in PyTorch's own tree the parts of the package that its edits do not include."""

from __future__ import annotations

import copyreg

import torch
import torch.utils.checkpoint
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .. import _C
from ..formats.tables.making import written_name
from ..optim import LowPrecision
from ..optim.eps import with_eps
from ..policies import recomputing
from ..quantization import operators  # noqa: F401  registers operators
from ..storage import pickling
from ..targets import grid

# While an optimizer steps: its groups and their eps, by its id.
_stepping: dict[int, tuple[list, list]] = {}


def _name_of(optimizer: Optimizer) -> str:
    """Return the name of the optimizer with the same formula: AdamW has Adam's."""
    name = type(optimizer).__name__.lower()
    return "adam" if name == "adamw" else name


def _raise_eps(eps: object, dtype: torch.dtype, name: str) -> object:
    """Return the eps with which a step of parameters of a dtype computes."""
    if _C.format_of(dtype) is None:
        return eps
    if isinstance(eps, (tuple, list)):  # Adafactor's two
        return (with_eps(dtype, {"eps1": eps[0]}, name)["eps1"], *eps[1:])
    return with_eps(dtype, {"eps": eps}, name)["eps"]


def _before(optimizer: Optimizer, _args: tuple, _kwargs: dict) -> None:
    """Split groups of parameters in several dtypes while the optimizer steps.

    Each dtype then has its own eps.
    """
    _after(optimizer)  # a step before this one may have raised
    if isinstance(optimizer, LowPrecision):  # computes in float32
        return
    groups, name = list(optimizer.param_groups), _name_of(optimizer)
    values = [group.get("eps") for group in groups]
    split = []
    for group, eps in zip(groups, values, strict=True):
        dtypes = dict.fromkeys(p.dtype for p in group["params"]) if eps is not None else {}
        if not any(_C.format_of(dtype) for dtype in dtypes):
            split.append(group)
        elif len(dtypes) == 1:
            group["eps"] = _raise_eps(eps, *dtypes, name)
            split.append(group)
        else:
            for dtype in dtypes:
                split.append(
                    {
                        **group,
                        "params": [p for p in group["params"] if p.dtype is dtype],
                        "eps": _raise_eps(eps, dtype, name),
                    }
                )
    if len(split) > len(groups) or any(
        group.get("eps") is not eps for group, eps in zip(groups, values, strict=True)
    ):
        _stepping[id(optimizer)] = groups, values
        optimizer.param_groups[:] = split  # in place: a wrapper of an optimizer has its list


def _after(optimizer: Optimizer, *_arguments: object) -> None:
    groups, values = _stepping.pop(id(optimizer), ((), ()))
    for group, eps in zip(groups, values, strict=True):
        if eps is not None:
            group["eps"] = eps
    if groups:
        optimizer.param_groups[:] = groups


def _reduce_dtype(dtype: torch.dtype):
    """Return the pickled form of a dtype.

    A format made at run time is made again from its name, so the reading process need not know it.
    All others are PyTorch's own, by their names in torch.
    """
    if _C.format_of(dtype) is None or dtype in _C.builtin_dtypes():
        return dtype.__reduce__()
    return pickling.rebuild_dtype, (written_name(_C.name_of(dtype)),)


def install() -> None:
    copyreg.pickle(torch.dtype, _reduce_dtype)
    pickling.allow(torch.serialization.add_safe_globals)
    register_optimizer_step_pre_hook(_before)
    register_optimizer_step_post_hook(_after)
    # An edit of PyTorch reads this name.
    torch.utils.checkpoint._carried = recomputing.carry_overrides
    grid.install()
