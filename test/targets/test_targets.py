"""Targets: one value for each kind of rounding; names, scales, gradients, graphs."""

import copy
import pickle

import numpy as np
import oracle
import pytest
import torch
from conftest import parametrize_dtypes
from same_numbers import same
from torch.fx.experimental.proxy_tensor import make_fx

import torch_dtypes
from torch_dtypes import chop, target

X = torch.tensor(
    [1.3, -0.7, 1000.0, -1e-9, 0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3e38, 1e-42]
)


# ---- properties of targets ----


@pytest.mark.parametrize(
    ("value", "name", "bits", "largest"),
    [
        (torch.q43, "q43", 8, 240.0),
        ("torch.posit16es2", "posit16es2", 16, 2.0**56),
        ("posit<12,1>", "posit12es1", 12, 2.0**20),
        ("float<5,6>", "e5m6", 12, 65024.0),
        ("ufixed<4,4>_wrap", "ufixed4_4_wrap", 8, 15.9375),
        (torch_dtypes.format_of("e4m3fn"), "e4m3fn", 8, 448.0),
        ("bf16", "bfloat16", 16, torch.finfo(torch.bfloat16).max),
        (torch.float32, "float32", 32, torch.finfo(torch.float32).max),
        ("half", "float16", 16, 65504.0),
        ("binary16", "float16", 16, 65504.0),
        ("single", "float32", 32, torch.finfo(torch.float32).max),
        (torch.float8_e4m3fn, "float8_e4m3fn", 8, 448.0),
        ("q43_stochastic", "q43_stochastic", 8, 240.0),
    ],
    ids=str,
)
def test_values_that_targets_are_made_of(value, name, bits, largest):
    t = target(value)
    assert (t.name, t.bits, t.largest, t.needs_scale) == (name, bits, largest, False)
    assert (
        target(t) is t
        and target(name) == t
        and hash(target(name)) == hash(t)
        and repr(t) == f"target({name!r})"
    )
    assert copy.deepcopy(t) == t == pickle.loads(pickle.dumps(t))
    with pytest.raises(AttributeError):
        t.bits = 3


def test_native_dtypes():
    assert target("q43").dtype is torch.q43 and target("bf16").dtype is torch.bfloat16
    assert target("q43_stochastic").dtype is torch_dtypes.with_rounding(torch.q43, "stochastic")
    assert target("q43").with_rounding("stochastic") == target("q43_stochastic") != target("q43")
    assert target("q43_stochastic").rounding == "stochastic" and target(
        torch.float16
    ).with_rounding(1) == target("float16")


@pytest.mark.parametrize(
    "value", ["q99", "mxfp8_e4m", "posit16", 3, None, torch.int8, torch.complex64], ids=str
)
def test_what_is_no_target(value):
    with pytest.raises((TypeError, ValueError), match=r"expected .*, but got"):
        target(value)


def test_errors_list_the_nearest_names():
    with pytest.raises(ValueError, match="the nearest names are 'float8_e4m3fn"):
        target("float8_e4m3fm")
    with pytest.raises(ValueError, match="expected nbits from 2 to 64, but got 99"):
        target("posit<99,1>")


# ---- without a scale ----


@pytest.mark.parametrize(
    "name",
    ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "bfloat16", "float16"],
)
def test_stock_dtypes_round_as_their_casts_do(name):
    dtype = getattr(torch, name)
    t = target(dtype)
    x = torch.cat(
        [
            torch.randn(4000, generator=torch.Generator().manual_seed(0))
            * torch.logspace(-10, 7, 4000),
            X,
        ]
    )
    near = (
        torch.arange(1 << 8 * dtype.itemsize)
        .to(torch.uint8 if dtype.itemsize == 1 else torch.uint16)
        .view(dtype)
        .float()
    )
    x = torch.cat([x, near, (near + near.roll(1)) / 2])
    same(t.quantize(x), x.to(dtype).float())


@pytest.mark.parametrize("name", ["q43", "posit16es2", "fixed4_4", "e4m3fn_saturate_up"])
@parametrize_dtypes("float32 float64 float16 bfloat16")
def test_is_chop(name, dtype):
    x = X.to(dtype)
    same(target(name).quantize(x), chop(x, name))
    same(target(name).quantize(x, rounding="down"), chop(x, name, "down"))
    draw = [torch.Generator().manual_seed(3) for _ in range(2)]
    same(target(name).quantize(x, rounding=5, generator=draw[0]), chop(x, name, 5, draw[1]))


# ---- scales ----


def exactly(name, x, scale, mode):
    """Compute float32(round(float32(x * float32(1 / scale))) * scale), with the rounding by
    rationals."""
    spec = {
        "q43": oracle.binary(4, 3),
        "posit8es1": oracle.posit(8, 1),
        "e4m3fn": oracle.binary(4, 3, specials="fn"),
    }[name]
    y = np.float32(x) * (np.float32(1) / np.float32(scale))
    value = spec.decode(spec.encode(float(y), mode))
    return np.float32(float(value)) * np.float32(scale)


@pytest.mark.parametrize("name", ["q43", "posit8es1", "e4m3fn"])
@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("scale", [0.1, 3.0, 0.25])
def test_scaled_rounding_is_what_is_documented(name, mode, scale):
    x = torch.randn(200, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 2, 200)
    expected = torch.tensor([exactly(name, float(v), scale, mode) for v in x])
    same(target(name).quantize(x, scale=scale, rounding=mode), expected)


def test_powers_of_two_round_once():
    x = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for e in (-9, 3, 40):
        same(target("q43").quantize(x, scale=2.0**e), chop(x * 2.0**-e, "q43") * 2.0**e)


