"""How pytest-xdist distributes the tests (test/workers.py)."""

import os
import re
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
TESTS = """
import pytest
pytestmark = {mark}
@pytest.mark.parametrize("k", range(80))
def test_some(k): pass
"""


def test_workers_get_runs_of_tests_and_marked_files_whole(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {TEST}\nmarkers = one_worker: as here\n"
    )
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["workers"]')
    for name, mark in (
        ("a", "[]"),
        ("b", "pytest.mark.one_worker"),
        ("c", "[pytest.mark.one_worker]"),
    ):
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(mark=mark))
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "xdist",
        "-n",
        "2",
        "-v",
    ]
    output = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    ).stdout
    assert "240 passed" in output, output
    workers = {}
    for worker, name, k in re.findall(
        r"^\[(gw\d)\] .* test_(\w)\.py::test_some\[(\d+)\]", output, re.MULTILINE
    ):
        workers.setdefault((name, int(k) // 32 if name == "a" else 0), set()).add(worker)
    assert len(workers) == 5 and all(len(of_run) == 1 for of_run in workers.values()), output
