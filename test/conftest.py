"""What the tests share: the built-in formats by their definitions, and ways between tensors and codes."""

import os
import subprocess
import sys
from pathlib import Path

import oracle
import pytest
import torch

import torch_dtypes

pytest_plugins = ["own_process"]

TEST = Path(__file__).resolve().parent

BUILTIN = {
    "posit8es0": oracle.posit(8, 0),
    "posit8es1": oracle.posit(8, 1),
    "posit8es2": oracle.posit(8, 2),
    "posit16es1": oracle.posit(16, 1),
    "posit16es2": oracle.posit(16, 2),
    "posit32es2": oracle.posit(32, 2),
    "q43": oracle.binary(4, 3),
    "q52": oracle.binary(5, 2),
    "tf32": oracle.binary(8, 10),
    "e5m5": oracle.binary(5, 5),
    "e5m7": oracle.binary(5, 7),
    "e8m4": oracle.binary(8, 4),
}


def run_for_capability(script, capability, groups) -> str:
    """What a test file, run as a script over each group of vector files, says; the kernels are those of one vector unit."""
    path = os.pathsep.join(map(str, (TEST, TEST / "support")))
    env = {**os.environ, "TORCH_DTYPES_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    output = ""
    for group in groups:
        done = subprocess.run([sys.executable, script, capability, *map(str, group)], env=env, capture_output=True, text=True, check=False)
        output += done.stdout + done.stderr
    return output


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The stock integer type as wide as a code."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def codes_of(t: torch.Tensor) -> torch.Tensor:
    """A tensor's codes as int64, without a sign of their own."""
    bits = torch_dtypes.format_of(t.dtype).bits
    codes = t.view(bits_dtype(t.dtype)).long()
    return codes & ((1 << bits) - 1) if bits < 64 else codes


def from_codes(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes.to(bits_dtype(dtype)).view(dtype)


def to_codes(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes_of(values.to(dtype))


@pytest.fixture(params=list(BUILTIN))
def builtin(request):
    """Each built-in format: its dtype and its definition."""
    return getattr(torch, request.param), BUILTIN[request.param]


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
