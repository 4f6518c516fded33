"""table_format: a format from a user's list of values."""

from __future__ import annotations

import math

import torch

from .. import dtype_numbers
from ..arguments import index_of, outline, set_rounding
from .definition import TIES, Definition, End, expect_format
from .making import keep
from .values import numbers_of


def _code(what: str, value: object, count: int) -> int:
    number = index_of(value)
    if number is None:
        raise TypeError(f"expected an integer as the code for {what}, but got {outline(value)}")
    if not 0 <= number < count:
        raise ValueError(f"expected a code from 0 to {count - 1} for {what}, but got {value}")
    return number


def _nearest_zero(values: list[float]) -> int:
    return min(
        (abs(v), math.copysign(1, v) < 0, code) for code, v in enumerate(values) if math.isfinite(v)
    )[2]


def _ends(
    values: list[float],
    ordered: list[float],
    overflow: object,
    limits: tuple[float, float] | None,
    nan_code: int,
) -> tuple[End, End]:
    """Build the high and the low end from the argument ``overflow``."""
    infinite = [
        next((c for c, v in enumerate(values) if v == sign * math.inf), None) for sign in (1, -1)
    ]
    if overflow is None:
        overflow = "infinity" if any(c is not None for c in infinite) else "saturate"
    if isinstance(overflow, str):
        if overflow not in ("saturate", "infinity", "nan"):
            raise ValueError(
                "expected overflow as 'saturate', 'infinity', 'nan', a code or two codes, but got "
                f"{overflow!r}"
            )
        if overflow == "infinity" and None in infinite:
            raise ValueError(
                "expected inf and -inf among the values with overflow='infinity', but one is "
                "missing; add it, or give two codes or 'saturate'"
            )
        codes = {
            "saturate": (None, None),
            "infinity": tuple(infinite),
            "nan": (nan_code, nan_code),
        }[overflow]
        if overflow == "nan" and not math.isnan(values[nan_code]):
            raise ValueError(
                "expected a NaN among the values with overflow='nan', but there is none; add one"
            )
    else:
        pair = tuple(overflow) if isinstance(overflow, (tuple, list)) else (overflow, overflow)
        if len(pair) != 2:
            raise ValueError(
                f"expected overflow as one code or two, below and above, but got {overflow!r}"
            )
        codes = tuple(_code("overflow", c, len(values)) for c in reversed(pair))

    if limits is not None and codes == (None, None):
        raise ValueError(
            "expected overflow to a code with boundaries beyond the outermost values, but got "
            f"{limits} and overflow='saturate'; give a code, or leave these two boundaries out"
        )

    def end(code: int | None, outermost: float, inner: float, limit: float | None) -> End:
        if code is None:
            return End()
        following = (
            outermost + (outermost - inner)
            if limit is None
            else outermost + 2 * (limit - outermost)
        )
        if not math.isfinite(following):
            raise ValueError(
                "expected values within half of float64's range with overflow to a code, but got "
                f"{outermost!r}; scale them"
            )
        return End(code, code, following, limit)

    low, high = limits or (None, None)
    return end(codes[0], ordered[-1], ordered[-2], high), end(codes[1], ordered[0], ordered[1], low)


