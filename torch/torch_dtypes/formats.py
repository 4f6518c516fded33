"""Number formats as dtypes: make them, name them, look them up.

A dtype of ours is bound to one format. The same parameters always give the same ``torch.dtype`` object; its canonical name says all of
its parameters, so that a name alone (in a file, say) brings the dtype back.
"""

from __future__ import annotations

import re

import torch

from . import _C

__all__ = ["builtin_dtypes", "dtype", "float_format", "format_of", "is_format_dtype", "posit_format"]

_SPECIALS = {"ieee": _C.Specials.ieee, "fn": _C.Specials.fn, "none": _C.Specials.none}
_OVERFLOW = {"ieee": _C.Overflow.ieee, "saturate": _C.Overflow.saturate}
_ROUNDING = ("nearest_even",)


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected an integer for {name}, but got {value!r}")
    number = value.__index__()
    if not low <= number <= high:
        raise ValueError(f"expected {name} from {low} to {high}, but got {number}")
    return number


def _choice(name: str, value: object, choices) -> str:
    if value not in choices:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, choices))}, but got {value!r}")
    return value


def _define(fmt: _C.Format, name: str) -> torch.dtype:
    made = _C.define(fmt, name)
    name = _C.name_of(made)  # q43 for an e4m3: a format has one dtype, however it was asked for
    if not hasattr(torch, name):
        setattr(torch, name, made)  # so that repr(), torch.<name>, can be evaluated
    return made


def posit_format(nbits: int, es: int, *, rounding: str = "nearest_even") -> torch.dtype:
    """The dtype of posits with ``nbits`` bits and ``es`` exponent bits.

    Values are 0, NaR (one code, for every NaN and infinity) and (-1)^s * 2^(k * 2^es + x) * 1.f. Rounding is to nearest, ties to the
    even code; what is beyond maxpos = 2^((nbits - 2) * 2^es) becomes maxpos, and what is not 0 never becomes 0.

    Args:
        nbits: 2 to 32. A tensor's element takes 1, 2 or 4 bytes.
        es: 0 to 4.
        rounding: ``"nearest_even"``, the only mode so far.

    Raises:
        ValueError: a parameter out of range, or all of a process's 64 formats made.

    Source: Posit Standard (2022), sections 3 and 4.
    """
    nbits, es = _integer("nbits", nbits, 2, 32), _integer("es", es, 0, 4)
    _choice("rounding", rounding, _ROUNDING)
    return _define(_C.Format.posit(nbits, es), f"posit{nbits}es{es}")


def float_format(
    exp_bits: int,
    man_bits: int,
    *,
    bias: int | None = None,
    subnormals: bool = True,
    specials: str = "ieee",
    overflow: str = "ieee",
    rounding: str = "nearest_even",
) -> torch.dtype:
    """The dtype of binary floats with a sign, ``exp_bits`` exponent bits and ``man_bits`` fraction bits.

    Rounding is to nearest, ties to even. A NaN stays NaN where the format has one and becomes the largest magnitude where not.

    Args:
        exp_bits: 2 to 11.
        man_bits: 0 to 52 (at least 1 with ``specials="ieee"``, where NaN needs a fraction).
        bias: of the exponent field, as IEEE counts: field 1 means 2^(1 - bias). Default: 2^(exp_bits - 1) - 1.
        subnormals: False: zero is the only value below the smallest normal number.
        specials: ``"ieee"``: the topmost binade holds infinities and NaNs. ``"fn"``: only the code of all ones is NaN, there is no
            infinity (OCP e4m3fn). ``"none"``: every code is finite (OCP e2m1, e2m3, e3m2).
        overflow: ``"ieee"``: to infinity, or NaN where there is none. ``"saturate"``: to the largest finite value, infinities too.
            With ``specials="none"`` every overflow saturates.
        rounding: ``"nearest_even"``, the only mode so far.

    Raises:
        ValueError: a parameter out of range, values beyond float64's, or all of a process's 64 formats made.

    Source: IEEE 754-2019, section 3; OCP Microscaling Formats 1.0, section 5.3.
    """
    exp_bits, man_bits = _integer("exp_bits", exp_bits, 2, 11), _integer("man_bits", man_bits, 0, 52)
    _choice("rounding", rounding, _ROUNDING)
    if not isinstance(subnormals, bool):
        raise TypeError(f"expected True or False for subnormals, but got {subnormals!r}")
    if man_bits == 0 and _choice("specials", specials, _SPECIALS) == "ieee":
        raise ValueError("expected man_bits of at least 1 with specials='ieee' (NaN needs a fraction), but got 0; use specials='fn' or 'none'")
    fmt = _C.Format.float(exp_bits, man_bits)
    standard_bias = fmt.bias
    if bias is not None:
        fmt.bias = _integer("bias", bias, -1022, 1023)
    fmt.specials = _SPECIALS[_choice("specials", specials, _SPECIALS)]
    fmt.overflow = _OVERFLOW[_choice("overflow", overflow, _OVERFLOW)]
    if specials == "none":
        fmt.overflow = _C.Overflow.saturate
    if not subnormals:
        fmt.subnormals = _C.Subnormals.flush
    if not fmt.fits_double:
        raise ValueError(
            f"expected exponents that float64 has (-1022 to 1023), but got {fmt.min_exponent} to {fmt.max_exponent} "
            f"from exp_bits={exp_bits}, bias={fmt.bias}"
        )
    return _define(fmt, _float_name(fmt, standard_bias))


