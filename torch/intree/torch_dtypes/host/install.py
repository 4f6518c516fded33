"""What PyTorch must be told of the dtypes inside its own tree: it knows them, so only what the
package adds."""

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
from ..storage import pickling
from ..targets import grid

# While an optimizer steps: its groups and their eps, by its id.
_given: dict[int, tuple[list, list]] = {}


def _name_of(optimizer: Optimizer) -> str:
    """The name of the optimizer whose formula it has: AdamW's is Adam's."""
    name = type(optimizer).__name__.lower()
    return "adam" if name == "adamw" else name


def _raised(eps: object, dtype: torch.dtype, name: str) -> object:
    """The eps that a step of parameters of a dtype computes with."""
    if _C.format_of(dtype) is None:
        return eps
    if isinstance(eps, (tuple, list)):  # Adafactor's two
        return (with_eps(dtype, {"eps1": eps[0]}, name)["eps1"], *eps[1:])
    return with_eps(dtype, {"eps": eps}, name)["eps"]


def _before(optimizer: Optimizer, _args: tuple, _kwargs: dict) -> None:
    """A group of parameters in several dtypes is one for each of them while the optimizer steps,
    for the sake of their eps."""
    _after(optimizer)  # a step before this one may have raised
    if isinstance(optimizer, LowPrecision):  # computes in float32
        return
    groups, name = list(optimizer.param_groups), _name_of(optimizer)
    given = [group.get("eps") for group in groups]
    parted = []
    for group, eps in zip(groups, given, strict=True):
        dtypes = dict.fromkeys(p.dtype for p in group["params"]) if eps is not None else {}
        if not any(_C.format_of(dtype) for dtype in dtypes):
            parted.append(group)
        elif len(dtypes) == 1:
            group["eps"] = _raised(eps, *dtypes, name)
            parted.append(group)
        else:
            for dtype in dtypes:
                parted.append(
                    {
                        **group,
                        "params": [p for p in group["params"] if p.dtype is dtype],
                        "eps": _raised(eps, dtype, name),
                    }
                )
    if len(parted) > len(groups) or any(
        group.get("eps") is not eps for group, eps in zip(groups, given, strict=True)
    ):
        _given[id(optimizer)] = groups, given
        optimizer.param_groups[:] = parted  # in place: a wrapper of an optimizer has its list


def _after(optimizer: Optimizer, *_arguments: object) -> None:
    groups, given = _given.pop(id(optimizer), ((), ()))
    for group, eps in zip(groups, given, strict=True):
        if eps is not None:
            group["eps"] = eps
    if groups:
        optimizer.param_groups[:] = groups


def _reduced(dtype: torch.dtype):
    """What pickles and files hold of a dtype.

    A format made at run time is made again from its name, in a process that need not know it yet;
    all others are PyTorch's own, by their names in torch.
    """
    if _C.format_of(dtype) is None or dtype in _C.builtin_dtypes():
        return dtype.__reduce__()
    return pickling.rebuild_dtype, (written_name(_C.name_of(dtype)),)


def install() -> None:
    copyreg.pickle(torch.dtype, _reduced)
    pickling.allow(torch.serialization.add_safe_globals)
    register_optimizer_step_pre_hook(_before)
    register_optimizer_step_post_hook(_after)
    # An edit of PyTorch's leaves it the place.
    torch.utils.checkpoint._carried = recomputing.carry_overrides
    grid.install()
