"""The CUDA runtime without a GPU (test/simulated_gpu/) waits, orders and refuses like a real one.
(Running PyTorch on it needs a CUDA build of PyTorch: tools/simulated_gpu.py.)"""

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "simulated_gpu"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs the headers of a CUDA toolkit")
def test_the_runtime(tmp_path):
    nvcc = subprocess.run(
        ["nvcc", "-dryrun", "-c", "x.cu"], capture_output=True, text=True, cwd=tmp_path, check=False
    ).stderr
    includes = [
        word.strip('"')
        for line in nvcc.splitlines()
        if line.startswith("#$ INCLUDES=")
        for word in line.split("=", 1)[1].split()
    ]
    sources = [
        FOLDER / f"{name}.cpp"
        for name in ("Devices", "Driver", "Memory", "Streams", "test_runtime")
    ]
    command = [
        "g++",
        "-std=c++20",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wno-missing-field-initializers",
        "-Werror",
        *includes,
        *sources,
    ]
    subprocess.run([*map(str, command), "-o", str(tmp_path / "program"), "-ldl"], check=True)
    subprocess.run([tmp_path / "program"], check=True, timeout=60)
