"""A layer that runs by a rule. Only its class changes, to one whose forward rounds.

The parameters stay the same float32 objects under the same names, so optimizers, state dicts and
initialisers work as before. Rounded tensors replace them only while the layer runs.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
from collections.abc import Iterator

from torch import nn

from .layer_state import LayerState
from .places import PRODUCTS, LayerRule, ProductRule
from .rounders import check_scales, load_scales, save_scales
from .running import renormalise_rows, run_by_state


class Quantized:
    """Base class that comes before a module's own class, so that its forward rounds."""

    _quantized_base: type

    def forward(self, *args, **kwargs):
        state = self.__dict__["_quantized"]
        if state.looks_up and self.max_norm is not None:
            with renormalise_rows(self, *args, **kwargs):
                return run_by_state(self, state, super().forward, args, kwargs)
        return run_by_state(self, state, super().forward, args, kwargs)

    def extra_repr(self) -> str:
        own, rule = super().extra_repr(), self.__dict__["_quantized"].rule
        return ", ".join([*([own] if own else []), *describe_rule(rule)])

    def __reduce_ex__(self, protocol):
        constructor, args, *rest = super().__reduce_ex__(protocol)
        if constructor is not copyreg.__newobj__:
            raise TypeError(
                "expected a module with the default __reduce_ex__, but got "
                f"{type(self).__name__} with its own; dequantize_ it first"
            )
        return _new, (self._quantized_base, *args[1:]), *rest

    def __prepare_scriptable__(self):  # torch.jit.script calls this first
        kind = type(self).__name__
        raise TypeError(
            f"expected a module without rules to script, but got a quantised {kind}; use "
            "torch.jit.trace, or dequantize_ it first"
        )

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        save_scales(self.__dict__["_quantized"].all_rounders(), destination, prefix)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        rounders = self.__dict__["_quantized"].all_rounders()
        check_scales(rounders, local_metadata, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
        load_scales(rounders, local_metadata)


def describe_rule(rule: LayerRule) -> list[str]:
    """Return the rule's places and their formats as short texts."""
    if rule.native is not None:
        return [f"everything={rule.native}".replace("torch.", "")]
    own = [f"{name}={place.target.name}" for name, place in rule.places().items()]
    if not rule.names_products:
        return own
    return own + [
        f"{product}=({', '.join(describe_product(product, named))})"
        for product, named in rule.products().items()
    ]


def describe_product(product: str, rule: ProductRule) -> list[str]:
    """Return the operands of a product and their formats as short texts."""
    places = {name: getattr(rule, name) for name in PRODUCTS[product]}
    return [f"{name}={place.target.name}" for name, place in places.items() if place is not None]


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
    module.__class__ = _strip_quantized(type(module))
    del module.__dict__["_quantized"]


@contextlib.contextmanager
def suspend_rules(model: nn.Module) -> Iterator[dict[nn.Module, LayerState]]:
    """Run a block in which a model's layers run as before ``quantize_``. Yields their states."""
    states = {module: state_of(module) for module in model.modules() if is_quantized(module)}
    for module in states:
        detach(module)
    try:
        yield states
    finally:
        for module, state in states.items():
            attach(module, state)


def _strip_quantized(kind: type) -> type:
    """Return the class without ``Quantized`` among its bases.

    A class that a parametrisation derived from a quantised one keeps its properties.
    """
    if "_quantized_base" in vars(kind):
        return kind._quantized_base
    if not issubclass(kind, Quantized):
        return kind
    own = {
        name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")
    }
    return type(kind.__name__, tuple(map(_strip_quantized, kind.__bases__)), own)
