"""Folders that commands write into. One command works there at a time, and each file is whole or
missing."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch


@contextlib.contextmanager
def lock_folder(folder: str | os.PathLike) -> Iterator[None]:
    """Lock a folder for the block, because a second command would remove or replace files that the
    first one needs.

    It locks the folder itself and leaves no file. The lock ends with the process, in whatever way
    that ends. On file systems without locks (some over a network) it does nothing.

    Raises:
        BlockingIOError: another command works in the folder.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"expected an idle folder, but another command works in {folder}; wait "
                "for it, or give another --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(number)


def is_special(path: str | os.PathLike) -> bool:
    """Whether a path exists and is no regular file: a pipe or device, which no file may replace."""
    return os.path.exists(path) and not os.path.isfile(path)


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike, mode: str = "w", newline: str | None = None
) -> Iterator[IO]:
    """Open a file, text in UTF-8 or bytes, that replaces ``path`` (or the target of a link) when
    the block ends. If the process is killed before, the old file or none is there. Pipes and
    devices are written directly.

    Raises:
        OSError: the file cannot be written; nothing of it is left.
    """
    settings = {"mode": mode, "encoding": None if "b" in mode else "utf-8", "newline": newline}
    if is_special(path):
        with open(path, **settings) as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    partial = path.with_name(path.name + ".partial")
    try:
        file = open(partial, **settings)
    except OSError as error:
        # The path that the caller knows
        error.filename = str(path if path.parent.is_dir() else path.parent)
        raise
    try:
        with file:
            yield file
        os.replace(partial, path)
    except BaseException:  # also for a second Ctrl-C
        partial.unlink(missing_ok=True)
        raise


def save_tensors(state: object, path: Path) -> None:
    """Run ``torch.save`` in one step, through a Python file: on a full disk torch's own writer only
    reports ``unexpected pos``. Raises: OSError."""
    try:
        with whole_file(path, "wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        # Torch wraps it when it closes an incomplete file
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text in one step. Raises: OSError."""
    with whole_file(path) as file:
        file.write(text)


def finite_or_none(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict in which None replaces infinities and NaN, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in data.items()
    }


def json_text(data: object) -> str:
    """Return plain data as the text of a JSON file. JSON has no infinities or NaN."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def write_json(path: str | os.PathLike, data: object) -> None:
    """Write plain data as JSON in one step. Raises: OSError."""
    write_text(path, json_text(data))


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    """Write a table as it is shown, but with no commas in numbers (from the third column on).
    Return the path."""
    with whole_file(path, newline="") as file:
        csv.writer(file).writerows(
            [
                columns,
                *(
                    [cell.replace(",", "") if i > 1 else cell for i, cell in enumerate(row)]
                    for row in rows
                ),
            ]
        )
    return path
