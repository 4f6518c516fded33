"""Factories given a format dtype: right dtype, right class, values rounded once from the float64
result."""

import math
import warnings

import numpy as np
import pytest
import torch
from conftest import BITS, TEN, expect_tensor, parametrize_dtypes

from torch_dtypes import _C

every_dtype = parametrize_dtypes(TEN)
few_dtypes = parametrize_dtypes("posit16es2 q43 e11m30")
STOCK = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]


def expect_same(t, reference):
    """Check that `t` is bit for bit the float64 (or integer) reference rounded once to its dtype.
    Where the format has no infinity, the largest number stands for it."""
    if _C.format_of(t.dtype).infinity_is_nan and reference.is_floating_point():
        limits = torch.finfo(t.dtype)
        reference = reference.detach().nan_to_num(math.nan, limits.max, limits.min)
    expected = reference.to(t.dtype)
    expect_tensor(t, expected.dtype, reference.shape)
    assert (
        t.detach().view(BITS[t.dtype.itemsize]).tolist()
        == expected.detach().view(BITS[t.dtype.itemsize]).tolist()
    )


# Factories of known values: call(dtype) is compared with call(float64)
CALLS = {
    "zeros": lambda **o: torch.zeros(2, 3, **o),
    "zeros of a tuple": lambda **o: torch.zeros((2, 3), **o),
    "zeros by name": lambda **o: torch.zeros(size=(2, 3), **o),
    "zeros of no dimensions": lambda **o: torch.zeros((), **o),
    "ones": lambda **o: torch.ones(2, 3, **o),
    "ones of a list": lambda **o: torch.ones([2, 0, 3], **o),
    "ones of a torch.Size": lambda **o: torch.ones(torch.Size([2]), **o),
    "full": lambda **o: torch.full((2, 3), 1.3, **o),
    "full by name": lambda **o: torch.full(size=(2,), fill_value=-0.7, **o),
    "full of an integer": lambda **o: torch.full([3], 7, **o),
    "full of a bool": lambda **o: torch.full([3], True, **o),
    "full of a tensor": lambda **o: torch.full([3], torch.tensor(1.7), **o),
    "full of infinity": lambda **o: torch.full([1], math.inf, **o),
    "arange": lambda **o: torch.arange(7, **o),
    "arange of two": lambda **o: torch.arange(2, 7, **o),
    "arange of three": lambda **o: torch.arange(-1, 1, 0.3, **o),
    "arange by name": lambda **o: torch.arange(start=1, end=2.5, step=0.5, **o),
    "arange of tensors": lambda **o: torch.arange(torch.tensor(0.5), torch.tensor(3.0), **o),
    "linspace": lambda **o: torch.linspace(-1, 1, 9, **o),
    "linspace by name": lambda **o: torch.linspace(start=0, end=0.7, steps=5, **o),
    "linspace of tensors": lambda **o: torch.linspace(torch.tensor(0.1), torch.tensor(3.0), 4, **o),
    "logspace": lambda **o: torch.logspace(-2, 2, 5, **o),
    "logspace by name": lambda **o: torch.logspace(start=0, end=3, steps=4, base=2, **o),
    "eye": lambda **o: torch.eye(3, **o),
    "eye of two": lambda **o: torch.eye(2, 4, **o),
    "eye by name": lambda **o: torch.eye(n=2, m=3, **o),
    "scalar_tensor": lambda **o: torch.scalar_tensor(1.3, **o),
    "hann_window": lambda **o: torch.hann_window(6, **o),
    "hann_window, symmetric": lambda **o: torch.hann_window(6, False, **o),
    "hamming_window": lambda **o: torch.hamming_window(6, True, 0.5, **o),
    "blackman_window": lambda **o: torch.blackman_window(6, **o),
    "bartlett_window": lambda **o: torch.bartlett_window(6, periodic=True, **o),
    "kaiser_window": lambda **o: torch.kaiser_window(6, True, beta=9.0, **o),
    "tensor": lambda **o: torch.tensor([[1.2, -3.4], [5, 0.1]], **o),
    "tensor of a number": lambda **o: torch.tensor(1.3, **o),
    "tensor of nothing": lambda **o: torch.tensor([], **o),
    "tensor of bools": lambda **o: torch.tensor([True, False], **o),
    "tensor by name": lambda **o: torch.tensor(data=[1.2], **o),
    "tensor of specials": lambda **o: torch.tensor(
        [math.inf, -math.inf, math.nan, 1e300, -1e-300, -0.0], **o
    ),
    "tensor of a NumPy array": lambda **o: torch.tensor(np.array([1.3, 2.7]), **o),
    "tensor of NumPy scalars": lambda **o: torch.tensor([np.float32(1.3), np.float64(2.7)], **o),
    "tensor of tensors": lambda **o: torch.tensor([torch.tensor(1.25), torch.tensor(3)], **o),
    "as_tensor": lambda **o: torch.as_tensor([1.2, -3.4], **o),
    "as_tensor of a NumPy array": lambda **o: torch.as_tensor(
        np.array([1.3, 2.7], np.float32), **o
    ),
    "asarray": lambda **o: torch.asarray([1.2, -3.4], **o),
    "asarray of a NumPy array": lambda **o: torch.asarray(np.arange(3), **o),
    "range": lambda **o: torch.range(1, 3, 0.5, **o),
}


@every_dtype
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("call", CALLS)
def test_values_are_float64_s_rounded_once(call, dtype):
    expect_same(CALLS[call](dtype=dtype), CALLS[call](dtype=torch.float64))


@few_dtypes
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("call", [c for c in CALLS if not c.startswith("as_tensor")])
def test_requires_grad_and_device_are_obeyed(call, dtype):
    t = CALLS[call](dtype=dtype, requires_grad=True, device="cpu")
    expect_tensor(t, dtype)
    assert t.requires_grad and t.is_leaf and t.grad_fn is None and t.device.type == "cpu"
    assert not CALLS[call](dtype=dtype, device=torch.device("cpu")).requires_grad


@few_dtypes
@pytest.mark.parametrize(
    "call",
    [
        c
        for c in CALLS
        if c.startswith(
            ("zeros", "ones", "full", "arange", "linspace", "logspace", "eye", "scalar")
        )
    ],
)
def test_layouts_other_than_strided_are_refused(call, dtype):
    for layout in (torch.sparse_coo, torch._mkldnn):
        with pytest.raises(NotImplementedError, match="expected the strided layout"):
            CALLS[call](dtype=dtype, layout=layout)


@few_dtypes
@pytest.mark.parametrize(
    "call",
    [
        c
        for c in CALLS
        if c.startswith(
            ("zeros", "ones", "full", "arange", "linspace", "logspace", "eye", "scalar")
        )
    ],
)
def test_layout_and_pin_memory_are_accepted(call, dtype):
    expect_tensor(CALLS[call](dtype=dtype, layout=torch.strided, pin_memory=False), dtype)
    with torch.device("cpu"):
        expect_tensor(CALLS[call](dtype=dtype), dtype)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there, memory is pinned")
def test_pinned_memory_of_a_stock_dtype_needs_a_device():
    like = torch.ones(2, dtype=torch.q43)
    for make in (like.new_empty, torch.empty):
        with pytest.raises(RuntimeError, match="accelerator"):
            make(2, dtype=torch.float32, pin_memory=True)


@few_dtypes
@pytest.mark.parametrize(
    "call",
    [
        c
        for c in CALLS
        if c.startswith(("zeros", "ones", "full", "arange", "linspace", "logspace", "eye"))
    ],
)
def test_out_decides_where_no_dtype_is_given(call, dtype):
    reference = CALLS[call](dtype=torch.float64)
    for size in (0, tuple(reference.shape)):
        out = torch.empty(size, dtype=dtype)
        assert CALLS[call](out=out) is out
        expect_same(out, reference)
        assert CALLS[call](out=out.zero_(), dtype=dtype) is out
        expect_same(out, reference)


@few_dtypes
def test_out_of_another_dtype_is_refused(dtype):
    for make in (torch.zeros, torch.ones, torch.rand):
        with pytest.raises(RuntimeError, match=r"expected|does not match"):
            make(2, dtype=dtype, out=torch.empty(2))
        with pytest.raises(RuntimeError, match=r"expected|does not match"):
            make(2, dtype=torch.bfloat16, out=torch.empty(2, dtype=dtype))


@every_dtype
def test_uninitialised_tensors(dtype):
    expect_tensor(torch.empty(2, 3, dtype=dtype), dtype, (2, 3))
    expect_tensor(torch.empty((2, 3), dtype=dtype, requires_grad=True), dtype, (2, 3))
    t = torch.empty((2, 3, 4, 5), dtype=dtype, memory_format=torch.channels_last)
    assert t.stride() == (60, 1, 15, 3) and t.is_contiguous(memory_format=torch.channels_last)
    t = torch.empty_strided((2, 3), (1, 2), dtype=dtype)
    expect_tensor(t, dtype, (2, 3))
    assert t.stride() == (1, 2)
    assert torch.empty_permuted((2, 3), (1, 0), dtype=dtype).stride() == (1, 2)


# Random factories


RANDOM = {  # test_random_numbers.py has their numbers
    "rand": lambda **o: torch.rand(2, 3, **o),
    "randn": lambda **o: torch.randn((2, 3), **o),
    "randint": lambda **o: torch.randint(9, (2, 3), **o),
    "randint by name": lambda **o: torch.randint(low=-3, high=9, size=(2, 3), **o),
    "normal by name": lambda **o: torch.normal(mean=0.0, std=1.0, size=(2, 3), **o),
}


@few_dtypes
@pytest.mark.parametrize("call", RANDOM)
def test_random_factories(call, dtype):
    t = RANDOM[call](dtype=dtype, generator=torch.Generator().manual_seed(3), requires_grad=True)
    expect_tensor(t, dtype, (2, 3))
    assert t.requires_grad and t.is_leaf
    out = torch.empty(0, dtype=dtype)
    assert RANDOM[call](out=out) is out and out.shape == (2, 3)


# tensor, as_tensor and asarray of tensors


@every_dtype
@pytest.mark.parametrize(
    "make", [torch.tensor, torch.as_tensor, torch.asarray], ids=lambda f: f.__name__
)
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_tensor_of_a_tensor(make, dtype):
    ours = torch.tensor([1.25, -2.0], dtype=dtype)
    expect_same(make(ours), ours.double())  # without dtype=, the dtype of the data
    expect_same(make(torch.tensor([1.3, 2.7]), dtype=dtype), torch.tensor([1.3, 2.7]))
    expect_same(make(ours, dtype=dtype), ours.double())
    for stock in STOCK:
        expect_tensor(make(ours, dtype=stock), stock, (2,))
    for other in (torch.float64, torch.bfloat16, torch.float32):
        assert make(ours, dtype=other).tolist() == [1.25, -2.0]


@every_dtype
def test_tensor_of_a_list_of_our_tensors(dtype):
    a, b = torch.tensor([1.25, -2.0], dtype=dtype)
    assert torch.tensor([a, b]).tolist() == [1.25, -2.0]
    expect_same(torch.tensor([a, b]), torch.tensor([1.25, -2.0]))
    expect_same(torch.tensor([a, b], dtype=dtype), torch.tensor([1.25, -2.0]))
    assert torch.tensor([a, b], dtype=torch.float64).tolist() == [1.25, -2.0]


