"""``python -m torch_dtypes.workbench.bench.memory_process MODEL BATCH_SIZE DTYPE THREADS``: one
process of the suite ``memory``; memory.py defines what it measures. Nothing may import this file:
Python warns when it runs a module that is imported already.
"""

import ctypes
import gc
import json
import re
import sys
from pathlib import Path

import torch

from ..training.recipes import resolve_dtype
from .training import STEP, namespace


def _status(field: str) -> int:
    return (
        int(
            re.search(
                rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE
            )[1]
        )
        * 1024
    )


def main(model: str, batch_size: str, dtype: str, threads: str) -> None:
    """Print ``{"held": bytes, "peak": bytes}``."""
    torch.set_num_threads(int(threads))
    resolved = resolve_dtype(dtype)
    step = compile(STEP, "step", "exec")
    exec(step, namespace(model, 2, resolved))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # otherwise steps would reuse freed memory unseen
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark: proc(5)
    space = namespace(model, int(batch_size), resolved)
    for _ in range(2):
        exec(step, space)
    peak = _status("VmHWM") - before
    network, optimizer = space["model"], space["optimizer"]
    state = [
        value
        for values in optimizer.state.values()
        for value in values.values()
        if isinstance(value, torch.Tensor)
    ]
    held = sum(
        t.untyped_storage().nbytes() for t in (*network.parameters(), *network.buffers(), *state)
    )
    print(json.dumps({"held": held, "peak": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
