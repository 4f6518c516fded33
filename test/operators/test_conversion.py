"""Conversions into, out of and between number formats: to, type, copy_, view, item, NumPy, DLPack,
printing."""

import builtins
import math
import sys
import warnings

import numpy as np
import pytest
import torch
from conftest import BITS, TEN, expect_tensor, parametrize_dtypes

import torch_dtypes
from torch_dtypes import _C

every_dtype = parametrize_dtypes(TEN)
few_dtypes = parametrize_dtypes("posit16es2 q43 e11m30")
CONTAINER = {1: torch.float8_e5m2fnuz, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
NARROW = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e4m3fnuz,
    torch.uint16,
    torch.uint32,
]
EXACT = [1.0, -2.0, 0.5, 3.0, 0.0, -1.5]  # numbers of every format here
ROUGH = [1.3, -2.7, 0.1, 3.14159, 1e-3, -1.7, 5.0, 1e4]


def bits(t):
    return t.detach().view(BITS[t.dtype.itemsize]).tolist()


def container(dtype):
    return CONTAINER[dtype.itemsize]


# From and to stock dtypes

INTO = {
    "to": lambda t, d: t.to(d),
    "to by name": lambda t, d: t.to(dtype=d),
    "to of a device": lambda t, d: t.to(str(t.device), d),
    "to of a device object": lambda t, d: t.to(t.device, d),
    "to of a device by name": lambda t, d: t.to(device=str(t.device), dtype=d, non_blocking=True),
    "to with a copy": lambda t, d: t.to(d, copy=True),
    "to with positional flags": lambda t, d: t.to(d, False, True),
    "to of another tensor": lambda t, d: t.to(torch.zeros(1, dtype=d)),
    "to of another tensor by name": lambda t, d: t.to(tensor=torch.zeros(1, dtype=d)),
    "type": lambda t, d: t.type(d),
    "type by name": lambda t, d: t.type(dtype=d),
    "type_as": lambda t, d: t.type_as(torch.zeros(1, dtype=d)),
    "copy_": lambda t, d: torch.zeros(t.shape, dtype=d).copy_(t),
    "index assignment": lambda t, d: torch.zeros(t.shape, dtype=d).index_put_(
        (torch.arange(len(t)),), t.to(d)
    ),
    "slice assignment": lambda t, d: assign(torch.zeros(t.shape, dtype=d), t),
    "tensor": lambda t, d: torch.tensor(t.tolist(), dtype=d),
}


def assign(target, source):
    target[:] = source
    return target


@every_dtype
@pytest.mark.parametrize("way", INTO)
def test_every_way_into_a_format_rounds_alike(way, dtype):
    for stock in FLOATS:
        t = torch.tensor(ROUGH, dtype=stock)
        made = INTO[way](t, dtype)
        expect_tensor(made, dtype)
        assert (
            bits(made)
            == bits(t.double().to(dtype))
            == bits(torch.stack([torch.tensor(v, dtype=dtype) for v in t.tolist()]))
        )


@every_dtype
@pytest.mark.parametrize("way", INTO)
def test_every_way_out_of_a_format_is_exact_or_rounds_once(way, dtype):
    t = torch.tensor(ROUGH).to(dtype)
    for stock in [*FLOATS, container(dtype)]:
        made = INTO[way](t, stock)
        expect_tensor(made, stock)
        # The reference casts to a narrow type through the format of the same values, which rounds
        # float64 once.
        narrow = {torch.float16: "e5m10", torch.bfloat16: "e8m7"}.get(stock)
        reference = (
            t.double().to(torch_dtypes.dtype(narrow)).double() if narrow else t.double().to(stock)
        )
        torch.testing.assert_close(
            made.double(), reference.double(), rtol=0, atol=0, equal_nan=True
        )
    assert torch.equal(
        t.double().nan_to_num(7), torch.tensor(t.tolist(), dtype=torch.float64).nan_to_num(7)
    )


@every_dtype
@pytest.mark.parametrize("stock", [*INTEGERS, *NARROW], ids=str)
def test_integers_and_narrow_floats(stock, dtype):
    values = [0, 1, 2, 3]
    t = torch.tensor(values, dtype=torch.float32).to(stock)
    for way in ("to", "type", "copy_", "slice assignment", "to of another tensor"):
        made = INTO[way](t, dtype)
        expect_tensor(made, dtype)
        back = INTO[way](made, stock)
        expect_tensor(back, stock)
        expected = [bool(v) for v in values] if stock is torch.bool else values
        assert back.float().tolist() == made.tolist() == [float(v) for v in expected]


