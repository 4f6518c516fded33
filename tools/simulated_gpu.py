#!/usr/bin/env python3
"""Runs Python on a machine without a GPU as though it had two: tests with `--device cuda`, or a
program.

    python tools/simulated_gpu.py -- -m pytest -n 2 --device cuda test/operators
    # any program that imports torch
    python tools/simulated_gpu.py -- train.py --device cuda
    python tools/simulated_gpu.py --no-build -- -c "import torch; torch.ones(2).cuda()"

PyTorch is a CUDA build, unchanged, but for the CUDA runtime, the driver and NCCL, which
test/simulated_gpu/ has in their place, and its own kernels, in whose place the CPU's compute on the
same memory; this package's kernels for GPUs are compiled for the host, and all that binds them to
PyTorch's CUDA is what a GPU would run: streams, events, graphs, the caching allocator, generators,
pinned memory, copies, collectives between processes. What it cannot show is what nvcc makes of the
kernels, what threads do beside one another, and speed.

Memory of a simulated GPU is closed to the host (SIGSEGV, as on a machine with one), holds 0xa5
before anything is written there, and streams do nothing until somebody waits for them:
SIMULATED_GPU_EAGER=1 lets them do it at once, which shows whether a failure is one of waiting.
SIMULATED_GPU_TRACE=1 prints PyTorch's operators as they come. It needs the headers of a CUDA
toolkit (nvcc in PATH), Linux and 7 GB of disk; the environment is that of tools/try_torch.py.
"""

import argparse
import os
import sys

from try_torch import environment, folder_of, install


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--release",
        default="2.11.0",
        help="of PyTorch, one that the registry has as a CUDA build (default: 2.11.0)",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="the Python to make the environment with (default: this one)",
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
        help="behind --, what Python is given: -m pytest ..., a file and its options",
    )
    options = parser.parse_args()
    folder = folder_of(options.release, options.python)
    python, place = (
        environment(folder, options.python, options.release),
        folder / "native-simulated",
    )
    if not options.no_build:
        install(python, place, options.jobs, "TORCH_DTYPES_GPU_SIMULATED=ON")
    runtime = place / "libsimulated_gpu.so"
    if not runtime.exists():
        parser.error(f"expected {runtime}, but it was not built: leave --no-build out")
    environ = {**os.environ, "LD_PRELOAD": str(runtime), "OMP_NUM_THREADS": "1"}
    os.execve(python, [str(python), *options.program], environ)


if __name__ == "__main__":
    sys.exit(main())
