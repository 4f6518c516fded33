"""A format dtype as default dtype: the dtype of tensors made from numbers, the results of operators
on integers, and tensors that the default leaves alone."""

import numpy as np
import pytest
import torch
from test_factories import every_dtype, expect_same, expect_tensor, few_dtypes
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torch_dtypes


@pytest.fixture
def default_dtype():
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


FRACTIONS = {
    "tensor": lambda: torch.tensor([1.5]),
    "tensor of a number": lambda: torch.tensor(0.5),
    "tensor of nothing": lambda: torch.tensor([]),
    "zeros": lambda: torch.zeros(2),
    "ones": lambda: torch.ones(2),
    "empty": lambda: torch.empty(1),
    "full": lambda: torch.full((1,), 1.5),
    "rand": lambda: torch.rand(2),
    "randn": lambda: torch.randn(2),
    "arange": lambda: torch.arange(0.0, 1, 0.5),
    "eye": lambda: torch.eye(2),
    "linspace": lambda: torch.linspace(0, 1, 2),
    "logspace": lambda: torch.logspace(0, 1, 2),
    "window": lambda: torch.hann_window(3),
    "as_tensor": lambda: torch.as_tensor([0.5]),
    "asarray": lambda: torch.asarray([0.5]),
    "scalar_tensor": lambda: torch.scalar_tensor(1.5),
    "normal": lambda: torch.normal(0.0, 1.0, (2,)),
    "empty_strided": lambda: torch.empty_strided((1,), (1,)),
    "Tensor of a list": lambda: torch.Tensor([1.5]),
    "Tensor of a size": lambda: torch.Tensor(2),
    "a quotient of integers": lambda: torch.arange(3) / 2,
    "an integer times a fraction": lambda: torch.arange(3) * 0.5,
    "the root of an integer": lambda: torch.arange(3).sqrt(),
    "softmax of integers": lambda: torch.arange(3).softmax(0, dtype=torch.get_default_dtype()),
    "sigmoid of integers": lambda: torch.arange(3).sigmoid(),
    "range of integers": lambda: torch.range(0, 2),
    "the gradient of integers": lambda: torch.gradient(torch.arange(3))[0],
    "Linear": lambda: nn.Linear(2, 2).weight,
    "BatchNorm1d": lambda: nn.BatchNorm1d(2).running_var,
    "Parameter": lambda: nn.Parameter(torch.zeros(2)),
}


@few_dtypes
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("call", FRACTIONS)
def test_default_dtype_is_that_of_fractions(default_dtype, call, dtype):
    default_dtype(dtype)
    expect_tensor(FRACTIONS[call](), dtype)


def into(call):
    out = torch.empty(0)
    call(out)
    return out


# For each operator on integers: (the call under the default, the call on the integers cast to it).
OF_INTEGERS = {
    "/": (lambda i: i / 3, lambda x: x / 3),
    "number /": (lambda i: 3 / i, lambda x: 3 / x),
    "div": (lambda i: torch.div(i, other=7), lambda x: x / 7),
    "sqrt": (torch.sqrt, torch.sqrt),
    "exp": (lambda i: (i * 25).exp(), lambda x: (x * 25).exp()),
    "a number": (lambda i: i * 0.1, lambda x: x * 0.1),
    "keywords": (lambda i: torch.atan2(other=i, input=i + 1), lambda x: torch.atan2(x + 1, x)),
    "bools": (lambda i: (i > 1) / 3, lambda x: (x > 1).to(x.dtype) / 3),
    "and bools": (lambda i: i / (i > 0), lambda x: x),
    "lists": (lambda i: torch._foreach_div([i, i], 3)[1], lambda x: x / 3),
    "gradient": (lambda i: torch.gradient(i)[0], lambda x: torch.gradient(x)[0]),
    "a function in Python": (torch.nn.functional.softsign, torch.nn.functional.softsign),
    "where": (lambda i: torch.where(i > 2, i, 0.1), lambda x: torch.where(x > 2, x, 0.1)),
    "where of numbers": (
        lambda i: torch.where(i > 2, 0.1, 0.7),
        lambda x: torch.where(x > 2, x.new_tensor(0.1), 0.7),
    ),
    "where of bools": (
        lambda i: (i > 2).where(i > 1, 0.1),
        lambda x: torch.where(x > 1, (x > 2).to(x.dtype), 0.1),
    ),
    "weights": (lambda i: torch.cov(i, fweights=i), lambda x: torch.cov(x, fweights=x.long())),
    "out=": (lambda i: into(lambda out: torch.div(i, 3, out=out)), lambda x: x / 3),
    "integers in out=": (
        lambda i: into(lambda out: torch.mul(i, i, out=out)),
        lambda x: (x.long() * x.long()).to(x.dtype),
    ),
}


