"""Integers of 2 to 16 bits with scales and zero points: PyTorch's bits where it defines them, exact
rationals elsewhere."""

import copy
import math
import pickle
import random

import numpy as np
import pytest
import torch
from rationals import Fraction
from torch.fx.experimental.proxy_tensor import make_fx

import torch_dtypes
from torch_dtypes import integer_format, target

# PyTorch's own.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*quantization.* is deprecated:DeprecationWarning", "ignore:.*quantize.*:UserWarning"
)


def bits_of(t):
    return t.contiguous().view(torch.int32)


def inputs(scale, seed=0):
    """Return values around every integer and every tie of the range, ties of the float32 product
    included, and values out of range."""
    near = torch.arange(-300, 300).float() / 2
    x = (
        torch.cat([near, torch.randn(2000, generator=torch.Generator().manual_seed(seed)) * 100])
        * scale
    )
    edge = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e9, -1e9, 3e38, -3e38]) * scale
    return torch.cat(
        [
            x,
            torch.nextafter(x, torch.tensor(math.inf)),
            torch.nextafter(x, torch.tensor(-math.inf)),
            edge,
        ]
    )


# ---- stock PyTorch ----

SCALES = (1.0, 0.25, 0.1, 0.0123, 7.3, 1 / 3)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("name", "low", "high", "points"),
    [
        ("int8_affine", -128, 127, (0, 3, -128, 127)),
        ("uint8", 0, 255, (0, 128, 255)),
        ("int4_affine", -8, 7, (0, -8)),
        ("uint2", 0, 3, (1,)),
        ("int8_narrow", -127, 127, (0,)),
        ("int16", -32768, 32767, (0,)),
        ("uint16", 0, 65535, (40000,)),
    ],
)
def test_fake_quantize_per_tensor(name, low, high, points, scale):
    x = inputs(scale)
    x = x[x.abs() < 1e18 * scale]  # out of range, PyTorch's conversion to int64 is undefined
    for point in points:
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours = target(name).quantize(a, scale=scale, zero_point=point, clamped="zero")
        stock = torch.fake_quantize_per_tensor_affine(b, scale, point, low, high)
        assert torch.equal(bits_of(ours), bits_of(stock))
        ours.backward(x), stock.backward(x)
        assert torch.equal(a.grad, b.grad)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_fake_quantize_per_channel(axis):
    scale, point = torch.tensor(SCALES), torch.tensor([0, 5, -7, 100, -128, 127], dtype=torch.int32)
    x = torch.stack([inputs(s)[:2000] for s in SCALES])
    x = x.unsqueeze(1).movedim(0, axis % 2 if axis >= 0 else -1)
    ours = integer_format(8, symmetric=False, axis=axis).quantize(x, scale=scale, zero_point=point)
    stock = torch.fake_quantize_per_channel_affine(x, scale, point, axis % 3, -128, 127)
    assert torch.equal(bits_of(ours), bits_of(stock))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("name", "dtype"), [("int8_affine", torch.qint8), ("uint8", torch.quint8)])
def test_quantize_per_tensor(name, dtype, scale):
    x = inputs(scale)
    x, t = x[x.abs() < 1e9 * scale], target(name)
    stock = torch.quantize_per_tensor(x, scale, 0, dtype)
    codes = t.encode(x, scale=scale)
    assert codes.dtype == stock.int_repr().dtype and torch.equal(codes, stock.int_repr())
    assert torch.equal(bits_of(t.quantize(x, scale=scale)), bits_of(stock.dequantize()))
    assert torch.equal(bits_of(t.decode(codes, scale=scale)), bits_of(stock.dequantize()))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("point", [-3, 44])
def test_quantize_per_tensor_with_a_zero_point(scale, point):
    """PyTorch's operator adds the zero point before it rounds; its fake quantisation and this
    package add it after. Next to ties they may differ by one."""
    x = inputs(scale)
    x, t = x[x.abs() < 1e9 * scale], target("int8_affine")
    stock = torch.quantize_per_tensor(x, scale, point, torch.qint8)
    codes = t.encode(x, scale=scale, zero_point=point)
    y = x * (1 / torch.tensor(scale))
    tie = (y - y.floor() - 0.5).abs() < 1e-5
    assert torch.equal(codes[~tie], stock.int_repr()[~tie]) and 1000 < (~tie).sum()
    assert (codes.int() - stock.int_repr().int()).abs().max() == 1
    assert torch.equal(
        bits_of(t.decode(codes, scale=scale, zero_point=point)),
        bits_of(t.quantize(x, scale=scale, zero_point=point)),
    )
    assert torch.equal(
        bits_of(t.decode(stock.int_repr(), scale=scale, zero_point=point)),
        bits_of(stock.dequantize()),
    )