@every_dtype
def test_conversion_to_integers_truncates(dtype):
    assert torch.tensor([1.5, -1.5, 0.75], dtype=dtype).long().tolist() == [1, -1, 0]
    assert torch.tensor([0.0, -0.5], dtype=dtype).bool().tolist() == [False, True]


@every_dtype
def test_complex_values_lose_their_imaginary_part(dtype):
    t = torch.tensor([1 + 2j, -0.5j])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = t.to(dtype)
    expect_tensor(made, dtype)
    assert made.tolist() == [1.0, 0.0]
    assert torch.tensor(EXACT, dtype=dtype).to(torch.complex128).real.tolist() == EXACT


@pytest.mark.parametrize("source", TEN.split())
@pytest.mark.parametrize("target", TEN.split())
def test_between_formats_rounds_once(source, target):
    source, target = map(torch_dtypes.dtype, (source, target))
    t = torch.tensor(ROUGH, dtype=torch.float64).to(source)
    expected = bits(t.double().to(target))
    for way in ("to", "type", "copy_", "to of another tensor", "slice assignment"):
        made = INTO[way](t, target)
        expect_tensor(made, target)
        assert bits(made) == expected


def test_narrowing_from_a_wide_format_rounds_once():
    # In float32, 1 + 2^-8 + 2^-30 becomes 1 + 2^-8, a tie that rounds down in bfloat16.
    t = torch.tensor([1 + 2.0**-8 + 2.0**-27, 1 + 2.0**-11 + 2.0**-27], dtype=torch.float64).to(
        torch.posit32es2
    )
    assert t.double().tolist() == [1 + 2.0**-8 + 2.0**-27, 1 + 2.0**-11 + 2.0**-27]
    assert t.to(torch.bfloat16)[0].item() == 1 + 2.0**-7
    assert t.to(torch.float16)[1].item() == 1 + 2.0**-10
    out = torch.zeros(2, dtype=torch.bfloat16)
    out[:] = t
    assert out[0].item() == 1 + 2.0**-7


@every_dtype
def test_to_the_own_dtype_is_the_same_tensor(dtype):
    t = torch.ones(3, dtype=dtype)
    assert (
        t.to(dtype) is t
        and t.to("cpu") is t
        and t.to("cpu", dtype) is t
        and t.to(t) is t
        and t.type(dtype) is t
        and t.type_as(t) is t
    )
    assert t.to(dtype=dtype, device="cpu") is t and t.cpu() is t and t.to() is t
    copy = t.to(dtype, copy=True)
    expect_tensor(copy, dtype)
    assert copy.data_ptr() != t.data_ptr() and t.to("cpu", copy=True) is not t


@every_dtype
def test_the_container_is_another_dtype(dtype):
    stock = container(dtype)
    t = torch.tensor(EXACT, dtype=dtype)
    for made in (
        t.to(stock),
        t.type(stock),
        t.to("cpu", stock),
        t.to(torch.zeros(1, dtype=stock)),
        t.type_as(torch.zeros(1, dtype=stock)),
    ):
        expect_tensor(made, stock)
        assert made.data_ptr() != t.data_ptr() and made.float().tolist() == EXACT
    back = t.to(stock).to(t)
    expect_tensor(back, dtype)
    assert back.tolist() == EXACT


@every_dtype
def test_memory_format_is_kept_or_changed(dtype):
    t = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    made = t.to(dtype)
    assert made.stride() == t.stride() and made.float().stride() == t.stride()
    assert made.to(torch.float32, memory_format=torch.contiguous_format).is_contiguous()
    assert (
        made.to(memory_format=torch.contiguous_format).is_contiguous()
        and made.contiguous().dtype is dtype
    )
    assert made.contiguous().to(memory_format=torch.channels_last).stride() == t.stride()
    assert t.to(dtype, memory_format=torch.contiguous_format).is_contiguous()
    assert torch.arange(6.0).reshape(2, 3).t().to(dtype).stride() == (1, 3)


@every_dtype
def test_copy_broadcasts_and_follows_strides(dtype):
    target = torch.zeros(3, 4, dtype=dtype)
    target.t().copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert target.tolist() == [[1.0] * 4, [2.0] * 4, [3.0] * 4]
    target[:, ::2] = torch.tensor([[5.0], [6.0], [7.0]], dtype=dtype)
    assert target[:, 0].tolist() == [5.0, 6.0, 7.0] and target[:, 1].tolist() == [1.0, 2.0, 3.0]
    stock = torch.zeros(4, 3)
    stock.t().copy_(target)
    assert stock.tolist() == target.t().tolist()
    target.copy_(torch.tensor(2))
    assert target.unique().tolist() == [2.0]
    with pytest.raises(
        RuntimeError,
        match=r"must match|expanded size|shape mismatch|not broadcastable|output with shape",
    ):
        target.copy_(torch.ones(5))


@pytest.mark.parametrize("name", TEN.split())
def test_type_names_the_dtype(name):
    dtype = torch_dtypes.dtype(name)
    t = torch.ones(1, dtype=dtype)
    assert t.type() == str(dtype) == f"torch.{name}"
    for stock_name, stock in (
        ("torch.FloatTensor", torch.float32),
        ("torch.BFloat16Tensor", torch.bfloat16),
        ("torch.LongTensor", torch.int64),
    ):
        expect_tensor(t.type(stock_name), stock)
    assert (
        torch.ones(1).type() == "torch.FloatTensor"
        and torch.is_tensor(t)
        and isinstance(t, torch.Tensor)
    )
    assert not isinstance(t, torch.FloatTensor) and not isinstance(t, torch.BFloat16Tensor)


# Bits


@every_dtype
def test_view_shows_the_codes_and_back(dtype):
    t = torch.tensor(EXACT, dtype=dtype)
    codes = t.view(BITS[dtype.itemsize])
    expect_tensor(codes, BITS[dtype.itemsize])
    assert codes.data_ptr() == t.data_ptr() and codes[4] == 0
    assert (
        codes.tolist()
        == _C.encode_exact(_C.format_of(dtype), torch.tensor(EXACT, dtype=torch.float64))
        .to(codes.dtype)
        .tolist()
    )
    back = codes.view(dtype)
    expect_tensor(back, dtype)
    assert back.data_ptr() == t.data_ptr() and back.tolist() == EXACT
    codes.zero_()
    assert t.tolist() == [0.0] * 6
    assert t.view(dtype).dtype is dtype and t.view(dtype=dtype).shape == t.shape


@every_dtype
def test_view_as_the_container_or_other_widths_reads_the_same_bits(dtype):
    t = torch.tensor([EXACT, EXACT[::-1]], dtype=dtype)
    stock = t.view(container(dtype))
    expect_tensor(stock, container(dtype))
    assert bits(stock) == bits(t) and stock.data_ptr() == t.data_ptr()
    expect_tensor(stock.view(dtype), dtype)
    assert (
        t.view(torch.uint8).shape == (2, 6 * dtype.itemsize)
        and t.view(torch.uint8).view(dtype).tolist() == t.tolist()
    )
    assert bits(t.t().view(BITS[dtype.itemsize])) == bits(t.t().contiguous())


def test_view_as_another_format_of_the_same_width():
    t = torch.tensor(EXACT, dtype=torch.posit16es2)
    assert bits(t.view(torch.e5m5)) == bits(t) and t.view(torch.e5m5).dtype is torch.e5m5
    assert (
        t.view(torch.q43).shape == (12,)
        and t.view(torch.q43).view(torch.posit16es2).tolist() == EXACT
    )
    with pytest.raises(RuntimeError, match="divisible"):
        torch.zeros(3, dtype=torch.q43).view(torch.posit16es2)


# Python numbers and lists


@pytest.mark.parametrize("depth", [1, 64, 65, 66, 100, 127])
def test_nested_lists_that_hold_a_tensor(depth):
    """Lists nest as deeply as stock PyTorch looks."""
    made = {}
    for dtype in (torch.bfloat16, torch.q43):
        data = torch.tensor(1.5, dtype=dtype)
        for _ in range(depth):
            data = [data]
        made[dtype] = torch.tensor(data)
    expect_tensor(made[torch.q43], torch.q43)
    assert made[torch.q43].shape == made[torch.bfloat16].shape and made[
        torch.q43
    ].flatten().tolist() == [1.5]


