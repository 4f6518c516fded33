"""Delayed scales under DistributedDataParallel follow the largest numbers on all ranks, also after
steps without an exchange (no_sync, join)."""

import pytest
import torch
import torch.distributed as dist
from ranks import together
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_dtypes
from torch_dtypes.quantization.layers import state_of

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*is deprecated.*"),  # PyTorch's own
]


def _model(per):
    torch.manual_seed(0)
    delayed = dict(format="q43", scale="free", when="delayed", history=2)
    rule = dict(weight="q43", activation=dict(delayed, per=per), error=delayed)
    return torch_dtypes.quantize_(nn.Sequential(nn.Linear(4, 2)), {nn.Linear: rule})


def check_scales(rank):
    for per in ("tensor", "channel"):
        ddp = DistributedDataParallel(_model(per))
        largest = []
        for step in range(4):
            x = torch.arange(1.0, 9.0).reshape(2, 4) * (1 + (rank + step) % 2) * (step + 1)
            if (rank, step) == (1, 2):
                # this rank's history skips it, and the other rank never sees it
                x[0, 0] = torch.inf
            ddp(x).sum().backward()
            ddp.zero_grad()
            every = [
                torch.arange(1.0, 9.0).reshape(2, 4) * (1 + (r + step) % 2) * (step + 1)
                for r in range(2)
                if (r, step) != (1, 2)
            ]
            largest.append(torch.cat(every).amax(0) if per == "channel" else torch.cat(every).max())
        ddp(torch.ones(2, 4))
        scaler = state_of(ddp.module[0]).rounders["activation"].scaler
        # The newest entry is this rank's own call with ones. Before it are the largest numbers of
        # the last step, over all ranks.
        assert torch.equal(scaler.history[1][1].reshape(-1), largest[3].reshape(-1)), (
            scaler.history,
            largest,
        )
        both = [None, None]
        dist.all_gather_object(both, [tuple(t.tolist() for t in pair) for pair in scaler.history])
        assert both[0] == both[1]
        ddp.eval()
        given = scaler([torch.ones(2, 4)], training=False)[0]
        expected = largest[3] / 240
        assert torch.allclose(given.reshape(-1), expected.reshape(-1), rtol=1e-6)


@pytest.mark.whole
def test_delayed_scales_are_the_maximum_over_ranks(tmp_path):
    together(check_scales, tmp_path)


def numbers(rank, step):
    """Return the numbers of two ranks. By turns one rank has numbers twice as large, so that 8
    times step + 1 is the larger maximum."""
    return torch.arange(1.0, 9.0).reshape(2, 4) * (1 + (rank + step) % 2) * (step + 1)


def largest_of_calls(ddp):
    """Return for each rank the largest number of each call in the history of the activation's
    scale, newest first."""
    every = [None, None]
    dist.all_gather_object(
        every,
        [high.item() for _, high in state_of(ddp.module[0]).rounders["activation"].scaler.history],
    )
    return every


def passes(ddp, rank, steps):
    for step in steps:
        ddp(numbers(rank, step)).sum().backward()


def check_without_exchange(rank):
    ddp = DistributedDataParallel(_model("tensor"))
    passes(ddp, rank, [0])
    # Gradients of three batches; the step of the last one exchanges the numbers.
    with ddp.no_sync():
        passes(ddp, rank, [1, 2])
    assert largest_of_calls(ddp) == [[24.0, 32.0], [48.0, 16.0]]
    passes(ddp, rank, [3])
    assert largest_of_calls(ddp) == [[64.0, 48.0], [32.0, 48.0]]
    gradient = ddp.module[0].weight.grad
    every = [torch.empty_like(gradient) for _ in range(2)]
    dist.all_gather(every, gradient)
    assert torch.equal(*every)

    # A rank runs out of batches. The other goes on with its own numbers, and at the end all ranks
    # have those of the last two calls.
    with ddp.join():
        passes(ddp, rank, [4, 5, 6] if rank == 0 else [4])
    assert largest_of_calls(ddp) == [[80.0, 96.0]] * 2
    passes(ddp, rank, [7])
    assert largest_of_calls(ddp) == [[128.0, 80.0], [64.0, 80.0]]


@pytest.mark.whole
def test_steps_without_exchange(tmp_path):
    together(check_without_exchange, tmp_path)
