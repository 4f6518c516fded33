"""TorchScript with number formats: scripts and traces give the results of eager code bit for bit, or a clear error."""

# ruff: noqa: F811 (a fixture that is imported)
import copy
import io
from typing import List  # noqa: UP035 (what TorchScript knows)

import pytest
import torch
import torch.nn.functional as F
from capture import FORMATS, assert_same, assert_trains_as, formats, net, train  # noqa: F401 (net is a fixture)
from torch import nn

import torch_dtypes

# PyTorch's own, of TorchScript as a whole.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.*` is not supported in Python 3.14:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


def scripted(model, x):
    return torch.jit.script(model)


def traced(model, x):
    return torch.jit.trace(model, x, check_trace=False)


captures = pytest.mark.parametrize("capture", [scripted, traced], ids=["script", "trace"])


@formats
@captures
def test_script_of_a_model_in_our_dtype(net, dtype, capture):
    model, x = copy.deepcopy(net[0]).to(dtype), net[1].to(dtype)
    reference = copy.deepcopy(model)
    script = capture(model, x)
    for module in (script, reference):  # traced once: batch normalisation's statistics have moved
        module.load_state_dict(copy.deepcopy(net[0]).to(dtype).state_dict())
    assert_trains_as(script, reference, x)


@formats
@captures
def test_script_of_a_stock_model_then_converted(net, dtype, capture):
    """Also after the executor has optimised the graph for stock tensors."""
    script = capture(copy.deepcopy(net[0]), net[1])
    train(script, net[1])
    script.load_state_dict(net[0].state_dict())
    script.to(dtype)
    assert {p.dtype for p in script.parameters()} == {dtype}
    assert_trains_as(script, copy.deepcopy(net[0]).to(dtype), net[1].to(dtype))
    script.to(torch.float64)
    assert script(net[1].double()).dtype is torch.float64


@formats
@captures
@pytest.mark.parametrize("optimise", [torch.jit.freeze, torch.jit.optimize_for_inference], ids=["freeze", "optimize_for_inference"])
def test_frozen_script(net, dtype, capture, optimise):
    model, x = copy.deepcopy(net[0]).to(dtype).eval(), net[1].to(dtype)
    expected = model(x)
    script = optimise(capture(copy.deepcopy(model), x))
    with torch.no_grad():
        for _ in range(4):
            assert_same(script(x), expected)


@formats
def test_freezing_folds_nothing_into_weights(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    model[1].running_mean.uniform_(-1, 1)
    model[1].running_var.uniform_(0.5, 3)
    model, x = model.to(dtype).eval(), torch.randn(2, 3, 8, 8).to(dtype)
    script = torch.jit.freeze(torch.jit.script(model))
    with torch.no_grad():
        assert_same(script(x), model(x))


@captures
def test_script_file_is_an_error(net, capture):
    model, x = copy.deepcopy(net[0]).to(torch.q43).eval(), net[1].to(torch.q43)
    script = capture(model, x)
    for one in (script, torch.jit.freeze(script)):
        with pytest.raises(NotImplementedError, match="expected a script with tensors and dtypes of stock types to save"):
            torch.jit.save(one, io.BytesIO())
        with pytest.raises(NotImplementedError, match="expected a script"):
            one.save_to_buffer()
    function = torch.jit.trace(lambda y: y.to(torch.q43), torch.ones(3))
    with pytest.raises(NotImplementedError, match="expected a script"):
        function.save_to_buffer()
    file = io.BytesIO()
    torch.jit.save(script.to(torch.float64), file)
    file.seek(0)
    assert {p.dtype for p in torch.jit.load(file).parameters()} == {torch.float64}


CONVOLUTIONS = [nn.Conv1d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 3, stride=2), nn.ConvTranspose2d(2, 3, 3)]


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=lambda m: type(m).__name__)
def test_a_trace_records_convolutions_as_stock_does(layer):
    """Libraries that count a graph's operations look for this node and its operands."""
    shape = (1, 2, 6) if isinstance(layer, nn.Conv1d) else (1, 2, 6, 6)
    model = copy.deepcopy(layer).to(torch.posit16es2)
    script, stock = traced(model, torch.randn(shape).to(torch.posit16es2)), traced(layer, torch.randn(shape))
    (ours,), (theirs,) = ([node for node in trace.inlined_graph.nodes() if "conv" in node.kind()] for trace in (script, stock))
    assert ours.kind() == theirs.kind() == "aten::_convolution"
    values = [[i.toIValue() for i in node.inputs()] for node in (ours, theirs)]
    assert all(b is None or a == b for a, b in zip(*values, strict=True))  # stock's lists are made in the graph
    for _ in range(3):
        x = torch.randn(shape).to(torch.posit16es2)
        assert_same(script(x), model(x))


def elementwise(x: torch.Tensor, y: torch.Tensor):
    z = torch.tanh(x * y + x) * torch.sigmoid(x) + torch.relu(x - y)
    return z / (z * z + 1)


def test_script_function_by_turns():
    """One function, called with stock tensors and several formats in turn."""
    f = torch.jit.script(elementwise)
    for turn in range(3):
        for dtype in (torch.float32, *FORMATS, torch.bfloat16):
            torch.manual_seed(turn)
            a, b = (torch.randn(5).to(dtype).requires_grad_() for _ in range(2))
            c, d = (t.detach().clone().requires_grad_() for t in (a, b))
            out, expected = f(a, b), elementwise(c, d)
            assert out.dtype is dtype
            if torch_dtypes.is_format_dtype(dtype):
                assert_same(out, expected)
                out.sum().backward()
                expected.sum().backward()
                assert_same(a.grad, c.grad)
                assert_same(b.grad, d.grad)