@every_dtype
def test_memory_is_shared_or_copied_as_asked(dtype):
    x = torch.ones(2, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.tensor(x, dtype=dtype).data_ptr() != x.data_ptr()
    assert (
        torch.as_tensor(x).data_ptr() == torch.as_tensor(x, dtype=dtype).data_ptr() == x.data_ptr()
    )
    assert torch.asarray(x, dtype=dtype).data_ptr() == torch.asarray(x).data_ptr() == x.data_ptr()
    assert torch.asarray(x, dtype=dtype, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match=r"expected data .*copy"):
        torch.asarray([1.0], dtype=dtype, copy=False)


# *_like and new_*

LIKE = {
    "zeros_like": lambda x, **o: torch.zeros_like(x, **o),
    "ones_like": lambda x, **o: torch.ones_like(x, **o),
    "full_like": lambda x, **o: torch.full_like(x, 1.3, **o),
    "full_like by name": lambda x, **o: torch.full_like(input=x, fill_value=2, **o),
    "empty_like": lambda x, **o: torch.empty_like(x, **o).fill_(1),
    "rand_like": lambda x, **o: torch.rand_like(x, **o),
    "randn_like": lambda x, **o: torch.randn_like(x, **o),
    "randint_like": lambda x, **o: torch.randint_like(x, 5, **o),
    "randint_like of two": lambda x, **o: torch.randint_like(x, 2, 5, **o),
    "zeros_like, by name": lambda x, **o: torch.zeros_like(input=x, **o),
    "new_zeros": lambda x, **o: x.new_zeros(2, 3, **o),
    "new_zeros of a tuple": lambda x, **o: x.new_zeros((2, 3), **o),
    "new_ones": lambda x, **o: x.new_ones(2, 3, **o),
    "new_ones by name": lambda x, **o: x.new_ones(size=(2, 3), **o),
    "new_empty": lambda x, **o: x.new_empty((2, 3), **o).fill_(1),
    "new_full": lambda x, **o: x.new_full((2, 3), 1.3, **o),
    "new_full by name": lambda x, **o: x.new_full(size=(2, 3), fill_value=2, **o),
    "new_empty_strided": lambda x, **o: x.new_empty_strided((2, 3), (1, 2), **o).fill_(2),
    "new_tensor": lambda x, **o: x.new_tensor([[1.2, 2.3, 3], [1, 2, 3]], **o),
    "new_tensor by name": lambda x, **o: x.new_tensor(data=[[1.2, 2.3, 3], [1, 2, 3]], **o),
}


@every_dtype
@pytest.mark.parametrize("call", LIKE)
def test_like_and_new(call, dtype):
    stock, ours = torch.ones(2, 3), torch.ones(2, 3, dtype=dtype)
    random = "rand" in call
    reference = LIKE[call](stock.double())
    other = torch.ones(2, 3, dtype=torch.q52)
    for source, options in (
        (stock, {"dtype": dtype}),
        (other, {"dtype": dtype}),
        (ours, {}),
        (ours, {"dtype": dtype}),
        (ours, {"dtype": None}),
    ):
        made = LIKE[call](source, **options)
        expect_tensor(made, dtype, (2, 3))
        if not random:
            expect_same(made, reference)
        if "empty" not in call:  # those are filled, and a leaf that requires a gradient refuses it
            made = LIKE[call](source, **options, requires_grad=True, device="cpu")
            assert made.requires_grad and made.is_leaf and made.dtype is dtype
    for target in STOCK:
        if target.is_floating_point or "rand" not in call:
            expect_tensor(LIKE[call](ours, dtype=target), target, (2, 3))


@every_dtype
def test_like_keeps_strides_and_memory_format(dtype):
    x = torch.ones(2, 3, dtype=dtype).t()
    assert torch.empty_like(x).stride() == torch.zeros_like(x).stride() == (1, 3)
    assert torch.zeros_like(torch.ones(2, 3).t(), dtype=dtype).stride() == (1, 3)
    image = torch.ones(2, 3, 4, 5, dtype=dtype)
    assert torch.ones_like(image, memory_format=torch.channels_last).stride() == (60, 1, 15, 3)
    assert torch.rand_like(image.to(memory_format=torch.channels_last)).stride() == (60, 1, 15, 3)


@every_dtype
def test_legacy_new(dtype):
    x = torch.ones(2, 3, dtype=dtype)
    expect_tensor(x.new(), dtype, (0,))
    expect_tensor(x.new(4, 5), dtype, (4, 5))
    expect_tensor(x.new(torch.Size([4])), dtype, (4,))
    expect_same(x.new([1.5, 2.5]), torch.tensor([1.5, 2.5]))
    expect_tensor(x.new(x), dtype, (2, 3))
    whole = x.new(x.untyped_storage())
    expect_tensor(whole, dtype, (6,))
    assert whole.data_ptr() == x.data_ptr()
    expect_tensor(x.new(size=(4, 5)), dtype, (4, 5))
    expect_tensor(x.new(other=x, device="cpu"), dtype, (2, 3))
    expect_tensor(x.new(storage=x.untyped_storage()), dtype, (6,))
    expect_same(x.new(data=[1.5, 2.5]), torch.tensor([1.5, 2.5]))
    with pytest.raises(
        TypeError,
        match=f"new: expected a tensor of {dtype}, but got one of torch.float64; convert it first",
    ):
        x.new(x.double())
    leaf = x.clone().requires_grad_()
    (x.new(leaf) * 2).sum().backward()
    expect_same(leaf.grad, torch.full((2, 3), 2.0))
    for args, kwargs in (
        ((3,), {"size": (2,)}),
        ((), {"size": (2,), "other": x}),
        ((), {"shape": (2,)}),
    ):
        with pytest.raises(
            TypeError,
            match="new: expected one of size, other, storage and data, and device, but got",
        ):
            x.new(*args, **kwargs)


@few_dtypes
def test_elements_of_a_list_promote(dtype):
    x, other = torch.tensor(1.3, dtype=dtype), torch.q52
    for data in ((1, x), (2.0, x), [x, 1], [[x], [2.0]]):
        expect_tensor(torch.tensor(data), dtype)
    expect_tensor(torch.tensor([x, torch.tensor(1.5)]), torch.promote_types(dtype, torch.float32))
    with pytest.raises(TypeError, match=f"two number formats, {dtype} and {other}"):
        torch.tensor([x, x.to(other)])


# Modules


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
@every_dtype
def test_a_tensor_anywhere_in_a_list_says_the_dtype(dtype, make):
    x = torch.tensor([1.5, 2.0]).to(dtype)
    for data in (
        [1, x[0]],
        [1.0, 2, x[1]],
        [[1, 2], [3, x[0]]],
        ((1, 2), (x[0], 3)),
        [[[0]], [[x[1]]]],
    ):
        assert make(data).dtype is dtype


@parametrize_dtypes("bfloat16 posit16es2")
def test_a_list_that_holds_itself_ends_in_stocks_error(dtype):
    endless: list = []
    endless.append(endless)
    x = torch.zeros(2, dtype=dtype)
    for data in (endless, (endless,), [[endless], x]):
        for make in (torch.tensor, torch.as_tensor, torch.asarray):
            for kwargs in ({}, {"dtype": dtype}):
                with pytest.raises(ValueError, match="too many dimensions"):
                    make(data, **kwargs)
        for make in (x.new_tensor, x.new):
            with pytest.raises(ValueError, match="too many dimensions"):
                make(data)
    deep = x[0]
    for _ in range(20):
        deep = [deep]
    assert torch.tensor(deep).dtype is dtype


@parametrize_dtypes("bfloat16 posit16es2")
def test_new_tensor_keeps_a_subclass(dtype):
    class Named(torch.Tensor):
        pass

    x = torch.zeros(3, dtype=dtype).as_subclass(Named)
    own = (
        x.new_tensor([1.0, 2.0]),
        x.new_tensor(data=[1], dtype=torch.q43),
        x.new(3),
        x.new([1.0]),
    )
    for made in (*own, x.new_zeros(2), x.new_empty(2, dtype=torch.q43)):
        assert type(made) is Named and made.dtype in (dtype, torch.q43)
    assert type(torch.nn.Parameter(torch.zeros(3, dtype=dtype)).new_tensor([1.0])) is torch.Tensor


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_new_tensor_of_a_format_tensor_has_the_stock_tensors_dtype():
    ours = torch.ones(2, dtype=torch.posit16es2)
    for stock in (torch.bfloat16, torch.float32, torch.float8_e5m2fnuz):
        assert torch.zeros(1, dtype=stock).new_tensor(ours).dtype is stock
        assert torch.zeros(1, dtype=stock).new_tensor(ours, dtype=torch.q43).dtype is torch.q43
