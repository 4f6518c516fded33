"""Completes the Python package of a built tree, so that `PYTHONPATH=SOURCE python -c "import
torch"` works.

CMake builds PyTorch's libraries. This module does the rest of setup.py's work by links into the
build folder: nothing is copied, so a later build needs no further step.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

from .releases import Refused

# CMake's names for all that `import torch` loads: the libraries, the helper for shared memory, the
# extension module of torch_dtypes.
TARGETS = ("torch_python", "torch", "torch_global_deps", "torch_shm_manager", "torch_dtypes_python")
LOADED = (
    "lib/libc10.so",
    "lib/libtorch.so",
    "lib/libtorch_cpu.so",
    "lib/libtorch_python.so",
    "lib/libtorch_global_deps.so",
    "lib/libshm.so",
    "bin/torch_shm_manager",
    "torch_dtypes/_C.so",
    "torch_dtypes/_build_info.py",
)


def _link(to: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(to)


def module_command(source: Path) -> list[str]:
    """Return the command that makes torch._C from stub.c, which calls libtorch_python."""
    compiler = shutil.which("cc") or "gcc"
    to = source / "torch" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    library = source / "torch" / "lib"
    return [
        compiler,
        "-shared",
        "-fPIC",
        "-O2",
        f"-I{sysconfig.get_path('include')}",
        str(source / "torch" / "csrc" / "stub.c"),
        "-o",
        str(to),
        f"-L{library}",
        "-Wl,--no-as-needed",
        "-ltorch_python",
        "-Wl,-rpath,$ORIGIN/lib",
    ]


def finish(source: Path, folder: Path) -> None:
    """Link a folder's build into the source tree's packages, and compile torch._C.

    If anything is missing, nothing changes.
    """
    if lacks := [path for path in LOADED if not (folder / path).exists()]:
        raise Refused(
            f"expected a finished build, but got {folder} without {', '.join(lacks)}; run "
            f"tools/intree/build --build-only {source}"
        )
    for library in (folder / "lib").glob("*.so*"):
        _link(library, source / "torch" / "lib" / library.name)
    _link(folder / "bin" / "torch_shm_manager", source / "torch" / "bin" / "torch_shm_manager")
    for name in ("_C.so", "_build_info.py"):
        _link(folder / "torch_dtypes" / name, source / "torch_dtypes" / name)
    command = module_command(source)
    if subprocess.run(command, check=False).returncode != 0:
        raise Refused(
            f"expected {command[0]} to make torch._C, but got an error; run {' '.join(command)}"
        )
