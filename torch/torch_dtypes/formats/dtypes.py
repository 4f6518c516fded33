"""Dtypes of number formats: how to create one from a name, and its properties.

Equal parameters give the same dtype object as long as something refers to it. A process has at most
64 formats in use at a time, the built-in ones included, since PyTorch numbers dtypes with eight
bits. The same format with another rounding mode counts as one more. A new format takes the place of
one whose dtype is no longer referred to; tensors do not count as references.
"""

from __future__ import annotations

import torch

from .. import _C
from . import dtype_numbers, layouts, naming
from .arguments import outline, set_rounding
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
    """Return the dtype of the same values with another rounding mode:
    ``with_rounding(torch.q43, "stochastic")`` is ``torch.q43_stochastic``.

    Operators do not mix the two dtypes. Convert one first, which is exact, since both have the same
    values.

    Args:
        dtype: a dtype of this package or a name.
        mode: one of ``ROUNDING_MODES``, or Pychop's number. ``"stochastic_a4"``, as in names, is
            the mode ``stochastic`` with 4 random bits of kind a.
        stochastic_bits: the number N of random bits that the mode ``stochastic`` draws for an
            element, 1 to 63, as in hardware with few of them. Default: 64.
        stochastic_kind: with stochastic_bits, how the fraction that is cut off becomes N bits. They
            are added to the N random bits, and a carry rounds up. ``"a"`` (the default): the
            fraction is cut. ``"b"``: it is rounded, ties up. ``"c"``: it is rounded, ties to even.
            (IEEE P3109's StochasticA, B and C.)

    Raises:
        TypeError: a stock dtype.
        ValueError: an unknown name, not a mode, stochastic_bits with another mode, stochastic_kind
            without stochastic_bits or with a mode of another kind, or 64 dtypes in use.

    Example::

        >>> d = torch_dtypes.with_rounding(torch.q43, "toward_zero")
        >>> torch.tensor([1.99]).to(d)
        tensor([1.8750], dtype=torch.q43_toward_zero)
    """
    fmt = format_of(dtype)
    set_rounding(fmt, mode, stochastic_bits, stochastic_kind)
    return define(fmt)


