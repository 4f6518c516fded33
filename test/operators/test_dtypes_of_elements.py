"""Operators that write elements, and losses, beside another dtype, compared with bfloat16.
test_two_dtypes.py has those with samples in PyTorch's database."""

import pytest
import torch
import torch.nn.functional as F

# Storage dtypes: bfloat16, a float8, float32 itself.
DTYPES = (torch.posit16es2, torch.q43, torch.posit32es2)
OTHERS = (torch.float32, torch.float64, torch.int64, torch.bool)
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings(
        "ignore:index_reduce",
        "ignore:There is a performance drop",
        "ignore:torch.compile runs code that works on format tensors",
    ),
]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

INDEX, PLACES = torch.tensor([0, 1]), torch.tensor([[0, 1], [1, 0]])
ROWS, MASK = (
    torch.tensor([True, False, True]),
    torch.tensor([[True, False], [True, True], [False, True]]),
)

# Calls on x (three rows of two) and a source s (two rows of two) of any dtype.
FUNCTIONAL = {
    "index_put of a number": lambda x, s: x.index_put((INDEX,), s[0, 0]),
    "index_put by a mask": lambda x, s: x.index_put((MASK,), s.flatten()),
    "index_put of a number by a mask": lambda x, s: x.index_put((MASK,), s[0, 0]),
    "index_put of one element by a mask": lambda x, s: x.index_put((ROWS,), s[:1, 0]),
    "index_put of a number by a mask, adding": lambda x, s: x.index_put(
        (MASK,), s[0, 0], accumulate=True
    ),
    "index_put of a number by a mask and places": lambda x, s: x.index_put((ROWS, INDEX), s[0, 0]),
    "_unsafe_index_put": lambda x, s: torch.ops.aten._unsafe_index_put(x, (INDEX,), s),
    "scatter, adding": lambda x, s: torch.scatter(x, 0, PLACES, s, reduce="add"),
    "index_fill": lambda x, s: torch.index_fill(x, 0, INDEX, s[0, 0]),
    "masked_fill": lambda x, s: torch.masked_fill(x, MASK, s[0, 0]),
    "lerp to a number": lambda x, s: torch.lerp(x, s[0, 0], 0.5),
    "lerp by a tensor": lambda x, s: torch.lerp(x, x + 1, s[0]),
    "lerp by a number": lambda x, s: torch.lerp(x, x + 1, s[0, 0]),
    "positive weights of binary_cross_entropy_with_logits": lambda x, s: (
        F.binary_cross_entropy_with_logits(x[:2], x[1:].sigmoid().detach(), pos_weight=s[0] + 1)
    ),
    "targets of binary_cross_entropy_with_logits": lambda x, s: F.binary_cross_entropy_with_logits(
        x[:2], s
    ),
    "weights of classes, smoothed": lambda x, s: F.cross_entropy(
        x, INDEX[[0, 1, 0]], s[0], label_smoothing=0.1
    ),
    "weights of classes in images": lambda x, s: F.nll_loss(
        x.T[None, ..., None], torch.zeros(1, 3, 1).long(), s[0]
    ),
    # a bool: always an error in stock PyTorch
    "sub of a number": lambda x, s: x - s.dtype.is_floating_point,
}
IN_PLACE = {
    "_index_put_impl_": lambda x, s: torch.ops.aten._index_put_impl_(x, (INDEX,), s),
    "x[i] = t": lambda x, s: x.__setitem__(INDEX, s),
    "x[i] = number": lambda x, s: x.__setitem__(INDEX, s[0, 0]),
    "x[mask] = t": lambda x, s: x.__setitem__(ROWS, s),
    "x[mask] = number": lambda x, s: x.__setitem__(MASK, s[0, 0]),
    "x[i, 0] = t": lambda x, s: x.__setitem__((INDEX, 0), s[:, 0]),
    "x[0] = t": lambda x, s: x.__setitem__(0, s[0]),
    "x[:2] = t": lambda x, s: x.__setitem__(slice(2), s),
    "x[0, 0] = number": lambda x, s: x.__setitem__((0, 0), s[0, 0]),
    "index_fill_": lambda x, s: x.index_fill_(0, INDEX, s[0, 0]),
    "masked_fill_": lambda x, s: x.masked_fill_(MASK, s[0, 0]),
    "scatter_, multiplying": lambda x, s: x.scatter_(0, PLACES, s, reduce="multiply"),
    "lerp_ by a tensor": lambda x, s: x.lerp_(x + 1, s[0]),
    "lerp_ by a number": lambda x, s: x.lerp_(x + 1, s[0, 0]),
    "copy_": lambda x, s: x[:2].copy_(s),
    "fill_": lambda x, s: x.fill_(s[0, 0]),
}
ALL = {**FUNCTIONAL, **IN_PLACE}
# Stock PyTorch computes in place of 1 - target, so that the result has its dtype by accident.
# Format tensors are promoted.
TARGETS_DTYPE = ("targets of binary_cross_entropy_with_logits",)
X, SOURCE = (
    torch.tensor([[1.0, 2.0], [3.0, 4.0], [-1.0, 6.0]]),
    torch.tensor([[1.0, 0.0], [3.0, 1.0]]),
)


