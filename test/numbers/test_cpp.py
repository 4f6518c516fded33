"""C++ tests of the number layer. They are compiled without PyTorch, which shows that the layer does
not need it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent / "cpp"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("source", sorted(p.name for p in SOURCES.glob("*.cpp")))
def test_cpp(source, tmp_path):
    program = tmp_path / "program"
    include = [f"-I{ROOT}", f"-I{ROOT / 'aten' / 'src'}"]
    command = [
        "g++",
        "-std=c++20",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        *include,
        str(SOURCES / source),
        "-o",
        str(program),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
