"""Sums of format tensors over ranks, with processes over gloo: values are added up and rounded
once, or as the policy says."""

import pytest
import torch
import torch.distributed as dist
from collectives import MARKS, NAMES, SIZE, all_of, exact_sum, raises, round_exact, same, values
from ranks import together

import torch_dtypes

pytestmark = MARKS


def sums(rank):
    op = dist.ReduceOp
    for name in NAMES:
        held, own = all_of(name, 40), values(name, rank, 40)
        total = round_exact(exact_sum(held), name)
        # The sum of two numbers, where float32 is exact, is the same under all of these.
        for policy in ("machine", "float64", "exact", "format", "chunked(2)"):
            mean = round_exact(
                exact_sum([total] if policy in ("format", "chunked(2)") else held, 2), name
            )
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
        (
            dist.all_reduce(least, op=op.MIN),
            dist.all_reduce(most, op=op.MAX),
            dist.all_reduce(product, op=op.PRODUCT),
        )
        (
            same(least, torch.minimum(*held)),
            same(most, torch.maximum(*held)),
            same(product, held[0] * held[1]),
        )
        raises(
            f"expected SUM, AVG, PRODUCT, MIN or MAX for torch.{name}, but got BAND",
            lambda x=least: dist.all_reduce(x, op=op.BAND),
        )
        raises(
            f"expected tensors of one dtype, but got torch.float32 and torch.{name}",
            lambda x=own: dist.group.WORLD.allgather([[torch.empty(40), torch.empty(40)]], [x]),
        )

    # One rounding, or one at each addition: 1 + 2^-12 + 2^-12. A policy that adds in rank order
    # differs with more than two ranks.
    one = torch.tensor([1.0 if rank == 0 else 2.0**-12], dtype=torch.posit16es2)
    dist.all_reduce(one)
    assert one.item() == 1.0
    # A stochastic mode: all ranks get the same bits, one of the two neighbours. All ranks'
    # generators decide, not those of one process.
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
    """Add 1 and 2^-12 twice: the exact sum is a value of the format, but no partial sum is."""
    for policy, expected in (
        ("machine", 1 + 2**-11),
        ("exact", 1 + 2**-11),
        ("format", 1.0),
        ("chunked(3)", 1.0),
    ):
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
    pair = dist.new_group([0, 2])  # ranks of a group differ from those of the world
    if rank != 1:
        x = torch.tensor([1.0 + rank], dtype=torch.q43)
        dist.all_reduce(x, group=pair)
        assert x.item() == 4.0


def few_random_bits(rank):
    """Check one random bit by P3109's first definition: a quarter of the way rounds down, and half
    of it rounds up as often as down."""
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
    # The accumulator keeps its own rounding mode, as in one process.
    with torch_dtypes.accumulate("format", accumulator=one_bit):
        expect(2.0**-13, 0, 0), expect(2.0**-12, 0.4, 0.6)
    with torch_dtypes.accumulate(
        "format", accumulator=torch_dtypes.with_rounding(torch.posit16es2, "up")
    ):
        expect(2.0**-13, 1, 1)
    with torch_dtypes.rounding("stochastic_a1" if rank else "stochastic_b1"):
        raises(
            "got stochastic_b1 on rank 0 and stochastic_a1 on rank 1",
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.q43)),
        )


@pytest.mark.whole
def test_few_random_bits(tmp_path):
    together(few_random_bits, tmp_path)


@pytest.mark.whole
def test_sums_of_three(tmp_path):
    together(sums_of_three, tmp_path, size=3)
