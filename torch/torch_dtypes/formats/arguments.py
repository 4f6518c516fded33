"""Checks of arguments: numbers, flags, words and rounding modes. Their errors name the argument."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Collection

from .. import _C
from . import naming
from .patterns import name_pattern

_FEW_BITS = name_pattern(r"stochastic_([abc])(\d+)")


def expect_settings(of: str, given: dict, names: Collection[str]) -> None:
    """Raise TypeError if a keyword argument that a function passes on has none of the names."""
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = (
                f"; do you mean {near[0]}?" if near else f"; there are {', '.join(sorted(names))}"
            )
            raise TypeError(f"expected a setting of {of}, but got {name}={outline(value)}{hint}")


def outline(value: object) -> str:
    """Return a short text of a value for an error: of a tensor or an array, only dtype and
    shape."""
    if getattr(value, "is_nested", False):  # a nested tensor has several shapes
        return f"a nested {type(value).__name__} of {value.dtype}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"a {type(value).__name__} of {value.dtype} and shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}..."


def nearest(word: object, words) -> str:
    """Return a clause with the words most like ``word``, or all if none is."""
    words = [str(w) for w in words]
    near = difflib.get_close_matches(str(word), words, n=3, cutoff=0.5)
    return (
        f"the nearest are {', '.join(map(repr, near))}"
        if near
        else f"there are {', '.join(map(repr, words)) or 'none'}"
    )


def refuse_unknown(keys, known, what: str) -> None:
    for key in keys:
        if key not in known:
            raise ValueError(
                f"expected {what} with keys of {', '.join(map(repr, known))}, but got {key!r}; "
                f"{nearest(key, known)}"
            )


def with_article(name: str) -> str:
    """Return a type's name behind "a" or "an". Two capitals, as in LSTM, are spelt out."""
    spelt = name[:2].isupper() and name[0] in "FHLMNRSX"
    return f"{'an' if spelt or name[0] in 'AEIOaeio' else 'a'} {name}"


def index_of(value: object) -> int | None:
    """Return a value's integer, or None. Tensors and arrays have ``__index__`` but may raise."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except (TypeError, RuntimeError, NotImplementedError):
        return None


def whole_number(value: object) -> int | None:
    """Return a value's integer, or None. 5.0 is 5: every number of MATLAB's is a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else index_of(value)


def integer(name: str, value: object, low: int, high: int) -> int:
    number = whole_number(value)
    if number is None:
        raise TypeError(f"expected an integer for {name}, but got {outline(value)}")
    if not low <= number <= high:
        raise ValueError(f"expected {name} from {low} to {high}, but got {number}")
    return number


def dimension(name: str, value: object) -> int:
    """Check a dimension of a tensor of any size. PyTorch allows at most 64 dimensions."""
    return integer(name, value, -64, 63)


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected True or False for {name}, but got {outline(value)}")
    return value


def choice(name: str, value: object, choices) -> str:
    if not isinstance(value, str):
        raise TypeError(
            f"expected {name} as a string, one of {', '.join(map(repr, choices))}, but got "
            f"{outline(value)}"
        )
    if value not in choices:
        raise ValueError(
            f"expected {name} to be one of {', '.join(map(repr, choices))}, but got {value!r}"
        )
    return value


def rounding_mode(mode: str | int) -> _C.Rounding:
    """Return a rounding mode by its name or Pychop's number, without a number of random bits."""
    if not isinstance(mode, str) and (number := whole_number(mode)) is not None:
        mode = naming.PYCHOP_MODES.get(number, mode)
    if not isinstance(mode, str) or mode not in naming.ROUNDING_MODES:
        names, numbers = ", ".join(map(repr, naming.ROUNDING_MODES)), naming.PYCHOP_MODES
        known = f"one of {names}, or Pychop's number from {min(numbers)} to {max(numbers)}"
        raise ValueError(f"expected a rounding mode, {known}, but got {outline(mode)}")
    return getattr(_C.Rounding, mode)


