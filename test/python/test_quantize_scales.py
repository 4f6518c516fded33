"""Scales of quantize_'s rules: from data, from the tensor itself, from those before; and layers in integer arithmetic, against NumPy."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_dtypes import Cast, chop, quantize_, summary, target
from torch_dtypes.quantization.scale_rules import scale_of


def batches(n=3):
    torch.manual_seed(1)
    return [torch.randn(8, 6) * (i + 1) for i in range(n)]


def layer(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(6, 4)


def absmax(x, largest):
    """In NumPy: the quotient in float64, rounded to float32 once."""
    return torch.tensor(np.float32(np.abs(x.detach().numpy()).max().astype(np.float64) / largest))


# ---- where scales come from ----


def test_absmax_of_calibration_and_of_weights():
    model, data = layer(), batches()
    want_x, want_w = absmax(torch.cat(data), 127), absmax(model.weight, 127)
    master, bias = model.weight.detach().clone(), model.bias.detach().clone()
    model.train()
    quantize_(model, {nn.Linear: dict(weight="int8", activation="int8")}, calibrate=[(x, None) for x in data])
    assert model.training
    x = data[2]
    want = F.linear(target("int8").quantize(x, scale=want_x), target("int8").quantize(master, scale=want_w), bias)
    assert torch.equal(model(x), want)
    with torch.no_grad():
        model.weight.mul_(3)  # its scale follows
    want = F.linear(target("int8").quantize(x, scale=want_x), target("int8").quantize(3 * master, scale=absmax(3 * master, 127)), bias)
    assert torch.equal(model(x), want)


def test_calibration_sees_the_model_unrounded():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    data = batches(1)
    inner = model[:2](data[0])
    quantize_(model, {nn.Linear: dict(weight="int2", activation="int8", output="int8")}, calibrate=data)
    state = model.state_dict()._metadata
    assert torch.equal(state["2"]["scales"]["activation"]["scale"], absmax(inner, 127))
    assert torch.equal(state["0"]["scales"]["activation"]["scale"], absmax(data[0], 127))


def test_scales_fit_what_they_are_of():
    x = torch.tensor([-3.0, 0.1, 5.0])
    affine = [("int8_affine", 8 / 255, -32), ("uint8", 8 / 255, 96), ("uint4", 8 / 15, 6)]
    for name, want, point in [*affine, ("int8", 5 / 127, None), ("q43", 5 / 240, None)]:
        scale, zero_point = scale_of(target(name), *torch.aminmax(x), False)
        assert scale.item() == pytest.approx(want) and (zero_point is None if point is None else zero_point.item() == point)
        power, _ = scale_of(target(name), *torch.aminmax(x), True)
        assert power == 2.0 ** np.ceil(np.log2(want)) and scale <= power < 2 * scale
    assert scale_of(target("uint8"), torch.tensor(2.0), torch.tensor(4.0), False)[1].item() == 0  # 0 is one of the numbers
    assert scale_of(target("int8"), torch.zeros(()), torch.zeros(()), False)[0].item() == 1
    assert scale_of(target("int8"), torch.tensor(0.0), torch.tensor(127 * 0.25), True)[0].item() == 0.25  # a power of two stays


@pytest.mark.parametrize("kind", ["linear", "conv", "transposed"])
def test_channels(kind):
    torch.manual_seed(0)
    made, axis = {"linear": (nn.Linear(6, 4), 0), "conv": (nn.Conv2d(6, 4, 3), 0), "transposed": (nn.ConvTranspose1d(6, 4, 3), 1)}[kind]
    x = torch.randn({"linear": (5, 6), "conv": (2, 6, 5, 4), "transposed": (2, 6, 7)}[kind])
    hand = copy.deepcopy(made)
    activation = dict(format="int8", per="channel", when="call")
    quantize_(made, {type(made): dict(weight=dict(format="q43", scale="free", per="channel"), activation=activation)})
    channels = [np.float32(np.abs(w.numpy()).max().astype(np.float64) / 240) for w in hand.weight.detach().unbind(axis)]
    rows = [chop(w / 1.0 * (1 / torch.tensor(s)), "q43") * s for w, s in zip(hand.weight.detach().unbind(axis), channels, strict=True)]
    hand.weight = nn.Parameter(torch.stack(rows, axis))
    features = -1 if kind == "linear" else 1
    x_hand = torch.stack([target("int8").quantize(c, scale=absmax(c, 127)) for c in x.unbind(features)], features)
    assert torch.equal(made(x), hand(x_hand))


def test_least_squared_error_and_percentiles():
    torch.manual_seed(0)
    x = torch.cat([torch.randn(5000), torch.tensor([40.0])])

    def error(**options):
        made = quantize_(nn.Identity(), {nn.Identity: dict(activation=dict(format="int4", **options))}, calibrate=[x])
        return (made(x[:5000]) - x[:5000]).square().mean().item(), (made(x) - x).square().mean().item()

    plain, mse, percentile = error(), error(by="mse"), error(by="percentile(99.9)")
    assert mse[1] < plain[1] and percentile[0] < 0.2 * plain[0]
    made = quantize_(nn.Identity(), {nn.Identity: dict(activation=dict(format="int4", by="percentile(90)"))}, calibrate=[x])
    kept = made.state_dict()._metadata[""]["scales"]["activation"]["scale"]
    assert kept.item() == pytest.approx(x.abs().sort()[0][int(np.ceil(0.9 * 5001)) - 1].item() / 7)
    shares = [k / 64 for k in range(1, 65)]
    best = min(((target("int4").quantize(x, scale=40 * s / 7) - x).square().mean().item()) for s in shares)
    assert mse[1] == pytest.approx(best, rel=1e-5)
    for by in ("mse", "percentile(99)"):
        options = dict(per="channel", by=by)
        made = quantize_(layer(), {nn.Linear: dict(weight=dict(format="uint8", **options), activation=dict(format="uint8", **options))}, batches())
        assert torch.allclose(made(batches()[1]), layer()(batches()[1]), atol=0.2)


def test_delayed_scales_are_of_the_tensors_before():
    cast = Cast(forward=dict(format="int8", when="delayed", history=2), backward=dict(format="q52", scale="power_of_two", when="delayed", history=1))
    sizes = (1.0, 4.0, 2.0, 8.0)
    used = []
    for size in sizes:
        x = torch.tensor([size, -size / 3], requires_grad=True)
        y = cast(x)
        used.append(y[0].item())
        y.backward(torch.tensor([size * 2.0**-40, 0.0]))
        assert x.grad[0] > 0  # q52 ends at 2^-16, its scale does not
    # of itself, of 1, of 1 and 4, of 4 and 2
    assert used == pytest.approx([1, 1, 2, 4], rel=0.01)
    cast.eval()
    before = cast.state_dict()
    assert cast(torch.tensor([100.0])).item() == pytest.approx(8, rel=0.01) == cast(torch.tensor([100.0])).item()
    other = Cast(forward=dict(format="int8", when="delayed", history=2)).eval()
    other.load_state_dict(before)
    assert other(torch.tensor([100.0])).item() == cast(torch.tensor([100.0])).item()


def test_a_cast_scales_each_tensor_by_itself():
    x = torch.randn(9)
    want = target("int8").quantize(x, scale=absmax(x, 127))
    assert torch.equal(Cast("int8")(x), want) and torch.equal(Cast(dict(format="int8", scale="free"))(x), want)
    with pytest.raises(ValueError, match=r"when='call' .* or 'delayed' .* of a Cast, but got 'calibration'"):
        Cast(dict(format="int8", when="calibration"))


def test_scales_are_saved_and_loaded():
    rules = {nn.Linear: dict(weight="int8", activation=dict(format="uint8", by="mse"))}
    made, plain = quantize_(layer(), rules, batches()), layer()
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    other = quantize_(layer(1), rules, batches(1))
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    x = batches()[1]
    assert torch.equal(other(x), made(x)) and torch.equal(copy.deepcopy(made)(x), made(x))
    plain.load_state_dict(made.state_dict(), strict=True)
    made.load_state_dict(plain.state_dict(), strict=True)  # which says nothing of scales
    assert torch.equal(other(x), made(x))


@pytest.mark.parametrize("by", ["absmax", "mse"])
def test_scales_come_from_a_state_dict_as_from_the_loader(by):
    rules = {nn.Linear: dict(weight="int8", activation=dict(format="uint8_affine", by=by), output=dict(format="int8", per="channel"))}
    made = quantize_(layer(), rules, batches())
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    other = quantize_(layer(), rules, calibrate=kept)
    x = batches()[0]
    assert torch.equal(other(x), made(x))
    with pytest.raises(ValueError, match="a state dict with the scales of '0'"):
        quantize_(nn.Sequential(layer()), rules, calibrate=kept)


@pytest.mark.parametrize("by", ["absmax", "percentile(99)"])
def test_inputs_of_several_sizes_share_no_scales_by_channel(by):
    rule = dict(activation=dict(format="int8", per="channel", by=by))
    with pytest.raises(ValueError, match=r"one size along dimension -1, which share scales, but got 3 and 5; say per='tensor'"):
        quantize_(nn.Bilinear(3, 5, 2), {nn.Bilinear: rule}, [1], forward=lambda model, batch: model(torch.ones(2, 3), torch.ones(2, 5)))
    quantize_(nn.Bilinear(3, 5, 2), {nn.Bilinear: rule | dict(activation="int8")}, [1], forward=lambda m, b: m(torch.ones(2, 3), torch.ones(2, 5)))


# ---- what is wrong with scales and loaders ----

BAD = {
    "no scale": (dict(weight=dict(format="int8", scale=None)), ValueError, "weight of Linear: expected a scale for int8"),
    "no loader": (dict(activation="int8"), ValueError, "expected calibrate=, a loader"),
    "an unknown scale": (dict(weight=dict(format="q43", scale="big")), ValueError, "expected scale to be 'free'"),
    "a negative scale": (dict(weight=dict(format="q43", scale=-1.0)), ValueError, "positive number"),
    "a number and more": (dict(weight=dict(format="q43", scale=2.0, by="mse")), ValueError, "with by, but got 2.0"),
    "words without a scale": (dict(weight=dict(format="q43", scale=None, per="channel")), ValueError, "per with a scale only"),
    "per": (dict(weight=dict(format="int8", per="layer")), ValueError, "expected per to be"),
    "by": (dict(weight=dict(format="int8", by="percentile(3)")), ValueError, "expected by to be"),
    "when": (dict(weight=dict(format="int8", when="calibration")), ValueError, "of activation or output"),
    "history of each tensor": (dict(error=dict(format="int8", when="call", history=4)), ValueError, "history with when='delayed' only.*when='call'"),
    "history": (dict(error=dict(format="int8", when="delayed", history=0)), ValueError, "expected history as an integer from 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(name):
    rule, error, words = BAD[name]
    with pytest.raises(error, match=words):
        quantize_(layer(), {nn.Linear: rule})


class Loader:
    def __iter__(self):
        yield "text"


LOADERS = {
    "a tensor": (torch.zeros(3, 6), TypeError, "iterable of batches, but got Tensor"),
    "nothing": ([], ValueError, "at least one batch"),
    "no iterable": (3, TypeError, "iterable of batches, but got int"),
    "text": (Loader(), TypeError, "batches of calibrate= as tensors.*a str"),
    "arrays": ([np.zeros((3, 6))], TypeError, "batches of calibrate= as tensors.*a ndarray"),
    "another shape": ([torch.zeros(3, 7)], ValueError, r"batch 0, a tensor of torch.float32 and shape \(3, 7\), gives: mat1"),
    "infinities": (
        [torch.zeros(3, 6), torch.full((3, 6), float("inf"))],
        ValueError,
        r"scale of '' \(activation\), but got infinities or NaN from batch 1 of calibrate=, a tensor of torch.float32 and shape \(3, 6\)$",
    ),
    "NaN": ([torch.full((3, 6), float("nan"))], ValueError, r"expected finite numbers for the scale of '' \(activation\), .* from batch 0 of"),
    "no rows": ([torch.zeros(0, 6)], ValueError, "but none came to ''"),
    "a plain dict": ({"x": torch.zeros(3, 6)}, TypeError, "iterable of batches, but got dict; a state dict's scales lie in its metadata"),
    "a state dict without scales": (layer().state_dict(), ValueError, "a state dict with the scales of '', or batches"),
    "labels": ([(torch.zeros(3, dtype=torch.long), torch.zeros(3, 6))], ValueError, r"a tuple of \(a tensor of torch.int64"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_that_yield_the_wrong_thing(name):
    loader, error, words = LOADERS[name]
    model = layer()
    with pytest.raises(error, match=words):
        quantize_(model, {nn.Linear: dict(weight="int8", activation="int8")}, calibrate=loader)
    assert type(model) is nn.Linear and model.training


def test_loaders_of_other_things():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = layer(), layer()

        def forward(self, x, y=None):
            return self.a(x) if y is None else self.a(x) + self.b(y)

    x, rules = batches(1)[0], {nn.Linear: dict(activation="int8")}
    by_words = quantize_(Two(), rules, [dict(x=x, y=x)])
    by_function = quantize_(Two(), rules, [(x, x)], forward=lambda model, batch: model(*batch))
    assert torch.equal(by_words(x, x), by_function(x, x))
    with pytest.raises(ValueError, match=r"none came to 'b' \(activation\)"):
        quantize_(Two(), rules, [x])


# ---- integer arithmetic ----


def integers(x, scale, point, low, high):
    """In NumPy: the integers less the zero point."""
    scaled = np.rint(x * (np.float32(1) / np.float32(scale)))
    return np.clip(scaled + point, low, high).astype(np.int64) - point


def windows(x, kernel, stride):
    """Patches of a convolution without padding: (batch, channels, taps), the position last."""
    count = (x.shape[2] - kernel) // stride + 1
    return np.stack([x[:, :, i * stride : i * stride + kernel] for i in range(count)], -1)


def limited(sums, bits, saturates):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return np.clip(sums, low, high) if saturates else (sums - low) % 2**bits + low


@pytest.mark.parametrize("accumulator", [None, "int32_saturate", "int14", "int14_saturate"])
@pytest.mark.parametrize("formats", [("int8", "int8"), ("int8", "uint8"), ("int4_affine", "uint4")], ids=str)
@pytest.mark.parametrize("per", ["tensor", "channel"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_integer_layers_compute_what_numpys_integers_do(kind, per, formats, accumulator):
    torch.manual_seed(0)
    model = nn.Linear(12, 5) if kind == "linear" else nn.Conv1d(3, 5, 4, stride=2)
    x = torch.randn(7, 12) if kind == "linear" else torch.randn(2, 3, 11)
    weight, bias = model.weight.detach().numpy(), model.bias.detach().numpy()
    rule = dict(weight=dict(format=formats[0], per=per), activation=formats[1], arithmetic="integer", accumulator=accumulator)
    quantize_(model, {type(model): rule}, calibrate=[x])
    got = model(x)

    def scales(a, name, axis):
        t = target(name)
        parts = [a] if axis is None else [a[i : i + 1] for i in range(a.shape[0])]
        found = [scale_of(t, torch.tensor(p.min()), torch.tensor(p.max()), False) for p in parts]
        shape = [-1] + [1] * (a.ndim - 1) if axis is not None else [1] * a.ndim
        points = [0 if z is None else z.item() for _, z in found]
        return np.array([s.item() for s, _ in found], np.float32).reshape(shape), np.array(points).reshape(shape), t.lowest, t.largest

    weight_scales, x_scales = scales(weight, formats[0], 0 if per == "channel" else None), scales(x.numpy(), formats[1], None)
    q_weight, q_x = integers(weight, *weight_scales), integers(x.numpy(), *x_scales)
    step = weight_scales[0].astype(np.float64).reshape(-1) * x_scales[0].astype(np.float64).reshape(-1)
    bits, saturates = (int("".join(filter(str.isdigit, accumulator))), "saturate" in accumulator) if accumulator else (32, False)
    start = np.clip(np.rint(bias.astype(np.float64) / step), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype(np.int64)
    if kind == "linear":
        terms = q_x[:, None, :] * q_weight[None]  # batch, out, k
        sums = np.broadcast_to(start, terms.shape[:2])
    else:
        patches = windows(q_x, 4, 2)  # batch, channel, tap, position
        terms = np.einsum("bctp,oct->bopct", patches, q_weight).reshape(2, 5, patches.shape[-1], -1)
        sums, step = np.broadcast_to(start[:, None], terms.shape[:3]), step.reshape(-1, 1)
    for k in range(terms.shape[-1]):  # in the order of the sum's index
        sums = limited(sums + terms[..., k], bits, saturates)
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
    assert torch.allclose(model(x), floats(x), atol=1e-5) and not torch.equal(model(x), floats(x))


def test_what_integer_layers_cannot_do():
    rule = dict(weight="int8", activation="int8", arithmetic="integer")
    for bad, words in (
        (dict(rule, accumulator="int40"), "integers of 2 to 32 bits"),
        (dict(rule, accumulator="q43"), "integers of 2 to 32 bits"),
        (dict(rule, accumulate="exact"), "expected accumulator= with"),
        (dict(rule, bias="int8"), "expected no bias="),
        (dict(rule, activation=dict(format="int8", per="channel")), "one scale per tensor for the activation"),
        (dict(rule, weight=dict(format="int8", per=1)), "per output channel for the weight"),
    ):
        with pytest.raises(ValueError, match=words):
            quantize_(layer(), {nn.Linear: bad}, batches())
    with pytest.raises(ValueError, match=r"of nn\.Linear or a convolution"):
        quantize_(nn.LSTM(3, 4), {nn.LSTM: rule}, [torch.randn(2, 3)])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_delayed_scale_forgets_what_overflowed(bad):
    model = layer()
    quantize_(model, {nn.Linear: dict(activation=dict(format="int8", when="delayed", history=4))})
    model.train()
    x = batches(1)[0]
    model(x)
    wrong = x.clone()
    wrong[0, 0] = bad
    model(wrong)
    want = F.linear(target("int8").quantize(x, scale=absmax(x, 127)), model.weight, model.bias)
    assert torch.equal(model(x), want)
