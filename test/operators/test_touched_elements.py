"""Operators that write a few elements compute only those: the bits of the whole tensor, for the
work of the touched elements."""

import statistics
import time

import pytest
import torch
import torch.nn.functional as F
from conftest import codes_of

from torch_dtypes import dtype, rounding

NAMES = ("posit16es2", "q43", "posit32es2")
MASK = torch.zeros(60, 100, dtype=torch.bool)
MASK[[3, 3, 59], [0, 99, 7]] = True
PLACES, J, ROWS = (
    torch.tensor([3, 59, 3, 0]),
    torch.tensor([[7, 0, 7]]),
    torch.tensor([5, -1, 5, -60]),
)

# (the operator, sizes of the written tensor, sizes of sources). 3 is written twice.
CASES = {
    "index_add_": (lambda x, s: x.index_add_(0, PLACES, s), (60, 100), (4, 100)),
    "index_add_ by alpha": (
        lambda x, s: x.index_add_(-1, PLACES, s, alpha=-3),
        (2, 50, 60),
        (2, 50, 4),
    ),
    "index_add": (lambda x, s: torch.index_add(x, 1, PLACES.int(), s), (50, 60, 3), (50, 4, 3)),
    "index_add_ of a vector": (lambda x, s: x.index_add_(0, PLACES, s), (5000,), (4,)),
    "index_fill_": (lambda x: x.index_fill_(1, ROWS, 0.3), (70, 60), ()),
    "index_fill_ of one": (lambda x: x.index_fill_(0, ROWS, x.new_full((), 1.7)), (70, 60), ()),
    "index_fill": (lambda x: x.index_fill(0, torch.tensor(-2), 1.7), (70, 60), ()),
    "index_reduce_": (lambda x, s: x.index_reduce_(0, PLACES, s, "mean"), (60, 100), (4, 100)),
    "index_reduce_ without self": (
        lambda x, s: x.index_reduce_(0, PLACES, s, "prod", include_self=False),
        (60, 100),
        (4, 100),
    ),
    "put_": (lambda x, s: x.put_(torch.tensor([[3, -6000], [5999, 4]]), s), (60, 100), (4,)),
    "put_ adding": (
        lambda x, s: x.put_(torch.tensor([[3, 3], [-1, 3]]), s, accumulate=True),
        (60, 100),
        (2, 2),
    ),
    "put adding": (
        lambda x, s: x.put(torch.tensor([3, 3, -1]), s, accumulate=True),
        (60, 100),
        (3,),
    ),
    "index_put_ of rows": (
        lambda x, s: x.index_put_((ROWS,), s, accumulate=True),
        (60, 100),
        (4, 100),
    ),
    "index_put_ of columns": (
        lambda x, s: torch.ops.aten.index_put_(x, [None, ROWS], s, True),
        (50, 100),
        (50, 4),
    ),
    "index_put_ of elements": (
        lambda x, s: x.index_put_((ROWS, ROWS), s, accumulate=True),
        (60, 100),
        (4,),
    ),
    "index_put_ of a number": (
        lambda x, s: x.index_put_((ROWS, ROWS), s, accumulate=True),
        (60, 100),
        (),
    ),
    "index_put_ in the middle": (
        lambda x, s: torch.ops.aten.index_put_(x, [None, PLACES[:2, None], J], s, True),
        (3, 60, 30, 2),
        (1, 3, 2),
    ),
    "index_put_ apart": (
        lambda x, s: torch.ops.aten.index_put_(x, [PLACES[:3], None, J], s, True),
        (60, 2, 50),
        (1, 3, 2),
    ),
    "index_put_ by a mask": (
        lambda x, s: x.index_put_((MASK,), s, accumulate=True),
        (60, 100, 2),
        (3, 2),
    ),
    "index_put_ by half a mask": (
        lambda x, s: x.index_put_((PLACES[:3], MASK[0] | MASK[3] | MASK[59]), s, accumulate=True),
        (60, 100),
        (3,),
    ),
    "index_put adding": (lambda x, s: x.index_put((ROWS,), s, accumulate=True), (60, 100), (100,)),
    "x[i] += s": (lambda x, s: x.__setitem__(PLACES, x[PLACES] + s), (60, 100), (4, 100)),
    "scatter_add_": (
        lambda x, s: x.scatter_add_(1, torch.tensor([[3, 3, 99], [0, 3, 3]]), s),
        (60, 100),
        (3, 4),
    ),
    "scatter_add": (
        lambda x, s: x.scatter_add(0, torch.tensor([[3, 3], [3, 4]])[..., None], s),
        (60, 50, 2),
        (2, 2, 1),
    ),
    "scatter_add_ of a row": (
        lambda x, s: x.scatter_add_(0, torch.tensor([[3] * 100]), s),
        (60, 100),
        (2, 100),
    ),
    "scatter_reduce_": (
        lambda x, s: x.scatter_reduce_(0, torch.tensor([[3, 3], [3, 4]]), s, "mean"),
        (60, 100),
        (2, 2),
    ),
    "scatter_reduce without self": (
        lambda x, s: x.scatter_reduce(1, torch.tensor([[3, 3, 1]]), s, "sum", include_self=False),
        (60, 100),
        (1, 3),
    ),
    "scatter_ of a number": (
        lambda x: x.scatter_(0, torch.tensor([[3, 3], [3, 4]]), 0.3),
        (60, 100),
        (),
    ),
    "scatter_ multiplying": (
        lambda x, s: x.scatter_(0, torch.tensor([[3, 3], [3, 4]]), s, reduce="multiply"),
        (60, 100),
        (2, 2),
    ),
    "embedding's gradient": (
        lambda s: torch.ops.aten.embedding_dense_backward(
            s, torch.tensor([[3, 59], [3, 0]]), 60, 59, True
        ),
        (2, 2, 100),
        (),
    ),
}