def few_bits(mode: object) -> tuple[int, _C.FewBits]:
    """Return the number and kind of random bits in the name of a mode; 0 if there are none."""
    match = _FEW_BITS.fullmatch(mode) if isinstance(mode, str) else None
    return (
        (integer("stochastic_bits", int(match[2]), 1, 63), getattr(_C.FewBits, match[1]))
        if match
        else (0, _C.FewBits.a)
    )


def mode_name(mode: str | int) -> str:
    """Return the name of a mode, given by its name or Pychop's number. The name may have a number
    of random bits ("stochastic_a4")."""
    if isinstance(mode, str) and mode in naming.ROUNDING_MODES:
        return mode
    count, kind = few_bits(mode)
    if count:
        return f"stochastic_{kind.name}{count}"
    try:
        return rounding_mode(mode).name
    except ValueError as error:
        raise ValueError(
            f"{error}; 'stochastic' with few random bits is 'stochastic_a4': 4 bits by P3109's "
            "definition a, b or c"
        ) from None


def mode_and_bits(mode: str | int) -> tuple[_C.Rounding, tuple[int, _C.FewBits]]:
    """Return the mode of a name or Pychop's number, with its number and kind of random bits; 0 if
    there are none."""
    name = mode_name(mode)
    bits = few_bits(name)
    return rounding_mode("stochastic" if bits[0] else name), bits


def parse_mode(value: str | int) -> str:
    """Return the name of a mode from a command line or a file, where Pychop's number is a text."""
    return mode_name(int(value) if isinstance(value, str) and value.isdecimal() else value)


def override_rounding(fmt: _C.Format, mode: str | int) -> None:
    """Give a format the mode of a call or block. The format keeps its number of random bits if the
    mode has none."""
    fmt.rounding, (count, kind) = mode_and_bits(mode)
    if count:
        fmt.random_bits, fmt.few_bits = count, kind


def set_rounding(
    fmt: _C.Format,
    mode: str | int,
    stochastic_bits: int | None = None,
    stochastic_kind: str | None = None,
) -> None:
    """Give a format a mode, as "up" or "stochastic_a4" (4 random bits by P3109's definition A)."""
    name, kind = mode_name(mode), stochastic_kind
    if kind is not None:
        choice("stochastic_kind", kind, ("a", "b", "c"))
    if match := _FEW_BITS.fullmatch(name):
        if stochastic_bits is not None:
            raise ValueError(
                f"expected the number of random bits once, but got {mode!r} and "
                f"stochastic_bits={stochastic_bits!r}; leave stochastic_bits out"
            )
        if kind not in (None, match[1]):
            raise ValueError(
                f"expected the kind of random bits once, but got {mode!r} and "
                f"stochastic_kind={kind!r}; leave stochastic_kind out"
            )
        name, kind, stochastic_bits = "stochastic", match[1], int(match[2])
    fmt.rounding = rounding_mode(name)
    fmt.random_bits, fmt.few_bits = 0, _C.FewBits.a
    if stochastic_bits is None:
        if kind is not None:
            raise ValueError(
                f"expected stochastic_kind with stochastic_bits only, but got {kind!r} for the "
                f"mode {name!r}; give the number of bits too, or leave it out"
            )
        return
    if fmt.rounding != _C.Rounding.stochastic:
        raise ValueError(
            "expected stochastic_bits with the mode 'stochastic' only, but got "
            f"{fmt.rounding.name!r}"
        )
    fmt.random_bits, fmt.few_bits = (
        integer("stochastic_bits", stochastic_bits, 1, 63),
        getattr(_C.FewBits, kind or "a"),
    )


def find_mode(rounding: str | int | None) -> str | None:
    """Return the name of the mode of an argument, or else of the ``with rounding(...)`` block.

    None: each format uses its own mode.
    """
    if rounding is not None:
        return mode_name(rounding)
    override = _C.rounding_override()
    if override is None:
        return None
    _C.count_rounding_use()
    count, kind = _C.few_bits_override() if override == _C.Rounding.stochastic else (0, None)
    return f"stochastic_{kind.name}{count}" if count else override.name
