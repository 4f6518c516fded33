"""Parameters of a layer, and the tensors that torch.nn.utils computes in place of parameters.

Pruning, ``weight_norm`` and ``spectral_norm`` keep parameters under other names and set an
attribute before each forward. Parametrisations (``torch.nn.utils.parametrize``) have a property.
A layer multiplies by the computed tensor, and rules apply to that one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from contextvars import ContextVar

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

_RECURRENT = nn.RNNBase
_PRODUCTS = (nn.Linear, nn.modules.conv._ConvNd)
_LISTS = (nn.ParameterList, nn.ParameterDict)
_left: ContextVar[Collection[nn.Module]] = ContextVar("lists that no rule is to round", default=())
_IN_PRODUCTS = ("weight", "bias")
# Endings of the parameters that pruning and spectral_norm ("_orig") and weight_norm keep.
_ENDINGS = ("_orig", "_g", "_v")


def is_list(module: nn.Module) -> bool:
    """Return whether a module only keeps parameters with which its owner computes."""
    return isinstance(module, _LISTS)


@contextlib.contextmanager
def leave_out(lists: Collection[nn.Module]) -> Iterator[None]:
    """Run a block in which the parameters of these lists do not count as their owners'."""
    token = _left.set(lists)
    try:
        yield
    finally:
        _left.reset(token)


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return the module that has a parameter of a dotted name (an attention's
    ``out_proj.weight``), and the parameter's name in that module."""
    path, _, last = name.rpartition(".")
    return (module.get_submodule(path) if path else module), last


def parameter_of(module: nn.Module, name: str) -> torch.Tensor:
    """Return the parameter, or the tensor in its place (a parametrised one is computed anew)."""
    owner, last = owner_of(module, name)
    parameter = owner._parameters.get(last)
    return getattr(owner, last) if parameter is None else parameter


def masters_of(module: nn.Module, name: str) -> list[torch.Tensor]:
    """Return the parameter of this name, or those from which the tensor is computed.

    Returns the tensor itself if another network computes it.
    """
    owner, last = owner_of(module, name)
    if (parameter := owner._parameters.get(last)) is not None:
        return [parameter]
    if is_parametrized(owner, last):
        return list(owner.parametrizations[last].parameters())
    sources = [
        p
        for key, p in owner._parameters.items()
        if p is not None and key in {last + ending for ending in _ENDINGS}
    ]
    return sources or [owner.__dict__[last]]


def is_bias(name: str) -> bool:
    return "bias" in name.rpartition(".")[2]


def has_parametrisation(module: nn.Module, name: str) -> bool:
    owner, last = owner_of(module, name)
    return is_parametrized(owner, last)


def parameter_names(module: nn.Module) -> list[str]:
    """Return the names of the floating tensors with which a layer computes: its own, those in its
    lists, and those of an attention's output projection."""
    names = dict.fromkeys(
        _computed_name(module, key)
        for key, p in module._parameters.items()
        if p is not None and p.is_floating_point()
    )
    if is_parametrized(module):
        names |= dict.fromkeys(
            key
            for key in module.parametrizations
            if masters_of(module, key) and masters_of(module, key)[0].is_floating_point()
        )
    for key in _IN_PRODUCTS if isinstance(module, _PRODUCTS) else ():
        if isinstance(t := module.__dict__.get(key), torch.Tensor) and t.is_floating_point():
            names[key] = None
    result = list(names)
    for name, child in module.named_children():
        if is_list(child) and not any(child is one for one in _left.get()):
            result += [f"{name}.{inner}" for inner in parameter_names(child)]
    if isinstance(module, nn.MultiheadAttention):
        result += [f"out_proj.{name}" for name in parameter_names(module.out_proj)]
    return result


def has_weights(module: nn.Module) -> bool:
    """Return whether the module computes with parameters of its own. A module that only keeps
    parameters for a parametrisation or its owner does not."""
    return not isinstance(module, (nn.utils.parametrize.ParametrizationList, *_LISTS)) and bool(
        parameter_names(module)
    )


def _computed_name(module: nn.Module, key: str) -> str:
    """Return the name of the tensor that is computed from the parameter ``key``."""
    for ending in _ENDINGS:
        name = key.removesuffix(ending)
        if name != key and isinstance(module.__dict__.get(name), torch.Tensor):
            return name
    return key


@contextlib.contextmanager
def standing_in(module: nn.Module, tensors: dict[str, torch.Tensor]):
    """Replace the tensors with which the layer computes, for a block.

    Raises:
        RuntimeError: a parametrisation was registered after ``quantize_``.
    """
    places = []
    for name, t in tensors.items():
        owner, last = owner_of(module, name)
        kept = owner._parameters if last in owner._parameters else owner.__dict__
        if last not in kept:
            raise RuntimeError(
                f"expected the plain {name} that {type(module).__name__} had when it was "
                "quantised, but got a parametrised one; call quantize_ again"
            )
        places.append((kept, last, kept[last], t))
    # A recurrent layer keeps a list of its weights, and builds it anew when it sees other ones.
    lists = {
        name: module.__dict__[name]
        for name in ("_flat_weights", "_flat_weight_refs")
        if isinstance(module, _RECURRENT)
    }
    try:
        for kept, last, _, t in places:
            kept[last] = t
        if lists:
            module.__dict__["_flat_weights"] = [
                getattr(module, name, None) for name in module._flat_weights_names
            ]
        yield
    finally:
        for kept, last, before, _ in places:
            kept[last] = before
        module.__dict__.update(lists)
