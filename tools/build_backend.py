"""PEP 517 build backend: scikit-build-core, and a search for the PyTorch to build against.

The extension must be compiled against the very PyTorch that will load it. pip builds in an isolated
environment that does not show it, and a build requirement would fetch a second copy of gigabytes.
So this wrapper looks for the torch of the environment that pip installs into. It reads the files
*without importing them*, and hands folder, version and C++ ABI to CMake. The same facts are in the
wheel's metadata (`dynamic_metadata` below).

Interface: https://peps.python.org/pep-0517/, https://peps.python.org/pep-0660/ and
scikit-build-core's dynamic metadata. CMakeLists.txt runs `python tools/build_backend.py` when it is
run by hand.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

VERSION = "0.2.0"
SUPPORTED = ("2.11", "2.12", "2.13", "2.14", "2.15")
OVERRIDE = "TORCH_DTYPES_TORCH_DIR"


class Torch(NamedTuple):
    """An installed PyTorch: its package's folder, its full version and _GLIBCXX_USE_CXX11_ABI."""

    dir: Path
    version: str
    cxx11_abi: int

    @property
    def release(self) -> str:
        return ".".join(self.version.split(".")[:2])


def fail(expected: str, got: str, remedy: str) -> SystemExit:
    """Return an error of one line, without a traceback of a build front end."""
    return SystemExit(f"torch-dtypes: expected {expected}, but got {got}; {remedy}")


# --- which torch ---


# A namespace package has no origin: this repository's folder torch/ is not PyTorch.
_LOCATE = """
import importlib.util, os, sys
sys.path[:] = [p for p in sys.path if p]
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin is not None:
    print(os.path.dirname(spec.origin))
"""


