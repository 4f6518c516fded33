"""torch.compile runs code on format tensors eagerly, with one notice. A whole graph is an
error."""

# ruff: noqa: F811 (a fixture that is imported)
import copy

import new_process
import pytest
import torch
from capture import assert_same, assert_trains_as, formats, net, train  # noqa: F401 (net is a fixture)
from torch import nn

import torch_dtypes
from torch_dtypes.host.hooks import graphs

pytestmark = [
    # Dynamo warns so of any autograd.Function.
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    # Dynamo itself hides this one by other means.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # PyTorch warns so while it loads inductor.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning"),
]


@pytest.fixture
def graph_counter(monkeypatch):
    """compile(f) with the graphs counted, from a clean slate; one test alone is about the
    notice."""
    torch._dynamo.reset()
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(graphs, "_noticed", True)
    yield lambda f, **kwargs: torch.compile(f, backend=counter, **kwargs), counter
    torch._dynamo.reset()


def function(x):
    return (x * 2 + 1).relu()


@formats
def test_a_function_by_turns(graph_counter, dtype):
    """Format tensors run uncompiled and stock tensors compiled, in either order."""
    compile_, counter = graph_counter
    f = compile_(function)
    x = torch.randn(3, 4)
    own = x.to(dtype)
    for frames in (0, 1):
        assert_same(f(own), function(own))
        assert counter.frame_count == frames
        assert_same(f(x), function(x))
        assert counter.frame_count == 1
    assert_same(compile_(lambda y: 1 / y, fullgraph=True)(x), 1 / x)


@pytest.mark.parametrize("way", ["torch.compile", "Module.compile", "step"])
def test_training(graph_counter, net, way):
    compile_, counter = graph_counter
    model, x = copy.deepcopy(net[0]).to(torch.q43), net[1].to(torch.q43)
    reference = copy.deepcopy(model)
    if way == "step":
        for a, b in zip(compile_(train)(model, x), train(reference, x), strict=True):
            assert_same(a, b)
    else:
        if way == "Module.compile":
            model.compile(backend=counter)
        assert_trains_as(compile_(model) if way == "torch.compile" else model, reference, x)
    assert counter.frame_count == 0


class Doubles(nn.Module):
    def forward(self, x):
        return x * 2 if self.training else x * 3


@pytest.fixture
def asked_frames(monkeypatch):
    """Names of the frames that dynamo checks for format tensors."""
    found, find = [], graphs._format_of_frame
    monkeypatch.setattr(
        graphs, "_format_of_frame", lambda frame: found.append(frame.f_code.co_name) or find(frame)
    )
    return found


@pytest.mark.parametrize("way", ["torch.compile", "Module.compile", "function"])
def test_dynamo_is_not_asked_after_a_first_call(graph_counter, asked_frames, way):
    compile_, counter = graph_counter
    f = Doubles() if way != "function" else lambda x: x * 2
    if way == "Module.compile":
        f.compile(backend=counter)
    else:
        f = compile_(f)
    own, x = torch.tensor([1.5, 2], dtype=torch.q43), torch.ones(2)
    for turn in (1, 2):
        assert_same(f(own), own * 2)
        assert asked_frames or turn == 2
        asked_frames.clear()
        assert_same(f(own), own * 2)
        assert not asked_frames
        assert_same(f(x), x * 2)
        assert counter.frame_count == turn
        asked_frames.clear()
        torch._dynamo.reset()
    with (
        torch.compiler.set_stance("fail_on_recompile"),
        pytest.raises(RuntimeError, match="Detected recompile"),
    ):
        f(own)
    with torch.compiler.set_stance("force_eager"):
        assert_same(f(own), own * 2)
    with torch.compiler.set_stance(force_backend="eager"):
        assert_same(f(own), own * 2)
    assert asked_frames


