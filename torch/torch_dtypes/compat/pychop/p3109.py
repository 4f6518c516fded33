"""Pychop's entry points for IEEE P3109's formats of up to 16 bits.

Source: IEEE P3109's public draft, "Arithmetic formats for machine learning".
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ...formats.arguments import boolean, choice, integer
from ...formats.codes import codes as codes_of
from ...formats.codes import from_codes
from ...formats.dtypes import dtype as dtype_of
from ...targets.chop import chop
from ...targets.gradients import straight_through
from .arrays import is_jax, library

__all__ = ["P3109", "P3109Format", "p3109_decode", "p3109_encode", "p3109_quantize"]

_MODES = {
    "nearest_even": "nearest_even",
    "nearest_away": "nearest_away",
    "toward_zero": "toward_zero",
    "toward_positive": "up",
    "toward_negative": "down",
    "to_odd": "to_odd",
    "stochastic_a": "a",
    "stochastic_b": "b",
    "stochastic_c": "c",
}
_SATURATE = {"none": "", "finite": "_saturate", "propagate": "_propagate"}


@dataclass(frozen=True)
class P3109Format:
    """A format of ``k`` bits (3 to 16) with ``precision`` significant bits (1 to k, below k with a
    sign), ``"extended"`` with infinities or ``"finite"`` without.

    Raises:
        TypeError: a number of bits is no integer, or ``signed`` no bool.
        ValueError: a number out of range, more than 10 exponent bits, or an unknown domain.
    """

    k: int = 8
    precision: int = 4
    signed: bool = True
    domain: str = "extended"

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", integer("k", self.k, 3, 16))
        signed = boolean("signed", self.signed)
        object.__setattr__(
            self, "precision", integer("precision", self.precision, 1, self.k - signed)
        )
        choice("domain", self.domain, ("finite", "extended"))
        integer("the number of exponent bits", self.exponent_bits, 1, 10)

    @property
    def name(self) -> str:
        return f"p3109_k{self.k}p{self.precision}{'s' if self.signed else 'u'}{self.domain[0]}"

    @property
    def dtype_name(self) -> str:
        """The name of this package's format."""
        return f"binary{self.k}p{self.precision}{'s' if self.signed else 'u'}{self.domain[0]}"

    @property
    def exponent_bits(self) -> int:
        return self.k - self.precision + 1 - self.signed

    @property
    def bias(self) -> int:
        return 2**self.exponent_bits // 2

    @property
    def nan_code(self) -> int:
        return 2 ** (self.k - 1) if self.signed else 2**self.k - 1

    @property
    def max_code(self) -> int:
        return 2 ** (self.k - self.signed) - 1 - (not self.signed) - (self.domain == "extended")

    @property
    def max(self) -> float:
        return float(p3109_decode(self.max_code, self))

    @property
    def min(self) -> float:
        return -self.max if self.signed else 0.0

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number."""
        return math.ldexp(1.0, 2 - self.bias - self.precision)

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters: dict) -> P3109Format:
        return cls(**parameters)


_DEFAULT = P3109Format()


def _find_name(fmt: P3109Format, rounding: str, saturate: bool | str) -> str:
    """Return the name of this package's format, after checks of the arguments."""
    if not isinstance(fmt, P3109Format):
        raise TypeError(f"expected a P3109Format, but got {fmt!r}")
    choice("rounding", rounding, tuple(_MODES))
    if isinstance(saturate, bool):
        saturate = "finite" if saturate else "none"
    if saturate not in _SATURATE:
        raise ValueError(
            f"expected saturate as a bool, or one of {', '.join(_SATURATE)}, but got {saturate!r}"
        )
    # Without infinities, none can pass.
    saturate = "finite" if saturate == "propagate" and fmt.domain == "finite" else saturate
    return fmt.dtype_name + _SATURATE[saturate]