def result(call, x, s):
    """Return the dtype, shape and numbers of the result, or the error."""
    x = x.clone()
    try:
        y = call(x, s)
    except RuntimeError as error:
        return error
    y = x if y is None else y
    return y.dtype, y.shape, y.detach().double()


def expect_alike(want, found, dtype, name):
    if isinstance(want, Exception) or isinstance(found, Exception):
        assert type(want) is type(found), (name, want, found)
        assert "BFloat16" not in str(found) and "Float8" not in str(found), found
        return
    expected = dtype if want[0] is torch.bfloat16 else want[0]
    assert found[:2] == (expected, want[1]), (name, want, found)
    torch.testing.assert_close(found[2], want[2], rtol=0.1, atol=0.1)


@every_dtype
@pytest.mark.parametrize("name", ALL)
def test_results_and_errors_are_those_of_bfloat16(name, dtype):
    for other in (*OTHERS, None):
        cases = [result(ALL[name], X.to(d), SOURCE.to(other or d)) for d in (torch.bfloat16, dtype)]
        expect_alike(*cases, dtype, (name, other))
    for other in OTHERS * (name not in TARGETS_DTYPE):  # written into a stock tensor
        cases = [result(ALL[name], X.to(other), SOURCE.to(d)) for d in (torch.bfloat16, dtype)]
        expect_alike(*cases, dtype, (name, other, "written to"))


def make_function(name):
    """Return the call as a function that gives its result, or x where it writes into x."""

    def call(x, s):
        y = x * 1
        found = ALL[name](y, s)
        return found if name in FUNCTIONAL else y

    return call


@pytest.mark.parametrize("name", ALL)
def test_recorded_calls(name):
    for other in (torch.float32, torch.float64, torch.int64):
        cases, gradients = [], []
        for d in (torch.bfloat16, torch.posit16es2):
            x, s = (
                X.to(d).clone().requires_grad_(),
                SOURCE.clone().to(other).requires_grad_(other.is_floating_point),
            )
            s.retain_grad() if s.requires_grad else None
            cases.append(result(make_function(name), x, s))
            if isinstance(cases[-1], Exception):
                continue
            y = make_function(name)(x, s)
            y.sum().backward() if y.requires_grad else None
            gradients.append([t.grad if t.grad is None else t.grad.dtype for t in (x, s)])
        expect_alike(*cases, torch.posit16es2, (name, other))
        if gradients:
            assert gradients[1] == [
                torch.posit16es2 if g is torch.bfloat16 else g for g in gradients[0]
            ], (name, other)


IN_TRANSFORMS = [n for n in ALL if n != "_index_put_impl_" and "mask" not in n]


@pytest.mark.parametrize("name", IN_TRANSFORMS)
def test_in_vmap(name):
    for other in (torch.float32, torch.int64):
        cases = []
        for d in (torch.bfloat16, torch.posit16es2):
            cases.append(
                result(
                    torch.vmap(make_function(name)),
                    X.to(d).expand(2, 3, 2),
                    SOURCE.to(other).expand(2, 2, 2),
                )
            )
        if name.endswith("a number") and isinstance(cases[0], Exception):
            continue  # PyTorch's batching rules see a vector of numbers there
        expect_alike(*cases, torch.posit16es2, (name, other))


@pytest.mark.parametrize(
    "name", ["index_put of a number", "scatter, adding", "lerp to a number", "x[i] = t"]
)
def test_in_compiled_graphs(name):
    call = make_function(name)
    x = X.to(torch.posit16es2)
    with pytest.raises(Exception, match="expected operands of one dtype"):
        torch.compile(call, backend="aot_eager")(x, SOURCE)
    torch.compiler.reset()
    assert torch.equal(
        torch.compile(call, backend="aot_eager")(x, SOURCE.to(x.dtype)).double(),
        call(x, SOURCE.to(x.dtype)).double(),
    )
    torch.compiler.reset()


