"""What PyTorch must be told of the dtypes inside its own tree: it knows them, so only what the package adds, by PyTorch's public functions."""

from __future__ import annotations

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import _C, chopping
from .optim.eps import with_eps

ADAPTERS: dict[str, str] = {}  # integrations/ needs none of PyTorch's own Python

_given: dict[int, list] = {}  # while an optimizer steps: the eps of its groups, by its id


def _name_of(optimizer: Optimizer) -> str:
    """The name of the optimizer whose formula it has: AdamW's is Adam's."""
    name = type(optimizer).__name__.lower()
    return "adam" if name == "adamw" else name


def _raised(group: dict, name: str) -> object:
    """The eps of a parameter group that a step computes with. A group whose parameters have several dtypes keeps its own."""
    dtypes = {p.dtype for p in group["params"] if p.grad is not None}
    if len(dtypes) != 1 or _C.format_of(dtype := dtypes.pop()) is None:
        return group["eps"]
    if isinstance(group["eps"], (tuple, list)):  # Adafactor's two
        return (with_eps(dtype, {"eps1": group["eps"][0]}, name)["eps1"], *group["eps"][1:])
    return with_eps(dtype, {"eps": group["eps"]}, name)["eps"]


def _before(optimizer: Optimizer, _args: tuple, _kwargs: dict) -> None:
    _after(optimizer)  # a step before this one may have raised
    groups = [group for group in optimizer.param_groups if "eps" in group]
    raised = [_raised(group, _name_of(optimizer)) for group in groups]
    if any(new is not group["eps"] for group, new in zip(groups, raised, strict=True)):
        _given[id(optimizer)] = [(group, group["eps"]) for group in groups]
        for group, new in zip(groups, raised, strict=True):
            group["eps"] = new


def _after(optimizer: Optimizer, *_arguments: object) -> None:
    for group, eps in _given.pop(id(optimizer), ()):
        group["eps"] = eps


def install() -> None:
    register_optimizer_step_pre_hook(_before)
    register_optimizer_step_post_hook(_after)
    chopping.install()
