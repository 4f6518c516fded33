"""Which files of ours are laid into a PyTorch tree, and with which texts."""

from __future__ import annotations

import re
from pathlib import Path

from .releases import Tree
from .rows import builtin_rows, header

ROOT = Path(__file__).resolve().parents[2]

NUMBERS = ("c10/formats", "c10/formats/intree")
# Beside them where sources are, not headers alone: tensors, numerics, and what happens to each operator. overlay/ stays away.
FORMATS = "aten/src/ATen/native/formats"
TENSORS = ("aten/src/ATen", FORMATS, f"{FORMATS}/operators", f"{FORMATS}/cpu", f"{FORMATS}/intree")
DEVICES = f"{FORMATS}/cuda"  # its headers: a tree is built for the CPU

# The registry is the tree's own, in the place of the overlay's.
OWN = "c10/formats/intree/FormatRegistry"
OVERLAYS = "c10/formats/FormatRegistry"

ROWS = "c10/formats/intree/ScalarTypeRows.h"  # these two are made
SOURCES = f"{FORMATS}/intree/Sources.cmake"


def _texts(folders: tuple[str, ...], *suffixes: str) -> dict[str, str]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).iterdir()) if path.suffix in suffixes]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def _listed(name: str) -> list[str]:
    """A list of sources in CMakeLists.txt."""
    block = re.search(rf"set\({name}\b(.*?)\n\)", (ROOT / "CMakeLists.txt").read_text(), re.DOTALL)[1]
    return re.findall(r"\S+\.cpp", block)


def _sources() -> str:
    """The text of Sources.cmake: what torch_cpu gets."""
    own = [f"{FORMATS}/intree/{name}.cpp" for name in ("Factories", "FormatTensorImpl")]
    listed = [*_listed("NUMERICS_SOURCES"), *_listed("OPERATOR_SOURCES"), *own]
    lines = "".join(f"  {path}\n" for path in listed)
    return f"# Made by tools/intree from the lists in CMakeLists.txt.\nset(FORMAT_SOURCES\n{lines})\n"


def laid_files(tree: Tree) -> dict[str, str]:
    """The files that are laid into a tree, by their paths there, with their texts."""
    files = _texts(NUMBERS, ".h", ".cpp")
    for suffix in (".h", ".cpp"):
        files[OVERLAYS + suffix] = files.pop(OWN + suffix)
    files[ROWS] = header(builtin_rows(ROOT))
    if not tree.headers_only:
        files |= _texts(TENSORS, ".h", ".cpp", ".cmake") | _texts((DEVICES,), ".h")
        files[SOURCES] = _sources()
    return files
