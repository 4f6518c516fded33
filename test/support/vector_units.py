"""The vector units that the CPU's kernels are compiled for, and tests by the kernels of each."""

import subprocess
import sys
from pathlib import Path

import new_process
import pytest
from in_tree import IN_TREE

from torch_dtypes import _C


def capabilities():
    """What this processor has of what this copy was built for, the narrowest first; in PyTorch's
    own tree, up to what PyTorch was built for."""
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
    """A test file, run as a script over each group of vector files, finds nothing to say; the
    kernels are those of one vector unit."""
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