def test_quantize_per_channel():
    scale = torch.tensor(SCALES)
    x = torch.stack([inputs(s)[:1000] for s in SCALES])
    stock = torch.quantize_per_channel(x, scale.double(), torch.zeros(6).long(), 0, torch.qint8)
    t = integer_format(8, axis=0)
    assert torch.equal(t.encode(x, scale=scale), stock.int_repr())
    assert torch.equal(bits_of(t.quantize(x, scale=scale)), bits_of(stock.dequantize()))


# ---- every mode, by rationals ----


def round_by_rationals(value: Fraction, mode: str) -> int:
    down, up = math.floor(value), math.ceil(value)
    if down == up:
        return down
    inner, outer = (down, up) if value > 0 else (up, down)
    half = (value - down > Fraction(1, 2)) - (value - down < Fraction(1, 2))
    nearest = up if half > 0 else down
    if mode.startswith("nearest") and half:
        return nearest
    even = down if down % 2 == 0 else up
    odd = down + up - even
    ties = {"nearest_even": even, "nearest_zero": inner, "nearest_away": outer, "nearest_up": up}
    return (ties | {"up": up, "down": down, "toward_zero": inner, "to_odd": odd})[mode]


@pytest.mark.parametrize(
    "mode",
    [
        "nearest_even",
        "nearest_zero",
        "nearest_away",
        "up",
        "down",
        "toward_zero",
        "to_odd",
        "nearest_up",
    ],
)
@pytest.mark.parametrize(
    ("name", "low", "high", "point"),
    [
        ("int3_affine", -4, 3, 2),
        ("uint4", 0, 15, 7),
        ("int5_narrow", -15, 15, 0),
        ("int16", -32768, 32767, 0),
    ],
)
def test_modes(name, low, high, point, mode):
    generator = random.Random(0)
    t = target(f"{name}_{mode}") if mode != "nearest_even" else target(name)
    assert t.rounding == mode and target(name).with_rounding(mode) == t
    for scale in (np.float32(0.3), np.float32(2.0)):
        inverse = np.float32(1) / scale
        x = [np.float32(generator.uniform(low * 1.3, high * 1.3)) * scale for _ in range(300)]
        x += [np.float32(k / 2) * scale for k in range(-20, 20)] + [
            np.float32(v) for v in (1e-45, -1e-45, 1e30, -1e30)
        ]
        expected = []
        for v in x:
            y = Fraction(float(np.float32(v * inverse)))
            if y == 0 and v:
                y = Fraction(float(v)) / 10**9  # float32's product underflowed
            expected.append(
                np.float32(min(max(round_by_rationals(y, mode) + point, low), high) - point) * scale
            )
        ours = t.quantize(torch.tensor(np.array(x)), scale=float(scale), zero_point=point or None)
        assert torch.equal(bits_of(ours), bits_of(torch.tensor(np.array(expected))))


@pytest.mark.parametrize("mode", ["stochastic", "stochastic_equal", "up_down"])
def test_random_modes(mode):
    x, t = torch.full((20_000,), 2.25), target("int8").with_rounding(mode)
    draws = t.quantize(x, scale=1.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, t.quantize(x, scale=1.0, generator=torch.Generator().manual_seed(0)))
    values = {
        "stochastic": {2: 0.75, 3: 0.25},
        "stochastic_equal": {2: 0.5, 3: 0.5},
        "up_down": {1: 0.5, 3: 0.5},
    }[mode]
    assert set(draws.tolist()) == set(values)
    assert all(abs((draws == v).double().mean() - p) < 0.02 for v, p in values.items())
    with torch_dtypes.rounding(mode):
        assert set(target("int8").quantize(x, scale=1.0).tolist()) == set(values)


# ---- the format's properties ----


@pytest.mark.parametrize(
    ("made", "name", "low", "high", "storage"),
    [
        (integer_format(8), "int8", -128, 127, torch.int8),
        (integer_format(8, symmetric=False), "int8_affine", -128, 127, torch.int8),
        (integer_format(4, signed=False), "uint4", 0, 15, torch.uint8),
        (integer_format(4, signed=False, symmetric=True), "uint4_symmetric", 0, 15, torch.uint8),
        (integer_format(6, narrow=True, axis=-1), "int6_narrow_axisminus1", -31, 31, torch.int8),
        (
            integer_format(16, axis=0, rounding="up_down"),
            "int16_axis0_up_down",
            -32768,
            32767,
            torch.int16,
        ),
        (integer_format(16, False), "uint16", 0, 65535, torch.int32),
    ],
    ids=str,
)
def test_names(made, name, low, high, storage):
    assert (made.name, made.lowest, made.largest, made.storage, made.needs_scale) == (
        name,
        low,
        high,
        storage,
        True,
    )
    assert target(name) == made == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) and hash(
        target(name)
    ) == hash(made)
    assert made.dtype is None and made.bits_per_value == made.bits


