"""Functional collectives on format tensors, and their gradients, with processes over gloo."""

import pytest
import torch
import torch.distributed as dist
from collectives import MARKS, NAMES, all_of, exact_sum, round_exact, same, values
from ranks import together

from torch_dtypes.host import releases

pytestmark = MARKS


def sent_and_received(functional, rank, own, other, group):
    if rank == 0:
        functional.isend_inplace(own, 1, 7).wait()
        got = functional.irecv_inplace(torch.empty_like(own), 1, 8)
    else:
        got = functional.irecv_inplace(torch.empty_like(own), 0, 7)
        functional.isend_inplace(own, 0, 8).wait()
    same(got, other)
    got = torch.empty_like(own)
    batch = ["isend", "irecv"], [1 - rank] * 2, [0, 0], [own, got], group
    if own.is_cuda:
        with pytest.raises(
            NotImplementedError,
            match=r"expected stock tensors on a GPU, but got one of torch\..*batch_isend_irecv",
        ):
            functional.batch_p2p_ops_inplace(*batch)
        return
    both = functional.batch_p2p_ops_inplace(*batch)
    both[0].wait()
    same(both[1], other)


def functional(rank):
    import torch.distributed._functional_collectives as functional
    import torch.distributed.nn.functional as differentiable

    for name in NAMES:
        held, own = all_of(name, 4, 3), values(name, rank, 4, 3)
        total = round_exact(exact_sum(held), name).view(4, 3)
        group = dist.group.WORLD
        same(functional.all_reduce(own, "sum", group), total)
        same(functional.all_reduce_coalesced([own, own[:1]], "sum", group)[1], total[:1])
        same(functional.all_gather_tensor(own, 0, group), torch.cat(held))
        same(functional.all_gather_tensor(own, 1, group), torch.cat(held, 1))
        same(
            functional.all_gather_into_tensor_coalesced([own, own[:1]], group)[1],
            torch.cat([h[:1] for h in held]),
        )
        same(functional.reduce_scatter_tensor(own, "sum", 0, group), total[2 * rank : 2 * rank + 2])
        same(
            functional.reduce_scatter_tensor_coalesced([own], "sum", [0], group)[0],
            total[2 * rank : 2 * rank + 2],
        )
        same(functional.broadcast(own, 1, group), held[1])
        if releases.RUNNING >= (2, 13):  # 2.11 has no functional send and receive
            sent_and_received(functional, rank, own, held[1 - rank], group)
        same(
            functional.all_to_all_single(own, None, None, group),
            torch.cat([h[2 * rank : 2 * rank + 2] for h in held]),
        )
        same(own, held[rank])

        x = own.clone().requires_grad_()
        # Its gradient is a reduce_scatter, which in 2.11 refuses strides of 0.
        (functional.all_gather_tensor_autograd(x, 0, group) * 1).sum().backward()
        same(x.grad, torch.full_like(own, 2.0))
        x.grad = None
        differentiable.all_reduce(x, group=group).sum().backward()
        same(x.grad, torch.full_like(own, 2.0))


@pytest.mark.whole
def test_functional(tmp_path):
    together(functional, tmp_path)