def names_stock(x: torch.Tensor):
    return x.to(torch.float32), x.to(torch.bfloat16), x.to(torch.float64), x.float(), x.half(), torch.zeros_like(x, dtype=torch.float32)


def reads_dtype(x: torch.Tensor, y: torch.Tensor):
    d = x.dtype
    like = (torch.zeros_like(x), torch.full_like(x, 1.3), x.new_zeros(2), torch.sum(y, dtype=d), torch.softmax(y, 0, dtype=d))
    return (y.to(d), y.to(x), y.type_as(x), torch.zeros([2, 3], dtype=d), torch.full([2], 1.3, dtype=d), torch.tensor(1.3, dtype=d)), like


def compares_dtype(x: torch.Tensor):
    return x.dtype == torch.bfloat16, x.dtype == torch.float32, x.is_floating_point()


def takes_dtype(x: torch.Tensor, dtype: torch.dtype):
    return x.to(dtype), torch.ones([2], dtype=dtype), torch.zeros_like(x, dtype=dtype), x.new_ones([2], dtype=dtype)


def names_ours(x: torch.Tensor):
    return x.to(torch.posit16es2) * 3, torch.full([2], 1.3, dtype=torch.posit32es2), torch.ones([1], dtype=torch.q43)


@formats
def test_script_that_names_dtypes(dtype):
    x, y = torch.tensor([1.5, -0.3, 4]).to(dtype), torch.tensor([0.1, 2, 3])
    for _ in range(3):
        for a, b in zip(torch.jit.script(names_stock)(x), names_stock(x), strict=True):
            assert_same(a, b)
        assert torch.jit.script(compares_dtype)(x) == (False, False, True)
        for a, b in zip(torch.jit.script(takes_dtype)(y, dtype), takes_dtype(y, dtype), strict=True):
            assert_same(a, b)
        got, expected = torch.jit.script(reads_dtype)(x, y), reads_dtype(x, y)
        for a, b in zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True):
            assert_same(a, b)


def prints(x: torch.Tensor):
    print(x, 1)


def lists(x: torch.Tensor):
    values: List[float] = x.tolist()  # noqa: UP006
    return values


def test_script_that_prints_and_lists(capfd):
    x = torch.tensor([1.5, -0.25], dtype=torch.q43)
    torch.jit.script(prints)(x)
    assert capfd.readouterr().out == f"{x} 1\n"
    assert torch.jit.script(lists)(x) == [1.5, -0.25]


def makes_numbers(n: int):
    made = [torch.zeros([n]), torch.ones([n]), torch.full([n], 0.3), torch.eye(n), torch.linspace(0.0, 1.0, n), torch.arange(0.0, 1.0, 0.3)]
    made += [torch.tensor(0.3), torch.tensor([0.3, 1.0]), torch.hann_window(n), torch.fft.fftfreq(n), torch.rand([n]), torch.randn([n])]
    made += [torch.arange(n), torch.full([n], 3), torch.tensor(3), torch.randint(5, [n]), torch.zeros([n], dtype=torch.float64)]
    return made


def writes_numbers(x, n: int):
    made = torch.zeros([n, 3])
    for i in range(n):
        made[i] = x[i] * 0.3 + torch.ones([3])
    return made


@formats
def test_factories_of_scripts_follow_the_default_dtype(dtype):
    """They made float32 numbers without a word, where those of eager code and of a script under a bfloat16 default are of the default dtype."""
    make, write, x = torch.jit.script(makes_numbers), torch.jit.script(writes_numbers), torch.tensor([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]])
    for default in (torch.float32, dtype, torch.float32, dtype):
        torch.set_default_dtype(default)
        try:
            for f, script, given in ((makes_numbers, make, (3,)), (writes_numbers, write, (x.to(default), 2))):
                torch.manual_seed(0)
                expected = f(*given)
                torch.manual_seed(0)
                got = script(*given)
                for a, b in zip(got, expected, strict=True):
                    assert_same(a, b)
        finally:
            torch.set_default_dtype(torch.float32)


def test_script_that_names_our_dtypes():
    f = torch.jit.script(names_ours)
    for _ in range(3):
        for a, b in zip(f(torch.ones(2)), names_ours(torch.ones(2)), strict=True):
            assert_same(a, b)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.to(torch.bfloat16) * 2,
        lambda x: x.float() * 2,
        lambda x: x.to(torch.float32).to(torch.q43) * 2,
        lambda x: torch.zeros(4, dtype=torch.q43) + torch.full((4,), 1.3, dtype=torch.q43) + x[0].to(torch.q43),
        lambda x: x.new_zeros(4) + torch.zeros_like(x),
        lambda x: F.conv1d(x.unsqueeze(0), x.unsqueeze(0)),
        lambda x: F.conv_transpose1d(x.unsqueeze(0), x.unsqueeze(1)),
        lambda x: x + torch.tensor(1.3, dtype=x.dtype),
    ],
    ids=["container", "float", "another", "factories", "like", "conv1d", "conv_transpose1d", "constant"],
)
@formats
def test_traced_function(f, dtype):
    x, y = torch.randn(2, 3, 4).to(dtype)
    script = torch.jit.trace(f, x)
    for _ in range(3):
        assert_same(script(y), f(y))
