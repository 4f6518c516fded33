"""Number formats and their dtypes: making one from parameters or a name, and asking about one.

Equal parameters give the same dtype object as long as somebody refers to it. A process has at most
64 formats in use at a time, the built-in ones among them (PyTorch numbers dtypes with eight bits);
a format with another rounding mode counts as one more. The place of one whose dtype nothing refers
to any more, a tensor alone not counted, is taken by the next.
"""

from __future__ import annotations

import torch

from .. import _C
from . import dtype_numbers, naming
from .arguments import boolean, choice, integer, said, set_rounding
from .dtype_numbers import define
from .spellings import ALIASES
from .tables import constructors, lns_format, making, table_format, takum_format

__all__ = [
    "ROUNDING_MODES",
    "builtin_dtypes",
    "dtype",
    "fixed_format",
    "float_format",
    "format_of",
    "is_format_dtype",
    "lns_format",
    "posit_format",
    "table_format",
    "takum_format",
    "with_rounding",
]

_SPECIALS = {s: getattr(_C.Specials, s) for s in ("ieee", "fn", "none", "fnuz", "p3109")}
_OVERFLOW = {"ieee": _C.Overflow.ieee, "saturate": _C.Overflow.saturate}
_FIXED_OVERFLOW = {"saturate": _C.Overflow.saturate, "wrap": _C.Overflow.wrap}
_UNDERFLOW = {"minpos": _C.Underflow.minpos, "zero": _C.Underflow.zero}
_INFINITY = {"nan": _C.Infinity.nan, "saturate": _C.Infinity.saturate}

ROUNDING_MODES = naming.ROUNDING_MODES
"""The names of the rounding modes; docs/numerics.md defines each."""


