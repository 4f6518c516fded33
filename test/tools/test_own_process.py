"""The pytest plugin that runs marked files of tests in processes of their own (test/own_process.py)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).resolve().parents[1]

CONFTEST = """
import os

import pytest

pytest_plugins = ["own_process"]
HERE = os.getpid()
"""

MARKED = """
import os

import pytest

pytestmark = pytest.mark.own_process
seen = []

@pytest.fixture(scope="module")
def made():
    seen.append("made")
    yield os.getpid()
    print("made ends")

@pytest.mark.parametrize("k", range(3))
def test_in_one_process_of_its_own(made, k):
    assert seen == ["made"] and os.getpid() == made
    with open(f"/proc/{os.getppid()}/stat") as parent:  # which the caller started
        assert os.environ["CALLER"] == parent.read().rsplit(")")[-1].split()[1]

def test_wrong():
    print("printed before")
    assert [1, 2] == [1, 3], "these differ"

@pytest.mark.skip(reason="for this reason")
def test_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_expected_to_fail():
    assert False

@pytest.mark.slow
def test_slow():
    pass
"""

ENDS = """
import os

import pytest

pytestmark = [pytest.mark.own_process]

def test_before():
    pass

def test_that_ends_the_process():
    os.abort()

def test_after():
    pass
"""

OTHER = """
import os

import pytest

@pytest.fixture(scope="module", autouse=True)
def made():
    yield
    os.environ.pop("MADE", None)

def test_in_the_common_process():
    os.environ["CALLER"] = str(os.getpid())
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pyproject.toml").write_text(f"""
[tool.pytest.ini_options]
pythonpath = ["{TEST}"]
addopts = ["-m", "not slow", "--strict-markers"]
markers = ["slow: as here", "own_process: as here", "one_worker: as here"]
""")
    last = OTHER.replace("common", "last")
    files = {"conftest": CONFTEST, "a/test_other": OTHER, "b/test_ends": ENDS, "b/test_marked": MARKED, "c/test_last": last}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / f"{path}.py").write_text(text)
    return tmp_path


def run(folder, *arguments):
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")} | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", "-v", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


def outcomes(output):
    """Every test that was run, by its own name."""
    alone = re.findall(r"^(\S+::\S+) ([A-Z]{4,})", output, re.MULTILINE)
    return dict(alone) | {name: word for word, name in re.findall(r"^\[gw\d+\] .*?([A-Z]{4,}) (\S+::\S+)", output, re.MULTILINE)}


EXPECTED = {
    "a/test_other.py::test_in_the_common_process": "PASSED",
    "b/test_ends.py::test_before": "PASSED",
    "b/test_ends.py::test_that_ends_the_process": "FAILED",
    "b/test_ends.py::test_after": "PASSED",
    **{f"b/test_marked.py::test_in_one_process_of_its_own[{k}]": "PASSED" for k in range(3)},
    "b/test_marked.py::test_wrong": "FAILED",
    "b/test_marked.py::test_skipped": "SKIPPED",
    "b/test_marked.py::test_expected_to_fail": "XFAIL",
    "c/test_last.py::test_in_the_last_process": "PASSED",
}


def test_each_test_is_reported_by_its_own_name(folder):
    output = run(folder, "-rs")
    assert outcomes(output) == EXPECTED, output
    for words in ("printed before", "these differ", "for this reason", "ended with status -6", "Fatal Python error: Aborted"):
        assert words in output, output
    assert "2 failed, 7 passed, 1 skipped, 1 deselected, 1 xfailed" in output


def test_selected_by_name_and_by_marker(folder):
    assert outcomes(run(folder, "-k", "wrong or before")) == {"b/test_ends.py::test_before": "PASSED", "b/test_marked.py::test_wrong": "FAILED"}
    assert outcomes(run(folder, "-m", "slow")) == {"b/test_marked.py::test_slow": "PASSED"}
    named = "b/test_marked.py::test_wrong"
    assert outcomes(run(folder, named)) == {named: "FAILED"}


def test_workers_keep_a_file_in_one_process(folder):
    (folder / "a" / "test_other.py").unlink()
    output = run(folder, "-n", "2", "-k", "not in_one_process")
    assert outcomes(output) == {name: word for name, word in EXPECTED.items() if not name.startswith("a/") and "in_one" not in name}, output
    workers = dict(re.findall(r"^\[(gw\d+)\] .*? (b/test_marked|b/test_ends)\S*$", output, re.MULTILINE))
    assert len(workers) == len(set(workers.values())), output
