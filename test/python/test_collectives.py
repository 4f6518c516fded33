"""Collectives on tensors of ours, by processes over gloo: codes move, values are added up and rounded once."""

import datetime
import threading
from fractions import Fraction

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes._overlay import releases

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*(torch.jit|deprecated|c10d).*"),  # PyTorch's own
]
NAMES = ("posit16es2", "q43", "posit32es2", "posit8es1", "tf32")
SIZE = 2


def values(name, rank, *shape, seed=0):
    """What a rank holds: numbers of which float32 has every sum and product of two, where it has those of the dtype."""
    generator = torch.Generator().manual_seed(10 * seed + rank)
    return (torch.randint(-2000, 2000, shape, generator=generator).double() / 256).to(torch_dtypes.dtype(name))


def same(x, y):
    assert x.dtype is y.dtype
    torch.testing.assert_close(torch_dtypes.codes(x), torch_dtypes.codes(y), rtol=0, atol=0)


def all_of(name, *shape, **options):
    return [values(name, rank, *shape, **options) for rank in range(SIZE)]


def raises(match, call, error=RuntimeError):
    with pytest.raises(error, match=match) as caught:
        call()
    assert not any(word in str(caught.value) for word in ("BFloat16", "Half", "Float8")), caught.value


# ---- moves ----


def together_on_gpus(rank, held, own):
    """Calls that NCCL begins together, of any kind, and beside stock ones; what is left to do of each is done once all are."""
    got, stock, wide = torch.empty_like(own), torch.zeros(3), own.repeat_interleave(2, 1)
    for asynchronous in (True, False):
        total, first = own.clone(), wide[:, ::2].copy_(own)
        with dist.distributed_c10d._coalescing_manager(dist.group.WORLD, own.device, async_ops=asynchronous) as block:
            dist.reduce(total, 0, async_op=asynchronous), dist.broadcast(first, 1, async_op=asynchronous)
        if asynchronous:
            block.wait()
        same(first, held[1]), same(total, own if rank else held[0] + held[1])
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, got, 1 - rank), dist.P2POp(dist.irecv, stock, 1 - rank),
            dist.P2POp(dist.isend, own, 1 - rank), dist.P2POp(dist.isend, torch.full((3,), rank + 1.0), 1 - rank),
        ]
    )  # fmt: skip
    for work in works:
        work.wait()
    same(got, held[1 - rank])
    assert stock.tolist() == [2.0 - rank] * 3
    if own.dtype is torch.q43:
        ends = dist.P2POp(dist.irecv, torch.empty_like(own, dtype=torch.posit8es1), 0) if rank else dist.P2POp(dist.isend, own, 1)
        (work,) = dist.batch_isend_irecv([ends])
        raises("expected codes of torch.posit8es1, but got torch.q43", work.wait) if rank else work.wait()


