"""torch.compile in our dtypes and what is around a graph: the grad mode that a function leaves, graphs behind it, the classes of its tensors, sizes
of what it writes to, backends that run what they are given."""

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes._overlay import graphs

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # which dynamo hides by other means
BACKENDS = ["eager", "aot_eager", "inductor"]
DTYPE = torch_dtypes.dtype("e8m7")


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """From a clean slate; the notice is a test's own business."""
    torch._dynamo.reset()
    monkeypatch.setattr(graphs, "_noticed", True)
    yield
    torch.set_grad_enabled(True)
    torch._dynamo.reset()


def turned_off(x):
    y = x * 2
    torch.set_grad_enabled(False)
    return y, y * x


def turned_off_before_a_break(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch._dynamo.graph_break()
    return y, y * x


def turned_off_and_on(x):
    y = x * 2
    torch.set_grad_enabled(False)
    torch._dynamo.graph_break()
    z = y * x
    torch.set_grad_enabled(True)
    return z, z * y, y * y


def turned_on(x):
    torch.set_grad_enabled(True)
    return (x * 2,)


def on_in_a_block(x):
    with torch.enable_grad():
        y = x * 2
    return y, x * 3


def off_in_a_block(x):
    with torch.no_grad():
        y = x * 2
    return y, x * 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("before", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize(
    "f", [turned_off, turned_off_before_a_break, turned_off_and_on, turned_on, on_in_a_block, off_in_a_block], ids=lambda f: f.__name__
)
def test_grad_mode_is_eager_codes(f, before, backend):
    """A graph left the mode as it had been, and what a function turned on within torch.no_grad had no gradient."""
    x = torch.tensor([1.5, -2], dtype=DTYPE, requires_grad=True)
    compiled = torch.compile(f, backend=backend)

    def run(function):
        torch.set_grad_enabled(before)
        results = function(x)
        mode = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        gradients = [torch.autograd.grad(v.sum(), x, retain_graph=True)[0].tolist() if v.requires_grad else None for v in results]
        return [v.tolist() for v in results], gradients, mode

    expected = run(f)
    assert run(compiled) == expected
    assert run(compiled) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_pass_ends_at_operands_without_a_gradient(backend):
    """It went on into the graph that had made them, whose saved tensors an earlier pass had freed (as where a discriminator sees detached fakes)."""

    def steps(a, b):
        fake = a @ b
        fake.abs().mean().backward()
        (b @ fake.detach()).mean().backward()

    def gradients(f):
        operands = [torch.tensor([[1, 2], [3, -4.0]], dtype=DTYPE, requires_grad=True) for _ in range(2)]
        f(*operands)
        return [v.grad.tolist() for v in operands]

    assert gradients(torch.compile(steps, backend=backend)) == gradients(steps)


class Registers(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = None

    def forward(self, x):
        if self.scale is None:
            self.scale = nn.Parameter(torch.ones_like(x))
        return x * self.scale


def test_parameters_of_ours_are_parameters_in_graphs():
    """A module that made one in its first call had a plain attribute."""
    model = Registers()
    torch.compile(model, backend="eager")(torch.ones(2, dtype=DTYPE)).sum().backward()
    assert [name for name, _ in model.named_parameters()] == ["scale"] and model.scale.grad.tolist() == [1, 1]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * (2 if isinstance(x, nn.Parameter) else 3),
        lambda x: x * (2 if type(x) is torch.Tensor else 3),
        lambda x: x * (2 if type(x + 1) is torch.Tensor else 3),
        lambda x: x * len(type(x).__name__ + x.__class__.__name__),
    ],
    ids=["parameter", "tensor", "result", "name"],
)
def test_classes_are_those_of_eager_code(f):
    """Tensors were of the class that stands for them while a graph is made, and no parameter was one."""
    compiled = torch.compile(f, backend="eager", fullgraph=True)
    values = torch.tensor([1.5, -2], dtype=DTYPE)
    for x in (values, nn.Parameter(values)):
        assert compiled(x).tolist() == f(x).tolist()


def into_nothing(x):
    out = torch.empty(0, dtype=x.dtype)
    torch.sigmoid(x, out=out)
    return out.size(), out * 2


def into_a_number(x):
    out = torch.zeros((), dtype=x.dtype)
    torch.mul(x, 2, out=out)
    return out.size(), out + 1


def into_two(x):
    out = torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=torch.int64)
    torch.max(x, 1, out=out)
    return out[0].size(), *out


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("f", [into_nothing, into_a_number, into_two], ids=lambda f: f.__name__)
def test_out_of_another_size_ends_a_graph(f):
    """As in stock's graphs: it kept its size in ours, or was an error when the graph ran."""
    x = torch.tensor([[1, 2, 3], [4, 0, -6.0]], dtype=DTYPE)
    expected, found = f(x), torch.compile(f, backend="eager")(x)
    assert found[0] == expected[0] and all(map(torch.equal, found[1:], expected[1:]))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tensors to write to of other sizes than the results'"):
        torch.compile(f, backend="eager", fullgraph=True)(x)


def near_one(x):
    return x[:, :2] * 0.1 + torch.eye(2, dtype=x.dtype)


INTO = {  # of which stock's own code makes empty tensors and lets them be resized
    "inv": lambda x: torch.linalg.inv(near_one(x), out=torch.empty(2, 2, dtype=x.dtype)),
    "det": lambda x: torch.linalg.det(near_one(x), out=torch.empty((), dtype=x.dtype)),
    "slogdet": lambda x: torch.linalg.slogdet(near_one(x), out=(torch.empty((), dtype=x.dtype), torch.empty((), dtype=x.dtype))),
    "cholesky": lambda x: torch.linalg.cholesky(near_one(x) @ near_one(x).t(), out=torch.empty(2, 2, dtype=x.dtype)),
    "max": lambda x: torch.max(x, 1, out=(torch.empty(2, dtype=x.dtype), torch.empty(2, dtype=torch.int64))),
}


@pytest.mark.parametrize("f", INTO.values(), ids=INTO)
def test_out_of_the_result_s_size_is_in_a_graph(f):
    x = torch.tensor([[1, 2, 3], [4, 0, -6.0]], dtype=DTYPE)
    found, expected = torch.compile(f, backend="aot_eager", fullgraph=True)(x), f(x)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    assert all(torch.equal(a, b) for a, b in pairs)


def test_out_by_sizes_that_vary():
    """One graph of Dynamo's for all."""

    def f(x):
        rows = x.shape[0]
        out = torch.empty(rows, dtype=x.dtype), torch.empty(rows, dtype=torch.int64)
        return torch.max(x, 1, out=out)[0] + torch.gather(x, 1, out[1][:, None], out=torch.empty(rows, 1, dtype=x.dtype))[:, 0]

    run = torch.compile(f, backend="eager", fullgraph=True, dynamic=True)
    run(torch.linspace(-1, 1, 12).reshape(3, 4).to(DTYPE))
    with torch.compiler.set_stance("fail_on_recompile"):
        for rows in (4, 5, 4, 6):
            x = torch.linspace(-1, 1, 4 * rows).reshape(rows, 4).to(DTYPE)
            assert torch.equal(run(x), f(x))


@pytest.mark.parametrize("differentiable", [False, True])
def test_backends_may_run_a_graph_on_its_examples(differentiable):
    """The tables that a graph holds are no fake tensors, which was an error."""
    ran = []

    def backend(graph, examples):
        ran.append([tuple(v.shape) for v in graph(*examples)])
        return graph

    x = torch.tensor([1.5, -2], dtype=DTYPE, requires_grad=differentiable)
    compiled = torch.compile(lambda x: x * x + x.sin(), backend=backend)
    assert compiled(x).tolist() == (x * x + x.sin()).tolist() and ran


@pytest.mark.parametrize("dynamic", [False, True])
def test_bytes_in_memory_are_those_of_eager_code(dynamic):
    """They were one for each element."""

    def count(x):
        return x * (x.untyped_storage().size() // x.element_size() + x.itemsize + (x + 1).nbytes)

    compiled = torch.compile(count, backend="eager", fullgraph=True, dynamic=dynamic)
    for dtype in (DTYPE, torch.posit32es2, torch.q43):
        for size in (3, 4, 4):
            x = torch.ones(size, 2, dtype=dtype)
            assert compiled(x).tolist() == count(x).tolist()
