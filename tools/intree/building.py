"""Builds an edited tree with cmake and ninja.

It installs nothing, and names all missing programs and headers at once. It uses ccache and mold if
present.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from .finishing import TARGETS, finish
from .releases import Refused

PROGRAMS = ("cmake", "ninja", "protoc", "flatc")
MODULES = ("yaml", "typing_extensions", "setuptools", "numpy")
# A header of each library that the build takes from the system, and its Debian package.
HEADERS = {
    "cblas.h": "libopenblas-dev",
    "cpuinfo.h": "libcpuinfo-dev",
    "sleef.h": "libsleef-dev",
    "fmt/format.h": "libfmt-dev",
    "pthreadpool.h": "libpthreadpool-dev",
    "fxdiv.h": "libfxdiv-dev",
    "psimd.h": "libpsimd-dev",
    "fp16.h": "libfp16-dev",
    "google/protobuf/message.h": "libprotobuf-dev",
    "onnx/onnx_pb.h": "libonnx-dev",
    "flatbuffers/flatbuffers.h": "libflatbuffers-dev",
    "eigen3/Eigen/Core": "libeigen3-dev",
    "nlohmann/json.hpp": "nlohmann-json3-dev",
    "pybind11/pybind11.h": "pybind11-dev",
    "httplib.h": "libcpp-httplib-dev",
    "gemmlowp/public/gemmlowp.h": "libgemmlowp-dev",
}
OFF = (
    "BUILD_TEST USE_CUDA USE_ROCM USE_DISTRIBUTED USE_MKLDNN USE_KINETO USE_FBGEMM USE_XNNPACK "
    "USE_NNPACK USE_PYTORCH_QNNPACK USE_TENSORPIPE USE_GLOO USE_ITT USE_NUMA USE_XPU"
).split()
# BUILD_SHARED_LIBS: a failed configuration leaves it off. Precompiled headers save a third of a
# unit's time.
ON = (
    "USE_SYSTEM_LIBS",
    "USE_OPENMP",
    "BUILD_PYTHON",
    "BUILD_SHARED_LIBS",
    "USE_PRECOMPILED_HEADERS",
)
SCHEMA = Path("torch/csrc/jit/serialization/mobile_bytecode.fbs")


def is_clang(cxx: str) -> bool:
    return (
        "clang"
        in subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout
    )


def openmp_of_clang(cxx: str) -> Path:
    """Return the OpenMP library of a clang, beside it.

    PyTorch's search takes g++'s library, which lacks functions that clang calls.
    """
    return Path(shutil.which(cxx) or cxx).resolve().parents[1] / "lib" / "libomp.so"


def choose_compiler(folder: Path | None = None) -> str | None:
    """Return the compiler with which a folder was configured, or else the best one.

    It is the one in CXX, clang with its OpenMP (g++ takes half as long again), or any other.
    """
    cache = folder / "CMakeCache.txt" if folder else None
    if (
        cache
        and cache.is_file()
        and (
            configured := re.search(
                r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache.read_text(), re.MULTILINE
            )
        )
    ):
        return configured[1]
    if named := os.environ.get("CXX"):
        return named
    if (
        (clang := shutil.which("clang++"))
        and shutil.which("clang")
        and openmp_of_clang(clang).exists()
    ):
        return clang
    return shutil.which("c++") or shutil.which("g++")


def find_missing() -> list[str]:
    """Return descriptions of what the build needs and the machine lacks."""
    lacks = [f"the program {name}" for name in PROGRAMS if shutil.which(name) is None]
    lacks += [f"Python's {name}" for name in MODULES if find_spec(name) is None]
    cxx = choose_compiler()
    if cxx is None:
        return [*lacks, "a C++20 compiler"]
    for header, package in HEADERS.items():
        question = f"#if !__has_include(<{header}>)\n#error\n#endif"
        result = subprocess.run(
            [cxx, "-E", "-x", "c++", "-"],
            input=question,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            lacks.append(f"<{header}> ({package})")
    if is_clang(cxx) and not openmp_of_clang(cxx).exists():
        lacks.append(f"{openmp_of_clang(cxx)} (libomp-dev)")
    return lacks


def configure_command(source: Path, folder: Path, defines: tuple[str, ...] = ()) -> list[str]:
    switches = [f"-D{name}=OFF" for name in OFF] + [f"-D{name}=ON" for name in ON]
    cxx = choose_compiler(folder)
    switches.append(f"-DCMAKE_CXX_COMPILER={cxx}")
    # Without these, ccache takes no unit with a precompiled header.
    flags = ["-fpch-preprocess"]
    if is_clang(cxx):
        flags = ["-Xclang", "-fno-pch-timestamp"]
        switches.append(f"-DOpenMP_libomp_LIBRARY={openmp_of_clang(cxx)}")
        if "CC" not in os.environ:
            switches.append(f"-DCMAKE_C_COMPILER={cxx.replace('clang++', 'clang')}")
    if shutil.which("mold"):
        flags.append("-fuse-ld=mold")
        switches.append("-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=mold")
    if shutil.which("ccache"):
        switches += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    return [
        "cmake",
        "-S",
        str(source),
        "-B",
        str(folder),
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DBLAS=OpenBLAS",
        *switches,
        f"-DCMAKE_CXX_FLAGS={' '.join(flags)}",
        f"-DPython_EXECUTABLE={sys.executable}",
        *(f"-D{define}" for define in defines),
    ]


def check_machine() -> None:
    """Refuse a machine that lacks anything, before a tree is edited for it."""
    if lacks := find_missing():
        raise Refused(
            f"expected a machine that can build PyTorch, but got one without {'; '.join(lacks)}; "
            "install them, nothing was changed"
        )


def build(
    source: Path,
    target: str,
    jobs: int | None,
    folder: Path | None = None,
    defines: tuple[str, ...] = (),
) -> None:
    """Configure and build a target into a folder, by default SOURCE/build.

    It continues after units that fail, and fails at the end. The target "python" is all that
    `import torch` needs; it also completes the tree's packages.
    """
    folder = folder or source / "build"
    flatc = [
        "flatc",
        "--cpp",
        "--gen-mutable",
        "--scoped-enums",
        "-o",
        str((source / SCHEMA).parent),
        str(source / SCHEMA),
    ]
    ninja = [
        "ninja",
        "-C",
        str(folder),
        "-k",
        "0",
        *(["-j", str(jobs)] if jobs else []),
        *(TARGETS if target == "python" else (target,)),
    ]
    # The header that flatc makes needs flatc's own version of flatbuffers.
    header = (source / SCHEMA).with_name("mobile_bytecode_generated.h")
    commands = [configure_command(source, folder, defines), ninja]
    if not (folder / "build.ninja").exists() or not header.exists():
        commands.insert(0, flatc)
    # ccache then recognises a unit by the files that it read, without preprocessing it first.
    environment = {
        "CCACHE_SLOPPINESS": "pch_defines,time_macros",
        "CCACHE_DEPEND": "1",
    } | os.environ
    for command in commands:
        done = subprocess.run(command, check=False, env=environment)
        if done.returncode != 0:
            raise Refused(
                f"expected {command[0]} to succeed, but got status {done.returncode}; run "
                f"{' '.join(command)}"
            )
    if target == "python":
        finish(source, folder)
