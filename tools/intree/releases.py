"""Finds the PyTorch in a folder; the known releases and their differences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


class Refused(Exception):
    """A folder that cannot be edited, or built; nothing was changed."""


@dataclass(frozen=True)
class Release:
    """A release whose places are known.

    `sources` is True if its sources were seen, and not only the headers of its wheel.
    """

    name: str
    lists: str  # the header that has the list of types
    last: str  # the list's last row
    sources: bool = False


_MOVED = "torch/headeronly/core/ScalarType.h"
RELEASES = {
    release.name: release
    for release in (
        Release(
            "2.6", "c10/core/ScalarType.h", "_(c10::dummy_int1_7_t<7>, Int7) /* 43 */", sources=True
        ),
        Release("2.13", _MOVED, "_(c10::Float4_e2m1fn_x2, Float4_e2m1fn_x2) /* 45 */"),
        Release("2.14", _MOVED, "_(c10::complex<c10::BFloat16>, BComplex32) /* 46 */"),
        Release("2.15", _MOVED, "_(c10::complex<c10::BFloat16>, BComplex32) /* 46 */"),
    )
}


@dataclass(frozen=True)
class Tree:
    """A PyTorch to edit: a source tree, or the include folder of an installed package.

    The include folder has other paths of headers.
    """

    folder: Path
    release: Release
    headers_only: bool

    def place(self, path: str) -> Path | None:
        """Return the place of a file of the source tree, or None where only headers are."""
        if not self.headers_only:
            return self.folder / path
        return self.folder / path.removeprefix("aten/src/") if path.endswith(".h") else None


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def _release_of(version: str, folder: Path, what: str) -> Release:
    match = re.match(r"(\d+\.\d+)", version.strip())
    if match is None:
        raise Refused(
            f"expected {what} of PyTorch, but got {folder} without a version; give another folder"
        )
    if match[1] not in RELEASES:
        known = ", ".join(RELEASES)
        raise Refused(
            f"expected PyTorch {known}, but got {version.strip()} in {folder}; "
            "docs/reference/in-tree-build.md says how to add a release"
        )
    return RELEASES[match[1]]


def source_tree(folder: Path) -> Tree:
    """Return the PyTorch source tree in a folder; its version.txt names the release."""
    parts = (
        "version.txt",
        "c10/core/ScalarType.h",
        "aten/src/ATen/native/native_functions.yaml",
        "torch/csrc/Module.cpp",
    )
    missing = [part for part in parts if not (folder / part).is_file()]
    if missing:
        raise Refused(
            f"expected a PyTorch source tree, but got {folder} without {', '.join(missing)}; "
            "give another folder"
        )
    release = _release_of(_text(folder / "version.txt"), folder, "a source tree")
    if not release.sources:
        known = ", ".join(name for name, known in RELEASES.items() if known.sources)
        raise Refused(
            f"expected a source tree of PyTorch {known}, but got {release.name} in {folder}, of "
            "which only the headers are known; use --only-headers with the include folder of its "
            "wheel"
        )
    return Tree(folder, release, headers_only=False)


def include_tree(folder: Path) -> Tree:
    """Return the include folder of an installed PyTorch; version.py beside it names the release."""
    if not (folder / "c10" / "core" / "ScalarType.h").is_file():
        raise Refused(
            f"expected the include folder of an installed PyTorch, but got {folder} without "
            "c10/core/ScalarType.h; give another folder"
        )
    version = re.search(
        r"^__version__ = '([^']+)'", _text(folder.parent / "version.py"), re.MULTILINE
    )
    return Tree(
        folder,
        _release_of(
            version[1] if version else "", folder, "the include folder of an installed package"
        ),
        headers_only=True,
    )
