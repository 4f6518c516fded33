"""The door for microxcaling: the results of the original, and where they differ the right ones."""

import argparse
import importlib.util
import json
import math
import pickle
from pathlib import Path

import pytest
import torch
from door_cases import collect, differing, mx_cases, unpack
from torch import nn
from torch.nn import functional as F

from torch_dtypes.compat import mx
from torch_dtypes.compat.mx.mx_mapping import FUNCTION_MAPPING, MODULE_MAPPING, inject_pyt_ops

RECORDED = json.loads((Path(__file__).parents[1] / "data/microxcaling.json").read_text())["door"]
SPECS = {"w_elem_format": "fp4", "a_elem_format": "fp6_e2m3", "block_size": 8, "bfloat": 12}


@pytest.fixture
def injected():
    """Bring PyTorch's own functions and layers back."""
    yield mx.finalize_mx_specs(dict(SPECS))
    inject_pyt_ops(None)


def test_results_are_microxcalings():
    ours = collect(mx_cases, mx)
    assert (
        differing(ours, {name: unpack(text, ours[name]) for name, text in RECORDED.items()}) == []
    )


@pytest.mark.whole
@pytest.mark.skipif(
    not importlib.util.find_spec("mx"),
    reason="clone the repository microsoft/microxcaling and put it on PYTHONPATH",
)
def test_results_are_those_of_microxcaling_beside_it():
    import mx as original
    import mx.elemwise_ops
    import mx.mx_ops

    from torch_dtypes.compat import mx as door

    for seed in range(1, 8):
        ours, theirs = (collect(mx_cases, module, seed) for module in (door, original))
        assert differing(ours, theirs) == []


# The original's results are in the table of docs/tutorials/coming_from.py.
def test_exponents_below_powers_of_two_are_exact():
    x = torch.tensor([4096.0]).nextafter(torch.tensor(0.0))
    assert mx.quantize_elemwise_op(x, mx.MxSpecs(bfloat=20), "floor").item() == 4095.0


def test_rounding_down_overflows_to_the_largest_number():
    x = torch.tensor([1e6, math.inf])
    assert mx.quantize_elemwise_op(x, mx.MxSpecs(fp=16), "floor").tolist() == [65504.0, math.inf]


def test_a_scale_beyond_its_range_saturates():
    specs = mx.MxSpecs(scale_bits=4, block_size=2)
    x = torch.tensor([1e6, 1.0])
    assert mx.quantize_mx_op(x, specs, "int8", axes=[-1]).tolist() == [254.0, 2.0]


def test_convolutions_round_by_the_keys_of_each_product():
    x, w = torch.randn(8, 8, 4, 4), torch.randn(8, 8, 1, 1)
    specs = {"a_elem_format": "fp8_e4m3", "w_elem_format": "fp8_e4m3", "block_size": 8}
    gradients = []
    for backward in ("fp8_e4m3", "int2"):
        weight = w.clone().requires_grad_()
        own = mx.finalize_mx_specs(specs | {"a_elem_format_bp_ex": backward})
        mx.conv2d(x, weight, mx_specs=own).square().sum().backward()
        gradients.append(weight.grad)
    assert not torch.equal(*gradients)


def test_a_matrix_in_a_batch_of_products_has_the_sum_of_gradients():
    a, b = torch.randn(2, 3, 8), torch.randn(8, 4, requires_grad=True)
    mx.matmul(a, b, mx_specs=mx.MxSpecs(bfloat=16, quantize_backprop=False)).sum().backward()
    assert torch.allclose(b.grad, a.sum((0, 1))[:, None].expand(8, 4), rtol=1e-5)


def test_rounding_to_blocks_has_a_gradient_and_keeps_the_sign_of_zero():
    x = torch.tensor([-0.0, 1.0], requires_grad=True)
    specs = mx.MxSpecs(block_size=2, bfloat=16)
    mx.quantize_mx_op(x, specs, "int8", axes=[-1]).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    assert mx.quantize_elemwise_op(x, specs).signbit().tolist() == [True, False]


