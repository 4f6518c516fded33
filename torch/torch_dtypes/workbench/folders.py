"""Folders that commands write into: one command at a time, tensors in files that are whole or not there, tables."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch


@contextlib.contextmanager
def occupied(folder: str | os.PathLike) -> Iterator[None]:
    """The folder is this block's alone: a second command would remove or replace what the first one counts on.

    The lock is the folder's own and leaves no file. It ends with the process, however that ends. Where a file system has none (some over a
    network), nothing is locked.

    Raises:
        BlockingIOError: another command is at work there.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"expected a folder of its own, but another command is at work in {folder}: wait for it, or give another --out"
            ) from None
        except OSError:  # no locks there
            pass
        yield
    finally:
        os.close(number)


def save_tensors(state: object, path: Path) -> None:
    """``torch.save`` in one step: whoever is killed leaves the old file, or none.

    The file is Python's: of a full disk torch's own writer says ``unexpected pos`` alone.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
        os.replace(partial, path)
    except BaseException as error:  # a second Ctrl-C, too
        partial.unlink(missing_ok=True)
        if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):  # torch's, when it ends a file that broke off
            raise error.__context__ from None
        raise


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    """A table as it is shown, its numbers (of the third column on) without commas; the path."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *([cell.replace(",", "") if i > 1 else cell for i, cell in enumerate(row)] for row in rows)])
    return path
