"""``python -m torch_dtypes.workbench.bench.memory_process MODEL BATCH_SIZE DTYPE THREADS``, or
``... FILE THREADS``: one process of the suite ``memory``, or of a user's own network. memory.py
defines what it measures. Nothing may import this file: Python warns when it runs a module that is
imported already.
"""

import ctypes
import gc
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from ..training.recipes import Trial, resolve, resolve_dtype
from .own_model import build_case, load_case
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


def measure(build: Callable[[int | None], dict]) -> dict[str, int]:
    """Return the bytes ``held`` and ``peak``. ``build`` returns the variables of STEP for a number
    of inputs; None: all."""
    step = compile(STEP, "step", "exec")
    exec(step, build(2))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # otherwise steps would reuse freed memory unseen
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark: proc(5)
    space = build(None)
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
    return {"held": held, "peak": peak}


def main(*arguments: str) -> None:
    """Print ``{"held": bytes, "peak": bytes}``. The arguments are model, batch size, dtype and
    threads, or a file of ``own_model.save_case`` and threads."""
    *what, threads = arguments
    torch.set_num_threads(int(threads))
    if len(what) == 1:
        config, data, (recipe, name) = load_case(Path(what[0]))
        trial = Trial(recipe, resolve(name, recipe))
        figures = measure(lambda inputs: build_case(config, data, trial, inputs))
    else:
        model, batch_size, dtype = what
        resolved = resolve_dtype(dtype)
        figures = measure(lambda inputs: namespace(model, inputs or int(batch_size), resolved))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
