"""QPyTorch's numbers, each with the target of this package that has the same values."""

from __future__ import annotations

import functools
from numbers import Integral

import torch

from ...targets.chop import chop
from ...targets.lookup import Target, target

__all__ = ["BlockFloatingPoint", "FixedPoint", "FloatingPoint", "Number", "Posit"]


def expect(holds: bool, what: str) -> None:
    """Raise AssertionError, as QPyTorch does for most arguments."""
    if not holds:
        raise AssertionError(f"expected {what}")


class Number:
    """The base of the numbers."""

    # The mode of this package that QPyTorch's "nearest" means for this kind of number.
    nearest = "nearest_even"

    def target(self) -> Target:
        """Return what this number's values are rounded to."""
        raise NotImplementedError

    def place(self, rounding: str) -> dict:
        """Return the options by which ``Cast`` rounds to this number."""
        return {"format": self.target(), "rounding": self.mode(rounding)}

    @classmethod
    def mode(cls, rounding: str) -> str:
        return cls.nearest if rounding == "nearest" else rounding

    def __repr__(self) -> str:
        return str(self)


class FixedPoint(Number):
    """Two's complement of ``wl`` bits, ``fl`` of them after the point.

    Args:
        clamp: False: the multiples of 2^-fl without end.
        symmetric: the lowest number is the largest one's negative.
    """

    def __init__(self, wl: int, fl: int, clamp: bool = True, symmetric: bool = False) -> None:
        expect(isinstance(wl, Integral) and wl > 0, f"wl above 0, but got {wl!r}")
        expect(isinstance(fl, Integral), f"fl as an integer, but got {fl!r}")
        for name, value in (("clamp", clamp), ("symmetric", symmetric)):
            expect(isinstance(value, bool), f"{name} as True or False, but got {value!r}")
        self.wl, self.fl, self.clamp, self.symmetric = wl, fl, clamp, symmetric

    def target(self) -> Target:
        return find_fixed(self.wl, self.fl, self.clamp, self.symmetric)

    def __str__(self) -> str:
        return f"FixedPoint (wl={self.wl}, fl={self.fl})"


class FloatingPoint(Number):
    """Floats of ``exp`` exponent and ``man`` fraction bits without infinity or NaN; with exp=8,
    float32's exponents and infinity."""

    nearest = "nearest_away"

    def __init__(self, exp: int, man: int) -> None:
        expect(isinstance(exp, Integral) and 1 <= exp <= 8, f"exp from 1 to 8, but got {exp!r}")
        expect(isinstance(man, Integral) and 1 <= man <= 23, f"man from 1 to 23, but got {man!r}")
        self.exp, self.man = exp, man

    def target(self) -> Target:
        return find_float(self.exp, self.man)

    def __str__(self) -> str:
        return f"FloatingPoint (exponent={self.exp}, mantissa={self.man})"


class BlockFloatingPoint(Number):
    """Integers of ``wl`` bits times a power of two, which the tensor shares, or with ``dim`` each
    index of a dimension."""

    nearest = "nearest_up"

    def __init__(self, wl: int, dim: int = -1) -> None:
        expect(isinstance(wl, Integral) and wl > 0, f"wl above 0, but got {wl!r}")
        expect(isinstance(dim, Integral) and dim >= -1, f"dim of -1 or above, but got {dim!r}")
        self.wl, self.dim = wl, dim

    def target(self) -> Target:
        return find_block(self.wl, self.dim)

    def __str__(self) -> str:
        return f"BlockFloatingPoint (wl={self.wl}, dim={self.dim})"


class Posit(Number):
    """qtorch_plus's posits of ``nsize`` bits with ``es`` exponent bits: x becomes
    round(x * scale) / scale."""

    def __init__(self, nsize: int, es: int, scale: float = 1.0) -> None:
        expect(isinstance(nsize, Integral) and nsize > 0, f"nsize above 0, but got {nsize!r}")
        expect(isinstance(es, Integral) and es >= 0, f"es of 0 or above, but got {es!r}")
        self.nsize, self.es, self.scale = nsize, es, scale

    def target(self) -> Target:
        return find_posit(self.nsize, self.es)

    def place(self, rounding: str) -> dict:
        # A rule's scale multiplies the rounded number, QPyTorch's divides it.
        scaled = {} if self.scale == 1 else {"scale": 1 / self.scale}
        return super().place(rounding) | scaled

    def __str__(self) -> str:
        return f"Posit (exponent={self.es}, wordlength={self.nsize}, scale={self.scale})"


class Multiples:
    """A quantiser: the multiples of 2^-frac_bits without end, which no format of 32 bits holds."""

    def __init__(self, frac_bits: int) -> None:
        self.name = f"multiples_of_2^{-frac_bits}"
        self._frac_bits = frac_bits
        # The float whose subnormals are these multiples: above them it has all float32 numbers.
        bias = f"{frac_bits - 22}".replace("-", "minus")
        self._float = f"e9m23_bias{bias}" if -100 <= frac_bits <= 400 else None

    def quantize(self, x, *, axis=-1, generator=None, rounding="nearest_even"):
        if rounding == "to_odd":
            raise ValueError(
                "expected a mode that asks for no multiple's parity, but got 'to_odd'; use another"
            )
        if self._float is not None and x.dtype is not torch.float64:
            return chop(x, self._float, rounding, generator)
        digits, top = (53, 1023) if x.dtype is torch.float64 else (24, 127)
        # Beyond ``end`` steps overflow, and all numbers are multiples. With fewer fraction bits
        # than digits, the part beyond it is exact, and goes around the rounding.
        end = 2.0 ** min(top, top - self._frac_bits)
        goes_around = self._frac_bits < digits
        inside = x.clamp(-end, end) if goes_around else x
        steps = inside * 2.0**self._frac_bits
        if rounding == "nearest_even":
            values = steps.round_()
        else:
            rest = steps.frac()
            values = chop(rest, "fixed2_0", rounding, generator).add_(steps.sub_(rest))
        values.mul_(2.0**-self._frac_bits)
        if goes_around:
            return values.add_(x - inside)  # faster than where()
        return torch.where(values.isfinite(), values, x)


@functools.cache
def find_fixed(wl: int, fl: int, clamp: bool = True, symmetric: bool = False) -> Target:
    if not clamp:
        return find_multiples(fl)
    suffix = "_symmetric" if symmetric else ""
    return target(f"fixed{wl - 1 - fl}_{fl}{suffix}".replace("-", "minus"))


@functools.cache
def find_multiples(fl: int) -> Target:
    return target(Multiples(fl))


@functools.cache
def find_float(exp: int, man: int) -> Target:
    if not 1 <= exp <= 8 or not 0 <= man <= 23:
        raise ValueError(f"expected exp from 1 to 8 and man from 0 to 23, but got {exp} and {man}")
    return target(f"e{exp}m{man}" + ("finite" if exp < 8 else ""))


@functools.cache
def find_block(wl: int, dim: int = -1) -> Target:
    return target(f"bfp{wl}" + ("" if dim == -1 else f"_dim{dim}"))


@functools.cache
def find_posit(nsize: int, es: int) -> Target:
    return target(f"posit{nsize}es{es}")
