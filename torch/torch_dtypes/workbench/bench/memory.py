"""The suite ``memory``: what a model and its optimizer hold, and the peak of training it, each
dtype in a process of its own.

The peak is the operating system's: the most physical memory of the process (VmHWM) in two training
steps, less what it had before the model was made. So kernels' private buffers count, which
PyTorch's memory profiler would not see. Before that a small step of the same network in the same
dtype has loaded code and made tables, so that they do not count. glibc is told to give back what is
freed at once.
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
    """Processes in place of lines of Python: a case's figure is one of the keys of what
    ``memory_process`` prints."""

    def measure(self, rounds: int, on_round: Callable[[], None]) -> dict[str, list[float]]:
        figures: dict[str, list[float]] = {name: [] for name in self.codes}
        for _ in range(rounds):
            for name, code in self.codes.items():
                figures[name].append(_run(*code.split()[3:6])[self.figure])
            on_round()
        on_round()  # a round to warm up is what others have; here each process does that for itself
        return figures


def _run(model: str, batch_size: str, dtype: str) -> dict[str, int]:
    # Fixed thresholds: glibc would otherwise raise them as it goes and keep what was freed.
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_TOP_PAD_": "0",
    }
    command = [
        sys.executable,
        "-m",
        "torch_dtypes.workbench.bench.memory_process",
        model,
        batch_size,
        dtype,
        str(torch.get_num_threads()),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise NotMeasuredError(f"the memory of {model} in {dtype} could not be measured: {last}")
    return json.loads(done.stdout)


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
        # What is held does not depend on the images.
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
