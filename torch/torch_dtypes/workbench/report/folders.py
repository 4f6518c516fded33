"""Folders that commands write into: one command at a time, in files that are whole or not there."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import torch


@contextlib.contextmanager
def occupied(folder: str | os.PathLike) -> Iterator[None]:
    """The folder is this block's alone: a second command would remove or replace what the first one
    counts on.

    The lock is the folder's own and leaves no file. It ends with the process, however that ends.
    Where a file system has none (some over a network), nothing is locked.

    Raises:
        BlockingIOError: another command is at work there.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"expected a folder of its own, but another command is at work in {folder}: wait "
                "for it, or give another --out"
            ) from None
        except OSError:  # no locks there
            pass
        yield
    finally:
        os.close(number)


def is_special(path: str | os.PathLike) -> bool:
    """Whether it is there and no regular file, such as a pipe or device, in whose place no file may
    come."""
    return os.path.exists(path) and not os.path.isfile(path)


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike, mode: str = "w", newline: str | None = None
) -> Iterator[IO]:
    """An open file, text in UTF-8 or bytes, that has its name, or is where a link leads, when the
    block has ended: whoever is killed leaves the old one, or none. Pipes and devices take what
    comes as it comes.

    Raises:
        OSError: it cannot be written; nothing is left of it.
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
        error.filename = str(path if path.parent.is_dir() else path.parent)  # what the caller knows
        raise
    try:
        with file:
            yield file
        os.replace(partial, path)
    except BaseException:  # a second Ctrl-C, too
        partial.unlink(missing_ok=True)
        raise


def save_tensors(state: object, path: Path) -> None:
    """``torch.save`` in one step; the file is Python's: of a full disk torch's own writer says
    ``unexpected pos`` alone. Raises: OSError."""
    try:
        with whole_file(path, "wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's, when it ends a file that broke off
            raise error.__context__ from None
        raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text in one step. Raises: OSError."""
    with whole_file(path) as file:
        file.write(text)


def json_text(data: object) -> str:
    """A file's text of plain data without infinities or NaN, which JSON has not."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def write_json(path: str | os.PathLike, data: object) -> None:
    """Writes such data in one step. Raises: OSError."""
    write_text(path, json_text(data))


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    """A table as it is shown, its numbers (of the third column on) without commas; the path."""
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