def _float_name(fmt: _C.Format, standard_bias: int) -> str:
    name = f"e{fmt.exp_bits}m{fmt.man_bits}"
    name += {_C.Specials.ieee: "", _C.Specials.fn: "fn", _C.Specials.none: "finite"}[fmt.specials]
    if fmt.bias != standard_bias:
        name += f"_bias{fmt.bias}".replace("-", "minus")
    if fmt.subnormals == _C.Subnormals.flush:
        name += "_flush"
    if fmt.overflow == _C.Overflow.saturate and fmt.specials != _C.Specials.none:
        name += "_saturate"
    return name


_POSIT_NAME = re.compile(r"posit(\d+)es(\d+)")
_FLOAT_NAME = re.compile(r"e(\d+)m(\d+)(fn|finite)?(?:_bias(minus)?(\d+))?(_flush)?(_saturate)?")


def dtype(name: str) -> torch.dtype:
    """The dtype of a name: a built-in one (``"posit16es2"``, ``"q43"``) or any canonical name (``"posit12es1"``, ``"e5m5"``,
    ``"e4m3fn_bias8_saturate"``), made if there is none yet.

    The grammar is ``posit<nbits>es<es>`` or ``e<exp_bits>m<man_bits>[fn|finite][_bias[minus]<bias>][_flush][_saturate]``.

    Raises:
        ValueError: not a name of a format, or one with impossible parameters.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a number format, but got {name!r}")
    for builtin in builtin_dtypes():
        if _C.name_of(builtin) == name:
            return builtin
    if match := _POSIT_NAME.fullmatch(name):
        return posit_format(int(match[1]), int(match[2]))
    if match := _FLOAT_NAME.fullmatch(name):
        exp_bits, man_bits, specials, minus, bias, flush, saturate = match.groups()
        return float_format(
            int(exp_bits),
            int(man_bits),
            bias=None if bias is None else int(bias) * (-1 if minus else 1),
            subnormals=not flush,
            specials={None: "ieee", "fn": "fn", "finite": "none"}[specials],
            overflow="saturate" if saturate else "ieee",
        )
    known = ", ".join(_C.name_of(d) for d in builtin_dtypes())
    raise ValueError(
        f"expected the name of a number format, but got {name!r}. Built in: {known}; others by their parameters, "
        f"as 'posit12es1', 'e5m5' or 'e4m3fn_saturate'"
    )


_BUILTIN: list[torch.dtype] = []


def builtin_dtypes() -> tuple[torch.dtype, ...]:
    """The built-in dtypes, in the order of c10/core/BuiltinFormats.h."""
    return tuple(_BUILTIN)


def is_format_dtype(dtype: object) -> bool:
    """Whether ``dtype`` is a dtype of this package."""
    return _C.format_of(dtype) is not None


def format_of(dtype: torch.dtype | str) -> _C.Format:
    """The format of a dtype of this package, or of a name: its ``kind``, ``bits``, ``exp_bits`` (es for posits), ``man_bits``,
    ``bias``, ``subnormals``, ``specials``, ``overflow`` and ``rounding``.

    Raises:
        TypeError: a stock dtype.
    """
    if isinstance(dtype, str):
        dtype = globals()["dtype"](dtype)
    fmt = _C.format_of(dtype)
    if fmt is None:
        raise TypeError(f"expected a dtype of a number format, but got {dtype!r}")
    return fmt


def install() -> None:
    """Puts the built-in dtypes into the torch namespace."""
    for made in _C.builtin_dtypes():
        name = _C.name_of(made)
        if hasattr(torch, name):
            raise ImportError(f"torch.{name} exists already: is torch_dtypes loaded twice, or does this torch bring its own?")
        setattr(torch, name, made)
        _BUILTIN.append(made)
