"""Functions and models in our dtypes in whole graphs of torch.compile: graphs over codes with eager code's bits, forward and backward."""

# ruff: noqa: F811 (a fixture that is imported)

import copy

import new_process
import pytest
import torch
import torch.nn.functional as F
from capture import FUSES, WHOLE_GRAPHS, assert_same, backend, clean, layers_in_parts  # noqa: F401 (the last three are fixtures)
from networks import LeNet5, Transformer, step
from torch.optim.nadam import nadam

import torch_dtypes
from torch_dtypes import _numbers
from torch_dtypes._overlay import graphs
from torch_dtypes.compiling import operators

formats = pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.posit32es2], ids=str)
pytestmark = WHOLE_GRAPHS


@formats
@pytest.mark.parametrize("network", [LeNet5, Transformer])
@pytest.mark.usefixtures("layers_in_parts")
def test_networks_in_one_graph(backend, network, dtype):
    torch.manual_seed(0)
    eager = network().to(dtype)
    model = copy.deepcopy(eager)
    run = torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(2):
        x = network.batch(dtype)
        for a, b in zip(step(model, run, x), step(eager, eager, x), strict=True):
            assert_same(a, b)
    assert len(backend.seen) == 2  # forward and backward
    model.eval(), eager.eval()
    with torch.no_grad():
        assert_same(run(x), eager(x))
    assert len(backend.seen) == 3


@pytest.mark.parametrize("name", ["aot_eager", "inductor", "inductor with options"])  # of which the second is not asked on the CPU
def test_backends_of_pytorch(name):
    torch.manual_seed(0)
    eager = LeNet5().to(torch.posit16es2)
    model = copy.deepcopy(eager)
    x = LeNet5.batch(torch.posit16es2)
    options = {"options": {"epilogue_fusion": True}} if "options" in name else {}
    scale = torch.linspace(1, 2, 10).to(torch.posit16es2)  # a chain of two tensors
    run = torch.compile(lambda x: model(x) * scale + 1, backend=name.partition(" ")[0], fullgraph=True, **options)
    for a, b in zip(step(model, run, x), step(eager, lambda x: eager(x) * scale + 1, x), strict=True):
        assert_same(a, b)


def test_guards_tell_formats_apart(backend):
    def f(x):
        return x * 1.5 + x.sqrt() if x.dtype is torch.posit16es2 else x - 1

    run = torch.compile(f, backend=backend, fullgraph=True)
    x = torch.linspace(0, 4, 7)
    same_container = torch.posit16es1, torch.posit16es2, torch.bfloat16, torch.float32
    for dtype in same_container * 2:
        assert_same(run(x.to(dtype)), f(x.to(dtype)))
    assert len(backend.seen) == len(same_container)


# ---- chains of elementwise operators ----


def every_code(dtype):
    words = torch.arange(2 ** (8 * dtype.itemsize), dtype=torch.int32).to(torch.uint8 if dtype.itemsize == 1 else torch.int16)
    return torch_dtypes.from_codes(words, dtype)


CHAINS = {
    "gelu": lambda x: F.gelu(x * 1.5 + 0.25),
    "itself": lambda x: (x.sigmoid() * x).neg() / (x.abs() + 1),
    "two results": lambda x: (x.tanh() - 1, (x.tanh() - 1) * 2),
}


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.posit8es1], ids=str)
@pytest.mark.parametrize("f", CHAINS.values(), ids=CHAINS)
def test_a_chain_is_one_look_up(backend, f, dtype):
    run, x = torch.compile(f, backend=backend, fullgraph=True), every_code(dtype)

    def compare():
        found, expected = run(x), f(x)
        for a, b in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
            assert_same(a, b)

    compare()
    assert (set(backend.targets()) <= {"torch_dtypes_codes.look_up.default"}) == FUSES
    with torch_dtypes.rounding("up"):  # of which the table knows nothing
        compare()
    compare()


def test_chains_in_backward(backend):
    def f(x):
        return (F.silu(x * 2 + 1) * 0.5).tanh()

    x, y = (every_code(torch.q43).requires_grad_() for _ in range(2))
    for v, g in ((x, torch.compile(f, backend=backend, fullgraph=True)), (y, f)):
        g(v).backward(torch.full_like(v, 0.5))
    assert_same(x.grad, y.grad)


# ---- what graphs must do as eager code does ----


def test_written_operands(backend):
    def f(x, y):
        x += y
        x[0] = y * 1.5
        return x * y

    run = torch.compile(f, backend=backend, fullgraph=True)
    a, b = (torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.q43) for _ in range(2))
    y, before = torch.ones(4, dtype=torch.q43), a._version
    assert_same(run(a, y), f(b, y))
    assert_same(a, b)
    assert a._version > before


def averaged(w, state):
    state.lerp_(w.detach(), 0.25)
    return w @ state.t()


def cached(w, state):
    state.index_copy_(0, torch.tensor([1], device=w.device), w[:1].detach())
    return (w @ state[:2].t()).relu()


def counted(w, state):
    state[0].add_(1)
    return w * state


@pytest.mark.parametrize("f", [averaged, cached, counted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_gradients_beside_operands_that_were_written_to(f, name):
    """As an average, a cache or a count that a model keeps and goes on with."""

    def look(f):
        w, state = (torch.linspace(-2, k, 12).reshape(3, 4).to(torch.q43) for k in (2, 5))
        w.requires_grad_()
        for _ in range(2):
            f(w, state).sum().backward()
        y = f(w, state).sum()
        state.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        return w.grad, state

    for found, expected in zip(look(torch.compile(f, backend=name, fullgraph=True)), look(f), strict=True):
        assert_same(found, expected)


def test_tensors_that_a_graph_holds(backend):
    """They belong to the graph that Dynamo makes, which is run once more where it is recorded."""
    held = [torch.ones(3, dtype=torch.q43) for _ in range(2)]
    torch._dynamo.mark_static_address(held[0])

    def f(held, x):
        held.add_(x)
        return held * 2

    x = torch.ones(3, dtype=torch.q43)
    assert_same(torch.compile(lambda x: f(held[0], x), backend=backend, fullgraph=True)(x), f(held[1], x))
    assert_same(*held)


@pytest.mark.parametrize(("name", "way"), [("Adam", "step"), ("Adam", "within"), ("RMSprop", "within"), ("NAdam", "function")])
@pytest.mark.filterwarnings("ignore:torch.compile runs uncompiled", "ignore:the optimizer's eps")
def test_an_optimizers_step_is_eager_codes(backend, name, way):
    """Stock's formulas differ where they are compiled, and an eps that is 0 in the format is raised by what stands in front of them."""

    def parameters(compile_):
        p = torch.nn.Parameter(torch.tensor([1, -1.5, 0.25], dtype=torch.q43))
        counts = torch.ones((), device="cpu"), torch.zeros((), device="cpu")  # where an optimizer keeps them
        optimizer = getattr(torch.optim, name)([p], lr=0.01)

        def within(slope):
            p.grad = slope * 0.5
            optimizer.step()

        def by_function(slope):
            groups = [p], [slope * 0.5], [torch.zeros_like(p)], [torch.zeros_like(p)]
            settings = dict(beta1=0.9, beta2=0.999, lr=0.01, weight_decay=0.0, momentum_decay=0.004, eps=1e-8)
            with torch.no_grad():
                nadam(*groups, *([n] for n in counts), **settings)

        p.grad = torch.full_like(p, 2**-7)
        run = compile_({"step": optimizer.step, "within": within, "function": by_function}[way])
        for _ in range(2):
            run(*([] if way == "step" else [torch.full_like(p, 2**-6).detach()]))
        return p

    found = parameters(lambda f: torch.compile(f, backend=backend))
    assert_same(found, parameters(lambda f: f))
    assert found.isfinite().all()
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"expected stock dtypes in a .*graph, but got torch\.q43"):
        parameters(lambda f: torch.compile(f, backend=backend, fullgraph=True))


def foreach_lerp(x, a, b):
    y = x.clone()
    torch._foreach_lerp_([y], [a], 0.3)
    return y


TAKEN_APART = {  # by Dynamo, into operators each of which would round
    "addcdiv": lambda x, a, b: torch.addcdiv(x, a, b, value=0.3),
    "addcdiv_": lambda x, a, b: x.clone().addcdiv_(a, b, value=0.3),
    "addcmul_": lambda x, a, b: x.clone().addcmul_(a, b, value=0.3),
    "add_": lambda x, a, b: x.clone().add_(a, alpha=0.3),
    "_foreach_lerp_": foreach_lerp,
}


@pytest.mark.parametrize("f", TAKEN_APART.values(), ids=TAKEN_APART)
def test_operators_stay_whole(backend, f):
    values = [torch.randn(500, generator=torch.Generator().manual_seed(i)).to(torch.posit8es1) for i in range(3)]
    assert_same(torch.compile(f, backend=backend, fullgraph=True)(*values), f(*values))


def test_policies_hold_when_the_graph_runs(backend):
    def f(a, b):
        return a @ b

    run = torch.compile(f, backend=backend, fullgraph=True)
    a, b = torch.randn(4, 64).to(torch.q43), torch.randn(64, 4).to(torch.q43)
    for policy in ("machine", "exact", "format"):
        with torch_dtypes.accumulate(policy):
            assert_same(run(a, b), f(a, b))


@pytest.mark.parametrize("name", ["item", "nonzero"])
def test_what_is_left_to_eager_code(backend, monkeypatch, name):
    x = torch.linspace(-2, 2, 12).to(torch.q43)
    f = {"item": lambda x: x * x.sum().item(), "nonzero": lambda x: x[x > 0]}[name]
    monkeypatch.setattr(graphs, "_noticed", True)
    run = torch.compile(f, backend=backend)
    for _ in range(2):
        torch.manual_seed(1)
        found = run(x)
        torch.manual_seed(1)
        assert_same(found, f(x))


# ---- the operators ----


def test_a_process_ends_well():
    """JIT's list of operators is where overloads that are taken back at exit ended the process."""
    script = """
import torch, torch_dtypes
from torch_dtypes.compiling.operators import operator
x, aten = torch.ones(3, dtype=torch.int16), torch.ops.aten
for func, other in ((aten.mul.Tensor, 2.0), (aten.mul.Scalar, 2.0), (aten.mul.Tensor, x)):
    operator(func, [x, other], 1)
torch.jit.script(torch.nn.Linear(2, 2))
"""
    done = new_process.run("-W", "ignore", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")


def test_opcheck():
    codes, name = torch.arange(-3, 3, dtype=torch.int16), "posit16es2"
    x, y, image = codes.reshape(2, 3), codes.reshape(3, 2), codes.reshape(1, 2, 3)
    slope, geometry = codes[:1].reshape(1, 1, 1), ([1], [0], [1], False, [0], 1)
    for func, args, formats_ in (
        (torch.ops.aten.mm.default, [x, y], f"{name},{name}"),
        (torch.ops.aten.add.Tensor, [x, 1.5, 1], name),
        (torch.ops.aten.add_.Tensor, [x, x, 1], f"{name},{name}"),
        (torch.ops.aten.native_layer_norm.default, [x, [3], None, None, 1e-5], name),
        (torch.ops.aten.native_batch_norm.default, [image, *[codes[:2]] * 4, True, 0.1, 1e-5], ",".join([name] * 5)),
        (torch.ops.aten.convolution_backward.default, [slope, image, image, [1], *geometry, [True, True, False]], ",".join([name] * 3)),
    ):
        op = operators.operator(func, args, len(operators.outcome(func, args, formats_)))
        torch.library.opcheck(op, tuple(args), {"formats": formats_})
    torch.library.opcheck(operators.cast, (torch.randn(3),), {"formats": f"-,{name}"})
    torch.library.opcheck(operators.cast, (codes,), {"formats": f"{name},q43"})


def test_what_was_compiled_leaves_a_format_s_number_free_after_reset():
    dtype = torch_dtypes.table_format([-2.0, -1.0, 0.0, 0.375, 1.0, 2.0])
    w, name = torch.ones(4).to(dtype).requires_grad_(), str(dtype).removeprefix("torch.")
    torch.compile(lambda x: (torch.relu(x * 1.3) * x).sum(), backend="eager", fullgraph=True)(w).backward()
    torch.compile(lambda x, d: x.to(d) * 2, backend="eager", fullgraph=True)(torch.ones(2), dtype)
    del dtype, w
    torch._dynamo.reset()
    _numbers.make_room()
    assert name not in torch_dtypes._C.formats_at_run_time()