def dtype(name: str | torch.dtype) -> torch.dtype:
    """Return the dtype of a name, a new one if there is none yet. ``str(dtype)``, which begins with
    ``torch.``, is a name too. A dtype is returned as it is.

    Names of built-in formats are ``"posit16es2"``, ``"q43"`` and others. Names by parameters are:

    - ``posit<nbits>es<es>[_underflow][_saturate]``
    - ``e<exp_bits>m<man_bits>[fn|finite|fnuz|p3109][_bias[minus]<bias>][_flush][_saturate]``
    - ``[u]fixed[minus]<int_bits>_[minus]<frac_bits>[_symmetric|_wrap]``
    - ``takum<nbits>_linear`` and ``takum<nbits>_log``
    - ``posit<16,1>``, ``float<5,10>`` and ``[u]fixed<8,8>``, with brackets
    - IEEE P3109's ``binary<K>p<P>se`` (with infinities) and ``binary<K>p<P>sf`` (finite)

    ``_<rounding mode>`` ends a name if the mode is not nearest_even. Other tools' spellings are
    names too: ``fp16``, ``half``, ``bf16``, ``ocp_e4m3``, ``float8_e4m3``.
    docs/reference/spellings.md lists them. They mean formats of this package, not the stock dtypes.
    A float's options may follow any of its names: ``q43_flush``, ``fp16_saturate``,
    ``binary8p4se_saturate``.

    Options may have any order, and case is ignored. A name that a standard writes in capitals for
    another format (``E4M3``) is an error. So is a name that two tools give to two formats. Both
    errors show the two formats.

    Args:
        name: as above, or a dtype of this package.

    Raises:
        ValueError: not a name of a format, or one with impossible parameters.
        TypeError: not a text, or a stock dtype.

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
            f"expected a dtype of a number format, or the name of one, but got {outline(name)}"
        )
    base, mode = naming.split_rounding(naming.spell(making.learn(name.removeprefix("torch."))))
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
            f"expected a rounding mode or another option after {head!r}, but got {rest!r} in "
            f"{name!r}.{meant} The modes are {', '.join(naming.ROUNDING_MODES)}; see "
            "torch_dtypes.dtype for the options"
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
    """Return the built-in dtypes, in the order of c10/formats/BuiltinFormats.h.

    Example::

        >>> torch_dtypes.builtin_dtypes()[:3]
        (torch.posit8es0, torch.posit8es1, torch.posit8es2)
    """
    return tuple(_BUILTIN)


def is_format_dtype(dtype: object) -> bool:
    """Return whether ``dtype`` is a dtype of this package.

    Args:
        dtype: anything.

    Example::

        >>> torch_dtypes.is_format_dtype(torch.q43), torch_dtypes.is_format_dtype(torch.bfloat16)
        (True, False)
    """
    return _C.format_of(dtype) is not None


def format_of(dtype: torch.dtype | str) -> _C.Format:
    """Return the format of a dtype of this package, or of a name.

    All formats have ``kind``, ``bits``, ``significand_bits``, ``specials``, ``overflow``,
    ``is_signed`` and ``rounding``. Floats also have ``exp_bits``, ``man_bits``, ``bias`` and
    ``subnormals``, posits ``es``, ``underflow`` and ``infinity``, fixed point ``int_bits``,
    ``frac_bits`` and ``symmetric``. The format is a copy: a change to it changes no dtype. A name
    does not create a dtype.

    Args:
        dtype: a dtype of this package or a name.

    Raises:
        TypeError: a stock dtype.
        ValueError: an unknown name.
        AttributeError: ``es``, ``exp_bits``, ``man_bits``, ``bias``, ``int_bits`` or ``frac_bits``
            of a format of another kind. Until 0.3, ``exp_bits`` and ``man_bits`` of posits and
            fixed point warn, and return ``es``, ``int_bits``, ``frac_bits`` or the longest
            fraction.

    Example::

        >>> f = torch_dtypes.format_of("posit16es2")
        >>> f.bits, f.es, f.rounding.name
        (16, 2, 'nearest_even')
    """
    if isinstance(dtype, str):
        return _format_of_name(dtype)
    fmt = _C.format_of(dtype)
    if fmt is None:
        raise TypeError(f"expected a dtype of a number format, but got {outline(dtype)}")
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
    """Return a format's name and its parameters, named as in the constructors."""
    kind = self.kind.name
    values = {
        name: getattr(self, field) for name, field in (*_PARAMETERS[kind], ("rounding", "rounding"))
    }
    parameters = ", ".join(
        f"{name}={getattr(value, 'name', value)}" for name, value in values.items()
    )
    return f"<Format {naming.name_of_format(self)}: kind={kind}, {parameters}>"


def name_of_format(fmt: _C.Format) -> str:
    """Return the canonical name of a format, from which another process can create it.

    Raises:
        ValueError: no name describes the format's fields.
    """
    name = naming.name_of_format(fmt)
    if format_of(name) != fmt:
        raise ValueError(
            f"expected a format that a name describes, but got {fmt!r}, since {name!r} means "
            "another one"
        )
    return name


_C.Format.__repr__ = _describe
_C.Format.__copy__, _C.Format.__deepcopy__ = (
    lambda self: _C.Format(self),
    lambda self, memo: _C.Format(self),
)


def install() -> None:
    """Put the built-in dtypes into the torch namespace."""
    for builtin in _C.builtin_dtypes():
        name = _C.name_of(builtin)
        if getattr(torch, name, builtin) is not builtin:
            raise ImportError(
                f"torch.{name} exists already: is torch_dtypes loaded twice, or does this torch "
                "have its own?"
            )
        setattr(torch, name, builtin)
        _BUILTIN.append(builtin)
    dtype_numbers.install()
