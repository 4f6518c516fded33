"""PyTorch's functions between roundings: arguments, the result and their gradients are rounded to
``bfloat`` or ``fp``.

They serve injected calls with arguments that microxcaling's functions lack.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import torch

from .inside import stock_within
from .quantize import round_both
from .steps import find_specs


def _round(value: object, specs: Mapping) -> object:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return round_both(value, specs, specs["round"], specs["round"])
    return value


def define(name: str, stock: Callable) -> Callable:
    """Return a function that calls ``stock`` on rounded tensors, and rounds its result."""

    @stock_within
    def function(*args, mx_specs: Mapping | None = None, name: str | None = None, **kwargs):
        if (specs := find_specs(mx_specs)) is None:
            return stock(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise TypeError(f"expected no out= with mx_specs, but got it in {stock.__name__}")
        args = [_round(value, specs) for value in args]
        kwargs = {key: _round(value, specs) for key, value in kwargs.items()}
        return _round(stock(*args, **kwargs), specs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Compute as PyTorch's function, by the bfloat or fp of mx_specs."
    return function


def adapt(name: str, own: Callable, stock: Callable) -> Callable:
    """Return a function that takes PyTorch's arguments: ``own`` where it takes them and the first
    is a tensor of floats, or else PyTorch's between roundings. ``dtype`` is the result's."""
    other, signature = define(name, stock), inspect.signature(own)

    @stock_within
    def function(*args, mx_specs: Mapping | None = None, **kwargs):
        floats = args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point()
        given = {k: v for k, v in kwargs.items() if k not in ("dtype", "_stacklevel")}
        try:
            signature.bind(*args, mx_specs=mx_specs, **given)
        except TypeError:
            floats = False
        if not floats:
            return other(*args, mx_specs=mx_specs, **kwargs)
        y = own(*args, mx_specs=mx_specs, **given)
        return y if kwargs.get("dtype") is None else y.to(kwargs["dtype"])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = own.__doc__
    return function