def _to_values(values: Any) -> torch.Tensor:
    """Return an array's numbers in the dtype of the result: float32 or float64."""
    if isinstance(values, torch.Tensor):
        x = values.detach()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise TypeError(f"expected real numbers, but got an array of {array.dtype}")
        x = torch.from_numpy(array.astype(array.dtype if is_jax(values) else np.float64))
    if x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"expected real numbers, but got a tensor of {x.dtype}")
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _from_torch(result: torch.Tensor, like: Any) -> Any:
    return result if isinstance(like, torch.Tensor) else library(like).asarray(result.numpy())


def _draw(
    x: torch.Tensor, fmt: P3109Format, kind: str, srbits: Any, srnumbits: int
) -> torch.Tensor:
    """Round x by given random integers to the numbers that the format would have without end.

    Let f be the part of the step by which |x| exceeds its lower neighbour, taken to n bits: cut
    (a), to nearest with ties up (b), or to even (c). |x| goes up where f + bits / 2^n is at least
    1.
    """
    n = integer("srnumbits", srnumbits, 1, 32)
    bits = torch.as_tensor(srbits if isinstance(srbits, torch.Tensor) else np.array(srbits))
    if bits.is_floating_point() or bits.dtype == torch.bool:
        raise TypeError(f"expected srbits as integers, but got {bits.dtype}")
    bits = bits.to(x.device, torch.int64)
    if ((bits < 0) | (bits >= 2**n)).any():
        raise ValueError(f"expected srbits from 0 to {2**n - 1}, but got another among them")
    magnitude = x.double().abs()
    bottom = 2 - fmt.bias - fmt.precision
    step = (torch.frexp(magnitude).exponent - fmt.precision).clamp(min=bottom)
    scaled = torch.ldexp(magnitude, -step)
    lower = scaled.floor()
    taken = {"a": torch.floor, "b": lambda f: (f + 0.5).floor(), "c": torch.round}[kind]
    up = taken((scaled - lower) * 2.0**n) + bits >= 2**n
    rounded = torch.ldexp(lower + up, step).copysign(x.double())
    return torch.where(x.isfinite(), rounded, x.double()).to(x.dtype)


def _round(values, fmt, rounding, saturate, srbits, srnumbits) -> torch.Tensor:
    name = _find_name(fmt, rounding, saturate)
    x = _to_values(values)
    if rounding.startswith("stochastic"):
        return chop(_draw(x, fmt, _MODES[rounding], srbits, srnumbits), name, "nearest_even")
    if srbits is not None or srnumbits != 0:
        raise ValueError(f"expected no srbits with {rounding!r}, but got some")
    return chop(x, name, _MODES[rounding])


def p3109_quantize(
    values: Any,
    fmt: P3109Format = _DEFAULT,
    *,
    rounding: str = "nearest_even",
    saturate: bool | str = False,
    srbits: Any = None,
    srnumbits: int = 0,
    ste: bool = False,
    check: bool = True,
) -> Any:
    """Round an array to a P3109 format: a tensor or JAX array of float32 or float64 in its own
    dtype, others in float32, and NumPy's in float64.

    NaN stays NaN and 0 is +0. Overflow is an infinity, or NaN in a finite format; toward zero it is
    the largest number. Numbers below 0 are NaN in an unsigned format.

    Args:
        rounding: ``"nearest_even"``, ``"nearest_away"``, ``"toward_zero"``, ``"toward_positive"``,
            ``"toward_negative"``, ``"to_odd"``, or ``"stochastic_a"``, ``"_b"``, ``"_c"`` by given
            random integers.
        saturate: True or ``"finite"``: overflow and infinities become the largest number;
            ``"propagate"``: infinities stay; False or ``"none"``: neither.
        srbits, srnumbits: random integers of ``srnumbits`` bits (1 to 32), which broadcast.
        ste: whether the gradient passes straight through; else there is none.
        check: changes nothing.

    Raises:
        TypeError: no numbers, or no P3109Format.
        ValueError: an unknown word, or random integers out of range or out of place.
    """
    boolean("check", check)
    is_differentiable = isinstance(values, torch.Tensor) and values.is_floating_point()
    if boolean("ste", ste) and not is_differentiable:
        raise ValueError("expected a floating-point tensor with ste=True, but got another array")
    result = _round(values, fmt, rounding, saturate, srbits, srnumbits)
    return straight_through(values, result) if ste else _from_torch(result, values)


