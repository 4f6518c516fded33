"""Edits a tree: all of it or nothing. Everything is worked out and checked before the first file is written."""

from __future__ import annotations

import shutil
from pathlib import Path

from .edits import edits_for
from .releases import Refused, Tree
from .rows import builtin_rows, header

ROOT = Path(__file__).resolve().parents[2]
MARK = "AT_FORALL_FORMAT_SCALAR_TYPES"

# What is laid into a tree, at the same paths. The registry is the tree's own, in the place of the overlay's.
FOLDERS = ("c10/formats", "c10/formats/intree")
OWN = "c10/formats/intree/FormatRegistry"
OVERLAYS = "c10/formats/FormatRegistry"
ROWS = "c10/formats/intree/ScalarTypeRows.h"


def laid_files() -> dict[str, str]:
    """The files that are laid into a tree, by their paths there, with their texts."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).iterdir()) if path.suffix in (".h", ".cpp")]
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    for suffix in (".h", ".cpp"):
        files[OVERLAYS + suffix] = files.pop(OWN + suffix)
    files[ROWS] = header(builtin_rows(ROOT))
    return files


def plan(tree: Tree) -> dict[Path, str]:
    """The texts that files of the tree are to have: edited ones and ours. Refuses a tree in which anything is not as expected."""
    lists = tree.place(tree.release.lists)
    if lists.is_file() and MARK in lists.read_text():
        raise Refused(f"expected PyTorch as it was released, but got {tree.folder}, which has been edited already; take a fresh copy")
    texts: dict[Path, str] = {}
    for path, edit in edits_for(tree):
        place = tree.place(path)
        if place not in texts:
            if not place.is_file():
                raise Refused(f"expected {path} in PyTorch {tree.release.name}, but got {tree.folder} without it; nothing was changed")
            texts[place] = place.read_bytes().decode()  # line ends as they are
        texts[place] = edit.applied(texts[place], tree.release, path)
    for path, text in laid_files().items():
        place = tree.folder / path
        if place.exists():
            raise Refused(f"expected no {path} in PyTorch, but got {place}; nothing was changed")
        texts[place] = text
    return texts


def _exchange(place: Path, content: bytes) -> None:
    """Gives a file other content. A new file takes its place: it may be a hard link to another tree's."""
    new = place.with_name(f".{place.name}.new")
    try:
        new.write_bytes(content)
        if place.exists():
            shutil.copymode(place, new)
        new.replace(place)
    finally:
        new.unlink(missing_ok=True)


def apply(tree: Tree) -> list[Path]:
    """Edits the tree in place and returns what was written. Where writing fails half way, everything is put back."""
    texts = plan(tree)
    before = {place: place.read_bytes() if place.exists() else None for place in texts}
    folders: list[Path] = []
    written: list[Path] = []
    try:
        for place, text in texts.items():
            for folder in reversed(place.parents):
                if not folder.exists():
                    folder.mkdir()
                    folders.append(folder)
            written.append(place)
            _exchange(place, text.encode())
    except BaseException:
        for place in written:
            if before[place] is None:
                place.unlink(missing_ok=True)
            else:
                _exchange(place, before[place])
        for folder in reversed(folders):
            folder.rmdir()
        raise
    return list(texts)


def edit_copy(tree: Tree, to: Path) -> list[Path]:
    """A copy of an include folder with the edits. `to` must not exist; where anything fails, it does not exist afterwards."""
    if to.exists():
        raise Refused(f"expected a folder that does not exist yet, but got {to}")
    plan(tree)  # before minutes of copying
    try:
        shutil.copytree(tree.folder, to)
        return apply(Tree(to, tree.release, tree.headers_only))
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise
