"""What fills tensors by the dtype alone: uninitialised memory in deterministic mode, and random_() without a range."""

import pytest
import torch

import torch_dtypes

NAMES = "posit16es2 q43 e5m5 posit32es2 posit8es0 e4m3fn e11m30".split()
every_dtype = pytest.mark.parametrize("dtype", [torch_dtypes.dtype(name) for name in NAMES], ids=NAMES)


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
        assert torch.empty(2, dtype=dtype).dtype is dtype and torch.ones(2, dtype=dtype).resize_(1).tolist() == [1.0]
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


MOST = {"posit16es2": 1024, "q43": 16, "e5m5": 64, "posit8es0": 8, "e4m3fn": 16, "e11m30": 2**31, "posit32es2": 2**23}


@every_dtype
def test_random_integers_are_those_that_the_format_has_without_gaps(dtype):
    name = next(n for n in NAMES if torch_dtypes.dtype(n) is dtype)
    x = torch.zeros(20000, dtype=dtype)
    x.random_(generator=torch.Generator().manual_seed(0))
    values, most = x.double(), MOST[name]
    below = torch.arange(min(most, 4096), dtype=torch.float64)
    assert torch.equal(below.to(dtype).double(), below)
    further = torch.tensor([2.0 * most - 1, 2.0 * most], dtype=torch.float64)
    assert not torch.equal(further.to(dtype).double(), further)
    assert values.min() >= 0 and values.max() <= most and values.max() > 0.9 * most and torch.equal(values, values.round())
    assert abs(float(values.mean()) / most - 0.5) < 0.02
