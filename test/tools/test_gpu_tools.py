"""tools/gpu_check.py and benchmarks/gpu_speed.py must succeed at once on a machine with a GPU. They
are tested here as far as possible without one."""

import json
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import devices
import pytest
import torch
from new_process import is_running
from representatives import thin_out

ROOT = Path(__file__).resolve().parents[2]


sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "benchmarks")]

import gpu_check  # noqa: E402
import gpu_report  # noqa: E402
import gpu_speed  # noqa: E402


@pytest.fixture
def report(tmp_path):
    return gpu_report.Report(tmp_path / "report", minutes=2)


# ---- tools/gpu_check.py ----


def test_a_command_is_logged_as_it_runs(report):
    assert gpu_report.shell([sys.executable, "-c", "print('first')"], report, "x.log") == (
        0,
        "first\n",
    )
    status, output = gpu_report.shell(
        [sys.executable, "-c", "import sys; print('second'); sys.exit('wrong')"], report, "x.log"
    )
    assert status == 1 and sorted(output.split()) == ["second", "wrong"]
    log = (report.out / "x.log").read_text()
    assert log.count("====\n") == 2 and log.index("first") < log.index("second")
    status, output = gpu_report.shell(["no-such-program"], report, "x.log")
    assert status == 127 and "no-such-program" in output


CHILD = "import time; print('child', flush=True); time.sleep(100)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print(child.pid, flush=True)
try:
    child.wait()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
DEAF = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {CHILD}"


@pytest.mark.whole
def test_when_the_time_is_up_a_command_sums_up_and_what_it_started_ends(report, monkeypatch):
    monkeypatch.setattr(gpu_report, "GRACE", 3)
    began = time.monotonic()
    status, output = gpu_report.shell([sys.executable, "-c", PARENT], report, "x.log", limit=2)
    assert status == 124 and output.splitlines()[-1] == "interrupted" and "child" in output
    child = next(int(line) for line in output.splitlines() if line.isdigit())
    while is_running(child) and time.monotonic() < began + 10:
        time.sleep(0.05)
    assert not is_running(child)
    assert gpu_report.shell([sys.executable, "-c", DEAF], report, "x.log", limit=1) == (
        124,
        "child\n",
    )
    assert time.monotonic() < began + 20


OUTPUT = """..F..E
==================================== ERRORS ====================================
______________ ERROR collecting test/operators/test_error_names.py _____________
test/operators/test_error_names.py:3: in <module>
    import expecttest
E   ModuleNotFoundError: No module named 'expecttest'
_________________________ ERROR at setup of test_given _________________________
E   KeyError: 1
=========================== short test summary info ============================
FAILED test/operators/test_views.py::test_a - assert 1 == 2
ERROR test/operators/test_error_names.py
ERROR test/operators/test_views.py::test_given - KeyError: 1
SKIPPED [2] test/operators/test_views.py:7: decode: there is no kernel for it
1 failed, 36 passed, 2 skipped, 2 errors in 14.59s
"""


def test_pytests_output_is_read():
    last, found = gpu_check.parse_summary(OUTPUT)
    assert last == "1 failed, 36 passed, 2 skipped, 2 errors in 14.59s"
    assert found["not collected"] == [
        "test/operators/test_error_names.py: ModuleNotFoundError: No module named 'expecttest'"
    ]
    assert [line.split()[1] for line in found["failures"]] == [
        "test/operators/test_views.py::test_a",
        "test/operators/test_views.py::test_given",
    ]
    assert len(found["skipped"]) == 1
    assert gpu_check.parse_summary("Killed") == (
        "no summary",
        {"not collected": [], "failures": [], "skipped": []},
    )


