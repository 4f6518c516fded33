"""Exact reading of a user's numbers: from a list, a tensor, an array or a file."""

from __future__ import annotations

import os
import pathlib
import pickle
from collections.abc import Iterable

import torch

from ..arguments import index_of, outline
from .definition import MAX_VALUES


def numbers_of(what: str, given: object) -> list[float]:
    """Read numbers exactly from a list, a tensor, an array or a file."""
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
                f"expected {what} as a dense tensor with numbers in it, but got {outline(given)}; "
                "convert it"
            )
        given = given.detach().to("cpu").flatten()
        numbers = given.double().tolist()
        if not given.is_floating_point():
            for place, value in enumerate(given[: MAX_VALUES + 1].tolist()):
                _exactly(what, value, place)
        return numbers
    if getattr(given, "ndim", 1) != 1:
        given = given.reshape(-1)  # as for a tensor
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
        got = outline(value if whole is None else whole)
        raise ValueError(
            f"expected numbers that float64 holds as {what}, but got {got} in place {place}; round "
            "it first"
        )
    return number


def _read(path: pathlib.Path) -> object:
    if not path.is_file():
        raise ValueError(
            f"expected the name of a file of values, but got {str(path)!r}, which is no file"
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
            f"expected {what} in {str(path)!r}, but got another content: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _read_torch(path: pathlib.Path) -> object:
    return torch.load(path, weights_only=True)


def _read_numpy(path: pathlib.Path) -> object:
    import numpy as np

    array = np.load(path, allow_pickle=False)
    # Integers are checked later, since float64 may not hold them.
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
