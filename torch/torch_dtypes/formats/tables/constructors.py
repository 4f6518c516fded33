"""Constructors of published tables of values: takums, logarithmic numbers, and unusual floats."""

from __future__ import annotations

import torch

from ... import _C
from .. import naming
from ..arguments import boolean, integer, set_rounding
from ..dtype_numbers import define
from . import making, tapered
from .floats import TabledFloat


def find_table(name: str, rounding: str | int) -> _C.Format:
    """Return a published table's format by its name."""
    fmt = making.format_of_name(name)
    set_rounding(fmt, rounding)
    return fmt


def make_table_float(
    fmt: _C.Format,
    signed: bool,
    subnormals: bool | str,
    specials: str,
    overflow: str,
    rounding: str | int,
) -> _C.Format:
    exp_bits, man_bits = fmt.exp_bits, fmt.man_bits
    if signed + exp_bits + man_bits > 16:
        raise ValueError(
            "expected at most 16 bits with signed=False, subnormals='normal' or "
            f"overflow='propagate', but got {signed + exp_bits + man_bits}; use fewer bits, since "
            "those floats are tables of values"
        )
    if not signed and specials == "fnuz":
        raise ValueError(
            "expected specials other than 'fnuz' with signed=False, but got 'fnuz', whose NaN is "
            "minus zero; use 'fn'"
        )
    if overflow == "propagate" and specials not in ("ieee", "p3109"):
        raise ValueError(
            f"expected specials 'ieee' or 'p3109' for overflow='propagate', but got {specials!r}"
        )
    overflow = "saturate" if specials == "none" else overflow
    table = TabledFloat(exp_bits, man_bits, fmt.bias, signed, subnormals, specials, overflow)
    lowest = fmt.bias + man_bits - (subnormals != "normal")
    if lowest > 1022 or (1 << exp_bits) - fmt.bias > 1023:
        raise ValueError(
            f"expected exponents of float64 (-1022 to 1023), but got exp_bits={exp_bits}, "
            f"man_bits={man_bits}, bias={fmt.bias}"
        )
    if table.largest < 2 or (subnormals is False and table.largest <= 1 << man_bits):
        raise ValueError(
            f"expected a format with two positive numbers, but got exp_bits={exp_bits}, "
            f"man_bits={man_bits}, specials={specials!r}"
        )
    suffix = {"ieee": "", "none": "finite"}.get(specials, specials)
    name = f"{'' if signed else 'u'}e{exp_bits}m{man_bits}{suffix}"
    name += naming.bias_name(None if fmt.bias == naming.standard_bias(fmt) else fmt.bias)
    name += {True: "", False: "_flush", "normal": "_normal"}[subnormals]
    name += "" if overflow == "ieee" or specials == "none" else f"_{overflow}"
    result = making.define_once(name, table.definition)
    set_rounding(result, rounding)
    return result


def takum(nbits: int, *, linear: bool = True, rounding: str | int = "nearest_even") -> _C.Format:
    """Build a takum's format: a table, or takums' own codec if the table would be too long."""
    nbits = integer("nbits", nbits, 6, 32)
    kind = "linear" if boolean("linear", linear) else "log"
    if nbits <= tapered.MAX_BITS:
        return find_table(f"takum{nbits}_{kind}", rounding)
    if kind == "log":
        raise ValueError(
            f"expected logarithmic takums of at most {tapered.MAX_BITS} bits, but got "
            f"nbits={nbits}; use linear=True"
        )
    fmt = _C.Format.takum(nbits)
    set_rounding(fmt, rounding)
    return fmt


def bounded_posit(nbits: int, es: int, regime_max: int, rounding: str | int) -> _C.Format:
    """Return the table of a bounded posit."""
    if nbits > tapered.MAX_BITS:
        raise ValueError(
            f"expected a bounded posit of at most {tapered.MAX_BITS} bits, but got nbits={nbits} "
            f"with regime_max={regime_max}; use fewer bits, a posit without regime_max, or "
            "takum_format"
        )
    tapered.check_bounded(nbits, es, regime_max)
    return find_table(f"posit{nbits}es{es}_regime{regime_max}", rounding)


def takum_format(
    nbits: int, *, linear: bool = True, rounding: str | int = "nearest_even"
) -> torch.dtype:
    """Return the dtype of takums: tapered floats whose exponents go from -255 to 254 at any width.

    A takum has a sign, a direction, and three bits with the number of characteristic bits. These
    follow, and the remaining bits are the fraction. Takums of less than 12 bits are read as if
    zeros followed. With characteristic c and fraction m, a linear takum is (1 + m) 2^c, a
    logarithmic one e^((c + m) / 2). Negative values have the negative codes, and there is one NaN
    (NaR). Takums round on the bit string, like posits: never to 0, never beyond the largest number.
    Infinities become NaR.

    Logarithmic takums are irrational, so a value is rounded to 51 significant bits. Products,
    quotients, roots and powers use the exact logarithms.

    Args:
        nbits: 6 to 32, for logarithmic takums at most 16. (Up to 16 bits they are tables of
            values.)
        linear: False: logarithmic takums.
        rounding: a mode, as ``with_rounding`` takes it.

    Raises:
        ValueError: a parameter out of range, or 64 dtypes in use.
        TypeError: a parameter of another type.

    Source: Hunhold, "Beating posits at their own game: takum arithmetic", CoNGA 2024 (arXiv
    2404.18603), definitions 2 and 6.

    Example::

        >>> torch.tensor([0.1, 1e30]).to(torch_dtypes.takum_format(12))
        tensor([9.9609e-02, 9.5074e+29], dtype=torch.takum12_linear)
    """
    return define(takum(nbits, linear=linear, rounding=rounding))


def lns_format(
    int_bits: int, frac_bits: int, *, rounding: str | int = "nearest_even"
) -> torch.dtype:
    """Return the dtype of a logarithmic number system: a sign, and log2 of the magnitude as a
    fixed-point number with a sign.

    Values are 0, NaN and (-1)^s 2^l. The logarithm l goes from -2^int_bits + 2^-frac_bits to
    2^int_bits - 2^-frac_bits in steps of 2^-frac_bits. Rounding to nearest rounds the logarithm;
    values below half the smallest one become 0. Values beyond the largest one, infinities too,
    become the largest. Irrational values are rounded to 51 significant bits. Products, quotients,
    roots and powers use the exact logarithms.

    Args:
        int_bits: bits of the logarithm before its point: 0 to 9.
        frac_bits: bits after it. All bits together, 2 + int_bits + frac_bits: 3 to 16.
        rounding: a mode, as ``with_rounding`` takes it.

    Raises:
        ValueError: a parameter out of range, or 64 dtypes in use.
        TypeError: a parameter of another type.

    Source: Swartzlander and Alexopoulos, "The sign/logarithm number system", IEEE Transactions on
    Computers 24 (1975). Codes are those of ``lns<2 + int_bits + frac_bits, frac_bits>`` in the
    Universal library.

    Example::

        >>> torch.tensor([3.0, -0.5]).to(torch_dtypes.lns_format(3, 3))
        tensor([ 3.0844, -0.5000], dtype=torch.lns3_3)
    """
    int_bits, frac_bits = (
        integer("int_bits", int_bits, 0, 9),
        integer("frac_bits", frac_bits, 0, 14),
    )
    return define(find_table(f"lns{int_bits}_{frac_bits}", rounding))