def test_specials():
    x = torch.tensor([math.inf, -math.inf, math.nan, -0.0, -0.2])
    for t in (target("int8"), target("int8_nearest_away")):
        values = t.quantize(x, scale=0.5)
        assert (
            values[:2].tolist() == [63.5, -64.0]
            and values[2].isnan()
            and values[3:].tolist() == [0, 0]
            and not values[3:].signbit().any()
        )
    assert target("int8_affine").encode(x, scale=0.5, zero_point=5).tolist() == [127, -128, 5, 5, 5]
    # An infinity or NaN does not change its neighbours.
    assert target("uint8").quantize(torch.tensor([math.nan, 1.0]), scale=0.5, zero_point=3)[1] == 1


def test_other_dtypes_and_shapes():
    x = torch.randn(3, 5, dtype=torch.float64)
    y = target("int8").quantize(x, scale=0.1)
    assert y.dtype == torch.float64 and torch.equal(
        y, (x * (1 / torch.tensor(0.1, dtype=torch.float64))).round() * 0.1 + 0.0
    )
    half = target("int8").quantize(x.half(), scale=0.1)
    assert half.dtype == torch.float16 and torch.equal(
        half, target("int8").quantize(x.half().float(), scale=0.1).half()
    )
    for view in (x.t(), x[:, ::2], x[:0], x[1, 1]):
        assert torch.equal(
            target("int4").quantize(view, scale=0.3),
            target("int4").quantize(view.contiguous(), scale=0.3),
        )


def test_gradients_pass_or_stop():
    for clamped, expected in (("pass", [1, 1, 1, 1]), ("zero", [1, 1, 0, 0])):
        x = torch.tensor([1.0, 127.4, 127.6, -200.0], requires_grad=True)
        target("int8").quantize(x, scale=1.0, clamped=clamped).sum().backward()
        assert x.grad.tolist() == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: integer_format(1), "expected bits from 2 to 16, but got 1"),
        (lambda: integer_format(17), "expected bits from 2 to 16, but got 17"),
        (lambda: integer_format(8.5), "expected an integer for bits, but got 8.5"),
        (
            lambda: integer_format(8, False, narrow=True),
            "expected narrow=True with signed=True only",
        ),
        (lambda: integer_format(8, axis="0"), "expected an integer for axis, but got '0'"),
        (lambda: target("int99"), "expected bits from 2 to 16, but got 99"),
        (
            lambda: target("int8").quantize(torch.ones(2)),
            r"expected a scale for int8, but got None.*absmax / 127, or .*calibration\('int8'\) "
            r"after it has seen",
        ),
        (
            lambda: target("int8").quantize(torch.ones(2), scale=1.0, zero_point=3),
            "expected no zero_point with int8, .*int8_affine has one",
        ),
        (
            lambda: target("uint8").quantize(torch.ones(2), scale=1.0, zero_point=-1),
            "expected zero_point from 0 to 255, but got -1",
        ),
        (
            lambda: target("uint8").quantize(torch.ones(2), scale=1.0, zero_point=torch.ones(2)),
            "expected zero_point as an integer or a tensor",
        ),
        (
            lambda: target("int8_axis0").quantize(torch.ones(2, 3), scale=torch.ones(3)),
            "expected a scale of 2 numbers along axis 0",
        ),
        (
            lambda: target("int8_axis2").quantize(torch.ones(2, 3), scale=torch.ones(3)),
            "expected a tensor with dimension 2",
        ),
        (
            lambda: target("int8").decode(torch.ones(2), scale=1.0),
            "expected a tensor of integers to decode",
        ),
        (
            lambda: target("int8").encode([1.0], scale=1.0),
            "expected a torch tensor to quantise to int8, but got list",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def quantize_each(x):
    scale, zero_point = (torch.full((4, 1), number, device=x.device) for number in (0.3, 7))
    affine = target("uint8").quantize(x, scale=scale, zero_point=zero_point, clamped="zero")
    return (
        affine
        + target("int4").quantize(x, scale=0.5, rounding="up")
        + target("int8_to_odd").quantize(x, scale=0.1)
    )


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_graphs_and_transforms():
    x = torch.linspace(-30, 30, 24).reshape(4, 6)
    assert torch.equal(
        torch.func.vmap(quantize_each, in_dims=1, out_dims=1)(x.unsqueeze(1).expand(4, 3, 6))[:, 0],
        quantize_each(x),
    )
    assert torch.equal(make_fx(quantize_each)(x)(x / 2), quantize_each(x / 2))
    torch._dynamo.reset()
    compiled = torch.compile(quantize_each, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), quantize_each(x))
    with torch_dtypes.rounding("down"):
        assert torch.equal(compiled(x), quantize_each(x))
    torch._dynamo.reset()
