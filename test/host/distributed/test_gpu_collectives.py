"""Collectives over NCCL, on all GPUs that there are. The ranks compare their calls through the
group's store. test_collectives_refused.py shows it on the host (pytest --device gpu-on-host)."""

import pytest
import torch
import torch.distributed as dist

import torch_dtypes
from torch_dtypes import _C

needs_nccl = pytest.mark.skipif(
    not (torch.cuda.is_available() and _C.has_gpu_kernels() and dist.is_nccl_available()),
    reason="needs a GPU, kernels for it and NCCL",
)


def numbers(rank, dtype):
    """Return numbers whose sums are exact in float32."""
    g = torch.Generator().manual_seed(rank)
    return (torch.randint(-200, 200, (6, 4), generator=g) / 64).to(dtype)


def check(rank, size, store):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", store=dist.FileStore(store, size), rank=rank, world_size=size)
    try:
        for dtype in (torch.posit16es2, torch.q43, torch.posit32es2):
            held = [numbers(r, dtype) for r in range(size)]
            x = held[rank].cuda()
            for policy in ("machine", "exact", "format"):
                with torch_dtypes.accumulate(policy):
                    total = x.clone()
                    dist.all_reduce(total)
                    part = torch.empty_like(x)
                    dist.reduce_scatter_tensor(part, x.repeat(size, 1))
                    expected = torch.stack(held).sum(0)
                assert torch.equal(total.cpu(), expected) and torch.equal(part.cpu(), expected), (
                    dtype,
                    policy,
                )
            first, everyone = x.clone(), torch.empty(6 * size, 4, dtype=dtype, device="cuda")
            dist.broadcast(first, 0)
            dist.all_gather_into_tensor(everyone, x)
            assert torch.equal(first.cpu(), held[0]) and torch.equal(
                everyone.cpu(), torch.cat(held)
            ), dtype
            if size > 1:
                got = torch.empty_like(x)
                if rank % 2 == 0:
                    dist.send(x, (rank + 1) % size)
                dist.recv(got, (rank - 1) % size)
                if rank % 2 == 1:
                    dist.send(x, (rank + 1) % size)
                assert torch.equal(got.cpu(), held[(rank - 1) % size]), dtype
                behind, before = (rank - 1) % size, (rank + 1) % size
                ends = [
                    dist.P2POp(dist.isend, x, before),
                    dist.P2POp(dist.irecv, got.zero_(), behind),
                ]
                for work in dist.batch_isend_irecv(ends):
                    work.wait()
                assert torch.equal(got.cpu(), held[behind]), dtype
            total = x.clone()
            work = dist.all_reduce(total, async_op=True)
            while not work.is_completed():
                pass
            assert torch.equal(total.cpu(), torch.stack(held).sum(0)), dtype
            turned, wide = x.t().contiguous().t(), x.repeat_interleave(2, 1)
            dist.broadcast(turned, 0), dist.broadcast(wide[:, ::2], 0)
            assert torch.equal(turned.cpu(), held[0]) and torch.equal(
                wide[:, ::2].cpu(), held[0]
            ), dtype
            # These have no separate work object.
            with dist.distributed_c10d._coalescing_manager(dist.group.WORLD, x.device):
                total, turned = x.clone(), x.t().contiguous().t()
                dist.reduce(total, 0), dist.broadcast(turned, size - 1)
            assert rank != 0 or torch.equal(total.cpu(), torch.stack(held).sum(0)), dtype
            assert torch.equal(turned.cpu(), held[-1]), dtype
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 3).to(torch.posit16es2).cuda()
        ddp = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])
        ddp(numbers(rank, torch.posit16es2).cuda()).sum().backward()
        gradients = [p.grad.cpu() for p in net.parameters()]
        every = [None] * size
        dist.all_gather_object(every, [torch_dtypes.codes(g) for g in gradients])
        assert all(
            torch.equal(a, b) for other in every for a, b in zip(other, every[0], strict=True)
        )
    finally:
        dist.destroy_process_group()


@needs_nccl
def test_nccl(tmp_path):
    size = torch.cuda.device_count()
    torch.multiprocessing.spawn(check, (size, str(tmp_path / "store")), nprocs=size)