def test_a_compiled_module_that_is_passed_keeps_its_mode_and_its_hooks(graph_counter, asked_frames):
    module, own = Doubles(), torch.tensor([1.5, 2], dtype=torch.q43)
    f, calls = graph_counter[0](module), []
    f(own)
    asked_frames.clear()
    inner = module.register_forward_hook(lambda *_: calls.append("inner"))
    assert_same(f.eval()(own), own * 3)
    assert not module.training and calls == ["inner"] and not asked_frames
    outer = f.register_forward_hook(lambda *_: calls.append("outer"))
    f(own)
    assert calls == ["inner", "inner", "outer"]
    inner.remove(), outer.remove()
    with nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: calls.append(type(module).__name__)
    ):
        with pytest.warns(UserWarning, match="global hooks"):
            f(own)
    assert calls[3:] == ["OptimizedModule", "Doubles"]
    with pytest.raises(TypeError, match=r"forward\(\)"):
        f(own, 1)


def test_a_model_of_a_format_on_stock_inputs_is_passed_too(graph_counter, asked_frames):
    model = nn.Embedding(4, 3).to(torch.q43)
    f, tokens = graph_counter[0](model), torch.tensor([1, 3])
    f(tokens)
    asked_frames.clear()
    assert_same(f(tokens), model(tokens))
    assert not asked_frames


# --- functions of stock tensors that name a format in their body: found while tracing ---


def makes_inside(x):
    y = torch.sin(x)
    z = (y * 2).to(torch.q43)
    return torch.tanh(z) * (torch.zeros(4, dtype=torch.q43) + 1), y + 1


def loop_inside(x):
    for _ in range(3):
        x = (x.to(torch.posit16es2) * 1.5).float()
    return (x,)


def helper(x):
    return x.to(dtype=torch.posit32es2)


def call_helper(x):
    return helper(torch.sin(x)) * 2, torch.cos(x)


def comprehension(x):
    return [torch.full((2,), i + 0.3, dtype=torch.q43) * x[0, :2].to(torch.q43) for i in range(3)]


def in_place(x):
    with torch.no_grad():
        y = torch.empty(4, dtype=torch.q43)
        y.copy_(x[0])
        y[1] = 1.3
        y += 1
    return (y,)


def rounds(x):
    with torch_dtypes.rounding("up"):
        y = x.to(torch.q43)
    return y, torch_dtypes.chop(x, "e5m5"), x.to(torch_dtypes.float_format(4, 5))


def in_autocast(x):
    with torch.autocast("cpu", dtype=torch.q43):
        return (x @ x.t(),)


def chooses(x):
    y = x.to(torch.q43)
    return (torch.cond(y.sum() > 0, lambda a: a * 2, lambda a: a * 3, (y,)),)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.to(torch.q43) * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.float() * 2


def own_derivative(x):
    return (Double.apply(x),)


INSIDE = [
    makes_inside,
    loop_inside,
    call_helper,
    comprehension,
    in_place,
    rounds,
    in_autocast,
    chooses,
    own_derivative,
]


@pytest.mark.parametrize("f", INSIDE, ids=lambda f: f.__name__)
def test_a_function_that_makes_format_tensors(graph_counter, f):
    compile_, counter = graph_counter
    g = compile_(f)
    x, y = (torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_() for _ in range(2))
    frames = None
    for call in range(4):
        for a, b in zip(g(x), f(y), strict=True):
            assert_same(a, b)
            if a.requires_grad:
                a.sum().backward(retain_graph=True)
                b.sum().backward(retain_graph=True)
        if call == 1:
            frames = counter.frame_count
    assert counter.frame_count == frames  # nothing is compiled again and again
    assert (x.grad is None) == (y.grad is None)
    if x.grad is not None:
        assert_same(x.grad, y.grad)


class Holder:
    pass


def test_a_function_that_finds_format_tensors(graph_counter):
    """In objects that nobody looks into before the graph is made."""
    holder = Holder()
    holder.w = torch.tensor([1.5, 2], dtype=torch.posit16es2)

    def f(x):
        return torch.sin(x) + 1, holder.w * 3

    g = graph_counter[0](f)
    for _ in range(3):
        for a, b in zip(g(torch.ones(2)), f(torch.ones(2)), strict=True):
            assert_same(a, b)


