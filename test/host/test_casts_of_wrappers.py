"""Casts of wrapper subclasses, whose Python code runs before this package's kernels: without
autograd, and beneath it."""

import new_process

CODE = """
import torch, torch.distributed as dist, torch_dtypes
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
values = torch.linspace(-2, 2, 32).reshape(4, 8)
for own in (torch.float32, torch.bfloat16, torch.q43, torch.posit32es2):
    x = distribute_tensor(values.to(own), mesh, [Shard(0)])
    for other in (torch.posit16es2, torch.posit32es2, torch.q43, torch.float32):
        expected = x.to(other)
        with torch.inference_mode():
            found = [
                x.to(other),
                x.type(other),
                x.type_as(expected),
                torch.zeros_like(x, dtype=other) + x.to(other),
            ]
            found += [x.to("cpu", other), x.to(expected)]
        found.append(x.to("cpu", other))
        for y in found:
            assert (
                isinstance(y, DTensor)
                and y.dtype is other
                and torch.equal(y.to_local(), expected.to_local())
            ), (own, other)
print("all", len(found))
"""


def test_dtensors_without_autograd():
    """Runs in a separate process: the bug was a read beyond a table of dtypes."""
    done = new_process.run("-c", CODE, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "all 7"
