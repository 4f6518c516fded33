"""Collectives that move format tensors, with processes over gloo, and asynchronous works."""

import threading

import torch
import torch.distributed as dist
from collectives import MARKS, NAMES, SIZE, all_of, exact_sum, raises, round_exact, same, values
from ranks import DEVICE, together

import torch_dtypes
from torch_dtypes.host import releases

pytestmark = MARKS


# ---- moves ----


def together_on_gpus(rank, held, own):
    """Calls of any kind that NCCL starts together, beside stock calls. The pending part of each
    runs once all of them are done."""
    got, stock, wide = torch.empty_like(own), torch.zeros(3), own.repeat_interleave(2, 1)
    for asynchronous in (True, False):
        total, first = own.clone(), wide[:, ::2].copy_(own)
        with dist.distributed_c10d._coalescing_manager(
            dist.group.WORLD, own.device, async_ops=asynchronous
        ) as block:
            (
                dist.reduce(total, 0, async_op=asynchronous),
                dist.broadcast(first, 1, async_op=asynchronous),
            )
        if asynchronous:
            block.wait()
        same(first, held[1]), same(total, own if rank else held[0] + held[1])
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, got, 1 - rank),
            dist.P2POp(dist.irecv, stock, 1 - rank),
            dist.P2POp(dist.isend, own, 1 - rank),
            dist.P2POp(dist.isend, torch.full((3,), rank + 1.0), 1 - rank),
        ]
    )
    for work in works:
        work.wait()
    same(got, held[1 - rank])
    assert stock.tolist() == [2.0 - rank] * 3
    if own.dtype is torch.q43:
        ends = (
            dist.P2POp(dist.irecv, torch.empty_like(own, dtype=torch.posit8es1), 0)
            if rank
            else dist.P2POp(dist.isend, own, 1)
        )
        (work,) = dist.batch_isend_irecv([ends])
        raises(
            "expected codes of torch.posit8es1, but got torch.q43", work.wait
        ) if rank else work.wait()