# Without rounding, the original's gradient outside training is that of training.
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_has_pytorchs_statistics_and_gradients(training):
    x, stock = torch.randn(8, 3, 4), nn.BatchNorm1d(3).train(training)
    own = mx.BatchNorm1d(3, mx_specs=mx.MxSpecs(bfloat=32)).train(training)
    results = []
    for layer in (stock, own):
        z = x.clone().requires_grad_()
        layer(z).square().sum().backward()
        results.append([z.grad, layer.weight.grad, layer.running_mean, layer.running_var])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def test_gradients_that_the_original_leaves_unrounded_are_rounded():
    specs = mx.MxSpecs(bfloat=10)
    for function in (lambda x: mx.simd_sub(x, 1.0, specs), mx.RMSNorm(8, mx_specs=specs)):
        x = torch.randn(4, 8, requires_grad=True)
        function(x).backward(torch.randn(4, 8))
        assert torch.equal(x.grad, mx.quantize_elemwise_op(x.grad, specs))


def test_division_by_the_reciprocal_takes_numbers():
    for recip, y in ((False, 1.75), (True, 1.5)):  # 1 / 3 is 0.3125
        specs = mx.MxSpecs(bfloat=11, vec_use_recip=recip)
        assert mx.simd_div(torch.tensor([5.0]), 3.0, specs).item() == y


@pytest.mark.parametrize("packed", [False, True])
def test_the_recurrent_layer_is_pytorchs_without_rounding(packed):
    stock = nn.LSTM(4, 3, num_layers=2, bidirectional=True)
    own = mx.LSTM(4, 3, num_layers=2, bidirectional=True, mx_specs=mx.MxSpecs(bfloat=32))
    own.load_state_dict(stock.state_dict())
    x, states = torch.randn(5, 3, 4), (torch.randn(4, 3, 3), torch.randn(4, 3, 3))
    lengths = torch.tensor([2, 5, 3])
    given = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False) if packed else x
    results = []
    for layer in (stock, own):
        y, (h, c) = layer(given, states)
        y = y.data if packed else y
        (y.square().sum() + h.sum() + c.sum()).backward()
        results.append([y, h, c, *(p.grad for p in layer.parameters())])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_positional_specs_and_names_are_those_of_the_originals_layers():
    specs = mx.MxSpecs(bfloat=12)
    layers = mx.Tanh(specs, "a"), mx.ReLU(True, specs, "a"), mx.GroupNorm(2, 4, specs, "a")
    assert all(layer.mx_specs["bfloat"] == 12 and layer.name == "a" for layer in layers)
    x = torch.tensor([-1.0, 1.3])
    assert layers[1](x) is x and x.tolist() == [0.0, 1.25]


def test_dither_is_stochastic_and_follows_the_seed():
    x = torch.full((100000,), 1.3)

    def draw():
        torch.manual_seed(3)
        return mx.quantize_mx_op(x, mx.MxSpecs(block_size=4), "fp4", axes=-1, round="dither")

    y = draw()
    assert torch.equal(y, draw()) and set(y.tolist()) == {1.0, 1.5}
    assert abs(y.double().mean() - 1.3) < 5 * 0.25 / 100000**0.5


def test_specs_fill_each_other_in():
    specs = mx.finalize_mx_specs({"a_elem_format": "int8", "round": "even"})
    assert specs["a_elem_format_bp_os"] == "int8" and specs["w_elem_format"] is None
    assert specs["round_mx_weight_grad_input"] == "even"
    assert mx.finalize_mx_specs({"round": "even"}) is None
    parser = mx.add_mx_args(argparse.ArgumentParser())
    words = "--bfloat 16 --a_elem_format fp4 --no_quantize_backprop --custom_cuda".split()
    specs = mx.get_mx_specs(parser.parse_args(words))
    assert (specs["bfloat"], specs["a_elem_format"], specs["block_size"]) == (16, "fp4", 0)
    assert specs["quantize_backprop"] is False
    assert mx.get_mx_specs(parser.parse_args([])) is None