@every_dtype
def test_scalars(dtype):
    t = torch.tensor(-2.5, dtype=dtype)
    assert t.item() == float(t) == t.tolist() == complex(t) == -2.5 and type(t.item()) is float
    assert int(t) == -2 and bool(t) and not bool(torch.zeros((), dtype=dtype))
    assert f"{t:.2f}" == "-2.50" and t.is_nonzero()
    assert torch.tensor([[1.0, 2.0], [3.0, 0.5]], dtype=dtype).tolist() == [[1.0, 2.0], [3.0, 0.5]]
    assert torch.zeros(0, 2, dtype=dtype).tolist() == [] and list(torch.ones(2, dtype=dtype)) == [
        1.0,
        1.0,
    ]
    assert 2.0 in torch.tensor([1.0, 2.0], dtype=dtype) and 3.0 not in torch.tensor(
        [1.0, 2.0], dtype=dtype
    )
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.ones(2, dtype=dtype).item()
    nan = torch.tensor(math.nan, dtype=dtype).item()
    assert math.isnan(nan) and math.isnan(torch.tensor([math.nan], dtype=dtype).tolist()[0])


# NumPy (more of it: test_interop.py)

NUMPY = ("q43", "q52", "e4m3fn", "e8m7")  # ml_dtypes has a type of these


def test_numpy_without_ml_dtypes(monkeypatch):
    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "ml_dtypes", raising=False)

    def without_ml_dtypes(name, *args, **kwargs):
        if name == "ml_dtypes":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_ml_dtypes)
    with pytest.raises(
        TypeError,
        match=r"expected a dtype that NumPy has a type for, but got "
        r"torch\.q43.*x\.double\(\)\.numpy\(\).*torch\.uint8",
    ):
        torch.ones(2, dtype=torch.q43).numpy()


@parametrize_dtypes([name for name in TEN.split() if name not in NUMPY])
def test_numpy_has_no_type_of_the_other_formats(dtype):
    t = torch.tensor(EXACT, dtype=dtype)
    for convert in (lambda: t.numpy(), lambda: t.numpy(force=True)):
        with pytest.raises(TypeError, match=f"NumPy has a type for, but got {dtype}"):
            convert()
    # Arrays of values have separate memory.
    for array in (
        np.asarray(t),
        t.__array__(),
        np.asarray(t, dtype=np.float64),
        t.double().numpy(),
    ):
        assert array.dtype in (np.float32, np.float64) and array.tolist() == EXACT


# Printing


@every_dtype
def test_printing_shows_the_values_and_the_dtype(dtype):
    suffix = f", dtype={dtype})"
    for t, text in (
        (torch.tensor([1.0, -2.0, 0.5], dtype=dtype), "tensor([ 1.0000, -2.0000,  0.5000]"),
        (
            torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype),
            "tensor([[1., 2.],\n        [3., 4.]]",
        ),
        (torch.tensor(1.5, dtype=dtype), "tensor(1.5000"),
        (torch.tensor([], dtype=dtype), "tensor([]"),
        (torch.zeros(2, 0, dtype=dtype), "tensor([], size=(2, 0)"),
        (torch.tensor([math.nan, 1.0], dtype=dtype), "tensor([nan, 1.]"),
    ):
        assert repr(t) == str(t) == text + suffix
    leaf = torch.tensor([1.0], dtype=dtype, requires_grad=True)
    assert repr(leaf) == f"tensor([1.], dtype={dtype}, requires_grad=True)"
    assert repr(leaf * 2) == f"tensor([2.], dtype={dtype}, grad_fn=<MulBackward0>)"
    assert (
        repr(torch.nn.Parameter(torch.tensor([1.0], dtype=dtype)))
        == f"Parameter containing:\ntensor([1.], dtype={dtype}, requires_grad=True)"
    )
    many = repr(torch.ones(50, 50, dtype=dtype))
    assert "...," in many and many.endswith(suffix) and len(many.splitlines()) == 7


def test_printing_of_infinities_and_large_numbers():
    assert (
        repr(torch.tensor([math.inf, -math.inf, 1.0], dtype=torch.q43))
        == "tensor([inf, -inf, 1.], dtype=torch.q43)"
    )
    assert (
        repr(torch.tensor([math.nan, 1.0], dtype=torch.posit16es2))
        == "tensor([nan, 1.], dtype=torch.posit16es2)"
    )
    assert (
        repr(torch.tensor([2.0**40, 1.0], dtype=torch.posit32es2))
        == "tensor([1.0995e+12, 1.0000e+00], dtype=torch.posit32es2)"
    )
    assert (
        repr(torch.tensor([2.0**-100], dtype=torch_dtypes.dtype("e11m30")))
        == "tensor([7.8886e-31], dtype=torch.e11m30)"
    )
    assert (
        repr(torch.tensor([2.0**1000], dtype=torch_dtypes.dtype("e11m20")))
        == "tensor([1.0715e+301], dtype=torch.e11m20)"
    )