def moves(rank):
    for name in NAMES:
        held, own = all_of(name, 4, 3), values(name, rank, 4, 3)

        wide = own.repeat_interleave(2, 1)
        # Dense, transposed, with gaps.
        for x in (own.clone(), own.t().contiguous().t(), wide[:, ::2]):
            dist.broadcast(x, 1)
            same(x, held[1])
        same(wide[:, 1::2], own)
        x = own.clone()
        work = dist.broadcast(x, 1, async_op=True)
        assert work.get_future().wait()[0].dtype is x.dtype
        work.wait()
        # NCCL's work does not report success.
        assert work.is_completed() and (DEVICE == "cuda" or work.is_success())
        same(x, held[1])

        out = [torch.empty_like(own) for _ in held]
        dist.all_gather(out, own)
        wide = torch.empty(2, 4, 3, 2, dtype=own.dtype)
        views = list(wide[..., 0].unbind())  # output tensors that are views with gaps
        dist.all_gather(views, own)
        flat = torch.empty(8, 3, dtype=own.dtype)
        dist.all_gather_into_tensor(flat, own)
        for r in range(SIZE):
            (
                same(out[r], held[r]),
                same(wide[r, ..., 0], held[r]),
                same(flat[4 * r : 4 * r + 4], held[r]),
            )

        if DEVICE == "cpu":  # NCCL has none
            lists = [
                [torch.empty_like(own), torch.empty_like(own[0]), torch.empty_like(own[:2])]
                for _ in held
            ]
            dist.all_gather_coalesced(lists, [own, own[0], own[:2]])
            for r in range(SIZE):
                (
                    same(lists[r][0], held[r]),
                    same(lists[r][1], held[r][0]),
                    same(lists[r][2], held[r][:2]),
                )

        gathered = [torch.empty_like(own) for _ in held] if rank == 1 else None
        dist.gather(own, gathered, dst=1)
        if rank == 1:
            for r in range(SIZE):
                same(gathered[r], held[r])
        got = torch.empty_like(own)
        dist.scatter(got, [own, own + 1] if rank == 0 else None, src=0)
        same(got, [held[0], held[0] + 1][rank])

        got = [held[r] if rank == 0 else -held[r] for r in range(SIZE)]
        # Gloo has no all_to_all of lists in 2.11.
        if releases.RUNNING >= (2, 13) or DEVICE == "cuda":
            got = [torch.empty_like(own) for _ in held]
            dist.all_to_all(got, [own, -own])
        single = torch.empty_like(own)
        dist.all_to_all_single(single, own)
        uneven = torch.empty(2 if rank == 0 else 6, 3, dtype=own.dtype)
        dist.all_to_all_single(uneven, own, [1, 1] if rank == 0 else [3, 3], [1, 3])
        for r in range(SIZE):
            same(got[r], -held[r] if rank else held[r])
            same(single[2 * r : 2 * r + 2], held[r][2 * rank : 2 * rank + 2])
        same(uneven, torch.cat([h[1:] if rank else h[:1] for h in held]))

        if DEVICE == "cpu":
            got, wish = torch.empty_like(own), dist.isend(own, 1 - rank)
            assert dist.recv(got, 1 - rank if rank else None) == 1 - rank
            wish.wait()
        else:  # NCCL's calls meet in one order on both ranks, and name their source rank
            got = torch.empty_like(own)
            for turn in range(SIZE):
                if turn == rank:
                    dist.isend(own, 1 - rank).wait()
                else:
                    dist.irecv(got, 1 - rank).wait()
        same(got, held[1 - rank])
        for p in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, own, 1 - rank), dist.P2POp(dist.irecv, got.zero_(), 1 - rank)]
        ):
            p.wait()
        same(got, held[1 - rank])
        if DEVICE == "cuda":
            together_on_gpus(rank, held, own)

        coalesced = [
            own.clone(),
            values("tf32" if name != "tf32" else "q43", rank, 5),
            torch.full((3,), float(rank)),
            own.bfloat16(),
        ]
        dist._broadcast_coalesced(dist.group.WORLD, coalesced, 1 << 20, 1)
        same(coalesced[0], held[1])
        assert coalesced[2].tolist() == [1.0] * 3 and torch.equal(coalesced[3], held[1].bfloat16())
        objects = [None] * SIZE
        dist.all_gather_object(objects, {"x": own})
        for r in range(SIZE):
            same(objects[r]["x"].to(own.device), held[r])
        dist.barrier()
        empty = torch.empty(0, dtype=own.dtype)
        dist.broadcast(empty, 0)
        dist.all_reduce(empty)
    with torch.inference_mode():
        x = values("posit16es2", rank, 3)
        dist.broadcast(x, 0)
        same(x, all_of("posit16es2", 3)[0])


def test_moves(tmp_path):
    together(moves, tmp_path)


# ---- asynchronous works ----


def works(rank):
    held, own = all_of("posit16es2", 40), values("posit16es2", rank, 40)
    total = round_exact(exact_sum(held), "posit16es2")
    x = own.clone()
    with torch_dtypes.rounding("toward_zero"):
        # It rounds with the settings at the call, whatever holds at the wait.
        work = dist.all_reduce(x, async_op=True)
    waiting = [threading.Thread(target=work.wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    with torch_dtypes.rounding("toward_zero"):
        same(
            x,
            torch.tensor([float(v) for v in exact_sum(held)], dtype=torch.float64).to(
                torch.posit16es2
            ),
        )
    assert DEVICE == "cuda" or work.is_success()
    if releases.RUNNING >= (2, 13):  # Python cannot have a C++ exception in 2.11
        assert work.exception() is None

    x = own.clone()
    twice = (
        dist.all_reduce(x, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    )
    same(twice.wait(), total * 2)
    same(x, total)
    x = own.clone()
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    same(x, total)
    many = [own.clone() for _ in range(20)]
    pending = [dist.all_reduce(t, async_op=True) for t in many]
    for work in reversed(pending):
        work.wait()
    for t in many:
        same(t, total)


def test_works(tmp_path):
    together(works, tmp_path)
