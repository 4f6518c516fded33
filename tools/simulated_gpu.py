#!/usr/bin/env python3
"""Runs a Python program, or tests, on a machine without a GPU as though it had two.

    python tools/simulated_gpu.py -- -m pytest -n 2 --device cuda test/operators
    # any program that imports torch
    python tools/simulated_gpu.py -- train.py --device cuda
    python tools/simulated_gpu.py --no-build -- -c "import torch; torch.ones(2).cuda()"

PyTorch is an unchanged CUDA build. test/simulated_gpu/ replaces the CUDA runtime, the driver, NCCL
and PyTorch's own kernels, for which the CPU's compute on the same memory. This package's kernels
for GPUs are compiled for the host. The code that binds them to PyTorch's CUDA is the same as on a
GPU. It covers streams, events, graphs, the caching allocator, generators, pinned memory, copies,
and collectives between processes. The simulation cannot show nvcc's output, races between threads,
or speed.

Memory of a simulated GPU is closed to the host (SIGSEGV, as on a machine with a GPU), and holds
0xa5 until it is written. Streams do nothing until somebody waits for them. With
SIMULATED_GPU_EAGER=1 they work at once, which shows whether a failure is one of waiting.
SIMULATED_GPU_TRACE=1 prints PyTorch's operators in order. It needs the headers of a CUDA toolkit
(nvcc in PATH), Linux and 7 GB of disk. The environment is the one of tools/try_torch.py.
"""

import argparse
import os
import sys

from try_torch import find_folder, install, make_environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--release",
        default="2.11.0",
        help="release of PyTorch that the registry has as a CUDA build (default: 2.11.0)",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="Python from which the environment is made (default: this one)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes that compile (default: one a core)",
    )
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    parser.add_argument(
        "program",
        nargs="+",
        help="Python's arguments after --: -m pytest ..., or a file and its options",
    )
    options = parser.parse_args()
    folder = find_folder(options.release, options.python)
    python, place = (
        make_environment(folder, options.python, options.release),
        folder / "native-simulated",
    )
    if not options.no_build:
        install(python, place, options.jobs, "TORCH_DTYPES_GPU_SIMULATED=ON")
    runtime = place / "libsimulated_gpu.so"
    if not runtime.exists():
        parser.error(f"expected {runtime}, but got no such file; leave --no-build out")
    environ = {**os.environ, "LD_PRELOAD": str(runtime), "OMP_NUM_THREADS": "1"}
    os.execve(python, [str(python), *options.program], environ)


if __name__ == "__main__":
    sys.exit(main())
