"""Arguments that determine an operator's result: dtypes given by name and by hand, complex numbers,
operands of other dtypes. Formats of every storage dtype are tried, since a requested stock dtype
may be that storage dtype."""

import warnings

import numpy
import pytest
import torch

import torch_dtypes

NAMES = ("q43", "e5m5", "posit16es2", "posit32es2", "fixed8_8", "ufixed4_4", "e11m30")
STOCK = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
VALUES = [[1.5, 2.0, 0.5], [3.0, 0.25, 1.0]]
INTEGERS = torch.tensor([[1, 2, 3], [4, 5, 6]])
aten = torch.ops.aten


def of(dtype) -> torch.Tensor:
    return torch.tensor(VALUES, dtype=torch.float64).to(dtype)


@pytest.fixture(params=NAMES)
def dtype(request):
    return torch_dtypes.dtype(request.param)


def complex_of(dtype) -> torch.dtype:
    return torch.complex64 if torch_dtypes.format_of(dtype).fits_float else torch.complex128


def same(result, expected):
    assert result.dtype is expected.dtype and result.shape == expected.shape
    exact = torch.complex128 if result.is_complex() else torch.float64
    assert torch.equal(result.to(exact), expected.to(exact))


@pytest.mark.parametrize("asked", STOCK)
def test_stock_dtypes_by_hand_and_by_place(dtype, asked):
    x, exact = of(dtype), of(asked)
    for call in [
        lambda t: aten._to_copy(t, dtype=asked),
        lambda t: aten._to_copy.default(t, dtype=asked),
        lambda t: aten.to.dtype(t, asked),
        lambda t: aten.to(t, asked),
        lambda t: aten.sum.dim_IntList(t, [0], dtype=asked),
        lambda t: aten.sum(t, dtype=asked),
        lambda t: aten.cumsum(t, 0, dtype=asked),
        lambda t: aten.zeros_like(t, dtype=asked),
        lambda t: aten.full_like(t, 1.5, dtype=asked),
        lambda t: aten.new_full(t, [2], 1.5, dtype=asked),
        lambda t: aten.prod(t, dtype=asked),
        lambda t: aten.stack([t, t]).to(asked),
    ]:
        same(call(x), call(exact))
    for call in [
        lambda t: torch.softmax(t, 0, asked),
        lambda t: t.softmax(0, asked),
        lambda t: t.log_softmax(0, asked),
        lambda t: torch.special.softmax(t, 0, asked),
        lambda t: aten.softmax.int(t, 0, asked),
    ]:
        assert call(x).dtype is asked
        torch.testing.assert_close(call(x), call(exact))
    for name in ("_foreach_norm", "_foreach_powsum"):
        if hasattr(torch, name):
            if name == "_foreach_powsum" or torch.promote_types(dtype, asked) is asked:
                assert [t.dtype for t in getattr(torch, name)([x, x], 2, dtype=asked)] == [
                    asked,
                    asked,
                ]
            else:  # like float64 beside dtype=torch.float32
                with pytest.raises(
                    RuntimeError,
                    match=f"expected dtype= that the tensor's {dtype} promotes to, but got {asked}",
                ):
                    getattr(torch, name)([x, x], 2, dtype=asked)
            assert [t.dtype for t in getattr(torch, name)([x, x])] == [dtype, dtype]


@pytest.mark.parametrize(
    "kind", ["Double", "Float", "Half", "Int", "Long", "Short", "Char", "Byte"]
)
def test_named_casts(dtype, kind):
    x = of(dtype)
    for cast in (getattr(torch, f"_cast_{kind}"), getattr(aten, f"_cast_{kind}")):
        same(cast(x), cast(of(torch.float64)))
    if kind in ("Double", "Float", "Half"):
        x.requires_grad_()
        cast(x).sum().backward()
        assert x.grad.dtype is dtype and x.grad.tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("asked", [torch.int32, torch.int16, torch.int64, torch.bool])
