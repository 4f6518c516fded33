"""The files of this repository that are laid into a PyTorch tree, with their texts."""

from __future__ import annotations

import re

from .releases import Tree
from .rows import ROOT, builtin_rows, header

NUMBERS = "c10/formats"
# In a source tree also tensors, numerics and operators. overlay/ is left out.
FORMATS = "aten/src/ATen/native/formats"
TENSORS = "aten/src/ATen"
DEVICES = f"{FORMATS}/cuda"  # only its headers: a tree is built for the CPU
AWAY = (f"{FORMATS}/overlay", DEVICES)

# The tree has its own registry in the place of the overlay's.
OWN = "c10/formats/intree/FormatRegistry"
OVERLAYS = "c10/formats/FormatRegistry"

# The Python bindings that both builds have, and the tree's own.
BINDINGS = "torch/csrc/formats"
PYTHONS = (f"{BINDINGS}/intree/Load.cpp",)  # a part of libtorch_python
# Parts of libtorch_cpu, whose executor refuses scripts.
SCRIPTS = (f"{BINDINGS}/scripts/ScriptFormats.cpp", f"{BINDINGS}/intree/ScriptCheck.cpp")

# The package, with modules that replace the overlay's. The overlay's own are left out, and so are
# graphs and wrapper subclasses for a PyTorch that does not know the dtypes.
PACKAGE = "torch/torch_dtypes"
IN_PLACE = "torch/intree"
OVERLAYS_PYTHON = (
    "_C.pyi",
    "_build_info.py",
    "host/hooks/",
    "host/distributed/",
    "host/releases.py",
)

ROWS = "c10/formats/intree/ScalarTypeRows.h"  # this and the next are generated
SOURCES = f"{FORMATS}/intree/Sources.cmake"
BINDING_SOURCES = f"{BINDINGS}/intree/Sources.cmake"


def _texts(folder: str, *suffixes: str, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the files below a folder with these suffixes, except below some folders."""
    paths = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]
    texts = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {name: p.read_text() for name, p in texts.items() if not name.startswith(but)}


def _read_sources(name: str) -> list[str]:
    """Return a list of sources in CMakeLists.txt."""
    block = re.search(rf"set\({name}\b(.*?)\n\)", (ROOT / "CMakeLists.txt").read_text(), re.DOTALL)[
        1
    ]
    return re.findall(r"\S+\.cpp", block)


def _list(name: str, paths: list[str]) -> str:
    """Return the text of a Sources.cmake."""
    lines = "".join(f"  {path}\n" for path in paths)
    return f"# Made by tools/intree from the lists in CMakeLists.txt.\nset({name}\n{lines})\n"


def _sources() -> str:
    """Return the text of the list of torch_cpu's sources."""
    names = (
        "Bincount",
        "ComputedFactories",
        "ExponentialUnits",
        "Factories",
        "FormatTensorImpl",
        "Tolerances",
    )
    own = [f"{FORMATS}/intree/{name}.cpp" for name in names]
    return _list(
        "FORMAT_SOURCES",
        [*_read_sources("NUMERICS_SOURCES"), *_read_sources("OPERATOR_SOURCES"), *own, *SCRIPTS],
    )


def _bindings() -> dict[str, str]:
    """Return the files of torch/csrc: the extension module's, those in libraries, and their
    headers."""
    own = _texts(f"{BINDINGS}/intree", ".cpp", ".h", ".cmake")
    files = {
        path: (ROOT / path).read_text()
        for path in (*_read_sources("BINDING_SOURCES"), *PYTHONS, *SCRIPTS)
    } | own
    todo = list(files.values())
    while todo:
        for name in re.findall(rf"^#include <({BINDINGS}/[\w/]+\.h)>", todo.pop(), re.MULTILINE):
            if name not in files:
                files[name] = (ROOT / name).read_text()
                todo.append(files[name])
    files[BINDING_SOURCES] = _list(
        "BINDING_SOURCES",
        sorted(
            path for path in files if path.endswith(".cpp") and path not in (*PYTHONS, *SCRIPTS)
        ),
    )
    return files


def _package() -> dict[str, str]:
    """Return the files of the Python package, beside PyTorch's own."""
    folder, own = ROOT / PACKAGE, ROOT / IN_PLACE
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.*"))}
    kept = {
        name: path
        for name, path in paths.items()
        if path.suffix not in (".so", ".pyc") and not name.startswith(OVERLAYS_PYTHON)
    }
    files = {f"torch_dtypes/{name}": path.read_text() for name, path in kept.items()}
    return files | {
        path.relative_to(own).as_posix(): path.read_text() for path in sorted(own.rglob("*.py"))
    }


def laid_files(tree: Tree) -> dict[str, str]:
    """Return the texts of the laid files by their paths in the tree."""
    files = _texts(NUMBERS, ".h", ".cpp")
    for suffix in (".h", ".cpp"):
        files[OVERLAYS + suffix] = files.pop(OWN + suffix)
    files[ROWS] = header(builtin_rows(ROOT))
    if not tree.headers_only:
        files |= _texts(TENSORS, ".h", ".cpp", ".cmake", but=AWAY) | _texts(DEVICES, ".h")
        files[SOURCES] = _sources()
        files |= _bindings() | _package()
    return files
