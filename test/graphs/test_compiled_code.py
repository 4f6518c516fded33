"""torch.compile of code with number formats: results are those of eager code bit for bit, or a clear error. (What compiled graphs are made of:
test_compiled_formats.py.)"""

# ruff: noqa: F811 (a fixture that is imported)
import copy
import pkgutil

import new_process
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from capture import DEVICE, assert_same, assert_trains_as, formats, net, train  # noqa: F401 (net is a fixture)
from torch import nn
from torch.overrides import TorchFunctionMode

import torch_dtypes
from torch_dtypes._overlay import graphs


@pytest.fixture
def compiled():
    """compile(f) with the graphs counted, from a clean slate; the notice is a test's own business."""
    torch._dynamo.reset()
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    noticed, graphs._noticed = graphs._noticed, True
    yield lambda f, **kwargs: torch.compile(f, backend=counter, **kwargs), counter
    graphs._noticed = noticed
    torch._dynamo.reset()


def function(x):
    return (x * 2 + 1).relu()


@formats
def test_compiled_functions_have_eager_codes_bits(compiled, dtype):
    compile_, counter = compiled
    f = compile_(function)
    x = torch.randn(3, 4)
    own = x.to(dtype)
    for frames in (1, 2):
        for _ in range(3):
            assert_same(f(own), function(own))
        assert counter.frame_count == frames
        for _ in range(3):
            assert_same(f(x), function(x))
        assert counter.frame_count == 2
    assert_same(compile_(lambda y: 1 / y, fullgraph=True)(x), 1 / x)


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@formats
def test_compiled_reciprocals_in_a_mode(compiled, dtype):
    """Dynamo goes into Python's methods of tensors then."""
    x = torch.tensor([3.0, 7.0, 11.0])
    for y in (x, x.to(dtype)):
        expected = 1 / y
        with Passing():
            assert_same(compiled[0](lambda y: 1 / y, fullgraph=True)(y), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # which dynamo hides by other means
@formats
@pytest.mark.parametrize("way", ["torch.compile", "Module.compile", "step"])
def test_compiled_training(compiled, net, dtype, way):
    compile_, counter = compiled
    model, x = copy.deepcopy(net[0]).to(dtype), net[1].to(dtype)
    reference = copy.deepcopy(model)
    if way == "torch.compile":
        model = compile_(model)
    elif way == "Module.compile":
        model.compile(backend=counter)
    if way != "step":
        assert_trains_as(model, reference, x)
    else:
        sgd = dict(optimizer=torch.optim.SGD, momentum=0.9)  # Adam computes otherwise where it is compiled, in float32 too
        for a, b in zip(compile_(train)(model, x, **sgd), train(reference, x, **sgd), strict=True):
            assert_same(a, b)
    assert counter.frame_count > 0


# Functions that are given stock tensors and name a format in their body: found while the graph is made.


def makes_inside(x):
    y = torch.sin(x)
    z = (y * 2).to(torch.q43)
    return torch.tanh(z) * (torch.zeros(4, dtype=torch.q43) + 1), y + 1


def keyword_inside(x):
    return (torch.sin(x).to(dtype=torch.posit32es2) * 2,)


def loop_inside(x):
    for _ in range(3):
        x = (x.to(torch.posit16es2) * 1.5).float()
    return (x,)


def helper(x):
    return x.to(torch.posit32es2)


def inlined(x):
    return helper(torch.sin(x)) * 2, torch.cos(x)


def comprehension(x):
    return [torch.full((2,), i + 0.3, dtype=torch.q43) * x[0, :2].to(torch.q43) for i in range(3)]


def with_block(x):
    with torch.no_grad():
        return (x.to(torch.q43) * 2,)


def in_place(x):
    y = torch.empty(4, dtype=torch.q43)
    y.copy_(x[0])
    y[1] = 1.3
    y += 1
    return (y,)


def rounds(x):
    with torch_dtypes.rounding("up"):
        y = x.to(torch.q43)
    return y, torch_dtypes.chop(x, "e5m5"), x.to(torch_dtypes.float_format(4, 5))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.to(torch.q43) * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.float() * 2


def own_derivative(x):
    return (Double.apply(x),)


INSIDE = [makes_inside, keyword_inside, loop_inside, inlined, comprehension, with_block, in_place, rounds, own_derivative]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's own, of any autograd.Function
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # which dynamo hides by other means
@pytest.mark.parametrize("f", INSIDE, ids=lambda f: f.__name__)
def test_compiled_function_that_makes_formats(compiled, f):
    compile_, counter = compiled
    g = compile_(f)
    x, y = (torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_() for _ in range(2))
    for call in range(4):
        for a, b in zip(g(x), f(y), strict=True):
            assert_same(a, b)
            if a.requires_grad:
                a.sum().backward(retain_graph=True)
                b.sum().backward(retain_graph=True)
        if call == 1:
            graphs = counter.frame_count
    assert counter.frame_count == graphs  # nothing is compiled again and again
    assert (x.grad is None) == (y.grad is None)
    if x.grad is not None:
        assert_same(x.grad, y.grad)


class Holder:
    pass


def test_compiled_function_that_finds_formats(compiled):
    """In objects that nobody looks into before the graph is made."""
    compile_, _ = compiled
    holder = Holder()
    holder.w = torch.tensor([1.5, 2], dtype=torch.posit16es2)

    def f(x):
        return torch.sin(x) + 1, holder.w * 3

    g = compile_(f)
    for _ in range(3):
        for a, b in zip(g(torch.ones(2)), f(torch.ones(2)), strict=True):
            assert_same(a, b)


def test_compiled_under_a_default_dtype_of_ours(compiled):
    compile_, _ = compiled
    torch.set_default_dtype(torch.q43)
    try:
        assert compile_(lambda: torch.zeros(3) * 2)().dtype is torch.q43
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("outer", [True, False], ids=["within one that is on", "alone"])
def test_stock_code_is_compiled_where_an_autocast_of_ours_is_off(compiled, outer):
    """Its dtype stays set where it is off, and is nobody's."""
    compile_, counter = compiled
    with torch.autocast(DEVICE, dtype=torch.q43, enabled=outer), torch.autocast(DEVICE, dtype=torch.q43, enabled=False):
        assert_same(compile_(lambda x: x @ x + 1, fullgraph=True)(torch.ones(3, 3)), torch.full((3, 3), 4.0))
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # PyTorch's own, while it loads inductor
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_backends_never_see_formats(compiled, backend):
    f = torch.compile(function, backend=backend)
    x = torch.ones(3, dtype=torch.posit16es2)
    assert_same(f(x), function(x))


def test_whole_graph_is_an_error(compiled):
    compile_, _ = compiled
    x = torch.ones(3, 4)
    shared = compile_(lambda y: (y.view(12), y * 2), fullgraph=True)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match=r"expected stock dtypes in a whole graph, but got torch\.q43.*shares memory"):
        shared(x.to(torch.q43).requires_grad_())
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"expected stock dtypes in a graph, but got torch\.q43"):
        compile_(lambda x: makes_inside(x)[0] * torch.ones(4, dtype=torch.q43, requires_grad=True), fullgraph=True)(x)