def define(
    values: object,
    nan: object = None,
    ties: str = "even",
    boundaries: object = None,
    overflow: object = None,
) -> Definition:
    """Build the definition of a table from the arguments of table_format."""
    numbers = numbers_of("values", values)
    expect_format(Definition(tuple(numbers), 0))
    if not (isinstance(ties, str) and ties in TIES):
        raise ValueError(f"expected ties as one of {', '.join(map(repr, TIES))}, but got {ties!r}")
    if nan is None:
        nan_code = next(
            (code for code, v in enumerate(numbers) if math.isnan(v)), _nearest_zero(numbers)
        )
    else:
        nan_code = _code("nan", nan, len(numbers))
    ordered = sorted({v for v in numbers if math.isfinite(v)})
    inner = limits = None
    if boundaries is not None:
        between = numbers_of("boundaries", boundaries)
        if len(between) == len(ordered) + 1:
            limits, between = (between[0], between[-1]), between[1:-1]
            if not (limits[0] < ordered[0] and limits[1] > ordered[-1]):
                raise ValueError(
                    f"expected the outermost boundaries beyond all values, {ordered[0]!r} to "
                    f"{ordered[-1]!r}, but got {limits}"
                )
        if len(between) != len(ordered) - 1:
            count = len(ordered) - 1
            raise ValueError(
                f"expected {count} boundaries, between neighbours in ascending order (or "
                f"{count + 2}, with both ends), but got {len(between)}"
            )
        for lower, b, upper in zip(ordered, between, ordered[1:], strict=False):
            if not lower <= b <= upper:
                raise ValueError(
                    "expected each boundary between its neighbours in ascending order, but got "
                    f"{b!r} between {lower!r} and {upper!r}"
                )
        inner = tuple(between)
    high, low = _ends(numbers, ordered, overflow, limits, nan_code)
    return Definition(tuple(numbers), nan_code, ties, inner, high, low)


def table_format(
    values: object,
    nan: int | None = None,
    ties: str = "even",
    *,
    boundaries: object = None,
    overflow: str | int | tuple[int, int] | None = None,
    rounding: str | int = "nearest_even",
    name: str | None = None,
) -> torch.dtype:
    """Return the dtype whose code i means ``values[i]``, for any set of at most 2^16 numbers.

    Rounding goes to one of the two values next to a number. Nearest modes compare the number with
    the boundary between the two, which is their midpoint or comes from ``boundaries``. Directed
    modes compare values, and stochastic ones distances. Numbers beyond the outermost values become
    these, or a code from ``overflow``. NaN becomes the first NaN code, or else the value nearest to
    0.

    The name is a digest of the content: ``torch.table4_`` and sixteen digits. Files and other
    processes get the values with it. Equal arguments give the same dtype.

    Args:
        values: the values by code, all of them normal numbers of float64: a list, a tensor, an
            array, or the name of a file (``.pt``, ``.npy``, or text with blanks, commas or new
            lines between the numbers). NaN marks a code that is no number. inf and -inf may occur;
            0.0 and -0.0 are two values. Codes have as many bits as the number of values needs, 1 to
            16. Codes beyond the last value are NaN.
        nan: the code of NaN.
        ties: where the mode ``nearest_even`` rounds a number on a boundary. ``"even"``: to the even
            code, or if both or neither are even, to the one at an even index in the order of
            values. ``"zero"``, ``"away"`` (from zero), ``"up"``, ``"down"``.
        boundaries: boundaries between neighbours in ascending order, instead of midpoints. If
            numbers overflow to a code, there may be two more, the first and the last, from which
            they do. Digits of a midpoint beyond 64 bits do not count for results of arithmetic.
        overflow: ``"saturate"``: to the outermost value, infinities too. ``"infinity"``: to inf and
            -inf, from half a step beyond the outermost value. The values must have both; this is
            then the default. ``"nan"``: to NaN. A code, or two: below and above.
        rounding: a mode, as ``with_rounding`` takes it.
        name: a name for the format, as ``"acme8"``, instead of the digest. Every function and
            report of the process then knows it. Files and other processes get it with the values.

    Raises:
        ValueError: repeated values, too many, too few, or other than float64's normal numbers;
            boundaries that do not fit; an impossible code; a name that is taken, or that has other
            values in this process.
        TypeError: a parameter of another type.

    Example::

        >>> ternary = torch_dtypes.table_format([0.0, 1.0, -1.0])
        >>> torch.tensor([0.2, 0.7, -5.0]).to(ternary).float()
        tensor([ 0.,  1., -1.])
    """
    definition = define(values, nan, ties, boundaries, overflow)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"expected a name as a string, but got {outline(name)}")
    name = definition.name() if name is None else name
    keep(name, definition)
    fmt = definition.format(name)
    set_rounding(fmt, rounding)
    return dtype_numbers.define(fmt)
