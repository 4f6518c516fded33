"""TorchScript with number formats: a script function runs its Python original, all else is a clear
error; stock tensors are as ever."""

# ruff: noqa: F811 (a fixture that is imported)
import copy
import io

import pytest
import torch
from capture import FORMATS, assert_same, formats, net  # noqa: F401 (net is a fixture)
from torch import nn

import torch_dtypes

# PyTorch's own, of TorchScript as a whole.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore:`torch.jit.*` is not supported in Python 3.14:DeprecationWarning"
    ),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


REFUSED = (
    r"expected stock dtypes in TorchScript, but got .*run the eager code, or convert a float32 "
    r"model by torch_dtypes\.quantize_"
)


def expect_refusal():
    return pytest.raises(NotImplementedError, match=REFUSED)


@formats
def test_a_script_module_is_refused(net, dtype):
    model, x = copy.deepcopy(net[0]).to(dtype), net[1].to(dtype)
    with expect_refusal():
        torch.jit.script(model)(x)
    with expect_refusal():
        torch.jit.script(copy.deepcopy(net[0]))(x)  # stock parameters, a format tensor as argument
    with expect_refusal():
        torch.jit.script(model)(net[1])
    with torch.no_grad(), expect_refusal():
        torch.jit.freeze(torch.jit.script(model.eval()))(x)


def test_a_script_of_a_stock_model_that_is_converted(net):
    """The model and its script share parameters: after a cast of the one, the other works on
    formats too."""
    model, x = copy.deepcopy(net[0]).eval(), net[1]
    script = torch.jit.script(model)
    expected = model(x)
    for _ in range(3):  # also after the executor has optimised the graph
        assert torch.equal(script(x), expected)
    model.to(torch.q43)
    with expect_refusal():
        script(x)
    script.to(torch.float64)
    assert script(x.double()).dtype is torch.float64


@pytest.mark.parametrize("given", ["module", "input", "both"])
def test_a_trace_is_refused(net, given):
    model = copy.deepcopy(net[0]).to(torch.q43) if given != "input" else net[0]
    x = net[1].to(torch.q43) if given != "module" else net[1]
    with expect_refusal():
        torch.jit.trace(model, x)
    with expect_refusal():
        torch.jit.trace(lambda t: model(t), x.to(torch.q43))
    with expect_refusal():
        torch.jit.trace_module(model, {"forward": (x,)})


def test_a_trace_that_casts_is_refused():
    """When it is checked, which is the default, or else when it is called; a traced function then
    runs its Python original."""
    x = torch.ones(3)
    for casting in (lambda t: t.to(torch.q43) * 2, nn.Sequential(Casts())):
        with pytest.raises(torch.jit.TracingCheckError, match=REFUSED):
            torch.jit.trace(casting, x)
    traced = torch.jit.trace(nn.Sequential(Casts()), x, check_trace=False)
    with expect_refusal():
        traced(x)
    function = torch.jit.trace(lambda t: t.to(torch.q43) * 1.3, x, check_trace=False)
    assert_same(function(x), x.to(torch.q43) * 1.3)


class Casts(nn.Module):
    def forward(self, x):
        return x.to(torch.q43) * 2


def test_a_script_file_is_an_error(net):
    script = torch.jit.script(copy.deepcopy(net[0]).to(torch.q43).eval())
    for one in (script, torch.jit.freeze(script)):
        with pytest.raises(
            NotImplementedError,
            match="expected a script with tensors and dtypes of stock types to save",
        ):
            torch.jit.save(one, io.BytesIO())
        with pytest.raises(NotImplementedError, match="expected a script"):
            one.save_to_buffer()
    file = io.BytesIO()
    torch.jit.save(script.to(torch.float64), file)
    file.seek(0)
    assert {p.dtype for p in torch.jit.load(file).parameters()} == {torch.float64}


@pytest.mark.parametrize("setting", ["default dtype", "autocast"])
def test_settings_that_make_format_tensors(net, setting):
    """Under them even stock arguments lead to format tensors."""
    script, function = torch.jit.script(copy.deepcopy(net[0])), torch.jit.script(makes_numbers)
    if setting == "autocast":
        with torch.autocast("cpu", dtype=torch.q43), expect_refusal():
            script(net[1])
        return
    torch.set_default_dtype(torch.q43)
    try:
        with expect_refusal():
            script(net[1])
        assert function(2).dtype is torch.q43
    finally:
        torch.set_default_dtype(torch.float32)


def makes_numbers(n: int):
    return torch.zeros([n]) + 0.3


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


def names_ours(x: torch.Tensor):
    return x.to(torch.posit16es2) * 3, torch.full([2], 1.3, dtype=torch.posit32es2)


def takes_dtype(x: torch.Tensor, dtype: torch.dtype):
    return x.to(dtype), torch.ones([2], dtype=dtype)


def test_a_script_function_that_names_format_dtypes():
    x = torch.ones(2)
    for f, given in ((names_ours, (x,)), (takes_dtype, (x, torch.q43))):
        for a, b in zip(torch.jit.script(f)(*given), f(*given), strict=True):
            assert_same(a, b)


def calls_another(x: torch.Tensor):
    return scripted_inner(x) + 1


@torch.jit.script
def scripted_inner(x: torch.Tensor):
    return x * 1.3


def test_a_script_function_within_eager_code():
    """As transformers' DeBERTa has such."""
    x = torch.tensor([1.5, -0.3]).to(torch.q43)
    assert_same(calls_another(x), x * 1.3 + 1)
    assert_same(torch.jit.script(calls_another)(x), x * 1.3 + 1)