def test_sums_in_integers_have_the_type_asked_for(dtype, asked):
    x, exact = of(dtype), of(torch.float32)
    for call in [
        lambda t: torch.sum(t, dtype=asked),
        lambda t: t.sum(0, dtype=asked),
        lambda t: torch.prod(t, dtype=asked),
        lambda t: t.prod(0, dtype=asked),
        *(
            [lambda t: torch.cumsum(t, 0, dtype=asked), lambda t: t.cumprod(0, dtype=asked)]
            if asked is not torch.bool
            else []
        ),
    ]:
        same(call(x), call(exact))


def test_format_dtypes_by_hand_are_refused_or_heard(dtype):
    for call in [
        lambda: aten.zeros([2], dtype=dtype),
        lambda: aten.empty([2], dtype=dtype),
        lambda: aten.arange(3, dtype=dtype),
        lambda: aten.sum(INTEGERS, dtype=dtype),
        lambda: aten.mean(INTEGERS, dtype=dtype),
        lambda: aten.softmax.int(INTEGERS, 1, dtype),
        lambda: aten.new_zeros(torch.ones(2), [2], dtype=dtype),
        lambda: aten.ones_like.default(INTEGERS, dtype=dtype),
        lambda: aten.cumsum_(torch.ones(2), 0, dtype=dtype),
        lambda: aten.softmax.int(of(dtype), 1, dtype),
    ]:
        with pytest.raises(
            TypeError,
            match=f"expected a stock dtype for this operator called by hand, but got {dtype}",
        ):
            call()
    assert (
        aten._to_copy(INTEGERS, dtype=dtype).dtype
        is aten.to.dtype(torch.ones(2), dtype).dtype
        is dtype
    )
    assert aten.nanmean(of(dtype), dtype=dtype).dtype is dtype
    assert (
        aten.as_tensor(1.5, dtype=dtype).dtype
        is aten.sum(of(dtype), dtype=dtype).dtype
        is aten.sum.dim_IntList(of(dtype), [0], dtype=dtype).dtype
    )
    # An error of the operator itself is unchanged.
    with pytest.raises(IndexError, match="Dimension out of range"):
        aten.sum.dim_IntList(of(dtype), [5], dtype=dtype)


def test_complex_numbers(dtype):
    x, wide = of(dtype), complex_of(dtype)
    exact = of(torch.float32 if wide is torch.complex64 else torch.float64)
    assert torch.complex(x, x).dtype is torch.result_type(x, 1j) is torch.result_type(1j, x) is wide
    for call in [
        lambda t: t + 1j,
        lambda t: 2j * t,
        lambda t: t / 2j,
        lambda t: t - 1j,
        lambda t: 1j - t,
        lambda t: torch.rsub(t, 2j),
        lambda t: t**2j,
        lambda t: torch.add(t, 1j, alpha=2),
        lambda t: torch.where(t > 1, t, 1j),
        lambda t: torch.where(t > 1, 1j, t),
        lambda t: aten.add.Scalar(t, 2j),
        lambda t: aten.sub.Scalar(t, 2j, 3),
        lambda t: aten.mul.Scalar(t, 2j),
        lambda t: aten.div.Scalar(t, 2j),
        lambda t: aten.rsub.Scalar(t, 2j),
        lambda t: 2j**t,
        lambda t: torch._foreach_mul([t, t], 2j)[1],
        lambda t: torch._foreach_add([t], [2j])[0],
        lambda t: torch._foreach_pow([t, t], 2j)[0],
        lambda t: torch._foreach_div([t, INTEGERS], 2j)[0],
    ]:
        same(call(x), call(exact))
    for call in (
        lambda: x.add_(1j),
        lambda: x.mul_(2j),
        lambda: aten.add_.Scalar(x, 1j),
        lambda: aten.mul_.Scalar(x, 1j),
    ):
        with pytest.raises(RuntimeError, match="complex"):
            call()
    x.requires_grad_()
    for call in (
        lambda t: t * 2j,
        lambda t: t**2j,
        lambda t: aten.mul.Scalar(t, 2j),
        lambda t: aten.add.Scalar(t, 2j),
    ):
        leaf = exact.clone().requires_grad_()
        (expected,) = torch.autograd.grad(call(leaf).abs().sum(), leaf)
        (gradient,) = torch.autograd.grad(call(x).abs().sum(), x)
        same(gradient, expected.to(dtype))


