"""Formats from lists of values: what a user gives, checked, and the tables that a process knows by
name."""

from __future__ import annotations

import functools
import math
import os
import pathlib
import pickle
import re
from collections.abc import Callable, Iterable

import torch

from ... import _C
from .. import dtype_numbers, naming
from ..arguments import index_of, said, set_rounding
from ..patterns import name_pattern
from .definition import MAX_VALUES, TIES, Definition, End, of_text

_BY_CONTENT = name_pattern(r"table\d+_[0-9a-f]{16}")
_OWN_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_made: dict[str, Definition] = {}  # by name, of tables that are named by their content or by a user
_formats: dict[str, _C.Format] = {}  # by name, of every table that was asked for
_named: dict[str, tuple[re.Pattern, Callable[..., Definition]]] = {}


# What says of a name whether it means something already.
_taken_by: list[Callable[[str], bool]] = []


def ask_before_naming(means_something: Callable[[str], bool]) -> Callable[[str], bool]:
    """A decorator: a user's table gets no name of which the function says True."""
    _taken_by.append(means_something)
    return means_something


# ---- tables by name ----


def named(pattern: str) -> Callable:
    """A decorator: names that match the pattern are tables that the function defines, from the
    match's groups as integers or text."""

    def register(define: Callable[..., Definition]) -> Callable[..., Definition]:
        _named[pattern] = (name_pattern(pattern), define)
        return define

    return register


def format_of_name(name: str) -> _C.Format | None:
    """A copy of the format of a published table's name or of one that was made in this process;
    None: no such name, so far."""
    if name in _made:
        return define_once(name, lambda: _made[name])
    for pattern, define in _named.values():
        if match := pattern.fullmatch(name):
            parameters = [int(g) if g is not None and g.isdecimal() else g for g in match.groups()]
            name = re.sub(r"\d+", lambda digits: str(int(digits[0])), name)  # lns03_3 is lns3_3
            return define_once(name, functools.partial(define, *parameters))
    return None


def known_names() -> list[str]:
    """The names of tables that need no parameters, or that a user gave."""
    return [
        name
        for name in (*_named, *_made)
        if name.isidentifier() and not _BY_CONTENT.fullmatch(name)
    ]


def refuse_unknown(name: str) -> None:
    """An error for the name of a table by its content that this process does not know."""
    if _BY_CONTENT.fullmatch(name):
        raise ValueError(
            f"expected the values of {name} to be known, which is named by its content, but "
            "nothing in this process has them: make it with table_format, or load a checkpoint, "
            "which brings them"
        )


def define_once(name: str, define: Callable[[], Definition]) -> _C.Format:
    """A copy of the format of a table's name, which is defined at the first call."""
    if name not in _formats:
        _formats[name] = define().format(name)
    return _C.Format(_formats[name])


def written_name(name: str) -> str:
    """A dtype's name as files and other processes get it: that of a table which only this process
    knows has the content behind a colon."""
    name = naming.spelled(name)
    base, _ = naming.split_rounding(name)
    return f"{name}:{_text(base)}" if base in _made else name


@functools.lru_cache(maxsize=64)
def _text(name: str) -> str:
    return _made[name].text()


def content_of(name: str) -> str | None:
    """What names the values of a table that a user has named; None: another format."""
    base, _ = naming.split_rounding(naming.spelled(name))
    return _made[base].name() if base in _made and not _BY_CONTENT.fullmatch(base) else None


def learn(written: str) -> str:
    """The name within a written name, whose table is known from now on."""
    name, colon, text = written.partition(":")
    if not colon:
        return name
    base, _ = naming.split_rounding(name)
    if base in _made and _text(base) == text:
        return name
    definition = of_text(text)
    _keep(base, definition)
    return name


