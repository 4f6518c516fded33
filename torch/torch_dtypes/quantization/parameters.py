"""What a layer computes with: its parameters, and the tensors that torch.nn.utils makes of
parameters and puts in their place.

Pruning, ``weight_norm`` and ``spectral_norm`` keep parameters under other names and set an
attribute before each forward; parametrisations (``torch.nn.utils.parametrize``) have a property.
What a layer multiplies by, and what a rule is about, is the tensor made.
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
_ENDINGS = ("_orig", "_g", "_v")  # of what pruning and spectral_norm, and weight_norm, keep


def is_list(module: nn.Module) -> bool:
    """Whether a module only keeps parameters, which its owner computes with."""
    return isinstance(module, _LISTS)


@contextlib.contextmanager
def leaving(lists: Collection[nn.Module]) -> Iterator[None]:
    """A block in which the parameters of some lists are no parameters of their owners."""
    token = _left.set(lists)
    try:
        yield
    finally:
        _left.reset(token)


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that has a parameter of a dotted name (an attention's ``out_proj.weight``), and
    its name there."""
    path, _, last = name.rpartition(".")
    return (module.get_submodule(path) if path else module), last


def parameter_of(module: nn.Module, name: str) -> torch.Tensor:
    """The parameter, or what is made in its place (anew, where it is parametrised)."""
    owner, last = owner_of(module, name)
    found = owner._parameters.get(last)
    return getattr(owner, last) if found is None else found


def masters_of(module: nn.Module, name: str) -> list[torch.Tensor]:
    """The parameters themselves: one, or those that a tensor is made of; the tensor, where another
    network makes it."""
    owner, last = owner_of(module, name)
    if (found := owner._parameters.get(last)) is not None:
        return [found]
    if is_parametrized(owner, last):
        return list(owner.parametrizations[last].parameters())
    made_of = [
        p
        for key, p in owner._parameters.items()
        if p is not None and key in {last + ending for ending in _ENDINGS}
    ]
    return made_of or [owner.__dict__[last]]


def has_parametrisation(module: nn.Module, name: str) -> bool:
    owner, last = owner_of(module, name)
    return is_parametrized(owner, last)


def parameter_names(module: nn.Module) -> list[str]:
    """The names of the floating tensors that a layer computes with: its own, those in its lists,
    and those of an attention's output projection."""
    names = dict.fromkeys(
        _made_name(module, key)
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
    found = list(names)
    for name, child in module.named_children():
        if is_list(child) and not any(child is one for one in _left.get()):
            found += [f"{name}.{inner}" for inner in parameter_names(child)]
    if isinstance(module, nn.MultiheadAttention):
        found += [f"out_proj.{name}" for name in parameter_names(module.out_proj)]
    return found


def has_weights(module: nn.Module) -> bool:
    """Whether the module computes with parameters of its own; one that keeps those of a
    parametrisation, or of its owner, does not."""
    return not isinstance(module, (nn.utils.parametrize.ParametrizationList, *_LISTS)) and bool(
        parameter_names(module)
    )


def _made_name(module: nn.Module, key: str) -> str:
    for ending in _ENDINGS:
        name = key.removesuffix(ending)
        if name != key and isinstance(module.__dict__.get(name), torch.Tensor):
            return name
    return key


@contextlib.contextmanager
def standing_in(module: nn.Module, tensors: dict[str, torch.Tensor]):
    """Tensors in the place of those that the layer computes with.

    Raises:
        RuntimeError: a parametrisation was registered since ``quantize_``, which refuses them where
            they have to be replaced.
    """
    places = []
    for name, t in tensors.items():
        owner, last = owner_of(module, name)
        kept = owner._parameters if last in owner._parameters else owner.__dict__
        if last not in kept:
            what = f"{name} as it was when {type(module).__name__} was quantised"
            raise RuntimeError(f"expected {what}, but it is parametrised now; call quantize_ again")
        places.append((kept, last, kept[last], t))
    # A recurrent layer keeps a list of its weights, which it makes anew where they are others than
    # when it last looked.
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
