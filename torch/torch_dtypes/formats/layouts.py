"""Constructors of formats by their parameters: posits, floats and fixed point."""

from __future__ import annotations

import torch

from .. import _C
from . import naming
from .arguments import boolean, choice, integer, set_rounding
from .dtype_numbers import define
from .tables import constructors

_SPECIALS = {s: getattr(_C.Specials, s) for s in ("ieee", "fn", "none", "fnuz", "p3109")}
_OVERFLOW = {"ieee": _C.Overflow.ieee, "saturate": _C.Overflow.saturate}
_FIXED_OVERFLOW = {"saturate": _C.Overflow.saturate, "wrap": _C.Overflow.wrap}
_UNDERFLOW = {"minpos": _C.Underflow.minpos, "zero": _C.Underflow.zero}
_INFINITY = {"nan": _C.Infinity.nan, "saturate": _C.Infinity.saturate}


def posit_format(
    nbits: int,
    es: int,
    *,
    regime_max: int | None = None,
    underflow: str = "minpos",
    infinity: str = "nan",
    rounding: str | int = "nearest_even",
) -> torch.dtype:
    """Return the dtype of posits with ``nbits`` bits and ``es`` exponent bits.

    Values are 0, NaR and (-1)^s * 2^(k * 2^es + x) * 1.f. NaR is one code, for every NaN, and for
    infinities unless they saturate. Rounding acts on the bit string, as in the standard. Values
    beyond maxpos = 2^((nbits - 2) * 2^es) become maxpos in every mode.

    Args:
        nbits: 2 to 64, if float64 holds every value: at most 53 significant bits, maxpos below
            2^1024. A tensor's element takes 1, 2, 4 or 8 bytes.
        es: 0 to 5.
        regime_max: the longest regime of a bounded posit, 2 to nbits - 1. A bounded posit has at
            most 16 bits, and the standard's ``underflow`` and ``infinity``. The longest regime has
            no end bit. So maxpos is about 2^(regime_max * 2^es), and every number has a fraction if
            bits are left for one.
        underflow: ``"minpos"``: only 0 becomes 0, in any mode (the standard). ``"zero"``: values
            between 0 and minpos round as between two floats; nearest modes round up to minpos / 2
            to 0.
        infinity: ``"nan"``: infinities become NaR (the standard). ``"saturate"``: they become
            maxpos or -maxpos, in casts and as results of a division by 0 or of ``log(0)``. (An
            infinite Python number always saturates.)
        rounding: one of ``ROUNDING_MODES``, or Pychop's number.

    Raises:
        ValueError: a parameter out of range, or 64 dtypes in use.
        TypeError: a parameter of another type.

    Source: Posit Standard (2022), sections 3 and 4; Jonnalagadda et al., "Closing the gap between
    float and posit hardware efficiency" (2025).

    Example::

        >>> p = torch_dtypes.posit_format(12, 1)
        >>> p
        torch.posit12es1
        >>> torch.tensor([0.1, 1e9], dtype=p)
        tensor([1.0010e-01, 1.0486e+06], dtype=torch.posit12es1)
    """
    return define(
        make_posit(
            nbits,
            es,
            regime_max=regime_max,
            underflow=underflow,
            infinity=infinity,
            rounding=rounding,
        )
    )


def make_posit(
    nbits, es, *, regime_max=None, underflow="minpos", infinity="nan", rounding="nearest_even"
) -> _C.Format:
    nbits, es = integer("nbits", nbits, 2, 64), integer("es", es, 0, 5)
    if regime_max is not None:
        if (underflow, infinity) != ("minpos", "nan"):
            raise ValueError(
                "expected underflow='minpos' and infinity='nan' with regime_max, but got "
                f"{underflow!r} and {infinity!r}"
            )
        return constructors.bounded_posit(
            nbits, es, integer("regime_max", regime_max, 2, 63), rounding
        )
    fmt = _C.Format.posit(nbits, es)
    if not fmt.fits_double:
        raise ValueError(
            "expected a posit whose values float64 holds (at most 53 significant bits, "
            f"maxpos below 2^1024), but got nbits={nbits}, es={es}: {fmt.significand_bits} "
            f"significant bits, maxpos 2^{fmt.max_exponent}; choose fewer bits"
        )
    fmt.underflow = _UNDERFLOW[choice("underflow", underflow, _UNDERFLOW)]
    fmt.infinity = _INFINITY[choice("infinity", infinity, _INFINITY)]
    set_rounding(fmt, rounding)
    return fmt