@few_dtypes
@pytest.mark.parametrize("stock", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", OF_INTEGERS)
def test_default_dtype_is_that_of_fractions_computed(default_dtype, case, stock, dtype):
    """As with stock dtypes, integers become the default dtype, and the operator computes in it."""
    default_dtype(stock)
    default_dtype(dtype)
    of_default, of_cast = OF_INTEGERS[case]
    whole = torch.arange(1, 12)
    for mode in ("nearest_even", "up"):
        with torch_dtypes.rounding(mode):
            expect_same(of_default(whole), of_cast(whole.to(dtype)))


@few_dtypes
def test_default_dtype_and_kernels_that_stock_lacks(default_dtype, dtype):
    default_dtype(torch.bfloat16)
    default_dtype(dtype)
    whole = torch.arange(1, 4)
    expect_same(torch.special.bessel_j0(whole), torch.special.bessel_j0(whole.to(dtype)))
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        whole.softmax(0)


@few_dtypes
@pytest.mark.parametrize("stock", [torch.float32, torch.float64], ids=str)
def test_default_dtype_is_not_that_of_integers(default_dtype, stock, dtype):
    """Results that stay integers, that are float64 whatever the default, or whose dtype is
    given."""
    default_dtype(stock)
    default_dtype(dtype)
    whole = torch.arange(1, 4)
    for made in (
        whole + 300,
        whole.sum(),
        whole // 2,
        torch.where(whole > 1, whole, 3),
        whole.clone().add_(1),
    ):
        expect_tensor(made, torch.int64)
    for made in (whole.float_power(2), torch.float_power(2, whole), torch.bincount(whole, whole)):
        expect_tensor(made, torch.float64)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        whole.div_(2)
    expect_tensor(torch.sqrt(whole, out=torch.empty(3, dtype=torch.float32)), torch.float32)


@few_dtypes
def test_integers_among_fractions_of_a_list_stay_integers(default_dtype, dtype):
    """Every result of the list once had the default dtype if one of them had."""
    default_dtype(dtype)
    i = torch.arange(3)
    for numbers, dtypes in (
        ([1, 2.5], [torch.int64, dtype]),
        ([2.5, 1], [dtype, torch.int64]),
        ([1, 2.5, 1j], [torch.int64, dtype, torch.complex64]),
    ):
        made = torch._foreach_add([i] * len(numbers), numbers)
        assert [t.dtype for t in made] == dtypes
        for t, number in zip(made, numbers, strict=True):
            assert torch.equal(t, i + number)


@few_dtypes
def test_integers_of_a_list_beside_fractions_are_of_the_default_dtype(default_dtype, dtype):
    """Each has the dtype that it has by itself. They once had the stock default dtype."""
    default_dtype(dtype)
    i, f, x, s = (
        torch.arange(3),
        torch.ones(3, dtype=torch.float32),
        torch.ones(3, dtype=dtype),
        torch.tensor(2.5, dtype=dtype),
    )
    for name in ("add", "sub", "mul", "div", "maximum"):
        for number in (s, 2.5):
            made = getattr(torch, f"_foreach_{name}")([i, f, x], number)
            single = torch.clamp_min if (name, number) == ("maximum", 2.5) else getattr(torch, name)
            for t, operand in zip(made, (i, f, x), strict=True):
                expected = single(operand, number)
                assert t.dtype is expected.dtype and torch.equal(t, expected)
    assert [t.dtype for t in torch._foreach_add([i, f], 1)] == [torch.int64, torch.float32]


@few_dtypes
def test_default_dtype_is_not_that_of_the_rest(default_dtype, dtype):
    default_dtype(dtype)
    array, double = np.zeros(1), torch.ones(1, dtype=torch.float64)
    for made in (
        torch.tensor([1]),
        torch.arange(3),
        torch.full((1,), 2),
        torch.randint(3, (2,)),
        torch.randperm(3),
    ):
        expect_tensor(made, torch.int64)
    for made in (
        torch.tensor(array),
        torch.zeros_like(double),
        torch.zeros(1, out=double.clone()),
        torch.zeros(1, dtype=torch.float64),
    ):
        expect_tensor(made, torch.float64)
    expect_tensor(torch.tensor([True]), torch.bool)


class Subclass(torch.Tensor):
    pass


@few_dtypes
def test_legacy_constructors_under_a_default(default_dtype, dtype):
    default_dtype(dtype)
    for made in (Subclass(2), Subclass([1.0, 2.0]), Subclass()):
        assert type(made) is Subclass and made.dtype is dtype
    for tensor in (torch.arange(2), torch.ones(2, dtype=torch.float64), torch.ones(2)):
        # Aliases, as in stock PyTorch.
        for made in (torch.Tensor(tensor), torch.Tensor(other=tensor), Subclass(tensor)):
            assert (
                made.dtype is tensor.dtype
                and made.data_ptr() == tensor.data_ptr()
                and made is not tensor
            )
    assert type(torch.Tensor(Subclass(2))) is torch.Tensor
    leaf = torch.ones(2, requires_grad=True)
    (torch.Tensor(leaf) * 2).sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0]


@few_dtypes
@pytest.mark.filterwarnings("ignore")  # quantised tensors are deprecated
@pytest.mark.parametrize("stock", [torch.float32, torch.float64, torch.float16], ids=str)
def test_a_dtype_that_was_written_is_not_the_default(default_dtype, stock, dtype):
    """A dtype that is given for a result on integers stays, even if it is the former stock
    default."""
    default_dtype(stock)
    default_dtype(dtype)
    whole = torch.arange(3)
    expect_tensor(
        getattr(
            whole, {torch.float32: "float", torch.float64: "double", torch.float16: "half"}[stock]
        )(),
        stock,
    )
    expect_tensor(whole.softmax(0, stock), stock)
    expect_tensor(torch.ops.aten.to(whole, stock), stock)
    quantised = torch.quantize_per_tensor(torch.ones(2, dtype=torch.float32), 0.5, 0, torch.qint8)
    expect_tensor(quantised.dequantize(), torch.float32)


ELEMENTS = {
    "NumPy's float64": lambda: [np.float64(1.5), 2.0],
    "NumPy's float32": lambda: [[2.0, 1], [np.float32(1.5), 1]],
    "NumPy's float16": lambda: (np.float16(1.5),),
    "an array": lambda: [np.ones(2, np.float32)],
    "a tensor of float64": lambda: [1.5, torch.tensor(2.0, dtype=torch.float64)],
    "a tensor of float32": lambda: (torch.tensor(1.5, dtype=torch.float32), 2),
    "integers": lambda: [np.int32(1), torch.tensor(2), True],
    "a complex number": lambda: [1.5, 2j],
}


WITH_FRACTIONS = ("NumPy's float64", "NumPy's float32", "a complex number")


@few_dtypes
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
@pytest.mark.parametrize("elements", ELEMENTS)
def test_elements_of_a_list_keep_their_dtype_under_a_default(default_dtype, elements, make, dtype):
    """As under a default of float16: only Python's fractions get the default dtype, and other
    elements are promoted with it."""
    expected = make(ELEMENTS[elements]())
    default_dtype(dtype)
    made = make(ELEMENTS[elements]())
    expect_tensor(
        made,
        torch.promote_types(dtype, expected.dtype)
        if elements in WITH_FRACTIONS
        else expected.dtype,
    )
    assert made.tolist() == expected.tolist()


@few_dtypes
def test_default_dtype_is_that_of_promotion(default_dtype, dtype):
    default_dtype(dtype)
    whole, single = torch.arange(3), torch.zeros(2, dtype=torch.float32)
    assert torch.result_type(whole, 1.5) is dtype and torch.result_type(1.5, whole) is dtype
    assert (
        torch.result_type(whole, 1) is torch.int64
        and torch.result_type(single, 1.5) is torch.float32
    )
    assert torch.result_type(torch.zeros(2), 1) is dtype


@few_dtypes
@pytest.mark.filterwarnings("ignore")  # sparse and nested ones are prototypes
def test_default_dtype_makes_no_sparse_or_nested_tensors(default_dtype, dtype):
    default_dtype(dtype)
    for make in (
        lambda: torch.sparse_coo_tensor((2, 3)),
        lambda: torch.sparse_coo_tensor([[0], [1]], [1.5]),
    ):
        with pytest.raises(NotImplementedError, match="expected the strided layout"):
            make()
    for data in ([[1.5], [2.0, 3]], [], [[], []]):
        with pytest.raises(NotImplementedError, match="which has no nested tensors"):
            torch.nested.nested_tensor(data)
    single = torch.ones(2, dtype=torch.float32)
    assert (
        torch.nested.nested_tensor([single, single]).dtype is torch.float32
        and torch.nested.nested_tensor([[1], [2]]).dtype is torch.int64
    )


@few_dtypes
def test_fractions_in_hooks_are_of_the_default_dtype(default_dtype, dtype):
    """Hooks run within a call of PyTorch, where modes are off."""
    default_dtype(dtype)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            seen.append((torch.arange(3) / 2).dtype)
            return gradient

    seen = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda gradient: gradient * (torch.arange(3, device=gradient.device) / 2))
    Scaled.apply(x).sum().backward()
    expect_tensor(x.grad, dtype)
    (gradient,) = torch.autograd.grad(Scaled.apply(x).sum(), x)
    expect_tensor(gradient, dtype)
    assert x.grad.tolist() == gradient.tolist() == [0, 0.5, 1] and seen == [dtype, dtype]


@every_dtype
def test_default_dtype_is_set_and_reset(default_dtype, dtype):
    default_dtype(dtype)
    assert torch.get_default_dtype() is dtype
    assert torch.finfo() == torch.finfo(dtype)
    default_dtype(torch.float64)
    assert torch.get_default_dtype() is torch.float64 and torch.zeros(1).dtype is torch.float64
    default_dtype(torch.float32)
    assert (
        torch.get_default_dtype() is torch.float32
        and torch.tensor(1.5).dtype is torch.float32
        and nn.Linear(1, 1).weight.dtype is torch.float32
    )


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
@pytest.mark.parametrize("kind", [torch.DoubleTensor, "torch.DoubleTensor", torch.FloatTensor])
def test_a_default_tensor_type_ends_it(kind):
    expected = torch.float32 if kind is torch.FloatTensor else torch.float64
    torch.set_default_dtype(torch.posit16es2)
    try:
        with pytest.raises(TypeError):
            torch.set_default_tensor_type(3)
        assert torch.get_default_dtype() is torch.posit16es2
        torch.set_default_tensor_type(kind)
        found = (
            torch.get_default_dtype(),
            torch.zeros(1).dtype,
            (torch.arange(2) / 2).dtype,
            torch.tensor(0.5).dtype,
        )
        assert set(found) == {expected}
    finally:
        torch.set_default_dtype(torch.float32)


class Exported:
    """An object that exports a tensor by DLPack alone."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@few_dtypes
@pytest.mark.parametrize("stock", [torch.float32, torch.float64, torch.int64], ids=str)
def test_data_of_a_dtype_of_their_own_keep_it_and_their_memory_under_a_default(
    default_dtype, stock, dtype
):
    x = torch.arange(3, dtype=stock)
    default_dtype(dtype)
    for data in (x, x.numpy(), Exported(x), torch.utils.dlpack.to_dlpack(x)):
        made = torch.asarray(data)
        assert made.dtype is stock and made.data_ptr() == x.data_ptr()
    # Stock PyTorch makes no copy of an object that only exports by DLPack.
    for data in (x, x.numpy(), torch.utils.dlpack.to_dlpack(x)):
        made = torch.asarray(data, copy=True)
        assert (
            made.dtype is stock and made.data_ptr() != x.data_ptr() and made.tolist() == [0, 1, 2]
        )
    assert torch.as_tensor(Exported(x)).dtype is torch.tensor(Exported(x)).dtype is stock
    made = torch.asarray(torch.utils.dlpack.to_dlpack(x), dtype=dtype)
    assert made.dtype is dtype and made.tolist() == [0, 1, 2]


@few_dtypes
def test_what_shares_no_memory_is_refused_without_a_copy_under_a_default(default_dtype, dtype):
    default_dtype(dtype)
    for data in ([1, 2], [1.0, 2], 1, 0.5):
        with pytest.raises(
            ValueError,
            match=r"expected a tensor, an array or a buffer to share memory with \(copy=False\), "
            r"but got",
        ):
            torch.asarray(data, copy=False)
    with pytest.raises(RuntimeError, match="can't alias NumPy scalars"):
        torch.asarray(np.float64(0.5), copy=False)


@few_dtypes
def test_a_buffer_is_codes_of_the_default(default_dtype, dtype):
    x = torch.tensor([1.0, 2, 3], dtype=dtype)
    buffer = bytearray(bytes(x.untyped_storage()))
    default_dtype(dtype)
    made = torch.asarray(buffer)
    assert made.dtype is dtype and made.tolist() == [1, 2, 3]


@few_dtypes
@pytest.mark.parametrize("ends", [(1j, 2), (0.5, 2j), (torch.tensor(1j), 2)], ids=str)
def test_numbers_between_complex_ends_are_complex(default_dtype, ends, dtype):
    for function in (torch.linspace, torch.logspace):
        expected = function(*ends, 4)
        default_dtype(dtype)
        assert torch.equal(function(*ends, 4), expected) and torch.equal(
            function(start=ends[0], end=ends[1], steps=4), expected
        )
        default_dtype(torch.float32)
        for options in ({"dtype": dtype}, {"out": torch.ones(4, dtype=dtype)}):
            with pytest.raises(
                RuntimeError, match=f"expected real ends for a result of {dtype}, but got"
            ):
                function(*ends, 4, **options)


class Names(TorchDispatchMode):
    """Records the names of the operators that it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@few_dtypes
def test_dispatch_modes_see_the_backward_pass(default_dtype, dtype):
    """The default dtype was once taken for an argument of the pass, which a mode must not see."""
    default_dtype(dtype)
    for own in (dtype, torch.float64):
        x, one = torch.tensor([0.5, 1], dtype=own, requires_grad=True), torch.ones(2, dtype=own)
        y = x.sin()
        with Names() as of_grad:
            torch.autograd.grad(y, x, one, retain_graph=True)
        with Names() as of_backward:
            y.backward(one)
        for names in (of_grad, of_backward):
            assert {"cos", "mul"} <= set(names.seen)