def test_complex_data_are_an_error_where_the_dtype_is_real(dtype):
    x = of(dtype)
    for call in (
        lambda: torch.tensor(1j, dtype=dtype),
        lambda: torch.tensor([1.0, 2j], dtype=dtype),
        lambda: x.new_tensor([1j]),
        lambda: torch.as_tensor([1j], dtype=dtype),
        lambda: torch.asarray([1j], dtype=dtype),
    ):
        with pytest.raises(TypeError, match="must be real number, not complex"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert x.clone().fill_(torch.tensor(2 + 1j)).unique().tolist() == [2.0]


def test_integers_beyond_all_stock_types(dtype):
    for data in (2**70, [2**70, 1], [[2**64]]):
        same(torch.tensor(data, dtype=dtype), torch.tensor(data, dtype=torch.float64).to(dtype))
        same(torch.as_tensor(data, dtype=dtype), torch.tensor(data, dtype=torch.float64).to(dtype))
    with pytest.raises(OverflowError, match="too large"):
        torch.tensor(10**400, dtype=dtype)


@pytest.mark.parametrize(
    "other", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]
)
def test_what_is_put_into_a_tensor_takes_its_dtype(dtype, other):
    x, source = of(dtype), torch.full((2, 3), 1.25).to(other)
    into = of(torch.float64).to(other)
    calls = [
        lambda t, s: torch.slice_scatter(t, s),
        lambda t, s: torch.select_scatter(t, s[0], 0, 1),
        lambda t, s: aten.copy(t, s),
        lambda t, s: torch.diagonal_scatter(t, s[0, :2]),
        lambda t, s: torch.as_strided_scatter(t, s[0], (3,), (1,)),
        lambda t, s: torch.fill(t, s[0, 0]),
        lambda t, s: torch.fill(t[0, 0], s[0, 0]),
    ]
    with warnings.catch_warnings():  # PyTorch warns of imaginary parts
        warnings.simplefilter("ignore")
        for call in calls:
            same(call(x, source), call(of(torch.float64), source).to(dtype))
            same(call(into, x), call(into, of(torch.float64)))


