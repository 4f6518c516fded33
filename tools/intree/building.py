"""Builds an edited tree with cmake and ninja. Installs nothing: what is missing is named, all of it at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from .releases import Refused

PROGRAMS = ("cmake", "ninja", "protoc", "flatc")
MODULES = ("yaml", "typing_extensions", "setuptools", "numpy")
# A header of each library that the build takes from the system, and Debian's package that has it.
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
    "BUILD_TEST USE_CUDA USE_ROCM USE_DISTRIBUTED USE_MKLDNN USE_KINETO USE_FBGEMM USE_XNNPACK USE_NNPACK USE_PYTORCH_QNNPACK USE_TENSORPIPE "
    "USE_GLOO USE_ITT USE_NUMA"
).split()
ON = ("USE_SYSTEM_LIBS", "USE_OPENMP", "BUILD_PYTHON", "BUILD_SHARED_LIBS")  # the last: a configuration that fails leaves it off


def compiler() -> str | None:
    named = os.environ.get("CXX")
    return named or next((name for name in ("clang++", "c++", "g++") if shutil.which(name)), None)


def missing() -> list[str]:
    """What the build needs and the machine lacks, in words."""
    lacks = [f"the program {name}" for name in PROGRAMS if shutil.which(name) is None]
    lacks += [f"Python's {name}" for name in MODULES if find_spec(name) is None]
    cxx = compiler()
    if cxx is None:
        return [*lacks, "a C++20 compiler"]
    for header, package in HEADERS.items():
        question = f"#if !__has_include(<{header}>)\n#error\n#endif"
        seen = subprocess.run([cxx, "-E", "-x", "c++", "-"], input=question, capture_output=True, text=True, check=False)
        if seen.returncode != 0:
            lacks.append(f"<{header}> ({package})")
    return lacks


def configure_command(source: Path, folder: Path) -> list[str]:
    switches = [f"-D{name}=OFF" for name in OFF] + [f"-D{name}=ON" for name in ON]
    return ["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBLAS=OpenBLAS", *switches,
            f"-DPython_EXECUTABLE={sys.executable}"]  # fmt: skip


def check_machine() -> None:
    """Refuses a machine that lacks anything, before a tree is edited for it."""
    if lacks := missing():
        raise Refused(f"expected what PyTorch is built with, but got a machine without {'; '.join(lacks)}. Install them; nothing was changed")


def build(source: Path, target: str, jobs: int | None) -> None:
    """Configures and builds a target into SOURCE/build."""
    folder = source / "build"
    commands = [configure_command(source, folder), ["ninja", "-C", str(folder), *(["-j", str(jobs)] if jobs else []), target]]
    for command in commands:
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            raise Refused(f"expected {command[0]} to succeed, but it ended with {done.returncode}: {' '.join(command)}")