@few_dtypes
def test_printing_a_default_dtype_leaves_its_name_out(dtype):
    try:
        torch.set_default_dtype(dtype)
        assert repr(torch.tensor([1.5])) == "tensor([1.5000])"
        assert repr(torch.ones(1, dtype=torch.float32)) == "tensor([1.], dtype=torch.float32)"
    finally:
        torch.set_default_dtype(torch.float32)
    assert repr(torch.tensor([1.5])) == "tensor([1.5000])"


@parametrize_dtypes("posit16es2 q43 posit32es2 e11m30")
def test_operators_that_answer_in_a_stock_type_do_so_for_every_width(dtype):
    x = torch.tensor([1.0, 2.0]).to(dtype)
    assert x.dequantize().dtype is torch.float32 and x.dequantize().tolist() == [1.0, 2.0]
    for power in (torch.float_power(x, 2), torch.float_power(x, x), torch.float_power(2.0, x)):
        assert power.dtype is torch.float64 and not _C.is_format_tensor(power)
    y = x.clone().requires_grad_()
    torch.float_power(y, 2).sum().backward()
    assert y.grad.dtype is dtype and y.grad.tolist() == [2.0, 4.0]


@parametrize_dtypes("posit16es2 q43 posit32es2 e11m30")
def test_lists_of_several_dtypes_are_taken_place_by_place(dtype):
    x, f, i = torch.tensor([1.0, 2.0]).to(dtype), torch.tensor([0.1, 3.0]), torch.tensor([1, 4])
    exp = torch._foreach_exp([x, f, i])
    assert [t.dtype for t in exp] == [dtype, torch.float32, torch.float32]
    assert (
        torch.equal(exp[0].double(), x.exp().double())
        and torch.equal(exp[1], f.exp())
        and torch.equal(exp[2], i.exp())
    )
    for scalars in (torch.tensor([1.0, 2.0], device="cpu"), [1.0, 2.0]):
        a, b = torch._foreach_addcdiv([x, f], [x, f], [x, f], scalars)
        assert (
            a.dtype is dtype
            and a.tolist() == [2.0, 3.0]
            and torch.equal(b, torch.addcdiv(f, f, f, value=2.0))
        )
    # A tensor of numbers is no operand.
    assert (
        torch._foreach_addcdiv([x], [x], [x], torch.tensor([1.0], device="cpu"))[0].dtype is dtype
    )
    assert torch._foreach_addcdiv([f], [f], [f], x[:1].cpu())[0].dtype is torch.float32
    written = [x.clone(), f.clone()]
    torch._foreach_mul_(written, [2.0, 3.0])
    assert (
        written[0].dtype is dtype
        and written[0].tolist() == [2.0, 4.0]
        and torch.equal(written[1], f * 3.0)
    )


def test_a_place_of_two_dtypes_is_one_call():
    x, f = torch.tensor([1.0, 2.0]).to(torch.posit16es2), torch.tensor([0.1, 3.0])
    target = [x.clone(), f.clone()]
    torch._foreach_copy_(target, [f, x])
    assert torch.equal(target[0].double(), f.to(torch.posit16es2).double()) and target[
        1
    ].tolist() == [1.0, 2.0]
    out = torch.empty(2, dtype=torch.float32)
    torch.ops.aten._foreach_sign.out([x], out=[out])
    assert out.tolist() == [1.0, 1.0]


def test_singular_values_alone_come_with_factors_of_the_dtype():
    u, s, v = torch.svd(torch.eye(2).to(torch.q43), compute_uv=False)
    assert u.dtype is s.dtype is v.dtype is torch.q43 and s.tolist() == [1.0, 1.0]


def test_a_type_s_name_is_taken_back():
    """As "torch.BFloat16Tensor" for bfloat16."""
    x = torch.ones(2, dtype=torch.posit16es2)
    for other in (torch.full((2,), 0.3), x, torch.full((2,), 0.3).to(torch.q43)):
        made = other.type(x.type())
        assert made.dtype is torch.posit16es2
        assert made.tolist() == other.to(torch.posit16es2).tolist()
    assert torch.nn.Linear(2, 2).type(x.type()).weight.dtype is torch.posit16es2
    with pytest.raises(ValueError, match="invalid type"):
        torch.ones(2).type("torch.no_such_dtype")
    with pytest.raises(TypeError):
        torch.tensor("torch.posit16es2")