def float_format(
    exp_bits: int,
    man_bits: int,
    *,
    bias: int | None = None,
    signed: bool = True,
    subnormals: bool | str = True,
    specials: str = "ieee",
    overflow: str = "ieee",
    rounding: str | int = "nearest_even",
) -> torch.dtype:
    """Return the dtype of binary floats with ``exp_bits`` exponent bits, ``man_bits`` fraction bits
    and, unless ``signed`` is False, a sign.

    A NaN stays NaN. In a format without NaN it becomes the largest magnitude.

    Args:
        exp_bits: 2 to 11; also 1 unless ``specials`` is ``"ieee"``.
        man_bits: 0 to 52 (at least 1 with ``specials="ieee"``, where NaN needs a fraction).
        bias: the bias of the exponent field, as in IEEE 754: field 1 means 2^(1 - bias). Default:
            2^(exp_bits - 1) - 1, and one more with ``"fnuz"`` and ``"p3109"``.
        signed: False: there are no numbers below 0. A value that would round to one becomes NaN, or
            0 with saturation.
        subnormals: False: zero is the only value below the smallest normal number. ``"normal"``:
            the lowest binade holds normal numbers like every other, except the code of 0 (DLFloat).
        specials: ``"ieee"``: the topmost binade holds infinities and NaNs. ``"fn"``: only the code
            of all ones is NaN, and there is no infinity (OCP e4m3fn). ``"none"``: every code is
            finite (OCP e2m1, e2m3, e3m2). ``"fnuz"``: the code of minus zero is NaN; there is no
            minus zero and no infinity. ``"p3109"``: likewise, but the largest magnitudes are
            infinities (IEEE P3109).
        overflow: ``"ieee"``: to infinity, or to NaN in a format without infinity. ``"saturate"``:
            to the largest finite value, infinities too. With ``specials="none"`` every overflow
            saturates. ``"propagate"``: finite numbers saturate, infinities stay (P3109's
            SatPropagate).
        rounding: a mode, as ``with_rounding`` takes it.

    Floats without a sign, with ``subnormals="normal"`` or with ``overflow="propagate"`` are tables
    of values, and have at most 16 bits.

    Raises:
        ValueError: a parameter out of range, values beyond float64's, or 64 dtypes in use.
        TypeError: a parameter of another type.

    Source: IEEE 754-2019, section 3; OCP Microscaling Formats 1.0, section 5.3; IEEE P3109 interim
    report.

    Example::

        >>> e5m6 = torch_dtypes.float_format(exp_bits=5, man_bits=6)
        >>> torch.finfo(e5m6).max, torch.ones(2, dtype=e5m6).exp()
        (65024.0, tensor([2.7188, 2.7188], dtype=torch.e5m6))
        >>> torch_dtypes.float_format(4, 3, specials="fn", overflow="saturate")
        torch.e4m3fn_saturate
    """
    options = {
        "bias": bias,
        "signed": signed,
        "subnormals": subnormals,
        "specials": specials,
        "overflow": overflow,
    }
    return define(make_float(exp_bits, man_bits, **options, rounding=rounding))


def make_float(
    exp_bits,
    man_bits,
    *,
    bias=None,
    signed=True,
    subnormals=True,
    specials="ieee",
    overflow="ieee",
    rounding="nearest_even",
) -> _C.Format:
    if isinstance(specials, str) and specials == "finite":
        raise ValueError(
            f"expected specials to be one of {', '.join(map(repr, _SPECIALS))}, but got 'finite'; "
            "use 'none', which names write as finite"
        )
    specials = choice("specials", specials, _SPECIALS)
    exp_bits = integer("exp_bits", exp_bits, 2 if specials == "ieee" else 1, 11)
    man_bits = integer("man_bits", man_bits, 0, 52)
    if man_bits == 0 and specials == "ieee":
        raise ValueError(
            "expected man_bits of at least 1 with specials='ieee' (NaN needs a fraction), but "
            "got 0; use specials='fn' or 'none'"
        )
    fmt = _C.Format.float(exp_bits, man_bits)
    fmt.specials = _SPECIALS[specials]
    fmt.bias = naming.standard_bias(fmt) if bias is None else integer("bias", bias, -1022, 1023)
    overflow = choice("overflow", overflow, (*_OVERFLOW, "propagate"))
    if not isinstance(subnormals, bool) and subnormals != "normal":
        raise (ValueError if isinstance(subnormals, str) else TypeError)(
            f"expected subnormals to be True, False or 'normal', but got {subnormals!r}"
        )
    if not boolean("signed", signed) or subnormals == "normal" or overflow == "propagate":
        return constructors.make_table_float(fmt, signed, subnormals, specials, overflow, rounding)
    fmt.overflow = _C.Overflow.saturate if specials == "none" else _OVERFLOW[overflow]
    if not subnormals:
        fmt.subnormals = _C.Subnormals.flush
    set_rounding(fmt, rounding)
    if fmt.max_code < 1 << (0 if subnormals else man_bits):
        raise ValueError(
            f"expected a format with a positive number, but got exp_bits={exp_bits}, "
            f"man_bits={man_bits}, specials={specials!r}; add bits"
        )
    if not fmt.fits_double:
        raise ValueError(
            f"expected exponents of float64 (-1022 to 1023), but got {fmt.min_exponent} to "
            f"{fmt.max_exponent} from exp_bits={exp_bits}, bias={fmt.bias}"
        )
    return fmt


