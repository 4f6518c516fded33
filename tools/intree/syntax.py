"""Compiles every unit that is laid into a PyTorch tree against an edited copy of a wheel's headers,
without making code.

A wheel has PyTorch's headers, also those of the generated operators. A mistake in a unit of this
repository shows in minutes, where a whole build takes hours. PyTorch's own .cpp files are not in a
wheel: only a whole build shows whether their edits compile.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .applying import plan
from .laying import BINDING_SOURCES, FORMATS, PYTHONS, SOURCES, laid_files
from .releases import Tree
from .rows import ROOT

# Errors in PyTorch's CMakeLists.txt, if the compiler has them.
ERRORS = (
    "return-type",
    "non-virtual-dtor",
    "braced-scalar-init",
    "range-loop-construct",
    "bool-operation",
    "format",
)
WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-Wno-unknown-pragmas",
)
DEFINES = (
    "-DTORCH_EXTENSION_NAME=_C",
    "-DTORCH_API_INCLUDE_EXTENSION_H",
    "-DUSE_DISTRIBUTED",
    "-DUSE_C10D_GLOO",
    "-DUSE_RPC",
)
KERNEL = ("-DCPU_CAPABILITY=DEFAULT", "-DCPU_CAPABILITY_DEFAULT")

# Sources that need a header which wheels lack, each with that header. Today there is none.
NOT_IN_WHEELS: dict[str, str] = {}
# Each compiler by the names of its program.
COMPILERS = (("g++", "c++"), ("clang++", "clang++-14"))
AT_ONCE = 12  # sources per compiler run: PyTorch's headers take longer than a dozen of these


@dataclass(frozen=True)
class Unit:
    """Files of this repository that one run of a compiler reads in order."""

    name: str
    files: tuple[str, ...]
    options: tuple[str, ...] = ()

    def text(self) -> str:
        return "".join(f"#include <{path.removeprefix('aten/src/')}>\n" for path in self.files)


def lay_out(include: Tree, folder: Path) -> dict[str, str]:
    """Write the edited headers and the laid files into an empty folder, as in a source tree.

    Returns the texts of the laid files by their paths.
    """
    laid = laid_files(Tree(include.folder, include.release, headers_only=False))
    edited = {
        place.relative_to(include.folder).as_posix(): text for place, text in plan(include).items()
    }
    for path, text in (edited | laid).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return laid


def build_units(laid: dict[str, str]) -> Iterator[Unit]:
    """Yield one unit of all headers, one for each kernel, and the other sources by the dozen.

    Two headers that declare one name differently do not compile together. So no two of these may,
    even if no source includes both.
    """
    yield Unit("headers", tuple(path for path in laid if path.endswith(".h")), KERNEL)
    sources = [path for path in laid if path.endswith(".cpp") and path not in NOT_IN_WHEELS]
    kernels = [path for path in sources if re.fullmatch(rf"{FORMATS}/cpu/\w+Kernel\.cpp", path)]
    for path in kernels:
        yield Unit(Path(path).stem, (path,), KERNEL)
    operators, bindings = (
        {*re.findall(r"\S+\.cpp", laid[name])} for name in (SOURCES, BINDING_SOURCES)
    )
    bindings |= {*PYTHONS}
    others = {*sources} - {*kernels} - operators - bindings
    for kind, listed in (("operators", operators), ("bindings", bindings), ("others", others)):
        kept = [path for path in sources if path in listed]
        for first in range(0, len(kept), AT_ONCE):
            yield Unit(f"{kind}_{first // AT_ONCE}", tuple(kept[first : first + AT_ONCE]))


@functools.cache
def list_error_options(compiler: str) -> tuple[str, ...]:
    """Return the options that make warnings errors, as PyTorch's build does.

    Options that the compiler lacks are left out.
    """
    options = [f"-Werror={name}" for name in ERRORS]
    empty = ["-fsyntax-only", "-x", "c++", "/dev/null"]
    return tuple(
        option
        for option in options
        if subprocess.run([compiler, option, *empty], capture_output=True, check=False).returncode
        == 0
    )


def compile_command(compiler: str, folder: Path, include: Path, unit: Unit) -> list[str]:
    """Return the command that checks a unit laid out in `folder`."""
    own = [folder, folder / "aten" / "src"]
    others = [
        ROOT / "third_party" / "include",
        include,
        include / "torch" / "csrc" / "api" / "include",
        Path(sysconfig.get_path("include")),
    ]
    searched = [word for place in own for word in ("-I", str(place))] + [
        word for place in others for word in ("-isystem", str(place))
    ]
    options = [
        "-std=gnu++20",
        "-fsyntax-only",
        "-ffp-contract=off",
        *WARNINGS,
        *list_error_options(compiler),
        *DEFINES,
        *unit.options,
    ]
    return [compiler, *options, *searched, str(folder / f"{unit.name}.cpp")]


def find_compiler(names: tuple[str, ...]) -> str | None:
    """Return the path of the first of these programs that is installed."""
    return next(filter(None, map(shutil.which, names)), None)


def check_unit(compiler: str, folder: Path, include: Path, unit: Unit) -> str:
    """Compile a unit without making code. Return the compiler's errors, or ""."""
    (folder / f"{unit.name}.cpp").write_text(unit.text())
    done = subprocess.run(
        compile_command(compiler, folder, include, unit),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


def check_units(
    include: Tree, folder: Path, compiler: str, jobs: int
) -> Iterator[tuple[Unit, str]]:
    """Yield each unit with the compiler's errors, in order.

    `folder` must be empty; `jobs` compilers run at once.
    """
    units = list(build_units(lay_out(include, folder)))
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(
            units,
            pool.map(lambda unit: check_unit(compiler, folder, include.folder, unit), units),
            strict=True,
        )
