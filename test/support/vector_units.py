"""Vector units that the CPU's kernels are compiled for, and tests of the kernels of each."""

import subprocess
import sys
from pathlib import Path

import new_process
import pytest
from in_tree import IN_TREE

from torch_dtypes import _C


def capabilities():
    """Return the vector units that both this processor and this build have, narrowest first. In
    PyTorch's own tree, PyTorch's build is the limit."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.exists() else []
    names = [
        "default",
        *(c for c, flag in (("avx2", "avx2"), ("avx512", "avx512bw")) if flag in flags),
    ]
    if IN_TREE:
        return names[: names.index(_C.cpu_capability()) + 1]
    from torch_dtypes._build_info import CPU_CAPABILITIES  # PyTorch's tree has none

    return [name for name in names if name.upper() in CPU_CAPABILITIES]


def run_for_capability(script, capability, groups):
    """Run a test file as a script over each group of vector files, with the kernels of one vector
    unit. It must report nothing."""
    if capability not in capabilities():
        pytest.skip(f"this processor or this build has no {capability}")
    env = new_process.one_thread_environment(TORCH_DTYPES_CPU_CAPABILITY=capability)
    output = ""
    for group in groups:
        done = subprocess.run(
            [sys.executable, script, capability, *map(str, group)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        output += done.stdout + done.stderr
    assert not output, output


def outputs_by_unit(program):
    """Run a program once for each vector unit, on one thread; return the distinct texts that it
    printed."""
    return {
        new_process.run(
            "-c", program, env=new_process.one_thread_environment(TORCH_DTYPES_CPU_CAPABILITY=c)
        ).stdout
        for c in capabilities()
    }