def test_chop_with_a_format_dtype_is_compiled(graph_counter):
    """A dtype among the arguments or globals is no reason to skip a frame."""
    compile_, counter = graph_counter
    x = torch.randn(3, 4)
    f = compile_(lambda t, dtype: torch_dtypes.chop(t * 2, dtype), fullgraph=True)
    assert torch.equal(f(x, torch.q43), torch_dtypes.chop(x * 2, torch.q43))
    assert counter.frame_count == 1


def test_under_a_default_dtype_that_is_a_format(graph_counter):
    torch.set_default_dtype(torch.q43)
    try:
        assert graph_counter[0](lambda: torch.zeros(3) * 2)().dtype is torch.q43
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_backends_never_see_format_tensors(graph_counter, backend):
    x = torch.ones(3, dtype=torch.posit16es2)
    assert_same(torch.compile(function, backend=backend)(x), function(x))


REMEDY = r"run the eager code, or convert a float32 model by torch_dtypes\.quantize_"


def test_a_whole_graph_is_an_error(graph_counter):
    compile_, _ = graph_counter
    x = torch.ones(3, 4)
    with pytest.raises(
        torch._dynamo.exc.Unsupported,
        match=rf"expected stock dtypes in a whole graph, but got torch\.q43.*{REMEDY}",
    ):
        compile_(function, fullgraph=True)(x.to(torch.q43))
    with pytest.raises(
        torch._dynamo.exc.Unsupported, match=r"expected stock dtypes in a graph, but got torch\.q43"
    ):
        compile_(makes_inside, fullgraph=True)(x)


def test_export_is_an_error(net):
    model, x = copy.deepcopy(net[0]).to(torch.q43), net[1]
    for strict in (False, True):
        for given in ((model, (x.to(torch.q43),)), (model, (x,)), (net[0], (x.to(torch.q43),))):
            with pytest.raises(
                NotImplementedError,
                match=rf"expected stock dtypes in torch\.export, but got torch\.q43.*{REMEDY}",
            ):
                torch.export.export(*given, strict=strict)
    with pytest.raises(NotImplementedError, match=r"expected stock dtypes in torch\.export"):
        torch.export.draft_export(model, (x,))


class Finds(nn.Module):
    """Holds a format tensor where nobody looks before the graph is made."""

    def __init__(self):
        super().__init__()
        self.holder = Holder()
        self.holder.w = torch.ones(3, dtype=torch.q43)

    def forward(self, x):
        return x + self.holder.w.float()


def test_export_of_a_hidden_format_tensor_is_an_error():
    with pytest.raises(NotImplementedError, match="expected stock dtypes in a captured graph"):
        torch.export.export(Finds(), (torch.ones(3),))


def test_compiled_autograd_is_an_error(net):
    model, x = copy.deepcopy(net[0]).to(torch.q43), net[1].to(torch.q43)
    loss = model(x).sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        with pytest.raises(
            NotImplementedError,
            match=r"expected stock dtypes in compiled autograd, but got torch\.q43",
        ):
            loss.backward()


@pytest.mark.whole
def test_one_notice_per_process():
    done = new_process.run(
        "-c",
        """
import warnings, torch
f = torch.compile(lambda x: x * 2, backend="eager")
g = torch.compile(lambda x: x.to(torch.posit16es2) * 2, backend="eager")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    f(torch.ones(3))
    assert not seen, seen
    for _ in range(3):
        f(torch.ones(3, dtype=torch.q43)), g(torch.ones(3))
print(len(seen), seen[0].category.__name__, seen[0].message)
""",
    )
    assert done.stdout.startswith(
        "1 UserWarning torch.compile runs code that works on format tensors (torch.q43 here) "
        "uncompiled"
    ), done.stdout