def moves(rank):
    for name in NAMES:
        held, own = all_of(name, 4, 3), values(name, rank, 4, 3)

        wide = own.repeat_interleave(2, 1)
        for x in (own.clone(), own.t().contiguous().t(), wide[:, ::2]):  # dense, transposed, with gaps
            dist.broadcast(x, 1)
            same(x, held[1])
        same(wide[:, 1::2], own)
        x = own.clone()
        work = dist.broadcast(x, 1, async_op=True)
        assert work.get_future().wait()[0].dtype is x.dtype
        work.wait()
        assert work.is_completed() and (DEVICE == "cuda" or work.is_success())  # NCCL's work does not say so
        same(x, held[1])

        out = [torch.empty_like(own) for _ in held]
        dist.all_gather(out, own)
        wide = torch.empty(2, 4, 3, 2, dtype=own.dtype)
        views = list(wide[..., 0].unbind())  # output tensors that are views with gaps
        dist.all_gather(views, own)
        flat = torch.empty(8, 3, dtype=own.dtype)
        dist.all_gather_into_tensor(flat, own)
        for r in range(SIZE):
            same(out[r], held[r]), same(wide[r, ..., 0], held[r]), same(flat[4 * r : 4 * r + 4], held[r])

        if DEVICE == "cpu":  # NCCL has none
            lists = [[torch.empty_like(own), torch.empty_like(own[0]), torch.empty_like(own[:2])] for _ in held]
            dist.all_gather_coalesced(lists, [own, own[0], own[:2]])
            for r in range(SIZE):
                same(lists[r][0], held[r]), same(lists[r][1], held[r][0]), same(lists[r][2], held[r][:2])

        gathered = [torch.empty_like(own) for _ in held] if rank == 1 else None
        dist.gather(own, gathered, dst=1)
        if rank == 1:
            for r in range(SIZE):
                same(gathered[r], held[r])
        got = torch.empty_like(own)
        dist.scatter(got, [own, own + 1] if rank == 0 else None, src=0)
        same(got, [held[0], held[0] + 1][rank])

        got = [held[r] if rank == 0 else -held[r] for r in range(SIZE)]
        if releases.RUNNING >= (2, 13) or DEVICE == "cuda":  # gloo has no all_to_all of lists in 2.11
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
        else:  # NCCL's meet, in one order on both, and from a rank that is named
            got = torch.empty_like(own)
            for turn in range(SIZE):
                if turn == rank:
                    dist.isend(own, 1 - rank).wait()
                else:
                    dist.irecv(got, 1 - rank).wait()
        same(got, held[1 - rank])
        for p in dist.batch_isend_irecv([dist.P2POp(dist.isend, own, 1 - rank), dist.P2POp(dist.irecv, got.zero_(), 1 - rank)]):
            p.wait()
        same(got, held[1 - rank])
        if DEVICE == "cuda":
            together_on_gpus(rank, held, own)

        coalesced = [own.clone(), values("tf32" if name != "tf32" else "q43", rank, 5), torch.full((3,), float(rank)), own.bfloat16()]
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


# ---- sums ----


def rounded(exact, name):
    """Fractions to the dtype: float64 first, rounded to odd by hand is not needed where they have few bits."""
    as_doubles = [float(x) for x in exact]
    assert [Fraction(x) for x in as_doubles] == list(exact)
    return torch.tensor(as_doubles, dtype=torch.float64).to(torch_dtypes.dtype(name))


def exact_sum(held, divisor=1):
    """The sum of the ranks' numbers; halves are exact."""
    return [sum(map(Fraction, column)) / divisor for column in zip(*(h.double().flatten().tolist() for h in held), strict=True)]


def sums(rank):
    op = dist.ReduceOp
    for name in NAMES:
        held, own = all_of(name, 40), values(name, rank, 40)
        total = rounded(exact_sum(held), name)
        for policy in ("machine", "float64", "exact", "format", "chunked(2)"):  # of two numbers, all the same, where float32 is exact
            mean = rounded(exact_sum([total] if policy in ("format", "chunked(2)") else held, 2), name)
            with torch_dtypes.accumulate(policy):
                x, y, z = own.clone(), own.clone(), own.repeat_interleave(2)[::2]
                dist.all_reduce(x), dist.all_reduce(y, op=op.AVG), dist.all_reduce(z)
                same(x, total), same(y, mean), same(z, total)
                x = own.clone()
                dist.reduce(x, 1)
                same(x, total if rank else own)
                part = torch.empty(20, dtype=own.dtype)
                dist.reduce_scatter_tensor(part, own)
                same(part, total[20 * rank : 20 * rank + 20])
                dist.reduce_scatter(part.zero_(), [own[:20].clone(), own[20:].clone()], op=op.AVG)
                same(part, mean[20 * rank : 20 * rank + 20])
                pair = [own.clone(), own[:3].clone()]
                with dist._coalescing_manager(dist.group.WORLD):
                    for t in pair:
                        dist.all_reduce(t)
                same(pair[0], total), same(pair[1], total[:3])
        least, most, product = own.clone(), own.clone(), own.clone()
        dist.all_reduce(least, op=op.MIN), dist.all_reduce(most, op=op.MAX), dist.all_reduce(product, op=op.PRODUCT)
        same(least, torch.minimum(*held)), same(most, torch.maximum(*held)), same(product, held[0] * held[1])
        raises(f"expected SUM, AVG, PRODUCT, MIN or MAX for torch.{name}, but got BAND", lambda x=least: dist.all_reduce(x, op=op.BAND))
        raises(f"expected tensors of one dtype, but got torch.float32 and torch.{name}",
               lambda x=own: dist.group.WORLD.allgather([[torch.empty(40), torch.empty(40)]], [x]))  # fmt: skip

    # One rounding, or one at each addition: 1 + 2^-12 + 2^-12 with more ranks than two in one, by a policy that adds in rank order.
    one = torch.tensor([1.0 if rank == 0 else 2.0**-12], dtype=torch.posit16es2)
    dist.all_reduce(one)
    assert one.item() == 1.0
    # A stochastic mode: the same bits on all ranks, one of the two neighbours, by the ranks' generators and not by one process's.
    torch.manual_seed(rank)
    x = torch.full((2000,), 1.0 if rank == 0 else 2.0**-13, dtype=torch.posit16es2)
    with torch_dtypes.rounding("stochastic"):
        dist.all_reduce(x)
    assert set(x.tolist()) == {1.0, 1.0 + 2.0**-11} and 0.15 < (x > 1).double().mean() < 0.35
    everyone = [torch.empty_like(x) for _ in range(SIZE)]
    dist.all_gather(everyone, x)
    same(everyone[0], everyone[1])


