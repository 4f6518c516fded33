"""What makes tensors of ours by naming a dtype, in whole graphs of torch.compile and in exported programs: eager code's bits."""

import operator

import pytest
import torch
import torch.nn.functional as F
from capture import WHOLE_GRAPHS, Graphs, assert_same, clean  # noqa: F401 (clean is a fixture)

import torch_dtypes
from torch_dtypes._overlay import graphs
from torch_dtypes.compiling.recording import NotRecordable, Recorded

pytestmark = WHOLE_GRAPHS
STOCHASTIC = torch_dtypes.with_rounding(torch.q43, "stochastic")

CASES = {
    "zeros": lambda x: torch.cat([x, torch.zeros(3, 1, dtype=x.dtype, device=x.device)], 1),
    "ones": lambda x: (x @ x.t()) * torch.ones(3, 3, dtype=x.dtype, device=x.device).tril(),
    "full": lambda x: x + torch.full((4,), 0.3, dtype=x.dtype, device=x.device),
    "full of infinity": lambda x: x.maximum(torch.full((4,), float("-inf"), dtype=x.dtype, device=x.device)),
    "empty": lambda x: torch.empty(3, 4, dtype=x.dtype, device=x.device).copy_(x) * 2,
    "zeros_like": lambda x: torch.zeros_like(x, dtype=torch.q52).to(x.dtype) + x,
    "new_ones": lambda x: x * x.new_ones(4, dtype=torch.q52).to(x.dtype),
    "new_tensor": lambda x: x * x.new_tensor([1, 2, 3, 4.1]),
    "arange": lambda x: x + torch.arange(4, dtype=x.dtype, device=x.device),
    "arange of fractions": lambda x: x + torch.arange(0, 1, 0.25, dtype=x.dtype, device=x.device),
    "linspace": lambda x: x * torch.linspace(0, 1, 4, dtype=x.dtype, device=x.device),
    "eye": lambda x: x @ torch.eye(4, dtype=x.dtype, device=x.device),
    "hann_window": lambda x: x * torch.hann_window(4, dtype=x.dtype, device=x.device),
    "randn": lambda x: x + torch.randn(4, dtype=x.dtype, device=x.device),
    "rand": lambda x: x * torch.rand(4, dtype=x.dtype, device=x.device),
    "rand_like": lambda x: x * torch.rand_like(x.float(), dtype=x.dtype),
    "randint": lambda x: x + torch.randint(0, 9, (4,), dtype=x.dtype, device=x.device),
    "normal": lambda x: x + torch.normal(0.0, 1.0, (4,), dtype=x.dtype, device=x.device),
    "randn_like": lambda x: torch.randn_like(x, dtype=torch.q52).to(x.dtype) + x,
    "tensor": lambda x: x * torch.tensor(0.3, dtype=x.dtype),
    "tensor of a list": lambda x: x * torch.tensor([0.3, -1, float("inf"), 3], dtype=x.dtype, device=x.device),
    "as_tensor": lambda x: x * torch.as_tensor(0.3, dtype=x.dtype),
    "as_tensor of a tensor": lambda x: torch.as_tensor(x, dtype=torch.q52).to(x.dtype) * 0.3,
    "written to": lambda x: torch.zeros_like(x.float(), dtype=x.dtype).fill_(0.3) * x,
    "scalar_tensor": lambda x: x * torch.scalar_tensor(0.3, dtype=x.dtype),
    "sum": lambda x: x.sum(dtype=torch.q52),
    "cumsum": lambda x: torch.cumsum(x, 0, dtype=torch.posit16es1),
    "softmax": lambda x: x.softmax(1, dtype=torch.posit16es1),
    "softmax in float32": lambda x: F.softmax(x, 1, dtype=torch.float32).to(x.dtype) @ x.t(),
    "type": lambda x: x.type(torch.q52) * 0.3,
    "type_as": lambda x: x.type(torch.q52).type_as(x) * 0.3,
    "to another": lambda x: (x.float() / 3).to(x),
}


def with_gradient(f, x, leaf):
    torch.manual_seed(3)
    result = f(leaf)
    slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
    return result, *torch.autograd.grad(result, leaf, slope), torch.get_rng_state()


@pytest.mark.parametrize("dtype", [torch.q43, torch.posit16es2, torch.posit32es2], ids=str)
@pytest.mark.parametrize("f", CASES.values(), ids=CASES)
def test_whole_graphs(f, dtype):
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(dtype)
    run = torch.compile(f, backend=Graphs(), fullgraph=True)
    for a, b in zip(with_gradient(run, x, x.clone().requires_grad_()), with_gradient(f, x, x.clone().requires_grad_()), strict=True):
        assert_same(a, b)


def test_sizes_that_vary():
    def f(x):
        rows = torch.arange(x.shape[0], dtype=x.dtype, device=x.device)
        return x + torch.zeros(x.shape[0], 4, dtype=x.dtype, device=x.device) + rows.reshape(-1, 1)

    backend = Graphs()
    run = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
    for rows in (3, 5, 5, 3, 5):
        x = torch.linspace(-2, 2, 4 * rows).reshape(rows, 4).to(torch.q43)
        assert_same(run(x), f(x))
    assert len(backend.seen) == 2


def test_a_graph_ends_before_the_first_tensor_of_ours(monkeypatch):
    """The stock code before is compiled as ever."""
    monkeypatch.setattr(graphs, "_noticed", True)
    backend = Graphs()

    def f(x):
        y = x.exp() * 2
        return torch.ones(3, dtype=torch.q43, device=y.device) + y.to(torch.q43)

    x = torch.linspace(-2, 2, 3)
    assert_same(torch.compile(f, backend=backend)(x), f(x))
    assert [n.target for n in backend.seen[0].graph.nodes if n.op.startswith("call")] == ["exp", operator.mul]