TRANSFORMED = {
    "grad of where": lambda x: torch.func.grad(lambda w: torch.where(w > 0, w, 0.0).sum())(x),
    "grad of cross_entropy": lambda x: torch.func.grad(lambda w: F.cross_entropy(w, torch.arange(3, device=w.device)))(x),
    "vmap of numbers": lambda x: torch.vmap(lambda row: row * 2 + 1)(x),
    "jacrev": lambda x: torch.func.jacrev(lambda row: row * row * 3)(x[0]),
    "jvp of numbers": lambda x: torch.stack(torch.func.jvp(lambda w: (3 * w + w / 2).tanh(), (x,), (torch.ones_like(x),))),
    "jvp of a constant": lambda x: torch.func.jvp(lambda w: w * x + x, (x,), (x * 2,))[1],
    "jvp of a product": lambda x: torch.func.jvp(lambda w: F.linear(w[0], w), (x,), (x * 2,))[1],
    "jacfwd": lambda x: torch.func.jacfwd(lambda w: F.gelu(w).softmax(0))(x[0]),
    "hessian": lambda x: torch.func.hessian(lambda w: (w.exp() * w * 2).sum())(x[0]),
    "hessian of softmax": lambda x: torch.func.hessian(lambda w: (w.softmax(0) ** 2).sum())(x[0]),
    "gradients of each": lambda x: torch.vmap(torch.func.grad(lambda row: (row.tanh() * 2).sum()))(x),
}


@pytest.mark.parametrize("f", TRANSFORMED.values(), ids=TRANSFORMED)
def test_transforms_in_whole_graphs(compiled, f):
    compile_, counter = compiled
    x = torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.posit16es2)
    assert_same(compile_(f, fullgraph=True)(x), f(x))
    assert counter.frame_count == 1


