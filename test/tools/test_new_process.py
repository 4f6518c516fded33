"""Programs in processes that are forked from one that has imported PyTorch (test/support/new_process.py)."""

import os
import signal
import subprocess
import sys
import time

import new_process
import pytest
import torch
from new_process import is_running

import torch_dtypes

ABOUT = """
import os, sys, warnings
print(sys.argv, os.getcwd(), os.environ.get("ONLY_HERE"), __name__, sys.stdin.read(), sys.path[0])
print("said", file=sys.stderr)
warnings.warn("shown")
"""
END = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def ends(pid):
    until = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_running(pid)


def test_a_program_has_what_it_is_given(tmp_path):
    done = new_process.run("-c", ABOUT, "a", tmp_path, input="read", cwd=tmp_path, env={**os.environ, "ONLY_HERE": "1"})
    assert done.stdout == f"{['-c', 'a', str(tmp_path)]} {tmp_path} 1 __main__ read \n" and done.returncode == 0
    assert done.stderr.splitlines()[0] == "said" and "UserWarning: shown" in done.stderr
    (tmp_path / "program.py").write_text(ABOUT)
    done = new_process.run(tmp_path / "program.py")
    assert done.stdout == f"{[str(tmp_path / 'program.py')]} {os.getcwd()} None __main__  {tmp_path}\n"
    done = new_process.run("-m", "program", cwd=tmp_path)
    assert done.stdout.startswith(f"{[str(tmp_path / 'program.py')]} {tmp_path} None __main__  ")
    done = new_process.run("-c", "import elsewhere", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'elsewhere'"
    (tmp_path / "elsewhere.py").write_text("print('found')")
    assert new_process.run("-c", "import elsewhere", env={**os.environ, "PYTHONPATH": str(tmp_path)}).stdout == "found\n"


def test_a_program_begins_after_the_import_of_torch():
    torch_dtypes.posit_format(13, 1)
    code = (
        "import torch, torch_dtypes\n"
        "print(hasattr(torch, 'posit13es1'), torch_dtypes._C.format_count(), torch.get_num_threads(), torch.initial_seed())"
    )
    said = [new_process.run("-c", code, env={**os.environ, "OMP_NUM_THREADS": "3"}).stdout.split() for _ in range(2)]
    assert said[0][:3] == said[1][:3] == ["False", str(len(torch_dtypes.builtin_dtypes())), "3"]
    assert said[0][3] != said[1][3]
    assert hasattr(torch, "posit13es1")


def test_how_a_program_ends():
    assert new_process.run("-c", "import sys; sys.exit(7)").returncode == 7
    done = new_process.run("-W", "error", "-c", ABOUT)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "UserWarning: shown"
    assert new_process.run("-c", END).returncode == -signal.SIGKILL
    with pytest.raises(AssertionError, match=r"(?s)got status 1:.*ZeroDivisionError"):
        new_process.run("-c", "1 / 0", check=True)
    with pytest.raises(subprocess.TimeoutExpired) as late:
        new_process.run("-c", "print('begun', flush=True); import time; time.sleep(60)", timeout=2)
    assert late.value.output == "begun\n"


def test_several_at_once_and_one_that_nobody_waits_for():
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(float(sys.argv[1]))"
    one, other = new_process.Python("-c", code, 1), new_process.Python("-c", code, 60)
    try:
        assert one.wait() == 0
        pid = int(other.output()[0])
        assert is_running(pid)
    finally:
        one.close()
        other.close()
    assert ends(pid)


@pytest.mark.skipif(torch.version.cuda is not None, reason="nothing is forked beside CUDA")
def test_what_is_forked_from_ends_with_the_session(tmp_path, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        session = tmp_path / f"session-{owner.pid}"
        session.mkdir()
        monkeypatch.setenv(new_process.SESSION, str(session))
        server = int(new_process.run("-c", "import os; print(os.getppid())").stdout)
        assert is_running(server)
        owner.kill()
    assert ends(server)