def locate_torch() -> Path | None:
    """Return the folder of the torch that `sys.executable` sees, without pip's build isolation."""
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:  # no isolation, or torch is on PYTHONPATH
        return Path(spec.origin).parent
    # pip isolates by a sitecustomize on PYTHONPATH that removes site-packages. A child process
    # without it sees them.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    done = subprocess.run(
        [sys.executable, "-c", _LOCATE],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return Path(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip() else None


def read_version(torch_dir: Path) -> str:
    source = torch_dir / "version.py"
    match = (
        re.search(r"^__version__\b[^=]*=\s*['\"]([^'\"]+)['\"]", source.read_text(), re.MULTILINE)
        if source.is_file()
        else None
    )
    if match is None:
        raise fail(
            "a PyTorch package with version.py",
            f"{torch_dir} without one",
            f"reinstall torch or correct {OVERRIDE}",
        )
    return match[1]


def read_cxx11_abi(torch_dir: Path) -> int:
    """Read the ABI from the CMake config, or else from the names in libc10.

    The config lacks it since 2.7.
    """
    config = torch_dir / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    match = (
        re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", config.read_text())
        if config.is_file()
        else None
    )
    if match is not None:
        return int(match[1])
    library = torch_dir / "lib" / "libc10.so"
    if not library.is_file():
        return 1
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as names:
        return int(names.find(b"St7__cxx1112basic_string") >= 0)


def describe_torch(torch_dir: Path) -> Torch:
    """Read a torch package, and refuse one that the extension cannot be built against."""
    if not (torch_dir / "version.py").is_file() and (torch_dir / "torch" / "version.py").is_file():
        torch_dir = torch_dir / "torch"  # site-packages was given
    torch = Torch(torch_dir.resolve(), read_version(torch_dir), read_cxx11_abi(torch_dir))
    if torch.release not in SUPPORTED:
        raise fail(
            f"PyTorch {', '.join(SUPPORTED)}",
            f"{torch.version} in {torch.dir}",
            'pip install "torch==2.13.0" and build again',
        )
    for part in ("include/c10/core/TensorImpl.h", "lib"):
        if not (torch.dir / part).exists():
            raise fail(
                f"{part} in PyTorch's package",
                f"{torch.dir} without it",
                "install a torch wheel with its C++ headers",
            )
    return torch


@functools.cache
def find_torch(override: str | None = None) -> Torch:
    """Return the torch to build against.

    It is `override`, else the environment variable TORCH_DTYPES_TORCH_DIR, else the installed one.
    """
    override = override or os.environ.get(OVERRIDE)
    torch_dir = Path(override) if override else locate_torch()
    if torch_dir is None:
        raise fail(
            f"PyTorch {', '.join(SUPPORTED)} installed beside this package",
            f"none in the environment of {sys.executable}",
            f'pip install "torch==2.13.0" first, or set {OVERRIDE} to the folder of a torch '
            "package",
        )
    return describe_torch(torch_dir)


# --- metadata of the wheel: a scikit-build-core provider ---

_state = "metadata_wheel"


def build_state(state: str) -> None:
    global _state
    _state = state


def dynamic_metadata(settings, project) -> dict[str, object]:
    """Return version and dependencies: a wheel belongs to one release of torch, an sdist to all."""
    if _state == "sdist":
        return {"version": VERSION, "dependencies": [f"torch{','.join(_range_of(SUPPORTED))}"]}
    torch = _torch_of_this_build or find_torch()
    return {
        "version": VERSION if from_sdist() else f"{VERSION}+torch{torch.release}",
        "dependencies": [f"torch=={torch.release}.*"],
    }


def _range_of(releases: tuple[str, ...]) -> list[str]:
    """Return specifiers of exactly these releases of one major version.

    They must be in order. A missing release between them is excluded.
    """
    major = releases[0].split(".")[0]
    minors = [int(release.removeprefix(f"{major}.")) for release in releases]
    gaps = sorted(set(range(minors[0], minors[-1])) - set(minors))
    return [
        f">={releases[0]}",
        *(f"!={major}.{minor}.*" for minor in gaps),
        f"<{major}.{minors[-1] + 1}",
    ]


def dynamic_wheel(settings) -> dict[str, bool]:
    return {"version": False, "dependencies": True}


def from_sdist() -> bool:
    """Return whether the sources are an unpacked sdist.

    Its wheels must keep its version, and have torch's in the build tag.
    """
    return Path("PKG-INFO").is_file()


# --- PEP 517 ---

_torch_of_this_build: Torch | None = None


def _settings(config: dict | None) -> dict:
    """Add the facts about torch that CMake needs."""
    global _torch_of_this_build
    settings = dict(config or {})
    torch = find_torch(settings.get(f"cmake.define.{OVERRIDE}"))
    _torch_of_this_build = torch
    settings[f"cmake.define.{OVERRIDE}"] = str(torch.dir)
    settings["cmake.define.TORCH_DTYPES_TORCH_VERSION"] = torch.version
    settings["cmake.define.TORCH_DTYPES_CXX11_ABI"] = str(torch.cxx11_abi)
    if from_sdist():
        settings.setdefault("wheel.build-tag", torch.release.replace(".", "") + "torch")
    return settings


def get_requires_for_build_wheel(config_settings=None):
    from scikit_build_core import build

    return build.get_requires_for_build_wheel(_settings(config_settings))


def get_requires_for_build_editable(config_settings=None):
    from scikit_build_core import build

    return build.get_requires_for_build_editable(_settings(config_settings))


def get_requires_for_build_sdist(config_settings=None):
    from scikit_build_core import build

    return build.get_requires_for_build_sdist(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    from scikit_build_core import build

    return build.prepare_metadata_for_build_wheel(metadata_directory, _settings(config_settings))


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    from scikit_build_core import build

    return build.prepare_metadata_for_build_editable(metadata_directory, _settings(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    from scikit_build_core import build

    return build.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    from scikit_build_core import build

    return build.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    from scikit_build_core import build

    return build.build_sdist(sdist_directory, config_settings)


if __name__ == "__main__":
    _torch = find_torch()
    print(f"{_torch.dir};{_torch.version};{_torch.cxx11_abi}")
