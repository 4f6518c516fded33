"""Edits a tree: all of it or nothing. Everything is worked out and checked before the first file is
written."""

from __future__ import annotations

import shutil
from pathlib import Path

from .edits import edits_for
from .laying import laid_files
from .releases import Refused, Tree

MARK = "AT_FORALL_FORMAT_SCALAR_TYPES"


def plan(tree: Tree) -> dict[Path, str]:
    """The texts that files of the tree are to have: edited ones and ours. Refuses a tree in which
    anything is not as expected."""
    lists = tree.place(tree.release.lists)
    if lists.is_file() and MARK in lists.read_text():
        raise Refused(
            f"expected PyTorch as it was released, but got {tree.folder}, which has been edited "
            "already; take a fresh copy"
        )
    texts: dict[Path, str] = {}
    for path, edit in edits_for(tree):
        place = tree.place(path)
        if place not in texts:
            if not place.is_file():
                raise Refused(
                    f"expected {path} in PyTorch {tree.release.name}, but got {tree.folder} "
                    "without it; nothing was changed"
                )
            texts[place] = place.read_bytes().decode()  # line ends as they are
        texts[place] = edit.applied(texts[place], tree.release, path)
    for path, text in laid_files(tree).items():
        place = tree.folder / path
        if place.exists():
            raise Refused(f"expected no {path} in PyTorch, but got {place}; nothing was changed")
        texts[place] = text
    return texts


def _exchange(place: Path, content: bytes) -> None:
    """Gives a file other content. A new file takes its place: it may be a hard link to another
    tree's."""
    new = place.with_name(f".{place.name}.new")
    try:
        new.write_bytes(content)
        if place.exists():
            shutil.copymode(place, new)
        new.replace(place)
    finally:
        new.unlink(missing_ok=True)


def apply(tree: Tree) -> list[Path]:
    """Edits the tree in place and returns what was written. Where writing fails half way,
    everything is put back."""
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
    """A copy of an include folder with the edits. `to` must not exist; where anything fails, it
    does not exist afterwards."""
    if to.exists():
        raise Refused(f"expected a folder that does not exist yet, but got {to}")
    plan(tree)  # before minutes of copying
    try:
        shutil.copytree(tree.folder, to)
        return apply(Tree(to, tree.release, tree.headers_only))
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise
