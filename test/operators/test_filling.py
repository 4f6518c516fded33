"""Operators that fill tensors by the dtype alone (uninitialised memory in deterministic mode,
random_() without a range), and numbers put into tensors, which are rounded once."""

import math

import pytest
import torch
from conftest import codes_of, parametrize_dtypes
from torch.nn import functional as F

import torch_dtypes

every_dtype = parametrize_dtypes("posit16es2 q43 e5m5 posit32es2 posit8es0 e4m3fn e11m30")


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


EMPTY = {
    "empty": lambda d: torch.empty(2, 3, dtype=d),
    "empty_strided": lambda d: torch.empty_strided((2, 3), (3, 1), dtype=d),
    "empty_permuted": lambda d: torch.empty_permuted((2, 3), (1, 0), dtype=d),
    "empty_like": lambda d: torch.empty_like(torch.ones(2, 3, dtype=d)),
    "empty_like of stock": lambda d: torch.empty_like(torch.ones(2, 3), dtype=d),
    "new_empty of stock": lambda d: torch.ones(2).new_empty(2, 3, dtype=d),
    "new_empty": lambda d: torch.ones(2, dtype=d).new_empty(2, 3),
    "new_empty_strided": lambda d: torch.ones(2, dtype=d).new_empty_strided((2, 3), (3, 1)),
    "resize_": lambda d: torch.zeros(0, dtype=d).resize_(2, 3),
}


@pytest.mark.parametrize("call", EMPTY)
@every_dtype
def test_uninitialised_memory_is_nan_in_deterministic_mode(deterministic, call, dtype):
    made = EMPTY[call](dtype)
    assert made.dtype is dtype and made.shape == (2, 3) and made.isnan().all()


@every_dtype
def test_resizing_keeps_what_there_was(deterministic, dtype):
    grown = torch.ones(3, dtype=dtype).resize_(5)
    assert grown[:3].tolist() == [1.0] * 3 and grown[3:].isnan().all()
    assert grown.resize_(2).tolist() == [1.0, 1.0]


@every_dtype
def test_memory_may_be_left_uninitialised(deterministic, dtype):
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert torch.empty(2, dtype=dtype).dtype is dtype and torch.ones(2, dtype=dtype).resize_(
            1
        ).tolist() == [1.0]
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


MOST = {
    "posit16es2": 1024,
    "q43": 16,
    "e5m5": 64,
    "posit8es0": 8,
    "e4m3fn": 16,
    "e11m30": 2**31,
    "posit32es2": 2**23,
}


@pytest.mark.parametrize("name", MOST)
def test_random_integers_are_those_that_the_format_has_without_gaps(name):
    dtype = torch_dtypes.dtype(name)
    x = torch.zeros(20000, dtype=dtype)
    x.random_(generator=torch.Generator().manual_seed(0))
    values, most = x.double(), MOST[name]
    below = torch.arange(min(most, 4096), dtype=torch.float64)
    assert torch.equal(below.to(dtype).double(), below)
    further = torch.tensor([2.0 * most - 1, 2.0 * most], dtype=torch.float64)
    assert not torch.equal(further.to(dtype).double(), further)
    assert (
        values.min() >= 0
        and values.max() <= most
        and values.max() > 0.9 * most
        and torch.equal(values, values.round())
    )
    assert abs(float(values.mean()) / most - 0.5) < 0.02


MASK = torch.tensor([True, False, True])
AT = torch.tensor([0, 2])
# Each puts v into two or more of the three places of x.
PUTS = {
    "masked_fill": lambda x, v: x.masked_fill(MASK, v),
    "masked_fill_": lambda x, v: x.clone().masked_fill_(MASK, v),
    "masked_fill of a tensor": lambda x, v: x.masked_fill(MASK, number(v)),
    "masked_fill in vmap": lambda x, v: torch.vmap(lambda x, m: x.masked_fill(m, v))(x, MASK),
    "masked_fill with a gradient": lambda x, v: (
        x.clone().requires_grad_().masked_fill(MASK, v).detach()
    ),
    "index_fill": lambda x, v: x.index_fill(0, AT, v),
    "index_fill of a tensor": lambda x, v: x.index_fill(0, AT, number(v)),
    "index_fill of few of many": lambda x, v: x.repeat(2000).index_fill_(0, AT, v)[:3],
    "scatter": lambda x, v: x.scatter(0, AT, v),
    "scatter_ of few of many": lambda x, v: x.repeat(2000).scatter_(0, AT, v)[:3],
    "pad": lambda x, v: F.pad(x, (1, 2), value=v),
    "where": lambda x, v: torch.where(MASK, v, x),
    "where of a tensor": lambda x, v: torch.where(MASK, number(v), x),
    "threshold": lambda x, v: F.threshold(x, 2.0, v),
    "pad_sequence": lambda x, v: torch.nn.utils.rnn.pad_sequence(
        [x, x[:1]], padding_value=float(v)
    ),
}


def number(v):
    return torch.tensor(v, dtype=torch.int64 if isinstance(v, int) else torch.float64)


# Numbers beside ties, numbers that float32 would round to values, and numbers beyond its range.
NEAR = [
    1 + 2.0**-40,
    -1 - 2.0**-8 - 2.0**-40,
    1.0625 + 2.0**-40,
    1e-50,
    -1e39,
    2**40 + 2**32 + 1,
    0.3,
]


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize(
    "name",
    ["posit16es2", "posit8es0", "e5m7", "bf16", "q43", "e4m3fn", "fixed8_8", "fixed4_3_wrap"],
)
def test_a_number_put_into_a_tensor_is_rounded_once(name, put):
    d = torch_dtypes.dtype(name)
    x = torch.full((3,), 1.5, dtype=d)
    rest = codes_of(x)[0]
    for mode in ("nearest_even", "up", "down", "toward_zero", "to_odd"):
        with torch_dtypes.rounding(mode):
            for v in NEAR:
                v = float(v) if put == "threshold" else v  # the threshold is a float
                code = codes_of(torch.zeros(1, dtype=d).fill_(v))
                made = codes_of(PUTS[put](x, v)).flatten()
                filled = made[made != rest]
                assert filled.numel() >= 2 and (filled == code).all(), (mode, v)


@pytest.mark.parametrize("put", PUTS)
def test_a_number_is_rounded_at_random_once_a_call(put):
    d = torch_dtypes.dtype("e5m7_stochastic")
    ones = torch.ones(3, dtype=d)
    torch.manual_seed(0)
    seen = set()
    for _ in range(40):
        made = PUTS[put](ones, 1.00390625).double().flatten()  # half way between two numbers
        filled = made if (made == 1).all() else made[made != 1]
        assert filled.unique().numel() == 1
        seen.add(float(filled[0]))
    assert seen == {1.0, 1.0078125}
    state = torch.get_rng_state()
    for v in (0.0, -2.5, math.inf):
        ones.masked_fill(MASK, v)  # values of the format
    assert torch.equal(torch.get_rng_state(), state)


def test_few_of_many_are_filled_with_what_an_infinity_stands_for():
    x = torch.ones(8192, dtype=torch.posit16es2)
    assert (
        x.index_fill(0, AT, -math.inf)[:3].tolist()
        == x.scatter(0, AT, -math.inf)[:3].tolist()
        == [-(2.0**56), 1.0, -(2.0**56)]
    )


PAIRS = {"maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin}


@pytest.mark.parametrize("mode", ["nearest_even", "up", "down"])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["posit16es2", "e5m7", "bf16"])
def test_a_float64_operand_without_dimensions_is_rounded_once(name, pair, mode):
    d = torch_dtypes.dtype(name)
    x = torch.tensor([0.0, 1.0, -3.0, 4096.0], dtype=d)
    for v in NEAR:
        other = torch.tensor(float(v), dtype=torch.float64)
        with torch_dtypes.rounding(mode):
            assert torch.equal(PAIRS[pair](x, other), PAIRS[pair](x.double(), other).to(d)), v
            assert torch.equal(PAIRS[pair](other, x), PAIRS[pair](x.double(), other).to(d)), v


def test_comparisons_take_numbers_as_they_are():
    one, v = torch.ones(1, dtype=torch.e5m7), 1 + 2.0**-40
    for other in (v, torch.tensor(v, dtype=torch.float64)):
        assert not (one == other).any() and (one < other).all() and not (one >= other).any()
    assert not torch.isin(one, v).any()
    assert not (torch.full((1,), 2.0**25, dtype=torch_dtypes.dtype("bf16")) == 2**25 + 1).any()


BESIDE = {
    "cast": lambda x, n: n.to(x.dtype),
    "maximum": torch.maximum,
    "fmax": lambda x, n: torch.fmax(n, x),
    "where": lambda x, n: torch.where(n > 0, n, x),
    "product": lambda x, n: x * n,
    "sum": lambda x, n: x * 0 + n,
}


@pytest.mark.parametrize("call", BESIDE)
@pytest.mark.parametrize("name", ["bf16", "posit16es2", "e5m7", "posit32es2"])
def test_integers_beside_format_tensors_are_rounded_once(name, call):
    d = torch_dtypes.dtype(name)
    # float32 turns these into ties.
    n = torch.tensor([2**30 + 2**22 + 1, 2**40 + 2**32 + 1, 2**24 + 2**16 + 1, 2**53 - 1])
    for mode in ("nearest_even", "up", "down"):
        with torch_dtypes.rounding(mode):
            expected = n.double().to(d)
            assert torch.equal(BESIDE[call](torch.ones(4, dtype=d), n), expected), mode