def test_sums(tmp_path):
    together(sums, tmp_path)


def sums_of_three(rank):
    """1, then 2^-12 twice: the exact sum is a number of the format, and no step of it is."""
    for policy, expected in (("machine", 1 + 2**-11), ("exact", 1 + 2**-11), ("format", 1.0), ("chunked(3)", 1.0)):
        with torch_dtypes.accumulate(policy):
            x = torch.tensor([1.0 if rank == 0 else 2.0**-12], dtype=torch.posit16es2)
            dist.all_reduce(x)
            assert x.item() == expected, policy
    x = torch.tensor([2.0**60, 1.0, -(2.0**60)][rank : rank + 1], dtype=torch.posit32es2)
    with torch_dtypes.accumulate("exact"):
        dist.all_reduce(x)
    assert x.item() == 1.0
    x = torch.tensor([float(rank)] * 3, dtype=torch.posit16es2)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x.tolist() == [1.0] * 3
    pair = dist.new_group([0, 2])  # ranks of a group are not those of the world
    if rank != 1:
        x = torch.tensor([1.0 + rank], dtype=torch.q43)
        dist.all_reduce(x, group=pair)
        assert x.item() == 4.0


def few_random_bits(rank):
    """One random bit, by P3109's first definition: a quarter of the way up is down, and half of it is up as often as down."""
    one_bit = torch_dtypes.with_rounding(torch.posit16es2, "stochastic_a1")
    torch.manual_seed(rank)

    def expect(small, least, most, dtype=torch.posit16es2, into=1):
        x = torch.full((2000,), 1.0 if rank == 0 else small, dtype=dtype)
        if into == 1:
            dist.all_reduce(x)
            everyone = [torch.empty_like(x) for _ in range(SIZE)]
            dist.all_gather(everyone, x)
            same(everyone[0], everyone[1])
        else:
            x, given = x[:1000].clone(), x
            dist.reduce_scatter_tensor(x, given)
        assert set(x.tolist()) <= {1.0, 1.0 + 2.0**-11} and least <= (x > 1).double().mean() <= most

    for policy in ("machine", "exact", "format", "chunked(2)"):
        with torch_dtypes.accumulate(policy):
            for into in (1, SIZE):
                expect(2.0**-13, 0, 0, one_bit, into), expect(2.0**-12, 0.4, 0.6, one_bit, into)
                with torch_dtypes.rounding("stochastic_a1"):
                    expect(2.0**-13, 0, 0, into=into), expect(2.0**-12, 0.4, 0.6, into=into)
                with torch_dtypes.rounding("stochastic"):
                    expect(2.0**-13, 0.15, 0.35, into=into)
    with torch_dtypes.accumulate("format", accumulator=one_bit):  # whose mode is its own, as in one process
        expect(2.0**-13, 0, 0), expect(2.0**-12, 0.4, 0.6)
    with torch_dtypes.accumulate("format", accumulator=torch_dtypes.with_rounding(torch.posit16es2, "up")):
        expect(2.0**-13, 1, 1)
    with torch_dtypes.rounding("stochastic_a1" if rank else "stochastic_b1"):
        raises("got stochastic_b1 on rank 0 and stochastic_a1 on rank 1", lambda: dist.all_reduce(torch.ones(3, dtype=torch.q43)))


