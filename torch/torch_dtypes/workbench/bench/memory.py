"""The suite ``memory``: the bytes that a model and its optimizer hold, and the peak of training,
each dtype in its own process.

The peak is the operating system's VmHWM, the most physical memory of the process, in two training
steps. The memory before the model was made is subtracted. So it includes the private buffers of
kernels, which PyTorch's memory profiler does not see. A small step of the same network in the same
dtype runs before, so that loaded code and tables do not count. glibc is set to return freed memory
at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import torch

from .measuring import Group, NotMeasuredError, Row, Sizes, named_dtypes
from .training import TITLES

SUMMARY = (
    "Bytes of a model (parameters, buffers) with Adam's state, and the peak of physical memory "
    "in a training step, over float32's."
)
_DTYPES = ("posit16es2", "q43")
_CASE = "python -m torch_dtypes.workbench.bench.memory_process"


class _MemoryGroup(Group):
    """A group whose cases are processes instead of lines of Python. A figure is a key of the output
    of ``memory_process``."""

    def measure(self, rounds: int, on_round: Callable[[], None]) -> dict[str, list[float]]:
        figures: dict[str, list[float]] = {name: [] for name in self.codes}
        for _ in range(rounds):
            for name, code in self.codes.items():
                figures[name].append(_run(*code.split()[3:6])[self.figure])
            on_round()
        on_round()  # in place of the other groups' warm-up: each process warms up itself
        return figures


def run_process(*arguments: str, what: str) -> dict[str, int]:
    """Run ``memory_process`` with PyTorch's current number of threads, and return its figures.

    Raises:
        NotMeasuredError: it failed; ``what`` names its work.
    """
    # Fixed thresholds: otherwise glibc raises them as it runs and keeps freed memory.
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_TOP_PAD_": "0",
    }
    module = "torch_dtypes.workbench.bench.memory_process"
    command = [sys.executable, "-m", module, *arguments, str(torch.get_num_threads())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise NotMeasuredError(f"the memory of {what} could not be measured: {last}")
    return json.loads(done.stdout.splitlines()[-1])  # a user's module may print


def _run(model: str, batch_size: str, dtype: str) -> dict[str, int]:
    return run_process(model, batch_size, dtype, what=f"{model} in {dtype}")


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, _DTYPES)
    result = []
    for model, batch_size in sizes.memory_networks:
        held = [
            Row(f"held by {TITLES[model]} and Adam", n, "float32", d.itemsize / 4)
            for n, d in named.items()
        ]
        peak = [
            Row(f"peak of a {TITLES[model]} step, batch {batch_size}", n, "float32", 1.2)
            for n in named
        ]
        # The bytes held do not depend on the images.
        for figure, rows, images in (("held", held, 2), ("peak", peak, batch_size)):
            codes = {name: f"{_CASE} {model} {images} {name}" for name in ("float32", *named)}
            group = _MemoryGroup(
                codes,
                dict,
                rows,
                rounds=1 if figure == "held" else 3,
                quick_rounds=1,
                unit="bytes",
                once=True,
            )
            group.figure = figure
            result.append(group)
    return result
