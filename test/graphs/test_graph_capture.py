"""torch.export, torch.onnx, make_fx, torch.fx and saved-tensor hooks with number formats: results
are those of eager code bit for bit, or a clear error."""

# ruff: noqa: F811 (a fixture that is imported)
import copy

import pytest
import torch
import torch.utils.checkpoint
from capture import assert_same, assert_trains_as, formats, net, train  # noqa: F401 (net is a fixture)
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException
from torch.fx.experimental.proxy_tensor import make_fx

# ---- capture by hand ----


def test_export_of_a_cast_is_an_error():
    class Inside(nn.Module):
        def forward(self, x):
            return x.to(torch.q43)

    with pytest.raises(NotImplementedError, match="expected stock dtypes in a captured graph"):
        torch.export.export(Inside(), (torch.ones(3),))


def double(x):
    return x * 2


@pytest.fixture
def autocast_cache():
    """PyTorch's exporter turns the cache of autocast off, and leaves it so where an export
    fails."""
    enabled = torch.is_autocast_cache_enabled()
    yield
    torch.set_autocast_cache_enabled(enabled)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:no signature found:UserWarning")
@pytest.mark.parametrize("capture", ["module", "script", "function"])
def test_onnx_export_is_an_error(net, capture, tmp_path, autocast_cache):
    model, x = copy.deepcopy(net[0]).to(torch.posit16es2).eval(), net[1].to(torch.posit16es2)
    captured = (
        model if capture == "module" else torch.jit.script(model if capture == "script" else double)
    )
    with pytest.raises(
        NotImplementedError,
        match=r"expected (a model and arguments of stock dtypes to export|stock dtypes in "
        r"TorchScript)",
    ):
        torch.onnx.export(captured, (x,), str(tmp_path / "model.onnx"), dynamo=False)
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_is_an_error(mode):
    with pytest.raises(
        (NotImplementedError, UnsupportedFakeTensorException),
        match=r"expected stock dtypes in .*, but got torch\.q43",
    ):
        make_fx(double, tracing_mode=mode)(torch.ones(3, dtype=torch.q43))
    with pytest.raises(NotImplementedError, match="expected stock dtypes in a captured graph"):
        make_fx(lambda x: x.to(torch.q43), tracing_mode=mode)(torch.ones(3))


def test_fake_mode_is_an_error():
    x = torch.ones(3, dtype=torch.q43)
    with (
        FakeTensorMode(),
        pytest.raises(NotImplementedError, match="expected stock dtypes in a captured graph"),
    ):
        torch.zeros(3, dtype=torch.q43)
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        pytest.raises(UnsupportedFakeTensorException, match=r"but got torch\.q43"),
    ):
        x + 1


# ---- torch.fx, saved-tensor hooks ----


class Casting(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.fc = dtype, nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x.to(self.dtype)) * torch.ones(2, dtype=self.dtype)


@formats
def test_symbolic_trace(net, dtype):
    model, x = copy.deepcopy(net[0]), net[1].to(dtype)
    assert_trains_as(torch.fx.symbolic_trace(model).to(dtype), copy.deepcopy(model).to(dtype), x)
    casting = Casting(dtype).to(dtype)
    traced = torch.fx.symbolic_trace(casting)
    assert str(dtype) in traced.code
    x = torch.randn(3, 4)
    assert_same(traced(x), casting(x))
    assert_same(copy.deepcopy(traced)(x), casting(x))


@formats
def test_saved_tensor_hooks(net, dtype):
    model, x = net[0], net[1].to(dtype)
    packed = []

    def pack(t):
        packed.append(t.dtype)
        return t.clone()

    plain, on_cpu, hooked = (copy.deepcopy(model).to(dtype) for _ in range(3))
    plain(x).sum().backward()
    with torch.autograd.graph.save_on_cpu():
        on_cpu(x).sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        hooked(x).sum().backward()
    assert dtype in packed
    for a, b, c in zip(*(m.parameters() for m in (plain, on_cpu, hooked)), strict=True):
        assert_same(a.grad, b.grad)
        assert_same(a.grad, c.grad)