def test_dual_numbers_are_left_where_a_graph_fails(compiled):
    compile_, _ = compiled
    x = torch.linspace(-2, 2, 12).to(torch.q43)

    def jvp(w):
        return torch.func.jvp(lambda v: v * v, (w,), (torch.ones_like(w),))[1]

    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        compile_(lambda w: torch.func.jvp(lambda v: v * v[v > 0].sum(), (w,), (w,))[1], fullgraph=True)(x)
    assert_same(jvp(x), x * 2)


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda y: (y * 2).sin() * y, x, use_reentrant=False)


def test_what_recording_fails_at_is_eager_codes(compiled, monkeypatch):
    """It leaves nothing behind, and an error is eager code's."""
    compile_, _ = compiled
    found, expected = (torch.linspace(-2, 2, 12).reshape(3, 4).to(torch.q43).requires_grad_() for _ in range(2))
    for x, f in ((found, compile_(checkpointed)), (expected, checkpointed)):
        f(x).sum().backward()
    assert_same(found.grad, expected.grad)
    whole = compile_(lambda x: checkpointed(x), fullgraph=True)
    assert_same(whole(found), checkpointed(expected))
    with pytest.raises(IndexError, match="out of bounds"):
        compile_(lambda x: x[torch.tensor([7])] * 2)(found)

    def broken(*_):
        raise RuntimeError("half way")

    monkeypatch.setattr("torch_dtypes.compiling.recording.values_decide", broken)
    x, grad = expected.detach(), TRANSFORMED["grad of where"]
    assert_same(compile_(lambda x: grad(x) * 2)(x), grad(x) * 2)
    assert torch._C._autograd._saved_tensors_hooks_is_enabled()
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def test_second_derivatives_are_an_error(compiled):
    compile_, _ = compiled
    x, w = (torch.linspace(-1, 1, 6).to(torch.posit16es2).requires_grad_() for _ in range(2))
    f = compile_(lambda x, w: torch.tanh(x * w).sum())
    (gradient,) = torch.autograd.grad(f(x, w), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"expected first derivatives alone through a compiled function.*uncompiled"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("owner", ["torch", "torch._higher_order_ops", "torch._higher_order_ops.{}"])
def test_control_flow(compiled, owner):
    compile_, _ = compiled
    x = torch.ones(2, 3, dtype=torch.posit16es2)
    cond, while_loop = (pkgutil.resolve_name(owner.format(name) + f":{name}") for name in ("cond", "while_loop"))
    scan = pkgutil.resolve_name(f"{owner.format('scan')}:scan") if owner != "torch" else torch._higher_order_ops.scan
    assert (cond, while_loop) == (torch.cond, torch.while_loop)

    def f(x):
        branch = cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, (x,))
        return while_loop(lambda y: y.sum() < 100, lambda y: (y * 2,), (branch,))[0]

    for run in (f, compile_(f)):
        assert_same(run(x), x * 32)
    for run in (scan, compile_(lambda *args: scan(*args))):
        with pytest.raises(NotImplementedError, match=r"expected operands of stock dtypes .*, but got torch\.posit16es2: write a loop"):
            run(lambda a, b: (a + b, a * b), x[0], x)


def test_compiled_autograd_is_an_error(compiled):
    compile_, _ = compiled

    def step(x):
        (x * 2).sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        with pytest.raises(NotImplementedError, match=r"expected stock dtypes in compiled autograd, but got torch\.q43: leave"):
            compile_(step)(torch.ones(3, dtype=torch.q43, requires_grad=True))


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # PyTorch's own
def test_pipelines_of_programs_are_an_error():
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.ones(2, 3)
    spec = {"1": pipelining.SplitPoint.BEGINNING}
    with pytest.raises(NotImplementedError, match=r"pipeline: expected a model .*: make a PipelineStage"):
        pipelining.pipeline(copy.deepcopy(model).to(torch.q43), (x.to(torch.q43),), split_spec=spec)
    assert pipelining.pipeline(model, (x,), split_spec=spec).num_stages == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_explain():
    found = torch._dynamo.explain(lambda x: (x * 2).sin())(torch.ones(3, dtype=torch.posit16es2))
    assert (found.graph_count, found.graph_break_count) == (1, 0)


def test_one_notice_per_process():
    script = """
import warnings, torch
f = torch.compile(lambda x: x * 2, backend="eager")
g = torch.compile(lambda x: x.to(torch.posit16es2) * 2, backend="eager")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    f(torch.ones(3))
    assert not seen
    for _ in range(3):
        f(torch.ones(3, dtype=torch.q43)), g(torch.ones(3))
print(len(seen), seen[0].category.__name__, seen[0].message)
"""
    done = new_process.run("-c", script, check=True)
    assert done.stdout.startswith("1 UserWarning torch.compile runs uncompiled what a graph cannot have of number formats (torch.posit16es2 here)")
    assert done.stderr == ""
