"""Separate Python processes (test/support/new_process.py)."""

import os
import signal
import subprocess

import new_process
import pytest
import torch

import torch_dtypes

ABOUT = """
import os, sys, warnings
print(sys.argv, os.getcwd(), os.environ.get("ONLY_HERE"), __name__, sys.stdin.read(), sys.path[0])
print("said", file=sys.stderr)
warnings.warn("shown")
"""
END = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def test_a_program_has_what_it_is_given(tmp_path):
    done = new_process.run(
        "-c", ABOUT, "a", tmp_path, input="read", cwd=tmp_path, env={**os.environ, "ONLY_HERE": "1"}
    )
    assert (
        done.stdout == f"{['-c', 'a', str(tmp_path)]} {tmp_path} 1 __main__ read \n"
        and done.returncode == 0
    )
    assert done.stderr.splitlines()[0] == "said" and "UserWarning: shown" in done.stderr
    (tmp_path / "program.py").write_text(ABOUT)
    done = new_process.run(tmp_path / "program.py")
    assert (
        done.stdout == f"{[str(tmp_path / 'program.py')]} {os.getcwd()} None __main__  {tmp_path}\n"
    )
    done = new_process.run("-m", "program", cwd=tmp_path)
    assert done.stdout.startswith(f"{[str(tmp_path / 'program.py')]} {tmp_path} None __main__  ")
    done = new_process.run(
        "-c", "import elsewhere", env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert (
        done.returncode == 1
        and done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'elsewhere'"
    )
    (tmp_path / "elsewhere.py").write_text("print('found')")
    assert (
        new_process.run(
            "-c", "import elsewhere", env={**os.environ, "PYTHONPATH": str(tmp_path)}
        ).stdout
        == "found\n"
    )


def test_a_program_begins_after_the_import_of_torch():
    torch_dtypes.posit_format(13, 1)
    code = (
        "import torch, torch_dtypes\n"
        "print(hasattr(torch, 'posit13es1'), torch_dtypes._C.format_count(), "
        "torch.get_num_threads(), torch.initial_seed())"
    )
    said = [
        new_process.run("-c", code, env={**os.environ, "OMP_NUM_THREADS": "3"}).stdout.split()
        for _ in range(2)
    ]
    assert said[0][:3] == said[1][:3] == ["False", str(len(torch_dtypes.builtin_dtypes())), "3"]
    assert said[0][3] != said[1][3]
    assert hasattr(torch, "posit13es1")


@pytest.mark.whole
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


def test_a_program_that_nobody_waits_for_is_ended():
    program = new_process.Python("-c", "import time; time.sleep(60)")
    program.close()
    assert program.process.exitcode == -signal.SIGKILL
