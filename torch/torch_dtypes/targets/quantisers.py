"""One's own quantiser as a target: any object with a method ``quantize``."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from ..formats import naming
from ..formats.arguments import dimension, find_mode, mode_name, outline
from ..formats.imports import find_object, is_spelt
from ..formats.patterns import name_pattern
from ..formats.tables.making import has_values
from .base import (
    COMPUTED,
    Target,
    check_clamped,
    check_dense,
    check_tensor,
    is_eager,
    refuse_zero_point,
)
from .gradients import straight_through
from .grid import check_generator

_CALL = "(x, *, axis, generator, rounding)"
_AXIS = name_pattern(r"(?s)(.+)_axis(minus)?(\d+)")


class Quantiser(Protocol):
    """An object of a user that rounds tensors. ``name``, ``bits`` and ``own_gradient`` are
    optional attributes; docs/how-to/own-quantiser.md explains them."""

    def quantize(
        self,
        x: torch.Tensor,
        *,
        axis: int,
        generator: torch.Generator | None,
        rounding: str,
    ) -> torch.Tensor:
        """Return x rounded: a new tensor of x's shape, dtype and device."""


@dataclass(frozen=True, eq=False)
class _Named:
    """A quantiser and its name. ``is_importable`` is set if the name is ``package.module:name``,
    which every process understands."""

    quantiser: Quantiser
    name: str
    is_importable: bool

    def __reduce__(self):
        # A copy of another object is another quantiser, and gets a name that is free.
        return (
            (_import_named, (self.name,))
            if self.is_importable
            else (_register, (self.quantiser, self.name))
        )


# The quantisers that something in this process refers to. One without a place in a module is
# found by its name here alone.
_known: weakref.WeakValueDictionary[str, _Named] = weakref.WeakValueDictionary()


@dataclass(frozen=True, repr=False)
class QuantiserTarget(Target):
    """The numbers to which an object of a user rounds. ``torch_dtypes.target`` makes it.

    ``bits`` is NaN if the object has no attribute ``bits``; ``largest`` and ``full_scale`` are
    NaN.
    """

    _own: _Named
    axis: int = -1
    rounding: str = "nearest_even"

    largest = full_scale = math.nan

    @property
    def name(self) -> str:
        axis = "" if self.axis == -1 else f"_axis{self.axis}".replace("-", "minus")
        mode = "" if self.rounding == "nearest_even" else f"_{self.rounding}"
        return f"{self._own.name}{axis}{mode}"

    @property
    def bits(self) -> float:
        return getattr(self._own.quantiser, "bits", math.nan)

    @property
    def has_own_gradient(self) -> bool:
        """Whether gradients flow through the object's own operations."""
        return bool(getattr(self._own.quantiser, "own_gradient", False))

    @property
    def is_importable(self) -> bool:
        """Whether other processes find the quantiser by its name."""
        return self._own.is_importable

    def with_rounding(self, mode: str | int) -> QuantiserTarget:
        return dataclasses.replace(self, rounding=mode_name(mode))

    def along(self, axis: int) -> QuantiserTarget:
        return dataclasses.replace(self, axis=dimension("axis", axis))

    def quantize(
        self, x, *, scale=None, zero_point=None, rounding=None, generator=None, clamped="pass"
    ):
        check_tensor(x, self)
        refuse_zero_point(zero_point, self)
        refuse_options(self, scale, clamped)
        check_dense(x, f"quantise to {self.name}")
        check_generator(generator, x)
        mode = find_mode(rounding) or self.rounding
        if self.has_own_gradient:
            return self._call(x, mode, generator)
        return straight_through(x, self._call(x.detach(), mode, generator).detach())

    def _call(self, x: torch.Tensor, mode: str, generator) -> torch.Tensor:
        """Round by the user's object, in float32 or float64, and check what it returns."""
        if not x.numel():
            return x.clone()
        given = x.to(COMPUTED[x.dtype])
        if given.dim() == 0:
            given = given.reshape(1)
        # A tensor of one dimension, such as a bias, has no other.
        axis = self.axis if given.dim() > 1 else -1
        version = _count_writes(given)
        try:
            values = self._own.quantiser.quantize(
                given, axis=axis, generator=generator, rounding=mode
            )
        except Exception as error:
            error.add_note(
                f"raised by the quantiser {self.name}, for a tensor of shape "
                f"{tuple(given.shape)}, axis={axis} and rounding={mode!r}"
            )
            raise
        if (
            not isinstance(values, torch.Tensor)
            or (values.shape, values.dtype) != (given.shape, given.dtype)
            or values.device != given.device
        ):
            got = outline(values)
            if isinstance(values, torch.Tensor):
                got += f" on {values.device}"
            raise ValueError(
                f"expected the quantiser {self.name} to return a tensor of {given.dtype} and shape "
                f"{tuple(given.shape)} on {given.device}, but got {got}"
            )
        if _count_writes(given) != version:
            raise ValueError(
                f"expected the quantiser {self.name} to return a new tensor, but it has written "
                "into its argument; use x.clone() there"
            )
        if is_eager() and torch._C._is_alias_of(values, given):
            values = values.clone()  # a write into the result must not reach x
        return values.reshape(x.shape).to(x.dtype)