@pytest.mark.parametrize("other", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_put_into_a_tensor_gets_its_gradient(dtype, other):
    x, source = of(dtype).requires_grad_(), torch.full((2, 3), 1.25).to(other).requires_grad_()
    (torch.slice_scatter(x, source[:1], 0, 0, 1) * 2).sum().backward()
    assert x.grad.dtype is dtype and x.grad.tolist() == [[0.0] * 3, [2.0] * 3]
    assert source.grad.dtype is other and source.grad.tolist() == [[2.0] * 3, [0.0] * 3]
    source.grad = x.grad = None
    torch.slice_scatter(source, x[:1], 0, 0, 1).sum().backward()
    assert (
        x.grad.dtype is dtype
        and source.grad.dtype is other
        and x.grad.tolist() == source.grad.flip(0).tolist() == [[1.0] * 3, [0.0] * 3]
    )


@pytest.mark.parametrize("other", [torch.float32, torch.float64])
def test_three_operands_of_two_dtypes(dtype, other):
    x, stock = of(dtype), torch.full((2, 3), 1.1).to(other)
    exact = of(torch.promote_types(dtype, other))
    for op in (torch.addcmul, torch.addcdiv):
        same(op(stock, x, x, value=2), op(stock, exact, exact, value=2))
        same(op(x, stock, x), op(exact, stock, exact))
        same(stock.clone().addcmul_(x, x), stock.clone().addcmul_(exact, exact))
        assert op(x, stock[0, 0], x).dtype is dtype
    for call in (lambda: x.addcmul_(x, x * 1j), lambda: x.addcdiv_(x * 1j, x)):
        with pytest.raises(RuntimeError, match="expected real operands"):
            call()
    with pytest.raises(RuntimeError, match="expected operands of one dtype"):
        INTEGERS.clone().lerp_(x, 1)


@pytest.mark.parametrize("given", STOCK)
def test_gradients_of_other_dtypes(dtype, given):
    gradient = torch.full((2, 3), 1.5).to(given)
    for run in (
        lambda y: aten.backward(y, gradient),
        lambda y: aten._backward(y, [], gradient),
        lambda y: y.backward(gradient),
    ):
        x = of(dtype).requires_grad_()
        run(x * 2)
        assert x.grad.dtype is dtype and x.grad.unique().tolist() == [3.0]
        x.grad = None
        run(x)
        assert x.grad.dtype is dtype and x.grad.unique().tolist() == [1.5]
    x = of(dtype).requires_grad_()
    aten.backward.TensorList([x * 2, x], [gradient, gradient])
    assert x.grad.dtype is dtype and x.grad.unique().tolist() == [4.5]
    assert [g.dtype for g in aten.grad([x * 2], [x], [gradient])] == [dtype]
    x = of(dtype).requires_grad_()
    x.register_hook(lambda g: g.to(given))
    with pytest.raises(
        RuntimeError,
        match=f"expected the hook <lambda> to return a gradient of {dtype}, but got {given}",
    ):
        (x * 2).backward(gradient)
    assert x.grad is None
    y = of(dtype).requires_grad_()
    handle = y.register_hook(lambda g: (g.to(given) / 2).to(dtype))
    (y * 2).backward(gradient)
    handle.remove()
    (y * 2).backward(gradient)
    assert y.grad.dtype is dtype and y.grad.unique().tolist() == [4.5]


def test_copies_of_views_of_the_codes(dtype):
    x = of(dtype)
    for asked in (torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.int64, dtype):
        codes = x if x.shape[-1] * dtype.itemsize % asked.itemsize == 0 else x.repeat(1, 8)
        viewed = codes.view(asked)
        copied = torch.view_copy(codes, asked)
        assert copied.dtype is asked and torch.equal(
            copied.view(torch.uint8), viewed.view(torch.uint8)
        )
        assert copied.data_ptr() != x.data_ptr()
    with pytest.raises(NotImplementedError, match="no negative bit"):
        torch._neg_view(x)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_views_in_place_leave_the_memory_alone(dtype, requires_grad):
    def make(of_dtype):
        return (of(of_dtype).requires_grad_(requires_grad) * 1)[None]

    for change in [
        lambda t: t.transpose_(2, 0),
        lambda t: t.swapaxes_(1, 2),
        lambda t: t.squeeze_(),
        lambda t: t.squeeze_(0),
        lambda t: t.squeeze_((0, 1)),
        lambda t: t.unsqueeze_(1),
        lambda t: t[0].detach().t_(),
        lambda t: t.detach().as_strided_((2, 2), (1, 2), 1),
        lambda t: t.swapdims_(0, 1),
    ]:
        base, stock = make(dtype), make(torch.float64)
        alias, changed, expected = base.detach(), change(base), change(stock)
        assert (changed.stride(), changed.storage_offset()) == (
            expected.stride(),
            expected.storage_offset(),
        )
        assert changed.data_ptr() == alias.data_ptr() + changed.storage_offset() * dtype.itemsize
        same(changed, expected.to(dtype))
        assert alias.tolist() == [VALUES]
    if requires_grad:
        leaf = of(dtype).requires_grad_()
        view = (leaf * 1)[None]
        (view.transpose_(2, 0) * torch.arange(3).view(3, 1, 1)).sum().backward()
        assert leaf.grad.dtype is dtype and leaf.grad.tolist() == [[0.0, 1.0, 2.0]] * 2
    with pytest.raises(RuntimeError, match=f"expected a base of float64, but got {str(dtype)[6:]}"):
        of(dtype).float_power_(2)
    assert (
        of(dtype).to_dense(dtype=torch.float64).dtype is torch.float64
        and of(dtype).to_dense(dtype=torch.float32).dtype is torch.float32
    )


def test_combinations_of_none(dtype):
    x = of(dtype)[0].clone().requires_grad_()
    assert torch.combinations(x, 0).dtype is dtype and torch.combinations(x, 0).shape == (0,)
    assert torch.combinations(x, 2).dtype is dtype


def test_what_cannot_be_assigned_names_the_dtype(dtype):
    x = of(dtype)
    for value in ([1, 2, 3], numpy.array([1.0, 2.0, 3.0]), "a"):
        with pytest.raises(
            TypeError,
            match=f"expected a number or a tensor for elements of a tensor of {dtype}, but got a",
        ):
            x[0] = value
    with pytest.raises(IndexError):
        x[5] = torch.ones(3)


def test_ends_of_a_range_say_nothing_of_its_dtype(dtype):
    one, two = torch.tensor(1.0, dtype=dtype), torch.tensor(2.0, dtype=dtype)
    for function in (torch.linspace, torch.logspace):
        for start, end in ((one, two), (1.0, two), (one, 2.0)):
            same(function(start, end, 5), function(1.0, 2.0, 5))
            same(
                function(start, end=end, steps=5, dtype=torch.float64),
                function(1.0, 2.0, 5, dtype=torch.float64),
            )
            same(function(start, end, 5, dtype=dtype), function(1.0, 2.0, 5, dtype=dtype))
            out = torch.empty(5, dtype=dtype)
            assert function(start, end, 5, out=out) is out
            same(out, function(1.0, 2.0, 5, dtype=dtype))


def test_dense_tensors_in_a_sparse_product(dtype):
    x = of(dtype).requires_grad_()
    y = x.detach().mT
    same(torch.sparse.mm(x, y), x @ y)
    torch.sparse.mm(x, y).sum().backward()
    assert x.grad.dtype is dtype
    for left in (torch.eye(2).to_sparse(), torch.eye(2).to_sparse().requires_grad_()):
        # Also with a gradient, where casts would make a stock product of it.
        for right in (x.detach(), x):
            with pytest.raises(NotImplementedError, match="sparse"):
                torch.sparse.mm(left, right)
            with pytest.raises(NotImplementedError, match="sparse"):
                left @ right
            with pytest.raises(NotImplementedError, match="sparse"):
                right[:, :2] * left


QUANTISERS = {
    "tensor": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor([0.5]), torch.tensor([0]), -8, 7
    ),
    "channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.full((3,), 0.5), torch.zeros(3).int(), 1, -8, 7
    ),
    "learnt tensor": lambda x: torch._fake_quantize_learnable_per_tensor_affine(
        x, torch.tensor([0.5]), torch.tensor([0.0]), -8, 7
    ),
    "learnt channel": lambda x: torch._fake_quantize_learnable_per_channel_affine(
        x, torch.full((3,), 0.5), torch.zeros(3), 1, -8, 7
    ),
}


