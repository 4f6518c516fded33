"""Ranks whose collectives disagree in dtype, mode, policy, root or size all get an error, and the
group stays usable."""

import datetime

import pytest
import torch
import torch.distributed as dist
from collectives import MARKS, raises
from ranks import DEVICE, together

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.host import releases

pytestmark = MARKS


def disagreement(rank):
    x = torch.ones(4, dtype=(torch.posit16es2, torch.q43)[rank])
    both = "torch.posit16es2 on rank 0 and torch.q43 on rank 1"
    for call in (
        lambda: dist.all_reduce(x),
        lambda: dist.broadcast(x, 0),
        lambda: dist.all_gather([torch.empty_like(x) for _ in range(2)], x),
        lambda: dist.all_reduce(x, async_op=True).wait(),
        lambda: dist.reduce_scatter_tensor(torch.empty_like(x[:2]), x),
        lambda: dist.all_to_all_single(torch.empty_like(x), x),
        lambda: dist.gather(x, [torch.empty_like(x)] * 2 if rank == 0 else None),
    ):
        raises(f"expected tensors of one dtype on all ranks, but got {both}", call)
    assert x.tolist() == [1.0] * 4
    x = torch.ones(4, dtype=torch.posit16es2)
    with torch_dtypes.rounding(("nearest_even", "stochastic")[rank]):
        raises(
            "the same rounding mode on all ranks, but got nearest_even on rank 0 and stochastic "
            "on rank 1",
            lambda: dist.all_reduce(x),
        )
    with torch_dtypes.accumulate(("machine", "exact")[rank]):
        raises(
            "the same accumulation policy on all ranks, but got machine on rank 0 and exact on "
            "rank 1",
            lambda: dist.all_reduce(x),
        )
    raises(
        "the same collective on all ranks, but got c10d::allreduce_ SUM on rank 0 and "
        "c10d::broadcast_ on rank 1",
        lambda: dist.broadcast(x, 0) if rank else dist.all_reduce(x),
    )
    for call in (
        lambda: dist.broadcast(x, rank),
        lambda: dist.reduce(x, rank),
        lambda: dist.scatter(x, [x, x], src=rank),
    ):
        raises(
            "expected the same root on all ranks, but got rank 0 on rank 0 and rank 1 on rank 1. "
            "Nothing was sent",
            call,
        )
    parts, single = [x, x[:2]] if rank else None, dist.all_to_all_single
    raises(
        "c10d::scatter_: expected tensors of 4 elements, as the output has, but got one of 2 on "
        "rank 1",
        lambda: dist.scatter(x, parts, src=1),
    )
    raises(
        "c10d::gather_: expected tensors of 4 elements, as the input has, but got one of 2 on "
        "rank 1",
        lambda: dist.gather(x, parts, dst=1),
    )
    raises(
        "expected 2 split sizes that sum to 4, as the input has rows, but got 2 that sum to 3 on "
        "rank 1",
        lambda: single(torch.empty_like(x), x, [2, 2], [2, 2 - rank]),
    )
    raises(
        "split sizes of at least 0 for the input, but got -1 on rank 0",
        lambda: single(torch.empty_like(x), x, [2, 2], [5, -1]),
    )
    raises(
        "an output whose first size 2 ranks divide, but got 3 on rank 0",
        lambda: single(torch.empty_like(x)[: 3 + rank], x),
    )
    raises(
        "expected rank 0 to receive all that rank 1 sends to it, but got 3 elements sent and 2 "
        "expected. Nothing was sent",
        lambda: single(torch.empty_like(x), x, [2, 2], [2 + rank, 2 - rank]),
    )
    if releases.RUNNING >= (2, 13):
        raises(
            "expected rank 1 to receive all that rank 0 sends to it, but got 1 elements sent and 3 "
            "expected",
            lambda: dist.all_to_all(
                [x.clone()[: 3 if rank else 4], x.clone()[:3]], [x, x[: 3 if rank else 1]]
            ),
        )
    dist.all_reduce(x)  # the group stays usable
    assert x.tolist() == [2.0] * 4

    on_gpus = _C.gpu_on_host() or DEVICE == "cuda"
    # Between GPUs both sides have dtypes of one width and the same number of bytes, as NCCL
    # requires.
    other = torch.posit8es1 if on_gpus else torch.posit32es2
    pairs = ((other, torch.q43), (torch.q43, other), (torch.float32, torch.posit16es2))
    for sent, wanted in pairs[:2] if DEVICE == "cuda" else pairs:
        if rank == 0:
            dist.send(torch.ones(4, dtype=sent), 1)
        elif sent is torch.float32:
            raises(
                "expected codes of torch.posit16es2, but got a message of a stock dtype",
                lambda w=wanted: dist.recv(torch.ones(4, dtype=w), 0),
            )
        else:
            raises(
                f"expected codes of {wanted}, but got {sent}",
                lambda w=wanted: dist.recv(torch.ones(4, dtype=w), 0),
            )
    if rank == 0:
        raises("expected a contiguous tensor", lambda: dist.send(x[::2], 1))
    if DEVICE == "cuda":
        pass
    elif rank == 0:
        dist.send(x[:2], 1)
    else:
        raises("expected 4 elements, but got 2", lambda: dist.recv(x, 0))
    dist.barrier()


def test_disagreement(tmp_path):
    together(disagreement, tmp_path)


def beside_stock(rank):
    x = torch.ones(4, dtype=torch.posit16es2 if rank == 0 else torch.float32)
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    if DEVICE == "cuda" and rank == 1:  # NCCL's watchdog would end the process
        return
    raises(
        "comparing dtypes.*a tensor of a stock dtype" if rank == 0 else "",
        lambda: dist.all_reduce(x, group=group),
    )


@pytest.mark.whole
def test_beside_a_stock_dtype(tmp_path):
    """Both ranks get an error at the group's timeout."""
    together(beside_stock, tmp_path)