def fixed_format(
    int_bits: int,
    frac_bits: int,
    *,
    signed: bool = True,
    overflow: str = "saturate",
    symmetric: bool = False,
    rounding: str | int = "nearest_even",
) -> torch.dtype:
    """Return the dtype of fixed-point numbers: integers of ``signed + int_bits + frac_bits`` bits,
    two's complement, times 2^-frac_bits.

    NaN becomes 0, and there is no minus zero. Infinities become the largest or lowest value.

    Args:
        int_bits: bits before the binary point, without the sign: -64 to 64.
        frac_bits: bits after it: -64 to 64. All bits together: 1 (signed: 2) to 32. A negative
            number takes bits from the other side: ``fixed_format(-3, 6)`` has 3 bits and a sign,
            below 2^-3; ``fixed_format(9, -1)`` has even numbers.
        signed: False: values from 0 up.
        overflow: ``"saturate"``: to the largest or lowest value. ``"wrap"``: the rounded integer
            modulo 2^bits, as in two's complement hardware without saturation.
        symmetric: the lowest value is the largest one's negative (with ``"saturate"`` and a sign).
        rounding: one of ``ROUNDING_MODES``, or Pychop's number.

    Raises:
        ValueError: a parameter out of range; ``"wrap"`` where results have more than 64 digits down
            to the last place; or 64 dtypes in use.
        TypeError: a parameter of another type.

    Example::

        >>> torch.tensor([0.3, 100.0]).to(torch_dtypes.fixed_format(3, 4))
        tensor([0.3125, 7.9375], dtype=torch.fixed3_4)
        >>> torch.tensor([8.5]).to(torch_dtypes.fixed_format(3, 4, overflow="wrap"))
        tensor([-7.5000], dtype=torch.fixed3_4_wrap)
        >>> torch.tensor([0.05, 1.0]).to(torch_dtypes.fixed_format(-3, 6))
        tensor([0.0469, 0.1094], dtype=torch.fixedminus3_6)
    """
    return define(
        make_fixed(
            int_bits,
            frac_bits,
            signed=signed,
            overflow=overflow,
            symmetric=symmetric,
            rounding=rounding,
        )
    )


def make_fixed(
    int_bits,
    frac_bits,
    *,
    signed=True,
    overflow="saturate",
    symmetric=False,
    rounding="nearest_even",
) -> _C.Format:
    int_bits, frac_bits = (
        integer("int_bits", int_bits, -64, 64),
        integer("frac_bits", frac_bits, -64, 64),
    )
    least = 2 if boolean("signed", signed) else 1
    if not least <= signed + int_bits + frac_bits <= 32:
        raise ValueError(
            f"expected {least} to 32 bits in all, but got {signed + int_bits + frac_bits} from "
            f"int_bits={int_bits}, frac_bits={frac_bits}, signed={signed}"
        )
    fmt = _C.Format.fixed(int_bits, frac_bits, signed)
    fmt.overflow = _FIXED_OVERFLOW[choice("overflow", overflow, _FIXED_OVERFLOW)]
    if boolean("symmetric", symmetric) and (overflow == "wrap" or not signed):
        raise ValueError(
            "expected symmetric=True with signed=True and overflow='saturate' only, but got "
            f"signed={signed}, overflow={overflow!r}"
        )
    fmt.symmetric = symmetric
    if overflow == "wrap" and fmt.digits_to_wrap > 64:
        raise ValueError(
            "expected results of at most 64 digits with overflow='wrap', but got "
            f"{fmt.digits_to_wrap} from int_bits={int_bits}, frac_bits={frac_bits}; choose fewer "
            "bits, or overflow='saturate'"
        )
    set_rounding(fmt, rounding)
    return fmt