def _count_writes(x: torch.Tensor) -> int:
    return x._version if is_eager() and not x.is_inference() else 0


def refuse_options(target: Target, scale: object, clamped: object) -> None:
    """Raise ValueError for options of a scale or a range that only other targets have."""
    if not isinstance(target, QuantiserTarget):
        return
    if scale is not None:
        raise ValueError(
            f"expected no scale with {target.name}, a quantiser that finds its own, but got "
            f"{scale!r}; multiply the tensor by it"
        )
    if check_clamped(clamped):
        raise ValueError(
            f"expected clamped='pass' with {target.name}, whose range only its quantiser knows, "
            "but got 'zero'; give the quantiser own_gradient = True and a gradient"
        )


def is_quantiser(value: object) -> bool:
    """Whether a value is an object or a class with a method ``quantize``. Python's Decimal, a
    number, has another method of this name."""
    return callable(getattr(value, "quantize", None)) and not isinstance(value, numbers.Number)


def wrap(value: Quantiser | type, is_taken: Callable[[str], bool]) -> QuantiserTarget:
    """Return the target of an object or a class with a method ``quantize``.

    Args:
        value: the object. A class is called without arguments.
        is_taken: returns whether a name means something else. A number then follows the name.

    Raises:
        TypeError: a method that takes other arguments, or attributes of another type.
        ValueError: a class that cannot be called.
    """
    if isinstance(value, type):
        spec = f"{value.__module__}:{value.__qualname__}"
        if value.__module__ != "__main__" and is_spelt(spec) and _is_found(spec, value):
            return QuantiserTarget(_import_named(spec))
        value = _make(value, value.__name__)
    for known in list(_known.values()):
        if known.quantiser is value:
            return QuantiserTarget(known)
    name = getattr(value, "name", type(value).__name__)
    if not isinstance(name, str) or not name:
        raise TypeError(f"expected the name of a quantiser as a text, but got {outline(name)}")
    _check(value, name)
    return QuantiserTarget(_register(value, name, is_taken))


def find(name: str) -> QuantiserTarget | None:
    """Return the target of ``package.module:name``, or of a name in this process; None for other
    names. An axis (``_axis0``) and a rounding mode may follow.

    Raises:
        ValueError, TypeError: no such object in the module, or one that is no quantiser.
    """
    spec = is_spelt(name) and not has_values(name)
    if not (spec or _known):
        return None
    if (target := _find_known(name, -1, "nearest_even")) is not None:
        return target
    base, mode = naming.split_rounding(name)
    axis = -1
    if match := _AXIS.fullmatch(base):
        base, axis = match[1], int(match[3]) * (-1 if match[2] else 1)
    if base != name and (target := _find_known(base, axis, mode)) is not None:
        return target
    if not spec:
        return None
    try:
        return QuantiserTarget(_import_named(name))
    except ValueError:
        if base == name:
            raise
        return QuantiserTarget(_import_named(base), axis, mode)


def _find_known(name: str, axis: int, mode: str) -> QuantiserTarget | None:
    known = _known.get(name)
    return None if known is None else QuantiserTarget(known, axis, mode)


@functools.cache
def _import_named(spec: str) -> _Named:
    """Return the quantiser at a place in a module: the object there, or one that its class
    makes."""
    value = find_object(spec, "a quantiser")
    if isinstance(value, type):
        value = _make(value, spec)
    _check(value, spec)
    return _Named(value, spec, True)


def _is_found(spec: str, value: type) -> bool:
    try:
        return find_object(spec, "a quantiser") is value
    except ValueError:  # a class within a function
        return False


def _make(kind: type, name: str) -> Quantiser:
    try:
        return kind()
    except Exception as error:  # a user's class may raise any error
        raise ValueError(
            f"expected {name} to make a quantiser without arguments, but it raised "
            f"{type(error).__name__}: {error}; give an object in place of the class"
        ) from error


def _register(
    value: Quantiser, name: str, is_taken: Callable[[str], bool] = lambda name: False
) -> _Named:
    free, number = name, 1
    while free in _known or is_taken(free):
        number += 1
        free = f"{name}_{number}"
    return _known.setdefault(free, _Named(value, free, False))


def _check(value: Quantiser, name: str) -> None:
    """Refuse an object that cannot be called as a quantiser is, before anything is rounded."""
    if not is_quantiser(value):
        raise TypeError(f"expected an object with a method quantize, but got {name}: {value!r}")
    try:
        signature = inspect.signature(value.quantize)
    except ValueError:  # Python does not know a builtin's signature
        signature = None
    try:
        if signature is not None:
            signature.bind(None, axis=-1, generator=None, rounding="nearest_even")
    except TypeError as error:
        raise TypeError(
            f"expected {name}.quantize to take {_CALL}, but got quantize{signature}: {error}"
        ) from None
    bits = getattr(value, "bits", 1)
    if isinstance(bits, bool) or not isinstance(bits, numbers.Real) or not bits > 0:
        raise TypeError(
            f"expected bits of {name} as a number above 0, but got {bits!r}; leave it out if it "
            "is not known"
        )