@pytest.mark.parametrize("name", QUANTISERS)
def test_fake_quantisation_keeps_the_dtype_beside_float32_scales(dtype, name):
    x = of(dtype).requires_grad_()
    y = QUANTISERS[name](x)
    same(y, QUANTISERS[name](x.detach().float()).to(dtype))
    if "learnt" in name and not torch_dtypes.format_of(dtype).fits_float:
        with pytest.raises(RuntimeError, match="to be true"):  # PyTorch's error for float64
            y.sum().backward()
        return
    y.sum().backward()
    assert x.grad.dtype is dtype and x.grad.bool().all()


def test_fused_observers_take_float32_alone(dtype):
    numbers = (
        [torch.tensor([x]) for x in (1, 1)]
        + [torch.tensor([x]) for x in (0.0, 1.0, 1.0)]
        + [torch.tensor([0])]
    )
    with pytest.raises(NotImplementedError, match="float32 tensors only"):
        torch.fused_moving_avg_obs_fake_quant(of(dtype), *numbers, 0.01, 0, 255, -1)


GROUPS = [
    ((4, 8), (2, 8, 16), [1, 4]),
    ((2, 4, 8), (8, 16), [8, 16]),
    ((8, 16), (16, 8), [4, 16]),
    ((2, 4, 8), (2, 8, 16), None),
]