def test_few_random_bits(tmp_path):
    together(few_random_bits, tmp_path)


def test_sums_of_three(tmp_path):
    together(sums_of_three, tmp_path, size=3)


# ---- asynchronous works ----


def works(rank):
    held, own = all_of("posit16es2", 40), values("posit16es2", rank, 40)
    total = rounded(exact_sum(held), "posit16es2")
    x = own.clone()
    with torch_dtypes.rounding("toward_zero"):
        work = dist.all_reduce(x, async_op=True)  # rounds as at the call, whatever holds where it is waited for
    waiting = [threading.Thread(target=work.wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    with torch_dtypes.rounding("toward_zero"):
        same(x, torch.tensor([float(v) for v in exact_sum(held)], dtype=torch.float64).to(torch.posit16es2))
    assert DEVICE == "cuda" or work.is_success()
    if releases.RUNNING >= (2, 13):  # Python cannot have a C++ exception in 2.11
        assert work.exception() is None

    x = own.clone()
    twice = dist.all_reduce(x, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
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


# ---- functional collectives ----


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
        with pytest.raises(NotImplementedError, match=r"expected stock tensors on a GPU, but got one of torch\..*batch_isend_irecv"):
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
        total = rounded(exact_sum(held), name).view(4, 3)
        group = dist.group.WORLD
        same(functional.all_reduce(own, "sum", group), total)
        same(functional.all_reduce_coalesced([own, own[:1]], "sum", group)[1], total[:1])
        same(functional.all_gather_tensor(own, 0, group), torch.cat(held))
        same(functional.all_gather_tensor(own, 1, group), torch.cat(held, 1))
        same(functional.all_gather_into_tensor_coalesced([own, own[:1]], group)[1], torch.cat([h[:1] for h in held]))
        same(functional.reduce_scatter_tensor(own, "sum", 0, group), total[2 * rank : 2 * rank + 2])
        same(functional.reduce_scatter_tensor_coalesced([own], "sum", [0], group)[0], total[2 * rank : 2 * rank + 2])
        same(functional.broadcast(own, 1, group), held[1])
        if releases.RUNNING >= (2, 13):  # 2.11 has no functional send and receive
            sent_and_received(functional, rank, own, held[1 - rank], group)
        same(functional.all_to_all_single(own, None, None, group), torch.cat([h[2 * rank : 2 * rank + 2] for h in held]))
        same(own, held[rank])

        x = own.clone().requires_grad_()
        (functional.all_gather_tensor_autograd(x, 0, group) * 1).sum().backward()  # its gradient: reduce_scatter, in 2.11 of what has no strides of 0
        same(x.grad, torch.full_like(own, 2.0))
        x.grad = None
        differentiable.all_reduce(x, group=group).sum().backward()
        same(x.grad, torch.full_like(own, 2.0))


def test_functional(tmp_path):
    together(functional, tmp_path)


# ---- ranks that disagree ----


def disagreement(rank):
    x = torch.ones(4, dtype=(torch.posit16es2, torch.q43)[rank])
    both = "torch.posit16es2 on rank 0 and torch.q43 on rank 1"
    for call in (
        lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0), lambda: dist.all_gather([torch.empty_like(x) for _ in range(2)], x),
        lambda: dist.all_reduce(x, async_op=True).wait(), lambda: dist.reduce_scatter_tensor(torch.empty_like(x[:2]), x),
        lambda: dist.all_to_all_single(torch.empty_like(x), x), lambda: dist.gather(x, [torch.empty_like(x)] * 2 if rank == 0 else None),
    ):  # fmt: skip
        raises(f"expected tensors of one dtype on all ranks, but got {both}", call)
    assert x.tolist() == [1.0] * 4
    x = torch.ones(4, dtype=torch.posit16es2)
    with torch_dtypes.rounding(("nearest_even", "stochastic")[rank]):
        raises("the same rounding mode on all ranks, but got nearest_even on rank 0 and stochastic on rank 1", lambda: dist.all_reduce(x))
    with torch_dtypes.accumulate(("machine", "exact")[rank]):
        raises("the same accumulation policy on all ranks, but got machine on rank 0 and exact on rank 1", lambda: dist.all_reduce(x))
    raises("the same collective on all ranks, but got c10d::allreduce_ SUM on rank 0 and c10d::broadcast_ on rank 1",
           lambda: dist.broadcast(x, 0) if rank else dist.all_reduce(x))  # fmt: skip
    for call in (lambda: dist.broadcast(x, rank), lambda: dist.reduce(x, rank), lambda: dist.scatter(x, [x, x], src=rank)):
        raises("expected the same root on all ranks, but got rank 0 on rank 0 and rank 1 on rank 1. Nothing was sent", call)
    parts, single = [x, x[:2]] if rank else None, dist.all_to_all_single
    raises("c10d::scatter_: expected tensors of 4 elements, as the output has, but got one of 2 on rank 1", lambda: dist.scatter(x, parts, src=1))
    raises("c10d::gather_: expected tensors of 4 elements, as the input has, but got one of 2 on rank 1", lambda: dist.gather(x, parts, dst=1))
    raises("expected 2 split sizes that sum to 4, as the input has rows, but got 2 that sum to 3 on rank 1",
           lambda: single(torch.empty_like(x), x, [2, 2], [2, 2 - rank]))  # fmt: skip
    raises("split sizes of at least 0 for the input, but got -1 on rank 0", lambda: single(torch.empty_like(x), x, [2, 2], [5, -1]))
    raises("an output whose first size 2 ranks divide, but got 3 on rank 0", lambda: single(torch.empty_like(x)[: 3 + rank], x))
    raises("expected rank 0 to await what rank 1 sends to it, but got 3 elements sent and 2 awaited. Nothing was sent",
           lambda: single(torch.empty_like(x), x, [2, 2], [2 + rank, 2 - rank]))  # fmt: skip
    if releases.RUNNING >= (2, 13):
        raises("expected rank 1 to await what rank 0 sends to it, but got 1 elements sent and 3 awaited",
               lambda: dist.all_to_all([x.clone()[: 3 if rank else 4], x.clone()[:3]], [x, x[: 3 if rank else 1]]))  # fmt: skip
    dist.all_reduce(x)  # and the group goes on
    assert x.tolist() == [2.0] * 4

    on_gpus = _C.gpu_on_host() or DEVICE == "cuda"
    other = torch.posit8es1 if on_gpus else torch.posit32es2  # between GPUs both sides have one width, and as many bytes, as NCCL wants it
    pairs = ((other, torch.q43), (torch.q43, other), (torch.float32, torch.posit16es2))
    for sent, wanted in pairs[:2] if DEVICE == "cuda" else pairs:
        if rank == 0:
            dist.send(torch.ones(4, dtype=sent), 1)
        elif sent is torch.float32:
            raises("expected codes of torch.posit16es2, but got a message of a stock dtype", lambda w=wanted: dist.recv(torch.ones(4, dtype=w), 0))
        else:
            raises(f"expected codes of {wanted}, but got {sent}", lambda w=wanted: dist.recv(torch.ones(4, dtype=w), 0))
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
    raises("comparing dtypes.*a tensor of a stock dtype" if rank == 0 else "", lambda: dist.all_reduce(x, group=group))


def test_beside_a_stock_dtype(tmp_path):
    """An error at the group's timeout, on both ranks."""
    together(beside_stock, tmp_path)