@every_dtype
def test_the_error_says_what_to_convert(dtype):
    x, s = X.to(dtype), SOURCE
    for call, text in {
        lambda: x.index_put_((INDEX,), s): (
            f"aten::index_put_: expected operands of one dtype, but got self {dtype}, values "
            f"torch.float32. Convert values with .to({dtype})."
        ),
        lambda: x.index_add_(0, INDEX, s.long()): (
            f"aten::index_add_: expected operands of one dtype, but got self {dtype}, source "
            f"torch.int64. Convert source with .to({dtype})."
        ),
        lambda: X.clone().scatter_(
            0, PLACES, s.to(dtype)
        ): "aten::scatter_: expected operands of one dtype, but got self torch.float32, "
        f"src {dtype}. Convert src with .to(torch.float32).",
        lambda: X.long().index_copy_(
            0, INDEX, s.to(dtype)
        ): "aten::index_copy_: expected operands of one dtype, but got self torch.int64, "
        f"source {dtype}. Convert source with .to(torch.int64).",
        lambda: (
            x - MASK
        ): "sub: expected numbers, but got a bool. Invert a mask with ~mask or mask.logical_not(), "
        "or convert it first, with mask.to(...).",
        lambda: torch.sort(
            x, out=(X.clone(), PLACES.clone())
        ): f"aten::sort: expected values of the result's dtype {dtype}, "
        "but got torch.float32. Give a tensor of that dtype, or convert the result.",
    }.items():
        with pytest.raises(RuntimeError) as caught:
            call()
        assert str(caught.value) == text


def test_a_target_of_float64_is_not_rounded_to_float32():
    x, t = torch.tensor([1.0]).to(torch.posit16es2), torch.tensor([2 + 2**-26], dtype=torch.float64)
    want = F.huber_loss(x.double(), t, delta=2**20)
    assert torch.equal(F.huber_loss(x, t, delta=2**20), want.to(x.dtype))
    assert torch.equal(
        F.huber_loss(x.clone().requires_grad_(), t, delta=2**20).detach(), want.to(x.dtype)
    )


NORMS = {
    "vector_norm": lambda x, **o: torch.linalg.vector_norm(x, **o),
    "norm": lambda x, **o: torch.norm(x, **o),
    "linalg.norm": lambda x, **o: torch.linalg.norm(x, **o),
    "matrix_norm": lambda x, **o: torch.linalg.matrix_norm(x, **o),
    "Tensor.norm": lambda x, **o: x.norm(**o),
    "norm of rows": lambda x, **o: torch.norm(x, 1, 0, **o),
    "foreach": lambda x, **o: torch._foreach_norm([x], **o)[0],
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_norms_take_a_dtype_that_promotion_gives(norm):
    """As in stock PyTorch: dtype=torch.bfloat16 is an error for float32."""
    x = torch.tensor([[1.5, 2.0], [-0.5, 4.0]])
    own = x.to(torch.q43)
    for other in (x, x.double(), x.bfloat16(), x.cfloat(), x.to(torch.posit16es2)):
        with pytest.raises(
            RuntimeError,
            match=f"expected dtype= that the tensor's {other.dtype} promotes to, but got torch.q43",
        ):
            norm(other, dtype=torch.q43)
    for other in (x.long(), x > 0):
        with pytest.raises(RuntimeError, match="expected a floating or complex tensor"):
            norm(other, dtype=torch.q43)
    assert (
        torch.equal(norm(own, dtype=torch.q43), norm(own))
        and norm(own, dtype=torch.q43).dtype is torch.q43
    )
    assert (
        torch.equal(norm(own, dtype=torch.float32), norm(x))
        and norm(own, dtype=torch.float32).dtype is torch.float32
    )


def test_nanmean_of_integers_is_an_error():
    for call in (lambda x: torch.nanmean(x, dtype=torch.q43), lambda x: x.nanmean(dtype=torch.q43)):
        with pytest.raises(
            RuntimeError,
            match=r"nanmean: expected a floating or complex tensor, but got torch\.int64",
        ):
            call(torch.arange(3))
        assert call(torch.tensor([1.0, float("nan"), 2.0])).item() == 1.5
    assert torch.mean(torch.arange(4), dtype=torch.q43).item() == 1.5


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_cumulations_in_place_stay_of_their_dtype(name):
    for own, other in (
        (torch.float32, torch.q43),
        (torch.q43, torch.float32),
        (torch.q43, torch.float8_e5m2fnuz),
        (torch.q43, torch.q52),
    ):
        x = torch.tensor([1.5, 2.0, 3.0], dtype=own)
        with pytest.raises(
            RuntimeError,
            match=f"{name}: expected dtype={own}, the dtype of the tensor that is written to, but "
            f"got {other}",
        ):
            getattr(x, name)(0, dtype=other)
        assert x.tolist() == [1.5, 2, 3]
        expected = getattr(torch, name[:-1])(x, 0)
        assert getattr(x, name)(0, dtype=own) is x and torch.equal(x, expected)
        assert torch.equal(getattr(x.clone(), name)(0, dtype=None), getattr(torch, name[:-1])(x, 0))


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("f", [torch.softmax, torch.log_softmax])
def test_out_of_another_dtype_decides_nothing(f, needs_gradient):
    """Beside an operand that needs a gradient, the operator once ran in the dtype of out=."""
    x = torch.tensor([1.0, 2.0, 0.5]).to(torch.posit16es2).requires_grad_(needs_gradient)
    with pytest.raises(RuntimeError):
        f(x, 0, out=torch.empty(3))
