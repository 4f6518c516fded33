"""Layers in integer arithmetic: against NumPy's integers, what becomes of NaN and of large biases,
threads."""

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from torch_dtypes import quantize_, summary, target
from torch_dtypes.quantization.scalers import scale_of


def integers(x, scale, point, low, high):
    """In NumPy: the integers less the zero point."""
    scaled = np.rint(x * (np.float32(1) / np.float32(scale)))
    return np.clip(scaled + point, low, high).astype(np.int64) - point


def windows(x, kernel, stride):
    """Patches of a convolution without padding: (batch, channels, taps), the position last."""
    count = (x.shape[2] - kernel) // stride + 1
    return np.stack([x[:, :, i * stride : i * stride + kernel] for i in range(count)], -1)


def limit(sums, bits, saturates):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return np.clip(sums, low, high) if saturates else (sums - low) % 2**bits + low


@pytest.mark.parametrize(
    "accumulator", [None, "int32_saturate", "int14", "int14_saturate", "int8", "int8_saturate"]
)
@pytest.mark.parametrize(
    "formats", [("int8", "int8"), ("int8", "uint8"), ("int4_affine", "uint4")], ids=str
)
@pytest.mark.parametrize("per", ["tensor", "channel"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_integer_layers_compute_what_numpys_integers_do(kind, per, formats, accumulator):
    torch.manual_seed(0)
    model = nn.Linear(12, 5) if kind == "linear" else nn.Conv1d(3, 5, 4, stride=2)
    x = torch.randn(7, 12) if kind == "linear" else torch.randn(2, 3, 11)
    weight, bias = model.weight.detach().numpy(), model.bias.detach().numpy()
    rule = dict(
        weight=dict(format=formats[0], per=per),
        activation=formats[1],
        arithmetic="integer",
        accumulator=accumulator,
    )
    quantize_(model, {type(model): rule}, calibrate=[x])
    got = model(x)

    def scales(a, name, axis):
        t = target(name)
        parts = [a] if axis is None else [a[i : i + 1] for i in range(a.shape[0])]
        found = [scale_of(t, torch.tensor(p.min()), torch.tensor(p.max()), False) for p in parts]
        shape = [-1] + [1] * (a.ndim - 1) if axis is not None else [1] * a.ndim
        points = [0 if z is None else z.item() for _, z in found]
        return (
            np.array([s.item() for s, _ in found], np.float32).reshape(shape),
            np.array(points).reshape(shape),
            t.lowest,
            t.largest,
        )

    weight_scales, x_scales = (
        scales(weight, formats[0], 0 if per == "channel" else None),
        scales(x.numpy(), formats[1], None),
    )
    q_weight, q_x = integers(weight, *weight_scales), integers(x.numpy(), *x_scales)
    step = weight_scales[0].astype(np.float64).reshape(-1) * x_scales[0].astype(np.float64).reshape(
        -1
    )
    bits, saturates = (
        (int("".join(filter(str.isdigit, accumulator))), "saturate" in accumulator)
        if accumulator
        else (32, False)
    )
    start = limit(np.rint(bias.astype(np.float64) / step).astype(np.int64), bits, saturates)
    if kind == "linear":
        terms = q_x[:, None, :] * q_weight[None]  # batch, out, k
        sums = np.broadcast_to(start, terms.shape[:2])
    else:
        patches = windows(q_x, 4, 2)  # batch, channel, tap, position
        terms = np.einsum("bctp,oct->bopct", patches, q_weight).reshape(2, 5, patches.shape[-1], -1)
        sums, step = np.broadcast_to(start[:, None], terms.shape[:3]), step.reshape(-1, 1)
    for k in range(terms.shape[-1]):  # in the order of the sum's index
        sums = limit(sums + terms[..., k], bits, saturates)
    assert np.array_equal(got.detach().numpy(), (sums * step).astype(np.float32))
    assert summary(model, show=False)[""].runs == "integers"


def test_the_gradient_of_an_integer_layer_is_that_of_its_values():
    torch.manual_seed(0)
    model, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(2, 2, 5, 5, requires_grad=True)
    rule = dict(weight="int8", activation=dict(format="int8", when="call"))
    floats = quantize_(copy.deepcopy(model), {nn.Conv2d: rule})
    quantize_(model, {nn.Conv2d: dict(rule, arithmetic="integer", error="q52", grad="q43")})
    quantize_(floats, {nn.Conv2d: dict(rule, error="q52", grad="q43")})
    g = torch.randn(2, 3, 5, 5)
    found = []
    for m in (model, floats):
        y = m(x)
        y.backward(g)
        found.append([x.grad, m.weight.grad, m.bias.grad])
        x.grad = None
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-6)
    # Of other weights there; the bias is an integer as well, off by up to half a product of the two
    # scales.
    near = 1e-5 if x.is_cpu else 3e-5
    assert torch.allclose(model(x), floats(x), atol=near) and not torch.equal(model(x), floats(x))


def test_what_integer_layers_cannot_do():
    rule = dict(weight="int8", activation="int8", arithmetic="integer")
    for bad, words in (
        (dict(rule, accumulator="int40"), "integers of 2 to 32 bits"),
        (dict(rule, accumulator="q43"), "integers of 2 to 32 bits"),
        (dict(rule, accumulate="exact"), "expected accumulator= with"),
        (dict(rule, bias="int8"), "expected no bias="),
        (
            dict(rule, activation=dict(format="int8", per="channel")),
            "one scale per tensor for the activation",
        ),
        (dict(rule, weight=dict(format="int8", per=1)), "per output channel for the weight"),
    ):
        with pytest.raises(ValueError, match=words):
            quantize_(nn.Linear(6, 4), {nn.Linear: bad}, [torch.randn(8, 6)])
    with pytest.raises(ValueError, match=r"of nn\.Linear or a convolution"):
        quantize_(nn.LSTM(3, 4), {nn.LSTM: rule}, [torch.randn(2, 3)])
    # A channel of this weight belongs to several groups.
    grouped, x = nn.ConvTranspose1d(4, 4, 2, groups=2), torch.randn(2, 4, 3)
    by_channel = dict(rule, weight=dict(format="int8", per="channel"))
    with pytest.raises(ValueError, match="per output channel for the weight"):
        quantize_(grouped, {nn.ConvTranspose1d: by_channel}, [x])
    quantize_(grouped, {nn.ConvTranspose1d: rule}, [x])


def one(accumulator, weight=-1.0, bias=3.0):
    """Of one number: weights in steps of 1/64, inputs of 1/16, sums of 1/1024."""
    made = nn.Linear(1, 1)
    nn.init.constant_(made.weight, weight)
    nn.init.constant_(made.bias, bias)
    places = dict(
        weight=dict(format="int8", scale=1 / 64), activation=dict(format="int8", scale=1 / 16)
    )
    return quantize_(made, {nn.Linear: dict(places, arithmetic="integer", accumulator=accumulator)})


def test_a_bias_beyond_the_accumulator_wraps_around_or_saturates():
    # 3072 is -1024 in 12 bits
    assert [one("int12")(torch.tensor([[x]])).item() for x in (1.5, 0.0)] == [1.5, -1]
    assert [one("int12_saturate")(torch.tensor([[x]])).item() for x in (1.5, 0.0)] == [
        2047 / 1024 - 1.5,
        2047 / 1024,
    ]
    assert (
        one("int12", bias=2.0**100)(torch.ones(1, 1)).item() == -1
        and one("int12", bias=-torch.inf)(torch.ones(1, 1)).isnan()
    )


@pytest.mark.parametrize("accumulator", ["int12", "int12_saturate", "int32_saturate"])
def test_nan_stays_nan(accumulator):
    nan = torch.tensor([[torch.nan], [1.0]])
    assert one(accumulator)(nan).isnan().flatten().tolist() == [True, False]
    assert (
        one(accumulator, weight=torch.nan)(torch.ones(1, 1)).isnan()
        and one(accumulator, bias=torch.nan)(torch.ones(1, 1)).isnan()
    )
    rule = dict(
        weight="int8",
        activation=dict(format="int8", scale=0.1),
        arithmetic="integer",
        accumulator=accumulator,
    )
    made = quantize_(nn.Conv1d(1, 2, 2, bias=False), {nn.Conv1d: rule})
    x = torch.tensor([[[1.0, torch.nan, 2.0, 1.0]]])
    assert made(x).isnan().tolist() == [[[True, True, False]] * 2]


@pytest.mark.parametrize("accumulator", ["int32", "int16_saturate"])
def test_threads_share_an_integer_layer(accumulator):
    torch.manual_seed(0)
    rule = dict(
        weight="int8",
        activation=dict(format="int8", when="call"),
        arithmetic="integer",
        accumulator=accumulator,
    )
    made = quantize_(nn.Linear(16, 8), {nn.Linear: rule})
    inputs = [torch.randn(4, 16) * 10.0**k for k in range(4)]
    want, wrong = [made(x) for x in inputs], []

    def work(k):
        wrong.extend(k for _ in range(150) if not torch.equal(made(inputs[k]), want[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
