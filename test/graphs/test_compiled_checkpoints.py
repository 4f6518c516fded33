"""torch.utils.checkpoint and regions that are compiled once within compiled functions in our dtypes: eager code's gradients; one_hot."""

import pytest
import torch
import torch.nn.functional as F
from capture import assert_same
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_dtypes
from torch_dtypes._overlay import releases

# PyTorch's own: reentrant checkpoints, and what Dynamo says of graphs that it ends.
pytestmark = [pytest.mark.filterwarnings("ignore:torch.compile runs uncompiled what:UserWarning")]
DTYPES = ["posit16es2", "q52_stochastic"]
backends = pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
reentrant = pytest.mark.parametrize("reentrant", [False, True], ids=["plain", "reentrant"])


@pytest.fixture(autouse=True)
def _anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Blocks(nn.Module):
    def __init__(self, reentrant: bool, dropout: float) -> None:
        super().__init__()
        self.first, self.block = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU())
        self.dropout, self.reentrant = nn.Dropout(dropout), reentrant

    def forward(self, x):
        y = checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)
        return checkpoint(lambda t: self.dropout(torch.tanh(t)), y, use_reentrant=self.reentrant)


def results(function, x, *parameters):
    x = x.detach().requires_grad_()
    for leaf in parameters:
        leaf.grad = None
    torch.manual_seed(5)
    y = function(x)
    y.backward(torch.ones_like(y))  # autograd.grad is nothing for reentrant checkpoints
    return [y.detach(), *(leaf.grad for leaf in (x, *parameters))]


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is b.dtype
        assert torch.equal(a, b)


@backends
@reentrant
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model(dtype, reentrant, backend):
    torch.manual_seed(0)
    dtype = torch_dtypes.dtype(dtype)
    model, x = Blocks(reentrant, 0.3).to(dtype), torch.randn(5, 6).to(dtype)
    expected = results(model, x, *model.parameters())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(2):
        assert_equal(results(compiled, x, *model.parameters()), expected)


def masked(x, reentrant=False):
    return checkpoint(lambda t: F.dropout(t * 1, 0.5), x, use_reentrant=reentrant)


@reentrant
@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_the_gradient_is_masked_as_the_result_is(backend, reentrant):
    x = torch.ones(64, dtype=torch.posit16es2)
    y, slope = results(torch.compile(lambda t: masked(t, reentrant), fullgraph=True, backend=backend), x)
    assert torch.equal(y, slope)
    assert 0 < (y == 0).sum() < 64


@backends
def test_where_the_graph_runs_as_eager_code(backend):
    x = torch.ones(64, dtype=torch.posit16es2, requires_grad=True)
    compiled = torch.compile(lambda t: (masked(t), t.view(8, 8)), backend=backend)  # a result in an operand's memory: not compiled
    y, _ = compiled(x)
    (slope,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(y, slope)
    compiled = torch.compile(masked, backend=backend, fullgraph=True)
    compiled(x)
    with torch_dtypes.rounding("up"):  # not what was compiled
        y = compiled(x)
        (slope,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(y, slope)


def kept(function, x) -> int:
    """How many elements a result's node keeps for backward."""
    y = function(x)
    return sum(t.numel() for t in y.grad_fn.saved_tensors)


@backends
def test_what_takes_no_random_numbers_is_computed_again(backend):
    def chain(t):
        for _ in range(8):
            t = torch.tanh(t * t) + t
        return t

    x = torch.randn(100).to(torch.posit32es2).requires_grad_()
    plain = torch.compile(chain, backend=backend, fullgraph=True)
    again = torch.compile(lambda t: checkpoint(chain, t, use_reentrant=False), backend=backend, fullgraph=True)
    assert_equal(results(again, x), results(chain, x))
    assert kept(again, x) < kept(plain, x) / 4


@backends
@pytest.mark.parametrize("given", [False, True], ids=["found", "given"])
def test_numbers_that_vary_in_a_region(given, backend):
    """A number that the region alone took was one more operand, whose value no graph may read: from its second value on that was refused."""

    def scaled(x, number):
        if given:
            return checkpoint(lambda t, n: (t * n).sin(), x, number, use_reentrant=False)
        return checkpoint(lambda t: (t * number).sin(), x, use_reentrant=False)

    torch.manual_seed(0)
    x, compiled = torch.randn(4).to(torch.posit16es2), torch.compile(scaled, fullgraph=True, backend=backend)
    for number in (0.5, 0.3, 0.7, 0.3, 4.0):
        assert_equal(results(lambda t, n=number: compiled(t, n), x), results(lambda t, n=number: scaled(t, n), x))


@backends
def test_one_hot_of_a_number_of_classes(backend):
    def loss(scores, classes):
        return -(F.one_hot(classes, 5).to(scores.dtype) * F.log_softmax(scores, -1)).sum()

    classes, x = torch.tensor([0, 4, 2]), torch.randn(3, 5).to(torch.posit16es2)
    compiled = torch.compile(lambda t: loss(t, classes), backend=backend, fullgraph=True)
    assert_equal(results(compiled, x), results(lambda t: loss(t, classes), x))


def test_what_a_graph_cannot_have_is_named():
    """No operand is of ours: the error names a dtype all the same."""
    compiled = torch.compile(lambda i: torch.zeros(3, dtype=torch.posit16es2).set_(torch.ones(3, dtype=torch.posit16es2)) + i, fullgraph=True)
    with pytest.raises(Exception, match=r"got torch\.posit16es2") as error:
        compiled(torch.tensor([1, 2, 3]))
    assert "torch.None" not in str(error.value)


# ---- regions that are compiled once ----


@torch.compiler.nested_compile_region
def layer(x, w):
    return (x * 2 + w).tanh()


@torch.compiler.nested_compile_region
def rounded(x):
    return (x.to(torch.q43) * 1.3).float()


@torch.compiler.nested_compile_region
def both(x, w):
    return checkpoint(F.dropout, rounded(rounded(layer(x, w).float())).to(x.dtype), use_reentrant=False), w + 1


REGIONS = {
    "once": lambda x, w: layer(x, w),
    "twice": lambda x, w: layer(layer(x, w), w),
    "of stock tensors": lambda x, w: layer(x.float(), w.float()) * layer(w.float(), x.float()),
    "that round": lambda x, w: rounded(rounded(x.float())) * w.float(),
    "in one another": lambda x, w: both(*both(x, w))[0],
}


@pytest.mark.skipif(releases.RUNNING < (2, 13), reason="dynamo of before 2.13 asserts that operands of a region are its own fakes (docs/limits.md)")
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("f", REGIONS.values(), ids=REGIONS)
def test_regions_that_are_compiled_once(f, needs_grad, fullgraph):
    def look(f):
        torch.manual_seed(0)
        x, w = torch.linspace(-1, 1, 8).to(torch.posit16es2), torch.linspace(1, 2, 8).to(torch.posit16es2).requires_grad_(needs_grad)
        y = f(x, w)
        return [y, *(torch.autograd.grad(y.sum(), w) if needs_grad else [])]

    run = torch.compile(f, backend="aot_eager", fullgraph=fullgraph)
    for _ in range(2):
        for found, expected in zip(look(run), look(f), strict=True):
            assert_same(found, expected)