@pytest.mark.parametrize(("m", "n", "ends"), GROUPS, ids=["rows", "columns", "terms", "batches"])
def test_grouped_products(dtype, m, n, ends):
    g = torch.Generator().manual_seed(2)
    a, b = ((torch.rand(size, generator=g) * 2).to(dtype).requires_grad_() for size in (m, n))
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    if not torch_dtypes.format_of(dtype).fits_float:
        with pytest.raises(RuntimeError, match="got Double"):  # PyTorch's error for float64
            torch.nn.functional.grouped_mm(a, b, offs=offs)
        return
    wide = [t.detach().double().float().requires_grad_() for t in (a, b)]
    found, expected = (
        torch.nn.functional.grouped_mm(a, b, offs=offs),
        torch.nn.functional.grouped_mm(*wide, offs=offs),
    )
    weights = torch.rand(expected.shape, generator=g).to(dtype)
    (found * weights).sum().backward()
    (expected * weights.float()).sum().backward()
    close = {"rtol": 0.2, "atol": 0.6} if dtype.itemsize == 1 else {"rtol": 0.05, "atol": 0.1}
    assert found.dtype is dtype and torch.allclose(
        found.float(), expected.to(dtype).float(), **close
    )
    for t, w in zip((a, b), wide, strict=True):
        assert t.grad.dtype is dtype and torch.allclose(t.grad.float(), w.grad, **close)


def test_nansum_leaves_nan_out_before_the_cast(dtype):
    """Integers and e2m1 have no NaN."""
    numbers = torch.tensor([[1.0, float("nan"), 2.5], [float("nan"), 0.0, 3.0]])
    x = numbers.to(dtype)
    for asked in (torch.int64, torch.int8, torch.bool):
        expected = torch.nansum(numbers, 1, dtype=asked)
        for found in (
            torch.nansum(x, 1, dtype=asked),
            x.nansum(1, dtype=asked),
            torch.nansum(input=x, dim=1, dtype=asked),
        ):
            assert found.dtype is asked and torch.equal(found, expected)
    for given in (numbers, x):
        found = torch.nansum(given, dim=1, dtype=torch_dtypes.dtype("e2m1"))
        assert found.dtype is torch_dtypes.dtype("e2m1") and found.tolist() == [3.0, 3.0]
    leaf = numbers.clone().requires_grad_()
    leaf.nansum(dtype=torch_dtypes.dtype("e2m1")).backward()
    assert leaf.grad.tolist() == (~numbers.isnan()).float().tolist()


def test_nanmean_counts_numbers_alone():
    """In e2m1 NaN is the largest number, and in fixed8_8 it is 0."""
    numbers = torch.tensor([[0.5, float("nan"), 1.5], [float("nan"), 0.0, 1.0]])
    for name in ("e2m1", "fixed8_8", "e4m3fn", "posit16es2"):
        asked = torch_dtypes.dtype(name)
        for given in (numbers, numbers.to(torch.posit32es2)):
            rows = (
                torch.nanmean(given, 1, dtype=asked),
                given.nanmean(1, dtype=asked),
                torch.nanmean(given, 1, dtype=asked, out=torch.empty(2, dtype=asked)),
            )
            for found in rows:
                assert found.dtype is asked and found.tolist() == [1.0, 0.5]
            assert given[:, :2].nanmean(dim=0, keepdim=True, dtype=asked)[0, :1].tolist() == [0.5]
        leaf = numbers.clone().requires_grad_()
        leaf.nanmean(1, dtype=asked).sum().backward()
        assert torch.equal(leaf.grad, (~numbers.isnan()).float() / 2)


@pytest.mark.parametrize("name", ["fixed8_8", "posit16es2"])
def test_nanmean_beneath_transforms(name):
    """The code reads no value of a tensor."""
    numbers, asked = torch.tensor([0.5, float("nan"), 1.5]), torch_dtypes.dtype(name)

    def f(x):
        return x.nanmean(dtype=asked).float()

    assert torch.func.grad(f)(numbers).tolist() == [0.5, 0, 0.5]
    assert torch.func.jvp(f, (numbers,), (torch.ones(3),))[1].item() == 1
    with torch.device("meta"):
        assert f(numbers).item() == 1
    assert numbers.to("meta").nanmean(dtype=asked).dtype is asked