def test_injected_names_round_and_go(injected):
    x, w = torch.randn(4, 16), torch.randn(3, 16)
    stock = {name: getattr(torch, name, None) or getattr(F, name) for name in FUNCTION_MAPPING}
    layers = {name: getattr(nn, name) for name in MODULE_MAPPING}
    inject_pyt_ops(injected)
    assert torch.equal(F.linear(x, w), mx.linear(x, w, mx_specs=injected))
    assert torch.equal(torch.matmul(x, w.t()), mx.matmul(x, w.t(), mx_specs=injected))
    assert torch.equal(torch.add(x, 1.0), mx.simd_add(x, 1.0, mx_specs=injected))
    model = nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    assert isinstance(model[0], mx.Linear) and model[1].eps == 1e-5
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    first = mx.linear(x, model[0].weight, model[0].bias, mx_specs=injected)
    assert torch.equal(model[0](x), first)
    assert isinstance(nn.LSTM(2, 3), mx.LSTM) and nn.LSTM(2, 3).mx_specs["bfloat"] == 12
    assert torch.equal(F.softmax(x, 1, dtype=torch.float64).float(), mx.softmax(x, 1, injected))
    for y in (torch.add(x, x, alpha=2), torch.norm(x, 1), torch.mean(x), F.gelu(x)):
        assert torch.equal(y, mx.quantize_elemwise_op(y, injected))
    assert torch.sum(torch.arange(4096)).item() == 4096 * 4095 // 2  # integers are not rounded
    inject_pyt_ops(None)
    assert all(
        function in (getattr(torch, name, None), getattr(F, name, None))
        for name, function in stock.items()
    )
    assert all(getattr(nn, name) is layer for name, layer in layers.items())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (mx.Sigmoid, (4, 6)),
        (mx.GELU, (4, 6)),
        (lambda **o: mx.LeakyReLU(0.2, **o), (4, 6)),
        (lambda **o: mx.Softmax(-1, **o), (4, 6)),
        (lambda **o: mx.LayerNorm(6, **o), (4, 6)),
        (lambda **o: mx.RMSNorm(6, **o), (4, 6)),
        (lambda **o: mx.GroupNorm(2, 6, **o), (4, 6, 3)),
        (lambda **o: mx.BatchNorm2d(6, **o), (4, 6, 3, 3)),
        (lambda **o: mx.AdaptiveAvgPool2d(1, **o), (4, 6, 3, 3)),
        (lambda **o: mx.Conv1d(6, 4, 3, padding="same", **o), (4, 6, 5)),
        (lambda **o: mx.Conv3d(6, 4, 1, **o), (4, 6, 2, 2, 2)),
    ],
)
def test_layers_give_numbers_of_the_float(layer, shape):
    specs = mx.finalize_mx_specs({"bfloat": 12})
    own, x = layer(mx_specs=specs), torch.randn(shape, requires_grad=True)
    y = own(x)
    y.backward(torch.randn_like(y))
    for values in (y, x.grad):
        assert torch.equal(values, mx.quantize_elemwise_op(values, specs))
    torch.manual_seed(0)
    without, again = layer(), pickle.loads(pickle.dumps(own))
    if hasattr(again, "mx_none"):
        assert without.mx_none and not again.mx_none
    assert torch.equal(again.eval()(x), own.eval()(x))


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda: mx.quantize_mx_op(torch.ones(2), mx.MxSpecs(), "fp5", axes=-1)),
        (
            ValueError,
            lambda: mx.quantize_mx_op(torch.ones(2), mx.MxSpecs(), "fp4", axes=-1, round="up"),
        ),
        (ValueError, lambda: mx.quantize_elemwise_op(torch.ones(2), mx.MxSpecs(bfloat=9))),
        (ValueError, lambda: mx.quantize_elemwise_op(torch.ones(2), mx.MxSpecs(bfloat=16, fp=16))),
        (AssertionError, lambda: mx.MxSpecs(bits=3)),
        (AssertionError, lambda: mx.LSTM(2, 3, batch_first=True)),
        (ValueError, lambda: mx.LSTM(2, 3, mx_specs=mx.MxSpecs())(torch.ones(4, 2))),
        (TypeError, lambda: mx.Softmax(mx_specs=mx.MxSpecs())(torch.ones(2))),
        (AssertionError, lambda: mx.batch_norm(torch.ones(2, 2), None, None, mx_specs={})),
        (ValueError, lambda: mx.layer_norm(torch.ones(2, 2), (3,), mx_specs={})),
        (AssertionError, lambda: mx.mx_ops._quantize_mx(torch.ones(2), 0, "fp4")),
        (
            ValueError,
            lambda: mx.elemwise_ops._quantize_elemwise_core(torch.ones(2), 4, 9, 1.0),
        ),
        (KeyError, lambda: mx.finalize_mx_specs({"bfloat": 16, "bits": 3})),
        (
            AssertionError,
            lambda: mx.matmul(
                torch.ones(1, 1), torch.ones(1, 1), mx_specs=mx.MxSpecs(), mode_config="ww"
            ),
        ),
        (
            TypeError,
            lambda: FUNCTION_MAPPING["add"](
                torch.ones(1), 1, mx_specs=mx.MxSpecs(), out=torch.ones(1)
            ),
        ),
    ],
)
def test_bad_arguments_raise_the_originals_errors(error, call):
    with pytest.raises(error, match=r"expected .* but got"):
        call()
