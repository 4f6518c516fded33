"""torch.testing with format dtypes: assert_close and make_tensor."""

import math
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close, make_tensor

import torch_dtypes

NAMES = [str(d).removeprefix("torch.") for d in torch_dtypes.builtin_dtypes()]
MADE = [
    "fixed8_8",
    "fixed0_7",
    "ufixed2_2",
    "e2m1finite",
    "e4m0fn",
    "posit4es0",
    "e4m3fn_flush",
    "e4m3p3109",
    "e11m40",
    "q43_stochastic",
]
every_dtype = pytest.mark.parametrize("dtype", [*NAMES, *MADE], indirect=True)


@pytest.fixture
def dtype(request):
    return torch_dtypes.dtype(request.param)


def list_values(dtype):
    """All values of a dtype of at most eight bits; of others, the first 256 from 1."""
    if torch_dtypes.format_of(dtype).bits <= 8:
        values = torch_dtypes.from_codes(
            torch.arange(2 ** torch_dtypes.format_of(dtype).bits).to(torch.uint8), dtype
        ).double()
        return values[values.isfinite()].unique()
    steps = 1 + torch.arange(256, dtype=torch.float64) * torch.finfo(dtype).eps
    return steps[: min(256, int(1 / torch.finfo(dtype).eps))]


@every_dtype
def test_numbers_up_to_two_steps_apart_from_one_to_two_are_close(dtype):
    values = list_values(dtype)
    values = values[(values >= min(1, values.max())) & (values <= 2)]
    for steps in (1, 2):
        if len(values) > steps and torch_dtypes.format_of(dtype).significand_bits > 2:
            assert_close(values[steps:].to(dtype), values[:-steps].to(dtype))
            assert_close(values[:-steps].to(dtype), values[steps:].to(dtype))
    one = torch.ones(3, dtype=dtype) if values.max() >= 1 else torch.full((3,), 0.5, dtype=dtype)
    assert_close(one, one.clone())
    with pytest.raises(AssertionError, match="not close"):
        assert_close(one, torch.zeros_like(one))


@every_dtype
def test_the_step_at_zero_is_close_and_large_numbers_are_not(dtype):
    info, kind = torch.finfo(dtype), str(torch_dtypes.format_of(dtype).kind)
    rtol, atol = torch.testing._comparison._DTYPE_PRECISIONS[dtype]
    if kind == "Kind.fixed":
        assert (rtol, atol) == (0, max(1e-5, 2 * info.eps))
    else:
        assert rtol == min(2 * info.eps, 0.5)
    if torch_dtypes.format_of(dtype).bits <= 8:
        least = list_values(dtype)
        least = least[least > 0].min()
        assert atol == max(1e-5, float(least) * (1 if kind != "Kind.fixed" else 2))
        assert_close(least.to(dtype), torch.zeros((), dtype=dtype))
    with pytest.raises(AssertionError, match="not close"):
        assert_close(torch.tensor(info.max, dtype=dtype), torch.tensor(0.0, dtype=dtype))


def test_a_dtype_made_later_has_its_own():
    before = dict(torch.testing._comparison._DTYPE_PRECISIONS)
    made = torch_dtypes.dtype("e6m4")
    assert torch.testing._comparison._DTYPE_PRECISIONS == before | {made: (2 * 2.0**-4, 1e-5)}
    assert (
        torch_dtypes.dtype("e6m4") is made
        and torch.testing._creation._FLOATING_OR_COMPLEX_TYPES.count(made) == 1
    )


def test_values_are_compared_exactly_and_without_draws():
    """In q43 itself the difference of 1 and 1.125 and its bound would be rounded, here at
    random."""
    x = torch.tensor([1.0, 240.0, math.nan]).to(torch.q43_stochastic)
    y = torch.tensor([1.125, 240.0, math.nan]).to(torch.q43_stochastic)
    before = torch.get_rng_state()
    assert_close(x, y, rtol=0.112, atol=0, equal_nan=True)
    with pytest.raises(
        AssertionError,
        match=r"Greatest relative difference: 0.111111\d* at index \(0,\) \(up to 0.111 allowed\)",
    ):
        assert_close(x, y, rtol=0.111, atol=0, equal_nan=True)
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 3"):
        assert_close(x, y)  # the NaN
    assert torch.equal(torch.get_rng_state(), before)


def test_dtypes_are_compared_unless_told_otherwise():
    values = torch.tensor([1.0, 1.25, -3.5])
    with pytest.raises(
        AssertionError,
        match=r"The values for attribute 'dtype' do not match: torch\.q43 != torch\.q52",
    ):
        assert_close(values.to(torch.q43), values.to(torch.q52))
    for other in (torch.q52, torch.posit32es2, torch.float32, torch.bfloat16, torch.float64):
        a, b = values.to(torch.q43), values.to(other)
        assert_close(a, b, check_dtype=False)
        assert_close(b, a, check_dtype=False, rtol=0.2, atol=0)
        with pytest.raises(AssertionError, match="not close"):
            assert_close(a, b + 2, check_dtype=False)
    assert_close(
        values.to(torch.q43).long(), torch.tensor([1.0, 1.0, -3.0]).to(torch.q43), check_dtype=False
    )
    assert_close({"a": [values.to(torch.q43)]}, {"a": [values.to(torch.q43).requires_grad_()]})


@pytest.mark.whole
def test_stock_dtypes_keep_their_tolerances():
    script = """
import torch

ours = (
    {
        d: p
        for d, p in torch.testing._comparison._DTYPE_PRECISIONS.items()
        if torch_dtypes.is_format_dtype(d)
    }
    if SHOW
    else {}
)
rest = [
    (str(d), p) for d, p in torch.testing._comparison._DTYPE_PRECISIONS.items() if d not in ours
]
print(sorted(rest), [str(t) for t in torch.testing._creation._FLOATING_OR_COMPLEX_TYPES[:7]])
"""
    import os

    texts = []
    for head, load in (("SHOW = True\nimport torch_dtypes", "1"), ("SHOW = False", "0")):
        env = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": load}
        texts.append(
            subprocess.run(
                [sys.executable, "-c", head + script],
                env=env,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    assert texts[0] == texts[1] and "torch.float16" in texts[0]


@every_dtype
def test_make_tensor(dtype):
    info = torch.finfo(dtype)
    torch.manual_seed(0)
    x = make_tensor(200, dtype=dtype, device="cpu")
    low, high = max(-9.0, info.min), min(9.0, info.max)
    assert (
        x.dtype is dtype
        and x.shape == (200,)
        and low <= x.min() <= (low + high) / 2 <= x.max() <= high
    )
    assert (
        not x.requires_grad
        and make_tensor((2, 3), dtype=dtype, device="cpu", requires_grad=True).requires_grad
    )
    y = make_tensor(
        (3, 4), dtype=dtype, device="cpu", low=0, high=1e300, noncontiguous=True, exclude_zero=True
    )
    assert not y.is_contiguous() and (y > 0).all() and y.isfinite().all()
    channels = make_tensor(2, 3, 4, 5, dtype=dtype, device="cpu", memory_format=torch.channels_last)
    assert channels.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match="`low` must be less than `high`"):
        make_tensor(3, dtype=dtype, device="cpu", low=2, high=1)
