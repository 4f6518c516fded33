"""Edits a tree completely or not at all.

All texts are computed and checked before the first file is written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from .edits import edits_for
from .laying import laid_files
from .releases import Refused, Tree

MARK = "AT_FORALL_FORMAT_SCALAR_TYPES"


def plan(tree: Tree) -> dict[Path, str]:
    """Return the texts of edited files and of added ones, by their places.

    A tree that is not as expected is refused.
    """
    lists = tree.place(tree.release.lists)
    if lists.is_file() and MARK in lists.read_text():
        raise Refused(
            f"expected PyTorch as it was released, but got {tree.folder}, which was edited before; "
            "take a new copy"
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
        texts[place] = edit.apply(texts[place], tree.release, path)
    for path, text in laid_files(tree).items():
        place = tree.folder / path
        if place.exists():
            raise Refused(f"expected no {path} in PyTorch, but got {place}; nothing was changed")
        texts[place] = text
    return texts


def _exchange(place: Path, content: bytes) -> None:
    """Replace a file by a new one, since it may be a hard link to another tree's."""
    new = place.with_name(f".{place.name}.new")
    try:
        new.write_bytes(content)
        if place.exists():
            shutil.copymode(place, new)
        new.replace(place)
    finally:
        new.unlink(missing_ok=True)


def apply(tree: Tree) -> list[Path]:
    """Edit the tree in place and return the written places. If writing fails, restore all files."""
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
    """Make a copy of an include folder with the edits.

    `to` must not exist. If anything fails, it does not exist afterwards.
    """
    if to.exists():
        raise Refused(f"expected a folder that does not exist yet, but got {to}; give another one")
    plan(tree)  # before minutes of copying
    try:
        shutil.copytree(tree.folder, to)
        return apply(Tree(to, tree.release, tree.headers_only))
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise
