"""Views, indexing, assignment, and operators that move values: dtype and class stay, and the values
are those of float64."""

import pytest
import torch
from conftest import BITS, TEN, expect_tensor, parametrize_dtypes

import torch_dtypes
from torch_dtypes import _C

every_dtype = parametrize_dtypes(TEN)


def sample(dtype, *shape):
    """Return small integers and halves, which are exact in every format here, and the float64
    tensor of the same values."""
    count = torch.Size(shape).numel()
    reference = ((torch.arange(count, dtype=torch.float64) * 7) % 23 - 11).reshape(shape) / 2
    return reference.to(dtype), reference


def expect_same(ours, reference):
    """Check every floating tensor of a result: it has the format dtype and the rounded values of
    the reference. Others are equal."""
    if isinstance(reference, (tuple, list)):
        assert len(ours) == len(reference)
        for o, r in zip(ours, reference, strict=True):
            expect_same(o, r)
    elif isinstance(reference, torch.Tensor) and reference.is_floating_point():
        assert ours.shape == reference.shape
        assert _C.is_format_tensor(ours), "the container shows"
        rounded = reference.to(ours.dtype)
        assert ours.double().tolist() == rounded.double().tolist()
    elif isinstance(reference, torch.Tensor):
        assert ours.dtype is reference.dtype and ours.tolist() == reference.tolist()
    else:
        assert ours == reference


# Views of a (4, 6) tensor: the result shares memory.
VIEWS = {
    "integer": lambda x: x[1],
    "step": lambda x: x[::2, 1::3],
    "None": lambda x: x[None, :, None],
    "whole": lambda x: x[:],
    "empty slice": lambda x: x[2:2],
    "T": lambda x: x.T,
    "expand": lambda x: x[:, :1].expand(4, 5),
    "view -1": lambda x: x.view(2, -1),
    "split of sizes": lambda x: x.split([1, 3]),
    "unbind": lambda x: x.unbind(1),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 1), 1),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "iteration": lambda x: list(x),
    "real": lambda x: x.real,
    "adjoint": lambda x: x.adjoint(),
    "atleast_3d": lambda x: torch.atleast_3d(x),
    "view of its dtype": lambda x: x.view(x.dtype),
    "view of a slice": lambda x: x[1:3].view(12),
    "contiguous": lambda x: x.contiguous(),
    "conj": lambda x: x.conj(),
}


@every_dtype
@pytest.mark.parametrize("view", VIEWS)
def test_view_shares_memory_and_dtype(view, dtype):
    x, reference = sample(dtype, 4, 6)
    made, expected = VIEWS[view](x), VIEWS[view](reference)
    expect_same(made, expected)
    for m, e in (
        zip(made, expected, strict=True)
        if isinstance(expected, (tuple, list))
        else [(made, expected)]
    ):
        expect_tensor(m, dtype)
        assert m.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert (
            m.stride() == e.stride()
            and m.storage_offset() == e.storage_offset()
            and m._is_view() == e._is_view()
        )


@every_dtype
@pytest.mark.parametrize("view", [v for v in VIEWS if v != "expand"])
def test_writing_through_a_view_reaches_the_base(view, dtype):
    x, reference = sample(dtype, 4, 6)
    for t in (x, reference):
        part = VIEWS[view](t)
        for p in part if isinstance(part, (tuple, list)) else [part]:
            p.mul_(2)
    expect_same(x, reference)


i = torch.tensor([2, 0, 1])
mask = torch.tensor([True, False, True, True])

# In place and index assignment: statement(x, v), v of the dtype, of float32 or a number
ASSIGNMENTS = {
    "integer": lambda x, v: x.__setitem__(1, v),
    "element": lambda x, v: x.__setitem__((1, 2), v),
    "slice": lambda x, v: x.__setitem__(slice(1, 3), v),
    "step": lambda x, v: x.__setitem__((slice(None), slice(0, 6, 2)), v),
    "column": lambda x, v: x.__setitem__((slice(None), 1), v),
    "boolean": lambda x, v: x.__setitem__(mask, v),
    "comparison": lambda x, v: x.__setitem__(x > 1, v),
    "integers": lambda x, v: x.__setitem__(i, v),
    "ellipsis": lambda x, v: x.__setitem__(..., v),
    "transpose": lambda x, v: x.t().__setitem__(2, v),
    "None": lambda x, v: x.__setitem__(None, v),
    "integers of columns": lambda x, v: x.__setitem__((slice(None), i), v),
    "pairs": lambda x, v: x.__setitem__((i, i), v),
    "mixed": lambda x, v: x.__setitem__((i, slice(1, 3)), v),
    "fill_": lambda x, v: x[1:].fill_(v),
    "masked_fill_": lambda x, v: x.masked_fill_(x > 0, v),
    "chunks": lambda x, v: [c.copy_(torch.as_tensor(v)) for c in x.chunk(2, 1)],
    "index_fill_": lambda x, v: x.index_fill_(0, i, v),
    "flat": lambda x, v: x.view(-1)[3:9].copy_(torch.as_tensor(v)),
    "diagonal": lambda x, v: x.diagonal().copy_(torch.as_tensor(v)),
}


@every_dtype
@pytest.mark.parametrize(
    "kind", ["ours", "float32", "float64", "integer tensor", "number", "integer", "bool"]
)
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_assignment_of_every_kind_of_value(assignment, kind, dtype):
    x, reference = sample(dtype, 4, 6)
    numbers = {"number": 1.3, "integer": 3, "bool": True, "integer tensor": torch.tensor(3)}
    fractions = {"ours": dtype, "float32": torch.float32, "float64": torch.float64}
    value = numbers[kind] if kind in numbers else torch.tensor(1.3, dtype=fractions[kind])
    of_one_dtype = (
        "masked_fill_",
        "index_fill_",
        "boolean",
        "comparison",
        "integers",
        "integers of columns",
        "pairs",
        "mixed",
    )
    if assignment in of_one_dtype and isinstance(value, torch.Tensor):
        value = value.to(dtype)  # stock PyTorch requires one dtype here
    plain = value.double() if isinstance(value, torch.Tensor) else value
    ASSIGNMENTS[assignment](x, value)
    ASSIGNMENTS[assignment](reference, plain)
    expect_same(x, reference)
    expect_tensor(x, dtype)


@every_dtype
def test_out_through_a_view(dtype):
    x, reference = sample(dtype, 4, 6)
    for t in (x, reference):
        torch.neg(t[0], out=t[2])
        torch.maximum(t[:, 0], t[:, 1], out=t[:, 5])
    expect_same(x, reference)


# Shape and storage


@every_dtype
def test_resize_and_set(dtype):
    x, reference = sample(dtype, 4, 6)
    assert x.resize_(2, 3) is x and x.shape == (2, 3)
    assert x.flatten().tolist() == reference.flatten()[:6].tolist()
    x.resize_(10, 10).zero_()
    expect_tensor(x, dtype)
    assert x.untyped_storage().nbytes() >= 100 * dtype.itemsize
    assert x.resize_as_(reference).shape == (4, 6)
    y = torch.empty(0, dtype=dtype)
    y.set_(x)
    assert y.data_ptr() == x.data_ptr() and y.shape == x.shape
    y.set_(x.untyped_storage(), 2, (3,), (2,))
    assert y.shape == (3,) and y.storage_offset() == 2 and y.stride() == (2,)
    y.set_(x.untyped_storage())
    assert y.dim() == 1 and y.data_ptr() == x.data_ptr()
    y.set_()
    assert y.numel() == 0 and y.dtype is dtype
    for wrong in (
        torch.float32,
        torch.q52,
        {1: torch.float8_e5m2fnuz, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[
            dtype.itemsize
        ],
    ):
        with pytest.raises((RuntimeError, TypeError), match=r"set_|Could not set|dtype"):
            y.set_(torch.zeros(2, dtype=wrong))
        with pytest.raises((RuntimeError, TypeError), match=r"set_|Could not set|dtype"):
            torch.zeros(2, dtype=wrong).set_(x)
    assert y.dtype is dtype


@every_dtype
def test_data_is_read_and_replaced(dtype):
    x, _ = sample(dtype, 4, 6)
    x.requires_grad_()
    data = x.data
    expect_tensor(data, dtype)
    assert not data.requires_grad and data.data_ptr() == x.data_ptr()
    other = torch.full((2,), 1.5, dtype=dtype)
    x.data = other
    expect_tensor(x, dtype)
    assert (
        x.requires_grad
        and x.is_leaf
        and x.tolist() == [1.5, 1.5]
        and x.data_ptr() == other.data_ptr()
    )
    x.data[0] = 3
    assert other.tolist() == [3.0, 1.5]


@every_dtype
@pytest.mark.parametrize(
    "other", [torch.float32, torch.bfloat16, torch.float64, torch.q52, torch.posit16es1], ids=str
)
def test_data_of_another_dtype_is_taken_whole(other, dtype):
    for before, after in ((dtype, other), (other, dtype)):
        x = torch.nn.Parameter(torch.ones(2).to(before))
        same = x
        view = x.detach()
        x.data = torch.tensor([1.5, 2.0, -3.0]).to(after)
        assert x is same and isinstance(x, torch.nn.Parameter) and x.requires_grad and x.is_leaf
        assert x.dtype is after and _C.is_format_tensor(x) == torch_dtypes.is_format_dtype(after)
        assert x.tolist() == [1.5, 2.0, -3.0] and x.element_size() == after.itemsize
        assert view.dtype is before and view.tolist() == [1.0, 1.0]
        (x * 2).sum().backward()
        assert x.grad.dtype is after and x.grad.tolist() == [2.0] * 3
        # As in stock PyTorch, a gradient of the other dtype does not matter.
        x.data = torch.ones(3).to(before)
        assert x.dtype is before


@every_dtype
def test_storage(dtype):
    x, _ = sample(dtype, 4, 6)
    storage = x.untyped_storage()
    assert (
        storage.nbytes() == 24 * dtype.itemsize
        and x[1:].untyped_storage().data_ptr() == storage.data_ptr()
    )
    assert x.view(BITS[dtype.itemsize]).untyped_storage().data_ptr() == storage.data_ptr()
    copy = torch.empty(0, dtype=dtype).set_(storage.clone(), 0, (4, 6))
    assert copy.tolist() == x.tolist() and copy.data_ptr() != x.data_ptr()
    x.share_memory_()
    assert x.is_shared() and x.tolist() == copy.tolist()


@pytest.mark.parametrize("op", [torch.add, torch.sub])
def test_out_of_a_format_dtype_takes_alpha_of_stock_operands(op):
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5])
    out = op(a, b, alpha=2, out=torch.empty(2, dtype=torch.posit16es2))
    assert out.dtype is torch.posit16es2
    assert out.tolist() == op(a, b, alpha=2).tolist()


@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_a_view_without_elements_has_a_gradient_of_the_dtype(shape):
    x = torch.ones(shape).to(torch.q43).requires_grad_()
    y = x.as_strided((0, 4), (4, 1))
    assert y.shape == (0, 4) and y.dtype is torch.q43
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.dtype is torch.q43 and grad.shape == x.shape and not grad.any()
    with pytest.raises(RuntimeError, match="as many strides as sizes"):
        x.as_strided((0, 4), (1,))


@parametrize_dtypes("bfloat16 posit16es2 q43")
def test_is_set_to_looks_at_the_memory(dtype):
    x = torch.zeros(3, dtype=dtype)
    bits = x.view(BITS[dtype.itemsize])
    assert (
        x.is_set_to(x.view(3))
        and x.view(3).is_set_to(x)
        and x.is_set_to(bits)
        and bits.is_set_to(x)
    )
    assert not any(
        x.is_set_to(other)
        for other in (x.clone(), x[:2], x[1:], x.view(3, 1), x[::2], torch.zeros(3))
    )


def test_parts_without_elements_keep_the_dtype():
    for dtype in (torch.posit16es2, torch.q43, torch.bfloat16):
        like = [
            torch.empty(0, 3, dtype=dtype),
            torch.ones(2, dtype=dtype),
            torch.empty(2, 0, dtype=dtype),
        ]
        parts = torch._utils._unflatten_dense_tensors(torch.arange(2.0).to(dtype), like)
        assert [(p.dtype, p.shape) for p in parts] == [(dtype, t.shape) for t in like] and parts[
            1
        ].tolist() == [0, 1]


@parametrize_dtypes("bfloat16 posit16es2 q43")
def test_set_beyond_the_storage_makes_it_grow(dtype):
    x = torch.tensor([1.0, -2.0, 0.5], dtype=dtype)
    storage = x.untyped_storage()
    y = torch.empty(0, dtype=dtype).set_(storage, 1, (3, 2), (2, 1))
    assert (
        y.shape == (3, 2)
        and storage.nbytes() == 7 * dtype.itemsize
        and y[0].tolist() == [-2.0, 0.5]
        and x.tolist() == [1.0, -2.0, 0.5]
    )
    assert (
        torch.empty(0, dtype=dtype).set_(storage, 90, (0,)).shape == (0,)
        and storage.nbytes() == 7 * dtype.itemsize
    )
    z = torch.tensor([3.0], dtype=dtype)
    borrowed = torch.frombuffer(bytearray(8), dtype=torch.uint8).untyped_storage()
    for bad in (
        ((borrowed, 0, (100,))),
        (storage, -1, (1,)),
        (storage, 0, (2,), (-1,)),
        (storage, 0, (-2,)),
        (storage, 0, (2, 2), (1,)),
    ):
        with pytest.raises(RuntimeError):
            z.set_(*bad)
        # Stock PyTorch has exchanged the storage by then.
        assert dtype is torch.bfloat16 or z.tolist() == [3.0]


def test_resize_as_leaves_what_lies_in_memory():
    """It was once encoded from a stand-in with separate memory, whose new elements are
    arbitrary."""
    base = torch.arange(1, 9).to(torch.e5m5)
    view = base[2:4]
    assert view.resize_as_(torch.zeros(5)).tolist() == [3, 4, 5, 6, 7]
    assert base.tolist() == list(range(1, 9))
    x = torch.arange(1, 9).to(torch.posit16es2)
    assert x.resize_as_(torch.zeros(2)).resize_as_(torch.zeros(8)).tolist() == list(range(1, 9))
    like = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert x.resize_as_(like, memory_format=torch.preserve_format).stride() == like.stride()


GAPPED = {
    "relu": torch.relu,
    "neg": torch.neg,
    "silu": torch.nn.functional.silu,
    "maximum": lambda x: torch.maximum(x, x),
    "where": lambda x: torch.where(x > 0, x, 0.5),
    "compare": lambda x: x > 0,
    "sort": lambda x: x.sort(1).values,
    "float": torch.Tensor.float,
    "to": lambda x: x.to(torch.float64),
    "glu": lambda x: torch.nn.functional.glu(x, 1),
}


@parametrize_dtypes("q43 posit16es2 posit32es2")
@pytest.mark.parametrize("f", GAPPED.values(), ids=GAPPED)
def test_results_of_permuted_operands_with_gaps_are_laid_out_as_in_stock_pytorch(f, dtype):
    """They once were contiguous, so that a view that works in bfloat16 raised."""
    x = torch.randn(2, 8, 2, 4)[..., :2].transpose(1, 2)
    own, stock = (
        torch.randn(2, 8, 2, 4).to(d)[..., :2].transpose(1, 2) for d in (dtype, torch.bfloat16)
    )
    assert f(own).stride() == f(stock).stride()
    expanded = (
        torch.ones(4, 1).to(dtype).expand(4, 3),
        torch.ones(4, 1).to(torch.bfloat16).expand(4, 3),
    )
    assert torch.neg(expanded[0]).stride() == torch.neg(expanded[1]).stride()
    assert torch.equal(torch.neg(x.to(dtype)).float(), -x.to(dtype).float())