def test_scales_broadcast_and_keep_the_dtype():
    x = torch.randn(4, 6)
    scale = torch.tensor([[0.5], [1.0], [2.0], [4.0]])
    rows = torch.stack(
        [target("q43").quantize(row, scale=float(s)) for row, s in zip(x, scale, strict=True)]
    )
    same(target("q43").quantize(x, scale=scale), rows)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert target("q43").quantize(x.to(dtype), scale=scale).dtype == dtype
    assert target("q43").quantize(x, scale=scale.double()).dtype == torch.float32


def test_products_beyond_float32_round_as_their_magnitudes_do():
    tiny, huge = torch.tensor([1e-30, -1e-30, 0.0]), torch.tensor([1e30, -1e30, float("inf")])
    assert target("q43").quantize(tiny, scale=1e30, rounding="up").tolist() == [
        np.float32(2.0**-9) * np.float32(1e30),
        0,
        0,
    ]
    largest = float(np.float32(240) * np.float32(1e-30))
    assert target("q43").quantize(huge, scale=1e-30, rounding="toward_zero").tolist() == [
        largest,
        -largest,
        float("inf"),
    ]
    maxpos = float(np.float32(64) * np.float32(1e-30))
    same(
        target("posit8es0").quantize(huge, scale=1e-30),
        torch.tensor([maxpos, -maxpos, float("nan")]),
    )
    assert target("posit8es0").quantize(tiny, scale=1e30)[0] == float(
        np.float32(2.0**-6) * np.float32(1e30)
    )


def test_nan_in_a_scale_makes_nan():
    x = torch.ones(2, 2)
    assert torch.equal(
        target("q43").quantize(x, scale=torch.tensor([[float("nan")], [1.0]])).isnan(),
        torch.tensor([[True, True], [False, False]]),
    )


WRONG_SCALES = [
    0,
    -1.0,
    float("nan"),
    float("inf"),
    1e-44,
    "2",
    True,
    torch.ones(5),
    torch.ones(2, 1),
    torch.ones(1).int(),
    [1.0],
]


@pytest.mark.parametrize("scale", WRONG_SCALES, ids=str)
def test_scales_that_are_none(scale):
    with pytest.raises((ValueError, TypeError), match="expected a scale"):
        target("q43").quantize(torch.ones(4), scale=scale)


WRONG_TENSORS = [
    1.0,
    np.ones(2),
    torch.ones(2).int(),
    torch.ones(2).cfloat(),
    torch.ones(2, dtype=torch.q43),
]


@pytest.mark.parametrize("x", WRONG_TENSORS, ids=lambda x: str(type(x)))
def test_tensors_that_are_none(x):
    with pytest.raises(TypeError, match=r"expected a .*tensor.* to quantise to q43, but got"):
        target("q43").quantize(x)


def test_other_arguments_that_are_wrong():
    with pytest.raises(ValueError, match="expected no zero_point with q43, but got 3"):
        target("q43").quantize(X, zero_point=3)
    with pytest.raises(ValueError, match=r"expected clamped to be 'pass'.*but got 'no'"):
        target("q43").quantize(X, clamped="no")
    with pytest.raises(ValueError, match="expected a rounding mode"):
        target("q43").quantize(X, scale=2.0, rounding="upwards")


# ---- gradients and graphs ----


@pytest.mark.parametrize(("scale", "passes"), [(None, [1, 1, 0, 0, 1]), (10.0, [1, 1, 1, 0, 1])])
def test_gradients(scale, passes):
    x = torch.tensor([1.3, 240.0, -241.0, 2401.0, float("nan")])
    if scale:
        x = torch.tensor([1.3, 2400.0, -240.0, -2410.0, float("nan")])
    for clamped, expected in (("pass", [1] * 5), ("zero", passes)):
        leaf = x.clone().requires_grad_()
        y = target("q43").quantize(leaf, scale=scale, clamped=clamped)
        same(y.detach(), target("q43").quantize(x, scale=scale))
        y.mul_(3).sum().backward()  # the result can be written in place
        assert leaf.grad.tolist() == [3 * e for e in expected]


def quantize_each(x):
    return (
        target("q43").quantize(x, scale=3.0, clamped="zero")
        + target("posit8es1").quantize(x, scale=torch.tensor(0.3)) * x
    )


SAMPLE = torch.linspace(-900, 900, 24).reshape(4, 6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.func.jvp's own
def test_transforms():
    same(torch.func.vmap(quantize_each)(SAMPLE), quantize_each(SAMPLE))
    leaf = SAMPLE.clone().requires_grad_()
    quantize_each(leaf).sum().backward()
    same(torch.func.grad(lambda x: quantize_each(x).sum())(SAMPLE), leaf.grad)
    same(torch.func.vmap(torch.func.grad(lambda x: quantize_each(x).sum()))(SAMPLE), leaf.grad)
    same(torch.func.jvp(quantize_each, (SAMPLE,), (torch.ones_like(SAMPLE),))[1], leaf.grad)


# PyTorch's own.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_graphs():
    graph = make_fx(quantize_each)(SAMPLE)
    assert torch.ops.torch_dtypes.chop.default in [n.target for n in graph.graph.nodes]
    same(graph(SAMPLE / 2), quantize_each(SAMPLE / 2))
    torch._dynamo.reset()
    compiled = torch.compile(quantize_each, backend="aot_eager", fullgraph=True)
    leaves = [SAMPLE.clone().requires_grad_() for _ in range(2)]
    left, right = compiled(leaves[0]), quantize_each(leaves[1])
    same(left, right)
    left.sum().backward(), right.sum().backward()
    same(leaves[0].grad, leaves[1].grad)
    with torch_dtypes.rounding("up"):
        same(compiled(SAMPLE), quantize_each(SAMPLE))
    torch._dynamo.reset()
