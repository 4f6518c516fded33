"""Builds the package that tools/gpu_check.py checks, or finds it in a folder."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

from gpu_report import ROOT, Report, shell

BUILD = ROOT / "build" / "gpu"


def build(report: Report, dry: bool, arch: str | None) -> Path | None:
    """Return the folder of the built package, or None.

    It is kept between calls: a second build compiles the changes only.
    """
    site = BUILD / ("site-on-host" if dry else "site")
    objects = BUILD / ("on-host" if dry else "cuda")
    options = (
        ["-DTORCH_DTYPES_GPU_ON_HOST=ON", "-DTORCH_DTYPES_CUDA=OFF"]
        if dry
        else ["-DTORCH_DTYPES_CUDA=ON"]
    )
    # CMake and ninja may be this Python's packages.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path} | ({"TORCH_CUDA_ARCH_LIST": arch} if arch else {})
    began = time.monotonic()
    configure = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(objects),
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    status, output = shell([*configure, *options], report, "build.log", env=environment)
    if status == 0:
        status, output = shell(
            ["cmake", "--build", str(objects), "--parallel"], report, "build.log", env=environment
        )
    if status == 0:
        package = site / "torch_dtypes"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(
            ROOT / "torch/torch_dtypes",
            package,
            ignore=shutil.ignore_patterns("*.so", "__pycache__", "_build_info.py"),
        )
        shutil.copy(ROOT / "torch/_torch_dtypes_autoload.py", site)
        status, output = shell(
            ["cmake", "--install", str(objects), "--prefix", str(site)],
            report,
            "build.log",
            env=environment,
        )
        metadata = site / "torch_dtypes-0.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: torch-dtypes\nVersion: 0\n"
        )
        (metadata / "entry_points.txt").write_text(
            "[torch.backends]\ntorch_dtypes = _torch_dtypes_autoload:load\n"
        )
    seconds = round(time.monotonic() - began)
    if status != 0:
        why = "no time left" if status == 124 else f"status {status}"
        errors = [
            line[:300] for line in output.splitlines() if re.search(r"error|FAILED|Error", line)
        ]
        report.step(
            "build", f"failed after {seconds} s: {why}", failures=errors[:40], output=output[-3000:]
        )
        return None
    report.step("build", f"built in {seconds} s: {site}")
    return site


PACKAGE = (
    "import torch, torch_dtypes; from torch_dtypes import _C; print(torch_dtypes.__file__, "
    "_C.has_gpu_kernels(), _C.built_for_host())"
)


def environment_of(report: Report, site: Path, dry: bool) -> dict | None:
    """Return the environment in which Python finds the package in a folder, with its kernels, or
    None."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    # pytest's other plugins belong to this machine, and any warning is an error in these tests. A
    # command's output must be in its log at once.
    environment = os.environ | {
        "PYTHONPATH": path,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONUNBUFFERED": "1",
    }
    status, output = shell(
        [sys.executable, "-c", PACKAGE], report, "build.log", env=environment, limit=120
    )
    path, *kernels = output.split("\n")[-2:][0].rsplit(" ", 2)
    expected = [str(not dry), str(dry)]
    if status != 0 or kernels != expected or not Path(path).is_relative_to(site):
        why = (
            f"failed: expected a package in {site} with kernels for "
            f"{'the host' if dry else 'a GPU'}, of this Python and PyTorch, but got:"
        )
        report.step("package", why, output=output[-3000:])
        return None
    report.step("package", f"found in {site}")
    return environment
