"""Sizes and numbers that vary from call to call of compiled functions in our dtypes: eager code's bits, and Dynamo compiles as often as for
stock dtypes."""

import copy
import warnings

import pytest
import torch
from capture import FUSES, WHOLE_GRAPHS, Graphs, assert_same, clean  # noqa: F401 (clean is a fixture)
from networks import LeNet5, Transformer, step
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import torch_dtypes
from torch_dtypes.compiling import frames, sizes
from torch_dtypes.compiling.recording import NotRecordable

pytestmark = WHOLE_GRAPHS


class Compilations:
    """A backend that counts Dynamo's graphs, of which a compiled function in our dtypes may have several by sizes."""

    def __init__(self, backend=None):
        self.graphs = backend or Graphs()

    @property
    def count(self):
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]

    def compile(self, f, **options):
        torch._dynamo.utils.counters.clear()
        return torch.compile(f, backend=self.graphs, fullgraph=True, **options)


def x_of(dtype, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def compare(run, f, *operands):
    found, expected = run(*operands), f(*operands)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        if isinstance(b, torch.Tensor):
            assert_same(a, b)
        else:
            assert a == b


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43], ids=str)
@pytest.mark.parametrize("network", [LeNet5, Transformer])
def test_networks(network, dtype):
    torch.manual_seed(0)
    eager = network().to(dtype)
    model = copy.deepcopy(eager)
    run = Compilations().compile(model)

    def compare_step(size):
        x = network.batch(dtype, size)
        for a, b in zip(step(model, run, x), step(eager, eager, x), strict=True):
            assert_same(a, b)

    for size in (3, 2):
        compare_step(size)
    with torch.compiler.set_stance("fail_on_recompile"):
        for size in (5, 5, 2, 5, 4):
            compare_step(size)
    compare_step(1)  # a constant, as of stock dtypes


def test_sizes_by_a_number_in_a_tensor():
    """Dynamo takes one on the CPU for a number that varies."""
    x, counting = x_of(torch.q43, 8, 4), Compilations()

    def f(x, n):
        return x[: n.item()] * 0.3 + 1, torch.zeros(n.item(), 4, dtype=x.dtype) + x[0]

    run = counting.compile(f)
    for n in (3, 5, 3, 5, 6, 5):
        compare(run, f, x, torch.tensor(n))
    assert counting.count == 1


def several(x, s, n):
    y = x * s + 1
    rows, columns = x.shape
    z = y.reshape(-1)[: rows + 1] * rows
    w = torch.cat([y, y[:1].expand(rows, columns)]).to(torch.q43)
    return y, z.float(), w.view(2, rows, columns).transpose(0, 2).sum(0), rows * n, torch.layer_norm(y, (columns,), eps=s), x.float().mean(0)


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"dynamic": False}], ids=str)
def test_dynamo_compiles_as_often_as_for_stock_dtypes(options):
    calls = [(6, 0.5, 2), (7, 0.25, 3), (1, 0.25, 3), (9, 0.125, 4), (9, 0.125, 4), (9, 0.125, 4), (6, 0.5, 2)]
    counts = {}
    for dtype in (torch.bfloat16, torch.posit16es2):
        torch._dynamo.reset()
        compilations = Compilations()
        run = compilations.compile(several, **options)
        counts[dtype] = []
        for rows, s, n in calls:
            x = x_of(dtype, rows, 4)
            compare(run, several, x, s, n) if dtype is torch.posit16es2 else run(x, s, n)
            counts[dtype].append(compilations.count)
    assert counts[torch.posit16es2] == counts[torch.bfloat16]


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_numbers_that_vary(backend):
    f = lambda x, s: (torch.nn.functional.leaky_relu(x * s, s), x.clamp(max=s))  # noqa: E731
    compilations = Compilations(backend)
    run, x = compilations.compile(f, dynamic=True), x_of(torch.posit16es2, 5)
    for s in (0.5, 0.25, 0.25, 0.125, 3.5):
        compare(run, f, x, s)
    assert compilations.count == 1


