"""Dynamic loss scales of sharded parameters: when one rank's part overflows, all ranks skip the
step."""

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together
from torch import nn

from torch_dtypes.optim import DynamicScale, LowPrecision

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*(is deprecated|torch.jit).*"),  # PyTorch's own
]


def whole(t):
    return t.detach().full_tensor().double()


def everyone(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def make_model(mesh, dtype):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    return fully_shard(nn.Linear(4, 2, bias=False).to(dtype), mesh=mesh)


def steps(rank):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(DEVICE, (2,))
    model = make_model(mesh, torch.q43)
    optimizer = LowPrecision(
        torch.optim.SGD(model.parameters(), 2.0**-6), grad_scale=DynamicScale(init=2.0)
    )
    before, x = whole(model.weight), torch.ones(1, 4, dtype=torch.q43)
    # 400 is beyond q43's largest number. It is in the second row, which is on rank 1
    for rows, factor in (((1.0, 200.0), 1.0), ((1.0, 1.0), 1.0)):
        optimizer.zero_grad()
        optimizer.scale((model(x) * torch.tensor(rows, dtype=torch.q43)).sum()).backward()
        optimizer.step()
        assert everyone(optimizer.loss_scale) == [factor] * 2
        moved = (whole(model.weight) - before).abs().amax(1) > 0
        assert moved.tolist() == [rows == (1.0, 1.0)] * 2

    # A rank without a gradient, or without an element, takes part too. Plain tensors belong to each
    # rank alone.
    model = make_model(mesh, torch.q43)
    optimizer = LowPrecision(
        torch.optim.SGD(model.parameters(), 2.0**-6), grad_scale=DynamicScale(init=2.0)
    )
    optimizer.scale((model(x) * 200).sum()).backward()
    if rank == 0:
        optimizer.zero_grad()
    optimizer.step()
    assert everyone(optimizer.loss_scale) == [1.0] * 2
    model = torch.distributed.fsdp.fully_shard(nn.Linear(4, 1, bias=False).to(torch.q43), mesh=mesh)
    optimizer = LowPrecision(
        torch.optim.SGD(model.parameters(), 2.0**-6), grad_scale=DynamicScale(init=2.0)
    )
    optimizer.scale((model(x) * 200).sum()).backward()
    optimizer.step()
    assert everyone(optimizer.loss_scale) == [1.0] * 2

    weight = nn.Parameter(torch.ones(2, dtype=torch.q43))
    optimizer = LowPrecision(torch.optim.SGD([weight], 2.0**-6), grad_scale=DynamicScale(init=2.0))
    optimizer.scale((weight * (200 if rank else 1)).sum()).backward()
    optimizer.step()
    assert everyone(optimizer.loss_scale) == [2.0, 1.0]


@pytest.mark.whole
def test_all_ranks_leave_a_step_out(tmp_path):
    together(steps, tmp_path)
