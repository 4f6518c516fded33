"""What an infinity that is written as a number becomes in a format without infinities."""

from __future__ import annotations

from . import _C
from ._arguments import choice

_SETTINGS = {s: getattr(_C.FillInfinity, s) for s in ("saturate", "nan")}


def set_fill_infinity(setting: str) -> None:
    """Sets, for the process, what a Python number of plus or minus infinity becomes that is put into a tensor of a format without infinities.

    Such formats are posits, and floats with ``specials="fn"`` or ``"fnuz"``; the others have an infinity or saturate. Numbers are put into
    a tensor by ``torch.tensor``, ``full``, ``fill_``, ``x[i] = ...``, ``masked_fill``, ``where``, ``pad``, ``scatter`` and their kin;
    a stock tensor without dimensions in a number's place counts as one. Casts of tensors are not meant: there an infinity becomes NaN, unless
    the format itself says otherwise (``posit_format(..., infinity="saturate")``, ``float_format(..., overflow="saturate")``).

    Args:
        setting: ``"saturate"`` (the default): the outermost number of its sign. In a comparison, or as a bound of ``clamp``, infinities are
            taken for the same number, so that ``mask == float("-inf")`` finds the places that were filled. One ``UserWarning`` a process
            says so when it first happens. ``"nan"``: NaN (NaR), as in a cast.

    Raises:
        ValueError: another string.
        TypeError: no string.

    Example::

        >>> torch_dtypes.set_fill_infinity("nan")
        >>> torch.full((1,), float("-inf"), dtype=torch.posit16es2)
        tensor([nan], dtype=torch.posit16es2)
        >>> torch_dtypes.set_fill_infinity("saturate")
    """
    _C.set_fill_infinity(_SETTINGS[choice("setting", setting, _SETTINGS)])


def fill_infinity() -> str:
    """What ``set_fill_infinity`` has set: ``"saturate"`` or ``"nan"``.

    Example::

        >>> torch_dtypes.fill_infinity()
        'saturate'
    """
    return _C.fill_infinity().name