def test_marked_sizes():
    compilations = Compilations()
    run = compilations.compile(lambda x: x * 2 + x.shape[0])
    x = x_of(torch.posit16es2, 6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    for other in (x, x_of(torch.posit16es2, 5, 4)):
        compare(run, lambda x: x * 2 + x.shape[0], other)
    assert compilations.count == 1
    y = x_of(torch.posit16es2, 3, 4)
    torch._dynamo.mark_dynamic(y, 0)
    with pytest.raises(ConstraintViolationError, match="marked"):  # as of stock dtypes
        compilations.compile(lambda x: x + (1 if int(x.shape[0]) == 3 else 2))(y)


def test_numbers_without_dimensions_are_no_sizes():
    compilations = Compilations()
    run = compilations.compile(lambda x: x * 2, dynamic=True)
    for value in (0, 1, 2.5, 3):
        compare(run, lambda x: x * 2, torch.tensor(value, dtype=torch.posit16es2))
    assert compilations.count == 1


def test_recordings_are_of_sizes_that_come_again():
    f = lambda x, a: torch.nn.functional.gelu(x * a + 1)  # noqa: E731
    compilations = Compilations()
    run, seen = compilations.compile(f, dynamic=True), []
    a = x_of(torch.posit16es2, 4, seed=1)
    for rows in (6, 5, 6, 5, 5, 7, 7):
        compare(run, f, x_of(torch.posit16es2, rows, 4), a)
        seen.append(len(compilations.graphs.seen))
    assert seen == [1, 1, 1, 2, 2, 2, 3]
    assert ("torch_dtypes_codes.chain.default" in compilations.graphs.targets(2)) == FUSES
    with torch_dtypes.rounding("up"):
        compare(run, f, x_of(torch.posit16es2, 7, 4), a)


def test_most_recordings(monkeypatch):
    monkeypatch.setattr(sizes, "MOST_RECORDINGS", 2)
    run = torch.compile(lambda x: x + 1, backend=Graphs(), fullgraph=True, dynamic=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for rows in (3, 4, 4, 5, 5, 6, 6, 3, 4):
            compare(run, lambda x: x + 1, x_of(torch.q43, rows, 2))
    assert [str(w.message).startswith("torch.compile has made graphs of 2 different sizes") for w in seen] == [True]


def test_sizes_that_cannot_be_recorded(monkeypatch):
    class Refusing(frames.Recorded):
        def __init__(self, function, inputs, *args):
            if any(isinstance(v, torch.Tensor) and v.shape[0] == 5 for v in inputs):
                raise NotRecordable("of five")
            super().__init__(function, inputs, *args)

    monkeypatch.setattr(frames, "Recorded", Refusing)
    run = torch.compile(lambda x: x + 1, backend=Graphs(), fullgraph=True, dynamic=True)
    for rows in (3, 5, 5, 5, 4, 4):
        compare(run, lambda x: x + 1, x_of(torch.q43, rows, 2))


@pytest.mark.parametrize("name", ["aot_eager", "inductor with options"])
def test_backends_of_pytorch(name):
    options = {"options": {"epilogue_fusion": True}} if "options" in name else {}
    f = lambda x, a: (x * a + 1).tanh().sum(0)  # noqa: E731
    run = torch.compile(f, backend=name.partition(" ")[0], fullgraph=True, dynamic=True, **options)
    for rows in (6, 5, 5):
        x, a = (x_of(torch.posit16es2, rows, 4, seed=seed).requires_grad_() for seed in range(2))
        compare(run, f, x, a)
        slope = torch.ones(4, dtype=torch.posit16es2)
        for g, h in zip(torch.autograd.grad(run(x, a), [x, a], slope), torch.autograd.grad(f(x, a), [x, a], slope), strict=True):
            assert_same(g, h)


def test_buffers_that_are_written_to():
    """The last batch of an epoch is smaller: batch normalisation's averages and its count of batches."""
    torch.manual_seed(0)
    eager = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 1), torch.nn.BatchNorm1d(3), torch.nn.ReLU()).to(torch.posit16es2)
    model = copy.deepcopy(eager)
    run = Compilations().compile(model)
    for size in (4, 4, 3, 3, 5, 3):
        x = x_of(torch.posit16es2, size, 2, 6, seed=size)
        for a, b in zip(step(model, run, x), step(eager, eager, x), strict=True):
            assert_same(a, b)
        for (name, a), (_, b) in zip(model.named_buffers(), eager.named_buffers(), strict=True):
            assert torch.equal(a, b), name


def test_versions_of_what_is_written_to():
    """Those of other operands stay."""

    def f(x, into, kept):
        into.add_(1)
        return x * kept

    run = Compilations().compile(f, dynamic=True)
    for size in (4, 4, 3, 3):
        into, kept = x_of(torch.posit16es2, 2), x_of(torch.posit16es2, 1)
        x = x_of(torch.posit16es2, size)
        before = into._version, kept._version, x._version
        run(x, into, kept)
        assert (into._version > before[0], kept._version, x._version) == (True, *before[1:])