def _keep(name: str, definition: Definition) -> None:
    """Makes a table known by a name.

    Raises:
        ValueError: the name is that of another format, or can be none.
    """
    if name in _made:
        if _made[name].content() != definition.content():
            raise ValueError(
                f"expected one table of the name {name!r}, but got other values than it has in "
                "this process; take another"
            )
        return
    if not _BY_CONTENT.fullmatch(name):
        _expect_free(name)
    elif name != definition.name():
        raise ValueError(
            f"expected {name} to name the values that stand behind it, but they are "
            f"{definition.name()}'s: the text is damaged"
        )
    _made[name] = _checked(definition)


def _expect_free(name: str) -> None:
    if not _OWN_NAME.fullmatch(name) or len(name) > 64:
        raise ValueError(
            "expected a name of at most 64 lower-case letters, digits and single underscores, a "
            f"letter first, but got {name!r}; case is ignored"
        )
    head, options = naming.split_options(name)
    if options:
        raise ValueError(
            f"expected a name that ends in no option, but got {name!r}, which says {head!r} with "
            f"{', '.join(options)}; take another"
        )
    if any(means_something(name) for means_something in _taken_by):
        raise ValueError(
            f"expected a name that no format has, but got {name!r}, which means something "
            "already; take another name"
        )


# ---- a user's table ----


def _numbers_of(what: str, given: object) -> list[float]:
    """Numbers from a list, a tensor, an array or a file, exactly."""
    if isinstance(given, (str, os.PathLike)):
        given = _read(pathlib.Path(given))
    if isinstance(given, torch.Tensor):
        if given.is_complex():
            raise TypeError(f"expected real {what}, but got a tensor of {given.dtype}")
        if (
            given.layout is not torch.strided
            or given.is_nested
            or given.is_meta
            or given.is_quantized
        ):
            raise TypeError(
                f"expected {what} as a dense tensor with numbers in it, but got {said(given)}; "
                "convert it"
            )
        given = given.detach().to("cpu").flatten()
        numbers = given.double().tolist()
        if not given.is_floating_point():
            for place, value in enumerate(given[: MAX_VALUES + 1].tolist()):
                _exactly(what, value, place)
        return numbers
    if getattr(given, "ndim", 1) != 1:
        given = given.reshape(-1)  # as of a tensor
    if not isinstance(given, Iterable) or isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"expected {what} as a list, a tensor, an array or the name of a file, but got "
            f"{given!r}"
        )
    numbers = []
    for i, v in enumerate(given):
        if isinstance(v, (str, bytes)) or not (hasattr(v, "__float__") or hasattr(v, "__index__")):
            raise TypeError(f"expected numbers as {what}, but got {v!r} in place {i}")
        if i == MAX_VALUES + 1:
            break
        numbers.append(_exactly(what, v, i))
    return numbers


def _exactly(what: str, value: object, place: int) -> float:
    whole, number = index_of(value), None
    try:
        number = float(value)
    except OverflowError:  # beyond float64's range
        pass
    if number is None or (whole is not None and number != whole):
        got = said(value if whole is None else whole)
        raise ValueError(
            f"expected numbers that float64 has as {what}, but got {got} in place {place}: round "
            "it first"
        )
    return number


