"""out= of factories: shape, strides and memory afterwards are those of stock PyTorch."""

import pytest
import torch
from conftest import parametrize_dtypes

every_dtype = parametrize_dtypes("posit16es2 q43 e11m30")

BY_COUNT = {
    "arange": lambda out: torch.arange(1, 13, out=out),
    "arange of fractions": lambda out: torch.arange(0.0, 3.0, 0.25, out=out),
    "range": lambda out: torch.range(1, 12, out=out),
    "linspace": lambda out: torch.linspace(1, 12, 12, out=out),
    "logspace": lambda out: torch.logspace(0, 1, 12, out=out),
}
BY_SHAPE = {
    "zeros": lambda out: torch.zeros(3, 4, out=out),
    "ones": lambda out: torch.ones(3, 4, out=out),
    "full": lambda out: torch.full((3, 4), 2.0, out=out),
    "eye": lambda out: torch.eye(3, 4, out=out),
    "rand": lambda out: torch.rand(3, 4, out=out),
}
LAYOUTS = {
    "a matrix": lambda d: torch.full((3, 4), 5.0, dtype=d),
    "a part of one": lambda d: torch.full((4, 8), 5.0, dtype=d)[:3, :4],
    "transposed": lambda d: torch.full((4, 3), 5.0, dtype=d).t(),
    "every other": lambda d: torch.full((3, 8), 5.0, dtype=d)[:, ::2],
}
QUIET = pytest.mark.filterwarnings(
    "ignore:torch.range is deprecated", "ignore:The number of elements in the out tensor"
)


def base(t):
    return t if t._base is None else t._base


@QUIET
@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", {**BY_COUNT, **BY_SHAPE})
def test_one_with_as_many_elements_keeps_its_places(name, layout, dtype):
    call, ours, stock = (
        {**BY_COUNT, **BY_SHAPE}[name],
        LAYOUTS[layout](dtype),
        LAYOUTS[layout](torch.float64),
    )
    strides = ours.stride()
    for out in (stock, ours):
        torch.manual_seed(0)
        assert call(out) is out
    assert ours.dtype is dtype and ours.shape == stock.shape == (3, 4) and ours.stride() == strides
    if name != "rand":
        # The memory beside it is the same, too.
        assert torch.equal(base(ours).double(), base(stock).to(dtype).double())
    assert base(ours).shape == base(stock).shape


@QUIET
@every_dtype
@pytest.mark.parametrize("name", BY_COUNT)
def test_one_of_other_sizes_is_resized(name, dtype):
    ours, stock = torch.zeros(2, 3, dtype=dtype), torch.zeros(2, 3, dtype=torch.float64)
    for out in (ours, stock):
        BY_COUNT[name](out)
    assert ours.shape == stock.shape == (12,) and torch.equal(
        ours.double(), stock.to(dtype).double()
    )


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_frequencies_have_a_matrix_s_places(layout, dtype):
    """Stock PyTorch sorts the frequencies by rows there, and writes beside a part of a matrix."""
    for call, n in ((torch.fft.fftfreq, 12), (torch.fft.rfftfreq, 22)):
        out = LAYOUTS[layout](dtype)
        before, strides = base(out).double().clone(), out.stride()
        assert call(n, out=out) is out and out.shape == (3, 4) and out.stride() == strides
        assert torch.equal(out.flatten(), call(n, dtype=torch.float64).to(dtype))
        out.fill_(5.0)
        assert torch.equal(base(out).double(), before)
        short = torch.zeros(2, dtype=dtype)
        assert torch.equal(call(n, out=short), call(n, dtype=dtype))


def test_who_is_resized_is_told():
    for dtype in (torch.bfloat16, torch.q43):
        with pytest.warns(UserWarning, match="The number of elements in the out tensor of shape"):
            torch.arange(5, out=torch.zeros(2, dtype=dtype))


@QUIET
@every_dtype
@pytest.mark.parametrize("name", BY_COUNT)
def test_one_that_overlaps_itself_is_refused(name, dtype):
    out = torch.zeros(3, dtype=dtype).expand(4, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        BY_COUNT[name](out)
    assert out.shape == (4, 3) and not out.any()
