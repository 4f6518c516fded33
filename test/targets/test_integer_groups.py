"""Integers in groups: each group as PyTorch's fake quantisation with the group's scale."""

import copy
import pickle

import pytest
import torch

import torch_dtypes
from torch_dtypes import calibration, chop, quantize_, target

NAMES = ["int4_group128", "uint4_group32", "int4_affine_group16_axis0", "int8_narrow_group64_up"]


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    t = target(name)
    assert t.name == name and repr(t) == f"target({name!r})" and not t.needs_scale
    assert target(t.name) == t == copy.deepcopy(t) == pickle.loads(pickle.dumps(t))
    assert t.dtype is None and t.with_rounding("down").with_rounding(t.rounding) == t


def test_bits():
    assert [target(n).bits_per_value for n in NAMES[:2]] == [4 + 32 / 128, 4 + 36 / 32]
    assert (target("int4_group8").largest, target("uint4_group8").largest) == (7, 15)


@pytest.mark.parametrize(
    "plain", ["int4", "uint4", "int4_affine", "int8_narrow", "uint4_symmetric"]
)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_each_group_has_its_scale(plain, axis):
    x = torch.randn(20, 24, 28, generator=torch.Generator().manual_seed(1)) + 0.3
    x[3, 5] = 0.0
    t = target(f"{plain}_group8_axis{axis}".replace("-", "minus"))
    y, (scales, points) = t.quantize(x), t.scales(x)
    assert (points is None) == (plain in ("int4", "int8_narrow", "uint4_symmetric"))
    rows, result = x.movedim(axis, -1).reshape(-1, x.shape[axis]), []
    for row in rows[::7]:
        parts = []
        for group in row.split(8):
            seen = calibration(plain)
            seen.observe(group)
            parts.append(seen.quantize(group))
        result.append(torch.cat(parts))
    assert torch.equal(y.movedim(axis, -1).reshape(rows.shape)[::7], torch.stack(result))
    assert scales.shape == t.shape.grid_shape(x.shape)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_stock_fake_quantisation(name):
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(2))
    t = target(f"{name}_group32")
    scales, points = t.scales(x)
    zero = torch.zeros(16, dtype=torch.int32) if points is None else points.flatten()
    low, high = (-8, 7) if name == "int4" else (0, 15)
    stock = torch.fake_quantize_per_channel_affine(x, scales.flatten(), zero, 0, low, high)
    assert torch.equal(t.quantize(x), stock)


def test_edges():
    t = target("uint4_group4")
    x = torch.tensor([1.0, 2.0, 3.0, torch.nan, 0.0, 0.0, 0.0, 0.0, -1.0, 15.0])
    y = t.quantize(x)
    assert y[:4].isnan().all() and y[4:8].tolist() == [0.0] * 4
    # The scale is 16/15, the zero point 1.
    assert y[8:].tolist() == pytest.approx([-16 / 15, 224 / 15])
    assert torch.equal(t.quantize(torch.tensor(2.5)), torch.tensor(2.5))
    assert t.quantize(torch.empty(0, 3)).shape == (0, 3)
    assert torch.equal(chop(x, "uint4_group4")[4:], y[4:])
    x = torch.randn(3, 10, requires_grad=True)
    t.quantize(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 10))


def test_rules_and_errors():
    layer = torch.nn.Linear(64, 8)
    quantize_(layer, {torch.nn.Linear: dict(weight="int4_group16")})
    x = torch.randn(3, 64)
    weight = target("int4_group16").quantize(layer.weight.detach())
    assert torch.equal(layer(x), torch.nn.functional.linear(x, weight, layer.bias))
    for call, message in (
        (
            lambda: target("int4_group8").quantize(x, scale=2.0),
            "expected no scale with int4_group8",
        ),
        (lambda: target("int4_group8").quantize(x, zero_point=1), "expected no zero_point"),
        (lambda: torch_dtypes.dtype("int4_group8"), "round to int4_group8 with a scale by"),
        (lambda: target("int4_group0"), "expected size from 1 to"),
        (lambda: target("int4_group8_axis3").quantize(x), "expected a tensor with dimension 3"),
        (lambda: target("int1_group8"), "expected bits from 2 to 16"),
        (
            lambda: quantize_(
                layer, {torch.nn.Linear: dict(weight=dict(format="int4_group8", per="channel"))}
            ),
            "expected no scale for int4_group8, whose groups have their own",
        ),
        (
            lambda: quantize_(
                layer,
                {
                    torch.nn.Linear: dict(
                        weight="int4_group8", activation="int8", arithmetic="integer"
                    )
                },
            ),
            "expected an integer weight",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match=r"chop\(x, 'int4_group8'\) rounds to it"):
        torch_dtypes.quantize(x, "int4_group8")


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled():
    x = torch.randn(4, 40)
    t = target("uint4_group16")
    compiled = torch.compile(lambda v: t.quantize(v), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), t.quantize(x))
