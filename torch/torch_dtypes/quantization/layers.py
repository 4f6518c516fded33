"""A layer that runs by a rule: its class is exchanged for one whose forward rounds, everything else
of it stays.

The parameters stay the same objects under the same names, float32: optimizers, state dicts and
initialisers know nothing of the rule. While the layer runs, rounded tensors stand in their place.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
from collections.abc import Iterator

from torch import nn

from .layer_state import LayerState
from .places import LayerRule
from .rounders import check_scales, load_scales, save_scales
from .running import renormalised, run_by_state


class Quantized:
    """What goes before a module's class: its forward."""

    _quantized_base: type

    def forward(self, *args, **kwargs):
        state = self.__dict__["_quantized"]
        if state.looks_up and self.max_norm is not None:
            with renormalised(self, *args, **kwargs):
                return run_by_state(self, state, super().forward, args, kwargs)
        return run_by_state(self, state, super().forward, args, kwargs)

    def extra_repr(self) -> str:
        own, rule = super().extra_repr(), self.__dict__["_quantized"].rule
        return ", ".join([*([own] if own else []), *described(rule)])

    def __reduce_ex__(self, protocol):
        made, args, *rest = super().__reduce_ex__(protocol)
        if made is not copyreg.__newobj__:
            raise TypeError(
                "expected a module that is pickled in the ordinary way, but "
                f"{type(self).__name__} has its own; dequantize_ it first"
            )
        return _new, (self._quantized_base, *args[1:]), *rest

    def __prepare_scriptable__(self):  # which torch.jit.script asks for
        kind = type(self).__name__
        raise TypeError(
            f"expected modules without rules to script, but got a {kind} of quantize_; "
            "torch.jit.trace takes it, or dequantize_ it first"
        )

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        save_scales(self.__dict__["_quantized"].all_rounders(), destination, prefix)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        rounders = self.__dict__["_quantized"].all_rounders()
        check_scales(rounders, local_metadata, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
        load_scales(rounders, local_metadata)


def described(rule: LayerRule) -> list[str]:
    """What a rule says, in few words."""
    if rule.native is not None:
        return [f"everything={rule.native}".replace("torch.", "")]
    return [f"{name}={place.target.name}" for name, place in rule.places().items()]


@functools.cache
def quantized_class(base: type) -> type:
    names = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_quantized_base": base,
    }
    return type(base.__name__, (Quantized, base), names)


def _new(base: type, *args):
    return copyreg.__newobj__(quantized_class(base), *args)


def is_quantized(module: nn.Module) -> bool:
    return isinstance(module, Quantized)


def state_of(module: nn.Module) -> LayerState:
    return module.__dict__["_quantized"]


def attach(module: nn.Module, state: LayerState) -> None:
    module.__class__ = quantized_class(type(module))
    module.__dict__["_quantized"] = state


def detach(module: nn.Module) -> None:
    module.__class__ = _unquantized(type(module))
    del module.__dict__["_quantized"]


@contextlib.contextmanager
def detached(model: nn.Module) -> Iterator[dict[nn.Module, LayerState]]:
    """A block in which a model's layers run as they did before ``quantize_``; gives their
    states."""
    states = {module: state_of(module) for module in model.modules() if is_quantized(module)}
    for module in states:
        detach(module)
    try:
        yield states
    finally:
        for module, state in states.items():
            attach(module, state)


def _unquantized(kind: type) -> type:
    """The class as it would be without ours; one that a parametrisation put over ours keeps its
    properties."""
    if "_quantized_base" in vars(kind):
        return kind._quantized_base
    if not issubclass(kind, Quantized):
        return kind
    own = {
        name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")
    }
    return type(kind.__name__, tuple(map(_unquantized, kind.__bases__)), own)