@pytest.mark.parametrize("workers", thin_out([2, 1]))
def test_pytest_writes_what_is_read(workers, tmp_path, report, monkeypatch):
    """A file that cannot be imported does not prevent the others from running, in one process or
    several."""
    (tmp_path / "test_read.py").write_text("def test_one(): pass\ndef test_two(): assert 1 == 2\n")
    (tmp_path / "test_unread.py").write_text("import no_such_module\n")
    monkeypatch.setattr(
        gpu_check,
        "TESTS",
        [("some", ["-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)])],
    )
    monkeypatch.setattr(gpu_check, "device_options", lambda arguments, device: [])
    gpu_check.run_tests(
        report, os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, "cpu", workers
    )
    step = report.data["steps"][-1]
    assert step["outcome"].startswith("1 failed, 1 passed, 1 error in") and step[
        "outcome"
    ].endswith("; 1 files not collected")
    assert step["not collected"] == [
        "test_unread.py: ModuleNotFoundError: No module named 'no_such_module'"
    ]
    assert [line.split(" - ")[0].split("/")[-1] for line in step["failures"]] == [
        "test_read.py::test_two"
    ]
    written = (report.out / "report.md").read_text()
    assert (
        "not collected:" in written
        and json.loads((report.out / "report.json").read_text()) == report.data
    )
    assert sorted(path.name for path in report.out.iterdir()) == [
        "report.json",
        "report.md",
        "tests.log",
    ]


def test_every_file_of_tests_is_there_and_none_runs_twice():
    paths = [
        path.removeprefix("--ignore=") for _, arguments in gpu_check.TESTS for path in arguments
    ]
    assert all((ROOT / path).exists() for path in paths)
    run = [
        path
        for _, arguments in gpu_check.TESTS
        for path in arguments
        if path.startswith("test/operators/")
    ]
    ignored = [
        path
        for path in paths
        if f"--ignore={path}" in dict(gpu_check.TESTS)["the rest of the operators"]
    ]
    assert len(set(run)) == len(run) and set(run) < set(ignored)


def test_a_machine_without_git(monkeypatch):
    monkeypatch.setattr(gpu_check.shutil, "which", lambda *_, **__: None)
    facts = gpu_check.machine()
    assert facts["torch"] == torch.__version__ and "commit" not in facts


def test_half_a_line_of_a_benchmark_is_no_row():
    assert gpu_check.parse_rows('{"what": "copy"}\nWarning\n7\n{"what": "enc') == (
        [{"what": "copy"}],
        'Warning\n7\n{"what": "enc',
    )


@pytest.mark.whole
@pytest.mark.parametrize("what", ["no GPU", "no package"])
def test_a_report_is_written_whatever_fails(what, tmp_path):
    if what == "no GPU" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "site").mkdir()
    options = [] if what == "no GPU" else ["--dry-run", "--site", str(tmp_path / "site")]
    command = [
        sys.executable,
        str(ROOT / "tools/gpu_check.py"),
        *options,
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    steps = json.loads((tmp_path / "out/report.json").read_text())["steps"]
    assert steps[0]["name"] == "machine" and steps[-1]["outcome"].startswith(
        "failed: expected " + ("a GPU" if what == "no GPU" else "a package in")
    )
    assert (tmp_path / "out/report.md").exists()


# ---- benchmarks/gpu_speed.py ----


@pytest.fixture
def precision():
    """Restore PyTorch's switches. PyTorch's test utilities forbid setting them outside this
    block."""
    with torch.backends.__allow_nonbracketed_mutation():
        matrices, convolutions = (
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
        )
        yield
        torch.set_float32_matmul_precision(matrices)
        torch.backends.cudnn.allow_tf32 = convolutions


RATIOS = {
    "memory": {"of_copy"},
    "sums": {"tera_multiply_adds"},
    "products": {"of_bfloat16", "of_float32", "of_tf32"},
    "training": {"of_float32", "of_tf32"},
}


@pytest.mark.parametrize("group", RATIOS)
def test_what_is_measured_on_a_gpu_runs_here(group, capsys, precision):
    gpu_speed.allow_tf32(False)
    getattr(gpu_speed, group)("cpu", gpu_speed.Clock("cpu"))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ours = [row for row in rows if row.get("format", "float").startswith(("q", "posit", "e5"))]
    assert len(ours) >= 4 and all(row.keys() >= RATIOS[group] | {"milliseconds"} for row in ours)
    assert not torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "highest"


def test_peers_are_measured_where_they_are_installed(capsys, monkeypatch):
    quant = types.SimpleNamespace(
        float_quantize=lambda x, **_: x.half().float(), fixed_point_quantize=lambda x, **_: 1 / 0
    )
    monkeypatch.setattr(gpu_speed, "is_installed", lambda name: name == "qtorch")
    monkeypatch.setattr(gpu_speed, "module", {"qtorch.quant": quant}.__getitem__)
    with pytest.raises(ZeroDivisionError):
        gpu_speed.peers("cpu", gpu_speed.Clock("cpu"))
    quant.fixed_point_quantize = lambda x, **_: torch.conv2d(x, x)
    gpu_speed.peers("cpu", gpu_speed.Clock("cpu"))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()][-4:]
    assert all(row["times_as_fast"] > 0 for row in rows[:2])
    assert "conv2d" in rows[2]["not_measured"] and rows[3]["not_measured"] == "not installed"


def test_stock_products_keep_float32s_bits_by_old_names_and_new(precision):
    """devices.py and gpu_speed.py set these switches. Afterwards no part of PyTorch that reads or
    changes a switch may raise."""
    torch.backends.cudnn.allow_tf32 = True
    gpu_speed.allow_tf32(False)
    cudnn = torch.backends.cudnn
    assert "tf32" not in (
        cudnn.conv.fp32_precision,
        cudnn.rnn.fp32_precision,
        torch.backends.cuda.matmul.fp32_precision,
    )
    with cudnn.flags(enabled=True, allow_tf32=True):
        assert cudnn.conv.fp32_precision == "tf32"
    assert not cudnn.allow_tf32 and cudnn.conv.fp32_precision != "tf32"


# ---- test/devices.py ----


def test_tests_of_the_cpu_alone_exist():
    files = list((ROOT / "test").rglob("test_*.py"))
    sources, names = "".join(path.read_text() for path in files), {path.name for path in files}
    assert not [
        name for name in devices.CPU_ONLY if name not in names and f"\ndef {name}(" not in sources
    ]