def arguments(case, name):
    call, sizes, source = CASES[case]
    torch.manual_seed(3)
    count = call.__code__.co_argcount
    return [torch.randn(s).mul(3).to(getattr(torch, name)) for s in (sizes, source)[:count]]


def layouts(x):
    yield x.clone()
    yield x.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)
    yield torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)[..., ::2].copy_(x)


pytestmark = [
    pytest.mark.filterwarnings("ignore:index_reduce"),
    pytest.mark.filterwarnings("ignore:The reduce argument"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_those_of_the_whole_tensor(case, name):
    call = CASES[case][0]
    x, *rest = arguments(case, name)
    wide = [t.to(torch.float64 if name == "posit32es2" else torch.float32) for t in (x, *rest)]
    y = call(*wide)
    expected = wide[0] if y is None else y
    if case.startswith("x[i]"):
        expected[PLACES] = (expected[PLACES].to(x.dtype)).to(expected.dtype)
    for own in layouts(x):
        found = call(own, *rest)
        in_place = case.split(" ")[0].endswith("_")
        assert found is own or not in_place
        found = own if found is None else found
        assert torch.equal(codes_of(found.contiguous()), codes_of(expected.to(x.dtype))), (
            case,
            own.stride(),
        )
        if not in_place and case != "x[i] += s":
            assert torch.equal(codes_of(own.contiguous()), codes_of(x)), "the operand has changed"


@pytest.mark.parametrize("case", [case for case in CASES if "multiplying" not in case])
@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_what_is_not_touched_does_not_move(case):
    """up_down moves every number that it rounds."""
    call = CASES[case][0]
    x, *rest = arguments(case, "posit16es2")
    before = x.clone()
    marks = [torch.full_like(t.float(), 64.0) for t in (torch.zeros(x.shape), *rest)]
    marks[0].zero_()
    y = call(*marks)
    touched = (marks[0] if y is None else y) != 0
    if "embedding" in case:
        touched = torch.zeros(60, 100, dtype=torch.bool)
        touched[[0, 3]] = True
        before = torch.zeros(60, 100, dtype=x.dtype)
    with rounding("up_down"):
        found = call(x, *rest)
    found = x if found is None else found
    assert torch.equal(codes_of(found)[~touched], codes_of(before)[~touched]) and not touched.all()


SELECT = [
    lambda x: F.channel_shuffle(x.view(1, 4, 3), 2),
    lambda x: torch.nn.utils.rnn.pad_sequence([x, x[:3]]),
    lambda x: F.threshold(x, 0.5, 0.0),
    lambda x: F.hardshrink(x, 0.5),
    lambda x: F.interpolate(x.view(1, 1, 12), scale_factor=2, mode="nearest-exact"),
    lambda x: F.hardtanh(x),
    lambda x: x.scatter_reduce(0, torch.arange(12) // 2, x.flip(0), "amax"),
    lambda x: x.clone().index_reduce_(0, torch.arange(12) // 3, x.flip(0), "amin"),
    lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([5, 7])),
]


@pytest.mark.parametrize("f", SELECT)
@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_what_is_selected_does_not_move(f):
    x = torch.linspace(-3, 3, 12).to(torch.q43)
    expected = f(x)
    with rounding("up_down"):
        assert torch.equal(f(x), expected)


READS = [
    lambda w, i: F.embedding(i, w),
    lambda w, i: w.index_select(0, i),
    lambda w, i: w[i],
    lambda w, i: w.gather(0, i[:, None]),
]


@pytest.mark.parametrize("read", READS)
def test_gradients_of_a_few_rows(read):
    torch.manual_seed(0)
    w = torch.randn(400, 20).to(torch.posit16es2).requires_grad_()
    y = read(w, PLACES)
    grad = torch.randn(y.shape).to(w.dtype)
    (found,) = torch.autograd.grad(y, w, grad)
    wide = w.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(read(wide, PLACES), wide, grad.float())
    assert torch.equal(codes_of(found), codes_of(expected.to(w.dtype)))


def median_time(call):
    times = []
    for _ in range(7):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def test_a_few_elements_cost_little(one_thread):
    """Computing the whole tensor takes hundreds of times as long."""
    x, i, line = (
        torch.zeros(2000, 2000, dtype=torch.posit16es2),
        torch.tensor([3, 5]),
        torch.ones(2, 2000, dtype=torch.posit16es2),
    )
    whole = median_time(x.float)
    calls = {
        "index_fill_": lambda: x.index_fill_(0, i, 1.5),
        "put_": lambda: x.put_(i, line[:, 0], accumulate=True),
        "index_put_": lambda: x.index_put_((i, i), line[:, 0], accumulate=True),
        "index_add_": lambda: x.index_add_(0, i, line),
        "index_reduce_": lambda: x.index_reduce_(0, i, line, "amax"),
        "scatter_add_": lambda: x.scatter_add_(0, i[None], line),
        "add_ of a column": lambda: x[:, 0].add_(1),
        "xlogy_ of two columns": lambda: x[:, 0].xlogy_(x[:, 1]),
        "sin of a column to another": lambda: torch.sin(x[:, 0], out=x[:, 1]),
        "a column by itself": lambda: x[:, 0].xlogy_(x[:, 0]),
    }
    slow = {
        name: f"{took / whole:.2f}"
        for name, call in calls.items()
        if (took := median_time(call)) > whole / 3
    }
    assert not slow


def test_wrong_indices_are_refused_as_by_stock():
    x, line = torch.zeros(60, 100), torch.ones(2, 100)
    wrong = torch.tensor([3, 60])
    calls = [
        lambda x, s: x.index_add_(0, wrong, s),
        lambda x, s: x.index_add_(0, torch.tensor([-1, 3]), s),
        lambda x, s: x.index_fill_(0, wrong, 1.0),
        lambda x, s: x.put_(torch.tensor([0, 6000]), s[:, 0]),
        lambda x, s: x.put_(torch.tensor([0]), s[:, 0], accumulate=True),
        lambda x, s: x.index_put_((wrong,), s, accumulate=True),
        lambda x, s: x.index_put_((torch.tensor([0, 1]),), s[:, :3], accumulate=True),
        lambda x, s: x.index_put_((wrong - 60, wrong - 60, wrong - 60), s, accumulate=True),
        lambda x, s: x.scatter_add_(0, wrong[:, None], s),
        lambda x, s: x.scatter_add_(0, wrong, s),
        lambda x, s: x.index_add_(2, wrong, s),
        lambda x, s: x.index_add_(0, wrong[:1] - 60, s),
        lambda x, s: x.index_add_(0, torch.tensor([0, 1]), x[:2]),
    ]
    for i, call in enumerate(calls):
        with pytest.raises((RuntimeError, IndexError)) as stock:
            call(x.clone(), line)
        with pytest.raises(stock.type):
            call(x.to(torch.posit16es2), line.to(torch.posit16es2)), i


def test_rows_that_no_index_names_are_zeros_in_tables_too():
    """In nf4 the code 0 is -1."""
    w = torch.ones(64, 4, dtype=dtype("nf4"), requires_grad=True)
    y = torch.nn.functional.embedding(torch.tensor([3, 5]), w)
    y.backward(torch.ones_like(y))
    expected = torch.zeros(64, 4)
    expected[[3, 5]] = 1
    assert torch.equal(w.grad.float(), expected)