def p3109_encode(
    values: Any,
    fmt: P3109Format = _DEFAULT,
    *,
    rounding: str = "nearest_even",
    saturate: bool | str = False,
    srbits: Any = None,
    srnumbits: int = 0,
    check: bool = True,
) -> Any:
    """Round an array as ``p3109_quantize`` does, and return the codes: uint8 or uint16 from NumPy,
    int64 from torch."""
    boolean("check", check)
    rounded = _round(values, fmt, rounding, saturate, srbits, srnumbits)
    words = codes_of(rounded.to(dtype_of(fmt.dtype_name))).long() & (2**fmt.k - 1)
    if isinstance(values, torch.Tensor):
        return words
    return library(values).asarray(words.numpy().astype(np.uint8 if fmt.k <= 8 else np.uint16))


def p3109_decode(
    codes: Any, fmt: P3109Format = _DEFAULT, *, check: bool = True, dtype: str | None = None
) -> Any:
    """Return the values of codes, in float64 unless ``dtype`` is ``"float32"`` (JAX without 64 bits
    has float32).

    Raises:
        TypeError: no integers.
        ValueError: integers that are no codes, or another dtype.
    """
    boolean("check", check)
    if not isinstance(fmt, P3109Format):
        raise TypeError(f"expected a P3109Format, but got {fmt!r}")
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"expected dtype as 'float32' or 'float64', but got {dtype!r}")
    words = codes if isinstance(codes, torch.Tensor) else torch.from_numpy(np.array(codes))
    if words.is_floating_point() or words.is_complex() or words.dtype == torch.bool:
        raise TypeError(f"expected codes as integers, but got {words.dtype}")
    words = words.long()
    if ((words < 0) | (words >= 2**fmt.k)).any():
        raise ValueError(f"expected codes from 0 to {2**fmt.k - 1}, but got another among them")
    stored = words.to(torch.uint8 if fmt.k <= 8 else torch.int16)
    values = from_codes(stored, fmt.dtype_name).to(getattr(torch, dtype or "float64"))
    return _from_torch(values, codes)


@dataclass(frozen=True)
class P3109:
    """A format with a rounding mode and a way to saturate: called, it is ``p3109_quantize``."""

    format: P3109Format = _DEFAULT
    rounding: str = "nearest_even"
    saturate: bool | str = False

    def __post_init__(self) -> None:
        _find_name(self.format, self.rounding, self.saturate)

    def __call__(self, values: Any, **options: Any) -> Any:
        policy = {"rounding": self.rounding, "saturate": self.saturate}
        return p3109_quantize(values, self.format, **policy, **options)

    def encode(self, values: Any, **options: Any) -> Any:
        policy = {"rounding": self.rounding, "saturate": self.saturate}
        return p3109_encode(values, self.format, **policy, **options)

    def decode(self, codes: Any, **options: Any) -> Any:
        return p3109_decode(codes, self.format, **options)

    def to_dict(self) -> dict:
        return {
            "schema_version": 1,
            "format": self.format.to_dict(),
            "rounding": self.rounding,
            "saturate": self.saturate,
        }

    @classmethod
    def from_dict(cls, parameters: dict) -> P3109:
        names = {"schema_version", "format", "rounding", "saturate"}
        if set(parameters) != names or parameters["schema_version"] != 1:
            raise ValueError(
                f"expected {', '.join(sorted(names))} with schema_version 1, but got {parameters!r}"
            )
        fmt = P3109Format.from_dict(parameters["format"])
        return cls(fmt, parameters["rounding"], parameters["saturate"])
