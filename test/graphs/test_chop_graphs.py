"""chop in graphs: recorded as torch.ops.torch_dtypes.chop by whatever captures code, with eager's
bits at every run."""

import io

import pytest
import torch
from capture import clean  # noqa: F401 (a fixture)
from representatives import thin_out
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torch_dtypes
from torch_dtypes import chop

OP = torch.ops.torch_dtypes.chop.default
X, Y = torch.linspace(-3, 3, 24).reshape(4, 6), torch.linspace(-2, 5, 24).reshape(4, 6)
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:.torch.jit.*:DeprecationWarning",  # PyTorch's own
        "ignore:.*torch.jit.*:torch.jit.TracerWarning",
        "ignore:.*should not be instantiated:DeprecationWarning",
    ),
    pytest.mark.usefixtures("clean"),
]
FORMATS = {
    "name": "q43",
    "parameters": "posit12es1_up",
    "alias": "fp16",
    "dtype": torch.posit16es2,
    "own mode": "q52_toward_zero",
}


@pytest.mark.parametrize("D", thin_out(FORMATS.values(), 3), ids=FORMATS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_in_one_graph(D, backend):
    def f(x):
        return chop(chop(x * 2, D).relu() + 1, "posit8es1", rounding=3)

    g = torch.compile(f, backend=backend, fullgraph=True)
    for x in (X, Y, Y[:, ::2].t(), X.half(), torch.ones(2, 2).bfloat16(), X.double()):
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        left, right = g(a), f(b)
        assert torch.equal(left, right) and left.stride() == right.stride()
        left.sum().backward()
        right.sum().backward()
        assert torch.equal(a.grad, b.grad)


@pytest.mark.parametrize("way", [str, torch_dtypes.dtype])
def test_a_table_that_is_first_read_in_a_graph(way):
    D = str(torch_dtypes.table_format([0.0, 0.5, 1.25, -3.0, {str: 2.5}.get(way, 2.75)]))
    for name in (way(D), way("nf4")):
        run = torch.compile(lambda x, name=name: chop(x, name) + 1, backend="eager", fullgraph=True)
        assert torch.equal(run(X), chop(X, name) + 1)


def test_a_table_that_is_made_within_modes():
    with torch.device("meta"), FakeTensorMode():
        D = torch_dtypes.table_format([0.0, 0.5, 1.25, -3.25])
        assert chop(torch.ones(3), "lns2_3").shape == (3,)
    assert chop(1.1, D) == 1.25 and chop(0.98, "lns2_3") == 1.0


@pytest.mark.whole  # a C++ compiler runs
def test_compiled_by_inductor():
    def f(x):
        return chop(chop(x * 2, "q43").relu(), "q52_stochastic")

    g = torch.compile(f, fullgraph=True)
    for seed in range(2):
        torch.manual_seed(seed)
        a = g(X)
        torch.manual_seed(seed)
        assert torch.equal(a, f(X))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_random_calls_draw_anew_at_each_run(backend):
    def f(x):
        return (
            chop(x, "q43", "stochastic"),
            chop(x, "q43", "stochastic"),
            chop(x, "q43_stochastic", flip_prob=0.5),
        )

    x = torch.full((200,), 1.3, requires_grad=True)
    g = torch.compile(f, backend=backend, fullgraph=True)
    torch.manual_seed(3)
    runs = [*g(x), *g(x)]
    torch.manual_seed(3)
    for a, b in zip(runs, [*f(x), *f(x)], strict=True):
        assert torch.equal(a, b)
    assert len({tuple(r.tolist()) for r in runs}) == 6


def test_a_blocks_mode_holds_when_the_graph_runs():
    g = torch.compile(lambda x: chop(x, "q43"), backend="eager", fullgraph=True)
    with torch_dtypes.rounding("up"):
        assert torch.equal(g(X), chop(X, "q43", "up"))
    assert torch.equal(g(X), chop(X, "q43"))


def inside_a_block(x):
    with torch_dtypes.rounding("down"):
        return chop(x, "e5m5") * 2


def chop_thrice(x):
    return chop(x * 1.7, "q43") + chop(x, torch.posit16es2, "up") + inside_a_block(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dtype = torch.nn.Linear(6, 6), torch.q43

    def forward(self, x):
        return chop(self.linear(x), self.dtype, "up")


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_records_the_call(mode):
    graph = make_fx(chop_thrice, tracing_mode=mode)(X)
    assert [node.target for node in graph.graph.nodes].count(OP) == 3
    assert torch.equal(graph(Y), chop_thrice(Y))


def test_traced_by_torchscript():
    traced = torch.jit.trace(chop_thrice, X)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    assert torch.equal(traced(Y), chop_thrice(Y))
    assert torch.equal(torch.jit.load(file)(Y), chop_thrice(Y))


# PyTorch 2.11's own.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict):
    net = Net()
    program = torch.export.export(
        net, (X,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},), strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for x in (Y, torch.ones(9, 6)):
        assert torch.equal(program.module()(x), net(x))
        assert torch.equal(torch.export.load(file).module()(x), net(x))
        file.seek(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of this exporter
def test_onnx_says_what_it_does_not_know(tmp_path):
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="torch_dtypes::chop"):
        torch.onnx.export(Net(), (X,), str(tmp_path / "net.onnx"), dynamo=False)


def test_function_transforms():
    assert torch.equal(torch.func.vmap(chop_thrice)(X), chop_thrice(X))
    assert torch.equal(
        torch.func.vmap(torch.func.vmap(lambda t: chop(t, "q43")), in_dims=1, out_dims=1)(X),
        chop(X, "q43"),
    )
    assert torch.equal(torch.func.functionalize(chop_thrice)(X), chop_thrice(X))
    per_row = torch.func.vmap(torch.func.grad(lambda t: (chop(t, "q43") ** 2).sum()))
    assert torch.equal(per_row(X), 2 * chop(X, "q43"))
    assert torch.equal(
        torch.func.hessian(lambda t: (chop(t, "q43") ** 2).sum())(X[0]), 2 * torch.eye(6)
    )
    assert torch.equal(torch.func.jacfwd(lambda t: chop(t, "q43"))(X[0]), torch.eye(6))


# 2.15's opcheck warns for any operator, PyTorch's own too.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    "x",
    [X, X.clone().requires_grad_(), X[:, ::2].t(), X.half(), X[:0]],
    ids=["plain", "grad", "strided", "half", "empty"],
)
def test_opcheck(x):
    for arguments in (("q43",), ("posit12es1", "down")):
        torch.library.opcheck(OP, (x, *arguments))


def test_called_by_hand():
    assert torch.equal(torch.ops.torch_dtypes.chop(X, "q43"), chop(X, "q43"))
    assert torch.ops.torch_dtypes.chop(X.to("meta"), "q43").shape == X.shape
    generator = torch.Generator(X.device).manual_seed(1)
    again = torch.Generator(X.device).manual_seed(1)
    assert torch.equal(
        OP(X, "q43", "stochastic", generator=generator), chop(X, "q43", "stochastic", again)
    )
    with pytest.raises(ValueError, match="expected the name of a number format, but got 'q99'"):
        OP(X, "q99")
    with pytest.raises(ValueError, match="expected a rounding mode"):
        OP(X, "q43", "upwards")
    with pytest.raises(ValueError, match="flip_prob from 0 to 1, but got 2"):
        OP(X, "q43", flip_prob=2.0)
    with pytest.raises(TypeError, match=r"but got torch\.q43"):
        OP(torch.ones(2, dtype=torch.q43), "q43")
    with pytest.raises(TypeError, match="to chop, but got Int"):
        OP(X.int(), "q43")


@pytest.mark.parametrize("D", ["q99", torch.int8, 3], ids=str)
def test_errors_of_compiled_code_are_eagers(D):
    g = torch.compile(lambda x: chop(x, D), backend="eager")
    with pytest.raises((TypeError, ValueError)) as compiled:
        g(X)
    with pytest.raises(compiled.type) as eager:
        chop(X, D)
    assert str(compiled.value) == str(eager.value)


def test_a_format_changed_later_is_seen():
    """A graph could not know of it: the call runs as it is written."""
    fmt = torch_dtypes.format_of("q43")
    g = torch.compile(lambda x: chop(x, fmt), backend="eager")
    assert torch.equal(g(X), chop(X, "q43"))
    fmt.rounding = torch_dtypes.format_of("q43_up").rounding
    assert torch.equal(g(X), chop(X, "q43_up"))
    assert torch.equal(chop(X, fmt), chop(X, "q43_up"))
