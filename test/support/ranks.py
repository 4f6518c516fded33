"""Checks that several processes make together. The calling process is rank 0 of a group over gloo,
and the others run this file. With `--device cuda` the group also uses NCCL. Each rank then has a
GPU, and devices.py moves a check's tensors there."""

import contextlib
import ctypes
import datetime
import importlib.util
import inspect
import os
import signal
import sys
from pathlib import Path

import new_process
import pytest
import torch
import torch.distributed as dist
from devices import VARIABLE, OnDevice, hidden_from_dynamo

from torch_dtypes import _C

PR_SET_PDEATHSIG = 1  # prctl(2)
DEVICE = "cuda" if os.environ.get(VARIABLE) == "cuda" else "cpu"  # device of meshes


def together(check, folder, size=2, seconds=300):
    """Run check(rank) in `size` processes, where check is a function of a test file."""
    if DEVICE == "cuda" and torch.cuda.device_count() < size:
        pytest.skip(f"needs {size} GPUs")
    store = str(folder / check.__name__)
    env = new_process.one_thread_environment()
    words = [__file__, inspect.getfile(check), check.__name__, store]
    with contextlib.ExitStack() as stack:
        others = [
            new_process.Python(*words, *map(str, (rank, size, seconds)), env=env)
            for rank in range(1, size)
        ]
        for other in others:
            stack.callback(other.close)
        try:
            _run(check, store, 0, size, seconds)
        except BaseException:
            for other in others:  # these may wait for this one, and end with it
                print(*other.output(), sep="", file=sys.stderr)
            raise
        for other in others:
            assert other.wait() == 0, "".join(other.output())


def _run(check, store, rank, size, seconds):
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if DEVICE == "cuda" else "gloo",
        store=dist.FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=seconds),
        device_id=torch.device("cuda", rank) if DEVICE == "cuda" else None,
    )
    try:
        check(rank)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    # A rank would outlive its parent for ever otherwise.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    file, name, store, rank, size, seconds = sys.argv[1:]
    torch.set_num_threads(1)
    _C.set_gpu_on_host(os.environ.get(VARIABLE) == "gpu-on-host")
    if DEVICE == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # like devices.py
        OnDevice(torch.device("cuda", int(rank))).__enter__()
        hidden_from_dynamo(pytest.MonkeyPatch())
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    _run(getattr(module, name), store, int(rank), int(size), int(seconds))
    # PyTorch keeps a group's threads after a mesh or DistributedDataParallel used it. A thread that
    # releases a tensor's Python object during Python's shutdown would end the process with an
    # error.
    sys.stdout.flush()
    os._exit(0)