def posit_format(
    nbits: int,
    es: int,
    *,
    regime_max: int | None = None,
    underflow: str = "minpos",
    infinity: str = "nan",
    rounding: str | int = "nearest_even",
) -> torch.dtype:
    """The dtype of posits with ``nbits`` bits and ``es`` exponent bits.

    Values are 0, NaR (one code, for every NaN, and for infinities unless they saturate) and
    (-1)^s * 2^(k * 2^es + x) * 1.f. Rounding acts on the bit string, as the standard says; what is
    beyond maxpos = 2^((nbits - 2) * 2^es) becomes maxpos in every mode.

    Args:
        nbits: 2 to 64, as long as float64 has every value: at most 53 significant bits, maxpos
            below 2^1024. A tensor's element takes 1, 2, 4 or 8 bytes.
        es: 0 to 5.
        regime_max: makes a bounded posit, which has at most 16 bits and the standard's
            ``underflow`` and ``infinity``. It is the longest regime, 2 to nbits - 1. A regime of
            that length has no bit that ends it, so maxpos is about 2^(regime_max * 2^es), and every
            number has a fraction where bits are left for one.
        underflow: ``"minpos"``: what is not 0 never becomes 0, in any mode (the standard).
            ``"zero"``: between 0 and minpos values round as between two floats, those up to minpos
            / 2 to 0 in nearest modes.
        infinity: ``"nan"``: what is infinite becomes NaR (the standard). ``"saturate"``: maxpos or
            -maxpos, everywhere: in casts, as the result of a division by 0 or of ``log(0)``. (A
            Python number saturates in either.)
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
        _posit(
            nbits,
            es,
            regime_max=regime_max,
            underflow=underflow,
            infinity=infinity,
            rounding=rounding,
        )
    )


def _posit(
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
            "expected a posit whose values all are float64 numbers (at most 53 significant bits, "
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
    """The dtype of binary floats with ``exp_bits`` exponent bits, ``man_bits`` fraction bits and,
    unless ``signed`` is False, a sign.

    A NaN stays NaN where the format has one and becomes the largest magnitude where not.

    Args:
        exp_bits: 2 to 11; 1 too where ``specials`` is not ``"ieee"``.
        man_bits: 0 to 52 (at least 1 with ``specials="ieee"``, where NaN needs a fraction).
        bias: of the exponent field, as IEEE counts: field 1 means 2^(1 - bias). Default:
            2^(exp_bits - 1) - 1, and one more with ``"fnuz"`` and ``"p3109"``.
        signed: False: no numbers below 0; what rounds to one becomes NaN, or 0 where it saturates.
        subnormals: False: zero is the only value below the smallest normal number. ``"normal"``:
            the lowest binade holds normal numbers like every other, but for the code that is 0
            (DLFloat).
        specials: ``"ieee"``: the topmost binade holds infinities and NaNs. ``"fn"``: only the code
            of all ones is NaN, there is no infinity (OCP e4m3fn). ``"none"``: every code is finite
            (OCP e2m1, e2m3, e3m2). ``"fnuz"``: the code of minus zero is NaN, there is no minus
            zero and no infinity. ``"p3109"``: the same, and the largest magnitudes are infinities
            (IEEE P3109).
        overflow: ``"ieee"``: to infinity, or NaN where there is none. ``"saturate"``: to the
            largest finite value, infinities too. With ``specials="none"`` every overflow saturates.
            ``"propagate"``: finite numbers saturate, infinities stay (P3109's SatPropagate).
        rounding: a mode, as ``with_rounding`` takes it.

    Floats without a sign, with ``subnormals="normal"`` or ``overflow="propagate"`` are tables of
    values and have 16 bits at most.

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
    return define(_float(exp_bits, man_bits, **options, rounding=rounding))


def _float(
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
            f"expected specials to be one of {', '.join(map(repr, _SPECIALS))}, but got 'finite', "
            "which names write for 'none'"
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
        return constructors.tabled_float(fmt, signed, subnormals, specials, overflow, rounding)
    fmt.overflow = _C.Overflow.saturate if specials == "none" else _OVERFLOW[overflow]
    if not subnormals:
        fmt.subnormals = _C.Subnormals.flush
    set_rounding(fmt, rounding)
    if fmt.max_code < 1 << (0 if subnormals else man_bits):
        raise ValueError(
            f"expected a format with a positive number, but got exp_bits={exp_bits}, "
            f"man_bits={man_bits}, specials={specials!r}"
        )
    if not fmt.fits_double:
        raise ValueError(
            f"expected exponents that float64 has (-1022 to 1023), but got {fmt.min_exponent} to "
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
    """The dtype of fixed-point numbers: integers of ``signed + int_bits + frac_bits`` bits, two's
    complement, times 2^-frac_bits.

    NaN becomes 0, and there is no minus zero. Infinities become the largest or lowest value.

    Args:
        int_bits: bits before the binary point, without the sign: -64 to 64.
        frac_bits: bits behind it: -64 to 64. All bits together: 1 (signed: 2) to 32. A negative
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
        _fixed(
            int_bits,
            frac_bits,
            signed=signed,
            overflow=overflow,
            symmetric=symmetric,
            rounding=rounding,
        )
    )


def _fixed(
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
        raise ValueError("expected symmetric=True with signed=True and overflow='saturate' only")
    fmt.symmetric = symmetric
    if overflow == "wrap" and fmt.digits_to_wrap > 64:
        raise ValueError(
            "expected results of at most 64 digits with overflow='wrap', but got "
            f"{fmt.digits_to_wrap} from int_bits={int_bits}, frac_bits={frac_bits}; choose fewer "
            "bits, or overflow='saturate'"
        )
    set_rounding(fmt, rounding)
    return fmt


def with_rounding(
    dtype: torch.dtype | str,
    mode: str | int,
    *,
    stochastic_bits: int | None = None,
    stochastic_kind: str | None = None,
) -> torch.dtype:
    """The dtype of the same numbers with another rounding mode:
    ``with_rounding(torch.q43, "stochastic")`` is ``torch.q43_stochastic``.

    It is a dtype of its own: an operator does not mix the two, convert one first (exact, since both
    have the same values).

    Args:
        dtype: a dtype of this package or a name.
        mode: one of ``ROUNDING_MODES``, or Pychop's number; or ``"stochastic_a4"``, the mode
            ``stochastic`` with 4 random bits of kind a, as names have it.
        stochastic_bits: how many random bits the mode ``stochastic`` draws for an element, 1 to 63,
            as hardware that has few of them. Default: 64.
        stochastic_kind: with stochastic_bits, what becomes of the fraction cut off, which is added
            to the N random bits and rounds up by their carry: ``"a"`` (the default): it is cut to N
            bits. ``"b"``: rounded to N bits, ties up. ``"c"``: rounded, ties to even. (IEEE P3109's
            StochasticA, B and C.)

    Raises:
        TypeError: a stock dtype.
        ValueError: an unknown name, not a mode, stochastic_bits with another mode, stochastic_kind
            without them or beside a mode that says another, or 64 dtypes in use.

    Example::

        >>> d = torch_dtypes.with_rounding(torch.q43, "toward_zero")
        >>> torch.tensor([1.99]).to(d)
        tensor([1.8750], dtype=torch.q43_toward_zero)
    """
    fmt = format_of(dtype)
    set_rounding(fmt, mode, stochastic_bits, stochastic_kind)
    return define(fmt)


def dtype(name: str | torch.dtype) -> torch.dtype:
    """The dtype of a name, made if there is none yet. ``str(dtype)``, which begins with ``torch.``,
    is a name too; a dtype is itself.

    Built-in ones: ``"posit16es2"``, ``"q43"``... By parameters:
    ``posit<nbits>es<es>[_underflow][_saturate]``,
    ``e<exp_bits>m<man_bits>[fn|finite|fnuz|p3109][_bias[minus]<bias>][_flush][_saturate]``,
    ``[u]fixed[minus]<int_bits>_[minus]<frac_bits>[_symmetric|_wrap]``, ``takum<nbits>_linear``,
    ``takum<nbits>_log``, each with ``_<rounding mode>`` behind it where that is not nearest_even.
    Other names: ``posit<16,1>``, ``float<5,10>``, ``[u]fixed<8,8>``; IEEE P3109's
    ``binary<K>p<P>se`` (with infinities) and ``...sf`` (finite); and other tools' spellings
    (formats of this package, not the stock dtypes), which docs/reference/spellings.md lists:
    ``fp16``, ``half``, ``bf16``, ``ocp_e4m3``, ``float8_e4m3``. A float's options go behind any of
    its names: ``q43_flush``, ``fp16_saturate``, ``binary8p4se_saturate``. Options stand in any
    order, and case is ignored, but where a standard's capitals name another format (``E4M3``): such
    a name, and one that two tools give to two formats, is an error that shows both.

    Args:
        name: as above, or a dtype of this package.

    Raises:
        ValueError: not a name of a format, or one with impossible parameters.
        TypeError: no name, or a stock dtype.

    Example::

        >>> torch_dtypes.dtype("e4m3fn_saturate")
        torch.e4m3fn_saturate
        >>> torch_dtypes.dtype("half") is torch_dtypes.dtype("e5m10")
        True
    """
    if isinstance(name, torch.dtype):
        format_of(name)  # for its error
        return name
    return define(_format_of_name(name))


def _find_format(base: str, mode: str) -> _C.Format | None:
    if (fmt := making.format_of_name(base)) is not None:
        set_rounding(fmt, mode)
        return fmt
    base = naming.by_parameters(base)
    for builtin in builtin_dtypes():
        if _C.name_of(builtin) == base:
            fmt = _C.format_of(builtin)
            set_rounding(fmt, mode)
            return fmt
    if not (parsed := naming.parse(base)):
        return None
    kind, positional, options = parsed
    make = {"posit": _posit, "float": _float, "fixed": _fixed, "takum": constructors.takum}[kind]
    return make(*positional, **options, rounding=mode)


def _format_of_name(name: str) -> _C.Format:
    if not isinstance(name, str):
        raise TypeError(
            f"expected a dtype of a number format, or the name of one, but got {said(name)}"
        )
    base, mode = naming.split_rounding(naming.spelled(making.learn(name.removeprefix("torch."))))
    if (fmt := _find_format(base, mode)) is not None:
        return fmt
    base = naming.by_parameters(base)
    making.refuse_unknown(base)
    head, _, rest = base.rpartition("_")
    while head and _find_format(head, "nearest_even") is None:
        head, _, more = head.rpartition("_")
        rest = f"{more}_{rest}"
    if head:
        meant = naming.close_option(head, rest)
        raise ValueError(
            f"expected a rounding mode or another option behind {head!r}, but got {rest!r} in "
            f"{name!r}.{meant} The modes are {', '.join(naming.ROUNDING_MODES)}; "
            "torch_dtypes.dtype says the options"
        )
    known = [_C.name_of(d) for d in builtin_dtypes()]
    near = naming.nearest_names(
        base,
        [
            *known,
            *ALIASES,
            "e4m3fn",
            "e4m3fn_saturate",
            "fixed8_8",
            "takum16_linear",
            *making.known_names(),
        ],
    )
    raise ValueError(
        f"expected the name of a number format, but got {name!r}{near}. Built in: "
        f"{', '.join(known)}; others by their parameters, as 'posit12es1', 'e5m5', "
        "'e4m3fn_saturate' or 'fixed8_8', with a rounding mode as in "
        f"'q43_stochastic'{naming.hint(base)}"
    )


_BUILTIN: list[torch.dtype] = []


def builtin_dtypes() -> tuple[torch.dtype, ...]:
    """The built-in dtypes, in the order of c10/formats/BuiltinFormats.h.

    Example::

        >>> torch_dtypes.builtin_dtypes()[:3]
        (torch.posit8es0, torch.posit8es1, torch.posit8es2)
    """
    return tuple(_BUILTIN)


def is_format_dtype(dtype: object) -> bool:
    """Whether ``dtype`` is a dtype of this package.

    Args:
        dtype: anything.

    Example::

        >>> torch_dtypes.is_format_dtype(torch.q43), torch_dtypes.is_format_dtype(torch.bfloat16)
        (True, False)
    """
    return _C.format_of(dtype) is not None


def format_of(dtype: torch.dtype | str) -> _C.Format:
    """The format of a dtype of this package, or of a name.

    All formats have ``kind``, ``bits``, ``significand_bits``, ``specials``, ``overflow``,
    ``is_signed`` and ``rounding``. Floats also have ``exp_bits``, ``man_bits``, ``bias`` and
    ``subnormals``; posits ``es``, ``underflow`` and ``infinity``; fixed point ``int_bits``,
    ``frac_bits`` and ``symmetric``. The format is a copy: a change to it changes no dtype. A name
    makes no dtype.

    Args:
        dtype: a dtype of this package or a name.

    Raises:
        TypeError: a stock dtype.
        ValueError: an unknown name.
        AttributeError: ``es``, ``exp_bits``, ``man_bits``, ``bias``, ``int_bits`` or ``frac_bits``
            of a format of another kind. ``exp_bits`` and ``man_bits`` of posits and fixed point
            warn until 0.3 and mean ``es``, ``int_bits``, ``frac_bits`` or the longest fraction.

    Example::

        >>> f = torch_dtypes.format_of("posit16es2")
        >>> f.bits, f.es, f.rounding.name
        (16, 2, 'nearest_even')
    """
    if isinstance(dtype, str):
        return _format_of_name(dtype)
    fmt = _C.format_of(dtype)
    if fmt is None:
        raise TypeError(f"expected a dtype of a number format, but got {said(dtype)}")
    return fmt


_PARAMETERS = {
    "posit": (
        ("nbits", "bits"),
        ("es", "es"),
        ("underflow", "underflow"),
        ("infinity", "infinity"),
    ),
    "float": tuple(
        (name, name)
        for name in ("exp_bits", "man_bits", "bias", "subnormals", "specials", "overflow")
    ),
    "fixed": (
        ("int_bits", "int_bits"),
        ("frac_bits", "frac_bits"),
        ("signed", "is_signed"),
        ("overflow", "overflow"),
        ("symmetric", "symmetric"),
    ),
    "table": (("bits", "bits"), ("signed", "is_signed")),
    "takum": (("nbits", "bits"),),
}


def _describe(self: _C.Format) -> str:
    """A format's name and its parameters, by the names that the constructors give them."""
    kind = self.kind.name
    values = {
        name: getattr(self, field) for name, field in (*_PARAMETERS[kind], ("rounding", "rounding"))
    }
    parameters = ", ".join(
        f"{name}={getattr(value, 'name', value)}" for name, value in values.items()
    )
    return f"<Format {naming.name_of_format(self)}: kind={kind}, {parameters}>"


def name_of_format(fmt: _C.Format) -> str:
    """The canonical name of a format, for a process that has nothing else of it.

    Raises:
        ValueError: a format whose fields were set to what no name says.
    """
    name = naming.name_of_format(fmt)
    if format_of(name) != fmt:
        raise ValueError(
            f"expected a format that a name describes, but got {fmt!r}, whose name {name!r} is "
            "another's"
        )
    return name


_C.Format.__repr__ = _describe
_C.Format.__copy__, _C.Format.__deepcopy__ = (
    lambda self: _C.Format(self),
    lambda self, memo: _C.Format(self),
)


def install() -> None:
    """Puts the built-in dtypes into the torch namespace."""
    for made in _C.builtin_dtypes():
        name = _C.name_of(made)
        if getattr(torch, name, made) is not made:
            raise ImportError(
                f"torch.{name} exists already: is torch_dtypes loaded twice, or does this torch "
                "bring its own?"
            )
        setattr(torch, name, made)
        _BUILTIN.append(made)
    dtype_numbers.install()
