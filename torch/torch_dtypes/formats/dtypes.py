"""Number formats and their dtypes: making one from a name, and asking about one.

Equal parameters give the same dtype object as long as somebody refers to it. A process has at most
64 formats in use at a time, the built-in ones among them (PyTorch numbers dtypes with eight bits);
a format with another rounding mode counts as one more. The place of one whose dtype nothing refers
to any more, a tensor alone not counted, is taken by the next.
"""

from __future__ import annotations

import torch

from .. import _C
from . import dtype_numbers, layouts, naming
from .arguments import set_rounding, shorten
from .dtype_numbers import define
from .spellings import ALIASES
from .tables import constructors, making

__all__ = [
    "ROUNDING_MODES",
    "builtin_dtypes",
    "dtype",
    "format_of",
    "is_format_dtype",
    "with_rounding",
]

ROUNDING_MODES = naming.ROUNDING_MODES
"""The names of the rounding modes; docs/numerics.md defines each."""


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
    make = {
        "posit": layouts.make_posit,
        "float": layouts.make_float,
        "fixed": layouts.make_fixed,
        "takum": constructors.takum,
    }[kind]
    return make(*positional, **options, rounding=mode)


def _format_of_name(name: str) -> _C.Format:
    if not isinstance(name, str):
        raise TypeError(
            f"expected a dtype of a number format, or the name of one, but got {shorten(name)}"
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
        raise TypeError(f"expected a dtype of a number format, but got {shorten(dtype)}")
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