def test_in_a_graph_of_ours_no_cast_ends_it():
    backend = Graphs()

    def f(x):
        return (torch.softmax(x, 0, dtype=torch.float32) * 3).to(x.dtype) * 0.3

    x = torch.linspace(-2, 2, 12).to(torch.q43)
    assert_same(torch.compile(f, backend=backend)(x), f(x))
    assert len(backend.seen) == 1


CONSTANTS = {  # of whose elements eager code rounds all at once, or none
    "zeros": lambda x: x * 0.3 + torch.zeros(4, dtype=x.dtype, device=x.device),
    "zeros_like": lambda x: x * 0.3 + torch.zeros_like(x.float(), dtype=x.dtype),
    "new_zeros": lambda x: x * 0.3 + x.new_zeros(4, dtype=x.dtype),
    "ones": lambda x: x * 0.3 + torch.ones(4, dtype=x.dtype, device=x.device),
    "new_ones": lambda x: x * 0.3 + x.float().new_ones(4, dtype=x.dtype),
    "ones_like": lambda x: x * 0.3 + torch.ones_like(x.float().t(), dtype=x.dtype).t(),
    "full": lambda x: x * 0.3 + torch.full((4,), 0.3, dtype=x.dtype, device=x.device),
    "full of 0": lambda x: x * 0.3 + torch.full((4,), 0, dtype=x.dtype, device=x.device),
    "full of infinity": lambda x: x.maximum(torch.full((4,), float("-inf"), dtype=x.dtype, device=x.device)) * 0.3,
    "full_like": lambda x: x * 0.3 + torch.full_like(x, 0.3, dtype=x.dtype),
    "full twice": lambda x: torch.full_like(x, 0.3, dtype=x.dtype) * 0.3 + torch.full((4,), 0.3, dtype=x.dtype, device=x.device) * x,
    "new_full": lambda x: x * 0.3 + x.float().new_full((4,), 0.3, dtype=x.dtype),
    "empty": lambda x: torch.empty(3, 4, dtype=x.dtype, device=x.device).copy_(x) * 0.3,
    "filled": lambda x: torch.empty_like(x.float(), dtype=x.dtype).fill_(0.3) * x,
    "rand": lambda x: x * 0.3 * torch.rand(4, dtype=x.dtype, device=x.device),
    "rand_like": lambda x: x * 0.3 * torch.rand_like(x.float().t(), dtype=x.dtype).t(),
}
AT_RANDOM = {**{n: CASES[n] for n in ("arange", "randn", "tensor of a list", "sum", "softmax in float32", "type_as", "to another")}, **CONSTANTS}


@pytest.mark.parametrize("f", AT_RANDOM.values(), ids=AT_RANDOM)
def test_dtypes_that_round_at_random(f):
    """The words that eager code takes, and as many."""
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(STOCHASTIC)
    run = torch.compile(f, backend=Graphs(), fullgraph=True)
    for _ in range(2):
        for a, b in zip(with_gradient(run, x, x.clone().requires_grad_()), with_gradient(f, x, x.clone().requires_grad_()), strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("name", ["full", "rand"])
def test_constants_in_a_block_that_rounds_at_random(monkeypatch, name):
    """There every cast takes words: the graph ends."""
    monkeypatch.setattr(graphs, "_noticed", True)
    f, x = CONSTANTS[name], torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.q43)
    with torch_dtypes.rounding("stochastic"):
        with pytest.raises(Exception, match=r"expected stock dtypes in a (whole )?graph, but got torch\.q43"):
            torch.compile(f, backend=Graphs(), fullgraph=True)(x)
        torch._dynamo.reset()
        run = torch.compile(f, backend=Graphs())
        for _ in range(2):
            for a, b in zip(with_gradient(run, x, x.clone().requires_grad_()), with_gradient(f, x, x.clone().requires_grad_()), strict=True):
                assert_same(a, b)


@pytest.mark.parametrize("name", ["zeros", "full", "arange", "linspace", "tensor of a list", "sum", "softmax in float32"])
def test_exported(name):
    class Model(torch.nn.Module):
        def forward(self, x):
            return CASES[name](x)

    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2)
    program = torch.export.export(Model(), (x,)).module()
    y = torch.linspace(-1, 3, 12).reshape(3, 4).to(torch.posit16es2)
    assert_same(program(y), Model()(y))


OF_A_DEFAULT = {
    "zeros_like": lambda x: torch.zeros_like(x.float()),
    "new_ones": lambda x: x.float().new_ones(2),
    "full of integers": lambda x: torch.full((2,), 2),
    "zeros": lambda x: torch.zeros(2),
}


@pytest.mark.parametrize("name", OF_A_DEFAULT)
def test_what_a_default_dtype_of_ours_is_not_that_of(name):
    """Eager code makes tensors in the default dtype unseen: a recording would have another, so there is none. What has an operand's dtype is seen."""
    f, x = OF_A_DEFAULT[name], torch.ones(3, dtype=torch.q43)
    torch.set_default_dtype(torch.q43)
    try:
        if name in ("zeros_like", "new_ones"):
            recorded = Recorded(lambda x: [f(x)], [x], differentiable=False)
            assert_same(recorded.results[0], f(x))
            assert [str(node.target).split(".")[1] for node in recorded.forward_nodes[1:]] == ["_to_copy", name]
        else:
            with pytest.raises(NotRecordable, match="does not see it"):
                Recorded(lambda x: [f(x)], [x], differentiable=False)
    finally:
        torch.set_default_dtype(torch.float32)