def _read(path: pathlib.Path) -> object:
    if not path.is_file():
        raise ValueError(
            f"expected the name of a file of values, but got {str(path)!r}, which is none"
        )
    what, read = _FILES.get(
        path.suffix, ("text, numbers with blanks, commas or new lines between them,", _read_text)
    )
    try:
        return read(path)
    except (
        ValueError,
        TypeError,
        RuntimeError,
        EOFError,
        OverflowError,
        pickle.UnpicklingError,
    ) as error:
        raise ValueError(
            f"expected {what} in {str(path)!r}, but got what cannot be read so: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _read_torch(path: pathlib.Path) -> object:
    return torch.load(path, weights_only=True)


def _read_numpy(path: pathlib.Path) -> object:
    import numpy as np

    array = np.load(path, allow_pickle=False)
    # Integers: are they float64's?
    return (
        array if array.dtype.kind in "iu" else torch.from_numpy(np.asarray(array, dtype=np.float64))
    )


def _read_text(path: pathlib.Path) -> list[float]:
    return [
        float.fromhex(w) if "0x" in w else float(w)
        for w in path.read_text().replace(",", " ").split()
    ]


_SAVED = ("a tensor or a list of numbers, as torch.save writes it,", _read_torch)
_FILES = {
    ".pt": _SAVED,
    ".pth": _SAVED,
    ".npy": ("an array of numbers, as numpy.save writes it,", _read_numpy),
}


def _code(what: str, value: object, count: int) -> int:
    number = index_of(value)
    if number is None:
        raise TypeError(f"expected a code for {what}, an integer, but got {said(value)}")
    if not 0 <= number < count:
        raise ValueError(f"expected a code from 0 to {count - 1} for {what}, but got {value}")
    return number


def _checked(d: Definition) -> Definition:
    """The same definition; an error where its values make no format."""
    if len(d.values) > MAX_VALUES:
        raise ValueError(
            f"expected at most {MAX_VALUES} values, but got {len(d.values)} or more: codes have "
            "16 bits at most"
        )
    places: dict[tuple[float, bool], int] = {}
    for code, v in enumerate(d.values):
        if math.isnan(v):
            continue
        key = (v, math.copysign(1, v) < 0)
        if key in places:
            raise ValueError(
                f"expected different values, but got {v!r} for the codes {places[key]} and "
                f"{code}: leave one out, or write NaN for a code that is not used"
            )
        places[key] = code
        if 0 < abs(v) < 2.0**-1022:
            raise ValueError(
                f"expected values that float64 has as normal numbers, but got {v!r} for the code "
                f"{code}: scale them"
            )
    if len({v for v in d.values if math.isfinite(v)}) < 2:
        raise ValueError(f"expected two finite values at least, but got {list(d.values[:8])}")
    return d


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
    """The high and the low end, from what the argument overflow says."""
    infinite = [
        next((c for c, v in enumerate(values) if v == sign * math.inf), None) for sign in (1, -1)
    ]
    if overflow is None:
        overflow = "infinity" if any(c is not None for c in infinite) else "saturate"
    if isinstance(overflow, str):
        if overflow not in ("saturate", "infinity", "nan"):
            raise ValueError(
                "expected overflow to be 'saturate', 'infinity', 'nan', a code or two codes, but "
                f"got {overflow!r}"
            )
        if overflow == "infinity" and None in infinite:
            raise ValueError(
                "expected inf and -inf among the values with overflow='infinity', but one is "
                "missing: give two codes, or 'saturate'"
            )
        codes = {
            "saturate": (None, None),
            "infinity": tuple(infinite),
            "nan": (nan_code, nan_code),
        }[overflow]
        if overflow == "nan" and not math.isnan(values[nan_code]):
            raise ValueError(
                "expected a NaN among the values with overflow='nan', but there is none"
            )
    else:
        pair = tuple(overflow) if isinstance(overflow, (tuple, list)) else (overflow, overflow)
        if len(pair) != 2:
            raise ValueError(
                f"expected one code for overflow or two, below and above, but got {overflow!r}"
            )
        codes = tuple(_code("overflow", c, len(values)) for c in reversed(pair))

    if limits is not None and codes == (None, None):
        raise ValueError(
            f"expected overflow with boundaries beyond the outermost values, but got {limits} and "
            "what saturates, where nothing lies beyond: say what numbers there become, or leave "
            "these two boundaries out"
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
                "expected values within half of float64's range where they overflow to a code, "
                f"but got {outermost!r}"
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
    """The definition of what a user of table_format gives."""
    numbers = _numbers_of("values", values)
    _checked(Definition(tuple(numbers), 0))
    if not (isinstance(ties, str) and ties in TIES):
        raise ValueError(
            f"expected ties to be one of {', '.join(map(repr, TIES))}, but got {ties!r}"
        )
    if nan is None:
        nan_code = next(
            (code for code, v in enumerate(numbers) if math.isnan(v)), _nearest_zero(numbers)
        )
    else:
        nan_code = _code("nan", nan, len(numbers))
    ordered = sorted({v for v in numbers if math.isfinite(v)})
    inner = limits = None
    if boundaries is not None:
        given = _numbers_of("boundaries", boundaries)
        if len(given) == len(ordered) + 1:
            limits, given = (given[0], given[-1]), given[1:-1]
            if not (limits[0] < ordered[0] and limits[1] > ordered[-1]):
                raise ValueError(
                    f"expected the outermost boundaries beyond all values, {ordered[0]!r} to "
                    f"{ordered[-1]!r}, but got {limits}"
                )
        if len(given) != len(ordered) - 1:
            count = len(ordered) - 1
            raise ValueError(
                f"expected {count} boundaries, between neighbours in ascending order (or "
                f"{count + 2}, with both ends), but got {len(given)}"
            )
        for lower, b, upper in zip(ordered, given, ordered[1:], strict=False):
            if not lower <= b <= upper:
                raise ValueError(
                    "expected each boundary between its neighbours in ascending order, but got "
                    f"{b!r} between {lower!r} and {upper!r}"
                )
        inner = tuple(given)
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
    """The dtype whose code i means ``values[i]``: any set of at most 2^16 numbers.

    Rounding is by value. Of the two values next to a number, to nearest takes the one on whose side
    of the boundary between them it lies: of their midpoint, or of what ``boundaries`` says.
    Directed modes go by value, stochastic ones by the distance from both. What is beyond the
    outermost values becomes these, or a code that ``overflow`` says. NaN becomes the first code
    that is NaN or, where there is none, the value nearest to 0.

    The name says the content (``torch.table4_`` and sixteen digits), files and other processes get
    the values with it, and equal arguments give the same dtype.

    Args:
        values: numbers that float64 has as normal numbers, by code: a list, a tensor, an array, or
            the name of a file (``.pt``, ``.npy``, or text with blanks, commas or new lines between
            the numbers). NaN where a code is no number; inf and -inf; 0.0 and -0.0 are two values.
            Codes have the bits that the number of values needs, 1 to 16; those beyond the last
            value are NaN.
        nan: the code that NaN becomes.
        ties: where a number on a boundary goes in the mode ``nearest_even``: ``"even"`` (the even
            code; where both or none are, the one with an even place in the order of values),
            ``"zero"``, ``"away"`` (from zero), ``"up"``, ``"down"``.
        boundaries: in place of midpoints, between neighbours in ascending order; with two more,
            where there is an overflow, the first and the last say from where on numbers do. What 64
            bits cannot hold of a midpoint does not count for results of arithmetic.
        overflow: ``"saturate"``: to the outermost value, infinities too. ``"infinity"``: to inf and
            -inf, which the values must have, from half a step beyond the outermost value on (the
            default where they are among the values). ``"nan"``. A code, or two: below and above.
        rounding: a mode, as ``with_rounding`` takes it.
        name: the format's own name, in place of that by content: ``"acme8"``, which every function
            and report of the process then knows. Files and other processes get it with the values.

    Raises:
        ValueError: values twice, too many, too few, or beyond float64's normal numbers; boundaries
            that do not fit; an impossible code; a name that exists, or that has other values in
            this process.
        TypeError: a parameter of another type.

    Example::

        >>> ternary = torch_dtypes.table_format([0.0, 1.0, -1.0])
        >>> torch.tensor([0.2, 0.7, -5.0]).to(ternary).float()
        tensor([ 0.,  1., -1.])
    """
    definition = define(values, nan, ties, boundaries, overflow)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"expected a name as a string, but got {said(name)}")
    name = definition.name() if name is None else name
    _keep(name, definition)
    fmt = definition.format(name)
    set_rounding(fmt, rounding)
    return dtype_numbers.define(fmt)
