"""Inputs of ranks in tests of collectives, and the expected results, from exact sums."""

import pytest
import torch
import torch.distributed as dist
from rationals import Fraction

import torch_dtypes

NAMES = ("posit16es2", "q43", "posit32es2", "posit8es1", "tf32")
SIZE = 2
MARKS = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*(torch.jit|deprecated|c10d).*"),  # PyTorch's own
]


def values(name, rank, *shape, seed=0):
    """Return a rank's numbers. float32 has every sum and product of two of them, where it has the
    values of the dtype."""
    generator = torch.Generator().manual_seed(10 * seed + rank)
    return (torch.randint(-2000, 2000, shape, generator=generator).double() / 256).to(
        torch_dtypes.dtype(name)
    )


def same(x, y):
    assert x.dtype is y.dtype
    torch.testing.assert_close(torch_dtypes.codes(x), torch_dtypes.codes(y), rtol=0, atol=0)


def all_of(name, *shape, **options):
    return [values(name, rank, *shape, **options) for rank in range(SIZE)]


def raises(match, call, error=RuntimeError):
    with pytest.raises(error, match=match) as caught:
        call()
    assert not any(word in str(caught.value) for word in ("BFloat16", "Half", "Float8")), (
        caught.value
    )


def round_exact(exact, name):
    """Round fractions to the dtype through float64, which is exact for numbers of few bits."""
    as_doubles = [float(x) for x in exact]
    assert [Fraction(x) for x in as_doubles] == list(exact)
    return torch.tensor(as_doubles, dtype=torch.float64).to(torch_dtypes.dtype(name))


def exact_sum(held, divisor=1):
    """Return the exact sum of the ranks' numbers, or their mean of two."""
    return [
        sum(map(Fraction, column)) / divisor
        for column in zip(*(h.double().flatten().tolist() for h in held), strict=True)
    ]
