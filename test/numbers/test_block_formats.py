"""Blocks with scales: every element at every scale, every mode and rule, against exact rationals; shapes, specials, graphs."""

import copy
import math
import pickle
import warnings

import gfloat
import gfloat.block
import numpy as np
import oracle
import oracle_blocks
import pytest
import torch
from gfloat import formats as gfloat_formats
from oracle import binary
from oracle_blocks import SPECS, rows
from oracle_fixed import Fixed
from torch.fx.experimental.proxy_tensor import make_fx

import torch_dtypes
from torch_dtypes import block_float, block_format, chop, quantize, target

FLOATS = [name for name in SPECS if name != "mxint8"]
RULES = ("floor", "ceil", "even", "rceil")


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(a.signbit() & ~a.isnan(), b.signbit() & ~b.isnan())


def exactly(values):
    """float64 numbers as float32; those that float32 lacks (far below its normal ones) round."""
    return torch.tensor(np.array(values)).float()


# ---- elements and scales ----


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_at_every_scale(name):
    """A block that holds all codes is its own rounding, whatever power of two it is multiplied by."""
    values = oracle.table(SPECS[name]).decode()
    values = torch.tensor(values[np.isfinite(values)])
    exponents = torch.arange(-127, 128 - math.frexp(float(values.max()))[1] + 1)
    x = values * torch.exp2(exponents.double()).unsqueeze(1)
    t = block_format(target(name).element, "e8m0", len(values))
    same(t.quantize(x), x)
    assert torch.equal(t.scales(x).squeeze(), torch.exp2(exponents.double()))
    x = x[(x.abs().amax(1) < 3e38) & (exponents > -100)].float()  # float32, where it has them all
    same(t.quantize(x), x)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("mode", oracle.MODES)
def test_every_boundary_in_every_mode(name, mode):
    table = oracle.table(SPECS[name])
    inputs = table.all_inputs()
    bound = 2.0 ** math.frexp(float(table.values[-1]))[1]
    inputs = inputs[np.isfinite(inputs) & (np.abs(inputs) < bound) & ((np.abs(inputs) > 1e-250) | (inputs == 0))]
    codes = table.encode(inputs, mode)
    expected = torch.tensor(table.decode()[codes])
    t = block_format(target(name).element, "e8m0", len(inputs) + 1)
    pin = np.array([bound / 2])
    for e in (-100, -3, 0, 90):
        x = torch.tensor(np.concatenate([pin, inputs])) * 2.0**e
        same(t.quantize(x, rounding=mode)[1:], expected * 2.0**e)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("rule", RULES)
def test_rules(name, rule):
    x = rows(1, 4, 70)
    x[1, 0] = 1.999 * np.max(np.abs(x[1, :32]))
    t = target(name if rule == "floor" else f"{name}_{rule}")
    assert t.scale_rule == rule
    for mode in ("nearest_even", "up"):
        expected = [oracle_blocks.quantized(row, SPECS[name], mode, 32, rule) for row in x]
        same(t.quantize(torch.tensor(x), rounding=mode), exactly(expected) + (0.0 if name == "mxint8" else -0.0))


@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("name", ["mxfp4", "mxint8", "mxfp8_e5m2"])
def test_modes_on_extreme_magnitudes(name, mode):
    """float32's subnormals, its largest numbers, and both in one block: tiny ones round by their sign."""
    finfo = torch.finfo(torch.float32)
    parts = ([1e-45, -1e-45, 3e-42, -2e-40], [finfo.max, -1e-45, 1e-45, -3e38], [2.0**127, 1e-45, 1.0, -1e-38], [2.0**-126, -1e-45, 1e-39, 0.0])
    x = np.array(parts, dtype=np.float32)
    t = block_format(target(name).element, "e8m0", 4)
    expected = [oracle_blocks.quantized(row, SPECS[name], mode, 4) for row in x]
    same(t.quantize(torch.tensor(x), rounding=mode), exactly(expected))


@pytest.mark.parametrize("rule", RULES)
def test_other_elements_and_sizes(rule):
    for spec, element in ((binary(4, 3, overflow="saturate"), torch.q43), (Fixed(2, 1), "fixed2_1"), (binary(3, 0, specials="none"), "e3m0finite")):
        t = block_format(element, "e8m0", 7, scale_rule=rule)
        x = rows(2, 3, 17)
        expected = np.array([oracle_blocks.quantized(row, spec, "nearest_even", 7, rule) for row in x])
        same(t.quantize(torch.tensor(x)), exactly(expected))
    for es in (0, 1, 2) if rule != "even" else ():
        for emax in (None, 0) if rule in ("floor", "ceil") else (None,):
            t = block_format(f"posit8es{es}", "e8m0", 7, scale_rule=rule, emax=emax)
            expected = np.array([oracle_blocks.quantized(row, oracle.posit(8, es), "nearest_even", 7, rule, emax=emax) for row in x])
            torch.testing.assert_close(t.quantize(torch.tensor(x)), exactly(expected), rtol=0, atol=0)


def test_narrow_scales():
    t = block_format("e2m1finite", "e4m0", 4)  # 2^-7 to 2^7
    assert t.scales(torch.tensor([1e9, 0, 0, 0, 1e-9, 0, 0, 0, 3.0, 0, 0, 0])).flatten().tolist() == [2.0**7, 2.0**-7, 0.5]
    assert t.quantize(torch.tensor([1e9, 0, 0, -1e9])).tolist() == [6 * 2.0**7, 0, 0, -6 * 2.0**7]


@pytest.mark.parametrize("name", SPECS)
def test_gfloat(name):
    """Another implementation, which has -2 in mxint8."""
    info = getattr(gfloat_formats, f"format_info_{ {'mxfp4': 'mxfp4_e2m1'}.get(name, name) }")
    t = block_format("fixed1_6", "e8m0", 32) if name == "mxint8" else target(name)
    x = rows(3, 30, 32).astype(np.float64)
    expected = [gfloat.block.quantize_block(info, row, gfloat.block.compute_scale_amax) for row in x]
    torch.testing.assert_close(t.quantize(torch.tensor(x)), torch.tensor(np.array(expected)), rtol=0, atol=0)


# ---- float scales, and a tensor's above them ----


def test_nvfp4():
    e4m3, e2m1 = binary(4, 3, specials="fn", overflow="saturate"), binary(2, 1, specials="none")
    for seed, spread in ((4, 1), (5, 12)):  # blocks alike, and some that underflow beside others
        x = rows(seed, 6, 50, spread).reshape(-1)
        x = np.concatenate([x, np.zeros(16, np.float32)])
        same(target("nvfp4").quantize(torch.tensor(x)), torch.tensor(oracle_blocks.nvfp4(x, e2m1, e4m3)))
    t = target("nvfp4")
    assert t.tensor_scale and t.largest == 2688 and t.bits_per_value == 4.5


def test_nvfp4_with_a_given_tensor_scale():
    x = torch.tensor(rows(6, 4, 32, 2))
    above = x.abs().max() / 2688
    same(target("nvfp4").quantize(x, scale=2.0**-10), block_format("e2m1finite", "e4m3fn", 16).quantize(x * 2.0**10) * 2.0**-10)
    assert (target("nvfp4").quantize(x, scale=above) - target("nvfp4").quantize(x)).abs().max() < 1e-6 * x.abs().max()
    with pytest.raises(ValueError, match="expected the scale of a whole tensor"):
        target("nvfp4").quantize(x, scale=torch.ones(4, 1))


@pytest.mark.parametrize("magnitude", [1e-45, 1e-38, 1e-33, 5e37])
def test_nvfp4_at_the_ends_of_float32(magnitude):
    x = torch.tensor([1.0, -2.0, 3.0, 4.0, 6.0, 0.5, 0.0, 0.0] * 2) * magnitude
    y = target("nvfp4").quantize(x)
    assert y.isfinite().all() and ((y - x).abs() <= x.abs() * 0.34 + 1e-40).all()


def test_float_scales():
    x = torch.tensor([1.0, -3.0, 5.915, 0.3])
    up = block_format("e2m1finite", "bf16", 4, scale_rule="ceil")
    assert up.scales(x) == 253 / 256 and block_format("e2m1finite", "bf16", 4).scales(x) == 252 / 256
    assert block_format("e2m1finite", "fp32", 4).scales(x) == torch.tensor(5.915) / 6
    assert block_format("e2m1finite", "fp32", 4).quantize(torch.zeros(4)).tolist() == [0] * 4
    assert block_format("e2m1finite", "e4m3fn", 4).scales(torch.full((4,), 1e9)) == 448


# ---- zeros, NaN and infinities ----


@pytest.mark.parametrize("name", [*SPECS, "nvfp4", "bfp8_size32"])
def test_specials_stay_in_their_block(name):
    t = target(name)
    size = t.shape.size[0]
    for bad in (math.nan, math.inf, -math.inf):
        x = torch.randn(3, 4 * size, generator=torch.Generator().manual_seed(0))
        clean = t.quantize(torch.cat([x[:, :size] * 0, x[:, size:]], 1))
        x[1, 5] = bad
        y = t.quantize(x)
        assert y[1, :size].isnan().all() and y.isnan().sum() == size
        same(y[:, size:], clean[:, size:]) if name != "nvfp4" else None


@pytest.mark.parametrize("name", [*FLOATS, "nvfp4"])
def test_zeros(name):
    x = torch.zeros(40)
    x[::3] = -0.0
    same(target(name).quantize(x), x)
    assert (target(name).scales(x) > 0).all()
    x[35] = 5.0
    same(target(name).quantize(x)[:32], x[:32])


# ---- shapes ----


def by_rows(t, x, size, axis):
    """The same, one block after the other."""
    moved = x.movedim(axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    one = block_format(t.element, t.scale, None, None)
    out = torch.stack([torch.cat([one.quantize(part) for part in row.split(size)]) for row in flat])
    return out.reshape(moved.shape).movedim(-1, axis)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(5, 8, 12), (4, 9, 4), (1, 3, 7), (8, 8, 8)])
def test_axes_and_ragged_blocks(axis, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    t = block_format("e2m1finite", "e8m0", 4, axis)
    for view in (x, x.transpose(0, 2).contiguous().transpose(0, 2), x[:, ::2], x.expand(2, *shape)[0]):
        y = t.quantize(view)
        assert y.shape == view.shape
        same(y, by_rows(t, view, 4, axis))


def test_blocks_of_two_dimensions():
    x = torch.randn(3, 10, 9, generator=torch.Generator().manual_seed(1))
    t = block_format("e2m1finite", "e8m0", (4, 5), (1, -1))
    one = block_format("e2m1finite", "e8m0", None, None)
    expected = torch.empty_like(x)
    for i in range(3):
        for a in range(0, 10, 4):
            for b in range(0, 9, 5):
                expected[i, a : a + 4, b : b + 5] = one.quantize(x[i, a : a + 4, b : b + 5])
    same(t.quantize(x), expected)
    same(block_format("e2m1finite", "e8m0", (5, 4), (-1, 1)).quantize(x), expected)
    assert t.scales(x).shape == (3, 3, 1, 2, 1)


def test_slices_whole_tensors_and_none():
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 100.0, 1e4]).view(3, 1, 1)
    whole = block_float(6)
    same(block_float(6, 0).quantize(x), torch.stack([whole.quantize(s) for s in x]))
    same(block_float(6, 1).quantize(x), torch.stack([whole.quantize(x[:, i]) for i in range(4)], 1))
    same(block_float(6, -1).quantize(x), torch.stack([whole.quantize(x[..., i]) for i in range(5)], -1))
    assert whole.scales(x).numel() == 1 and block_float(6, -2).scales(x).shape == (1, 4, 1)
    same(block_format("q43", "e8m0", None, 1).quantize(x), block_format("q43", "e8m0", 4, 1).quantize(x))
    same(target("mxfp4").quantize(x[0, 0, 0]), target("mxfp4").quantize(x[0, 0, :1])[0])
    for t in (whole, target("mxfp4"), target("nvfp4"), block_float(6, 0)):
        assert t.quantize(x[:0]).shape == (0, 4, 5) and t.quantize(x[:, :, :0]).shape == (3, 4, 0)


# ---- block floating point ----


def qpytorch(x, bits, maximum):
    """QPyTorch's definition for one block: x / 2^(floor(log2 max) - bits + 2), an integer, clipped symmetrically."""
    step = 2.0 ** (math.frexp(maximum)[1] - 1 - bits + 2)
    limit = 2 ** (bits - 1) - 1
    return [min(max(round(v / step), -limit), limit) * step for v in x]


@pytest.mark.parametrize("bits", [2, 3, 8, 12, 16, 24])
def test_block_float(bits):
    x = torch.tensor(rows(7, 6, 40)).double()
    y = block_float(bits, 0).quantize(x)
    expected = [qpytorch(row, bits, max(map(abs, row))) for row in x.tolist()]
    torch.testing.assert_close(y, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=0)
    assert torch.equal(block_float(bits, 0).quantize(x.float()), y.float())


def test_stochastic_modes_keep_the_mean():
    x = torch.full((64, 512), 0.7)
    x[:, 0] = 1.0
    draw = block_float(4, 0, rounding="stochastic").quantize(x, generator=torch.Generator().manual_seed(0))
    assert set(draw[:, 1:].flatten().tolist()) == {0.5, 0.75} and abs(draw[:, 1:].mean() - 0.7) < 0.002
    again = target("bfp4_dim0_stochastic").quantize(x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draw, again)
    y = target("mxfp4_stochastic").quantize(x, generator=torch.Generator().manual_seed(0))
    assert set(y[:, 1:].flatten().tolist()) == {0.5, 0.75, 1.0, 0.625} - {0.625, 1.0} and y[:, 0].eq(1).all()
    for mode, values in (("stochastic_equal", {0.5, 0.75}), ("up_down", {0.5, 1.0})):
        assert set(block_float(4, 0).quantize(x, rounding=mode)[:, 1:].flatten().tolist()) == values


# ---- what a format is ----

NAMES = [
    "mxfp8_e4m3", "mxint8_stochastic", "nvfp4", "mxfp4_axis0_rceil_up", "mxfp6_e2m3_axisminus2", "bfp8", "bfp8_dim0", "bfp12_dimminus1",
    "bfp8_size16_axis1", "block<posit8es1_saturate,e8m0,64>_emax0_ceil", "block<posit8es1_saturate,e8m0,64>_emaxminus3",
    "block<e4m3_saturate,e4m3fn_saturate,16x16>_axis0x1_scaled", "block<e2m1finite,e8m0,all>_tensor",
    "block<e2m1finite,e5m0,8>", "block<e2m1finite,e8m7_saturate,all>_dim2_ceil", "mxfp4_even_to_odd",
    "block<e2m1finite,e8m0,16xall>_axis0xminus1", "block<e2m1finite,e8m0,16x16>", "nvfp4_axis0_nopad", "bfp8_size16_ceil_nopad_up",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    t = target(name)
    assert t.name == name and repr(t) == f"target({name!r})"
    assert target(t.name) == t == copy.deepcopy(t) == pickle.loads(pickle.dumps(t)) and hash(t) == hash(copy.deepcopy(t))
    assert not t.needs_scale and t.dtype is None
    assert t.with_rounding("down").rounding == "down" and t.with_rounding("down").with_rounding(t.rounding) == t


def test_constructors_and_names_agree():
    assert block_format("e4m3fn", "e8m0", 32) == target("mxfp8_e4m3") and target("mxfp4_e2m1") == target("mxfp4")
    assert block_format(torch.q52, "e8m0", 32) == target("mxfp8_e5m2") and block_float(8, size=32) == target("mxint8")
    assert block_format("ocp_e2m1", "e4m3fn", 16, tensor_scale=True) == target("nvfp4")
    assert [target(n).bits_per_value for n in ("mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "nvfp4", "bfp8")] == [8.25, 6.25, 4.25, 4.5, 8]
    assert target("block<e3m4,e8m0,4x8>") == block_format("e3m4", "e8m0", (4, 8)) == block_format("e3m4", "e8m0", (4, 8), (-2, -1))
    assert block_format("q43_up", "e8m0", 8).rounding == "up" == block_format("q43", "e8m0", 8, rounding="up").rounding


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: block_format("q43", "e9m0", 32), "expected a scale of 2 to 8 exponent bits"),
        (lambda: block_format("q43", "posit32es2", 32), "expected a block's scale as 'e8m0' or a format whose values float32 has"),
        (lambda: block_format("fp64", "e8m0", 32), "expected elements with float32's exponents"),
        (lambda: block_format("q43", "e8m0", 0), "expected size from 1 to"),
        (lambda: block_format("q43", "e8m0", (4, 4), 0), "expected as many sizes as axes"),
        (lambda: block_format("q43", "e8m0", 32, None), "expected size=None with axis=None"),
        (lambda: block_format("q43", "e8m0", 32, dim=0), "expected size=None with dim"),
        (lambda: block_format("q43", "e8m0", 32, scale_rule="floors"), "expected scale_rule to be one of 'floor', 'ceil', 'even', 'rceil'"),
        (lambda: block_format("q43", "fp32", 32, scale_rule="floor"), "expected scale_rule to be one of 'nearest', 'ceil'"),
        (lambda: block_format("posit8es1", "e8m0", 32, scale_rule="even"), "expected scale_rule='even' with float or fixed-point"),
        (lambda: block_format("q43", "fp32", 32, emax=0), "expected emax with power-of-two scales only"),
        (lambda: block_format("q43", "e8m0", 32, emax=0, scale_rule="rceil"), "expected scale_rule 'floor' or 'ceil' with emax"),
        (lambda: block_format("q43", "e8m0", 32, tensor_scale=1), "expected True or False for tensor_scale"),
        (lambda: block_float(1), "expected bits from 2 to 24, but got 1"),
        (lambda: block_float(8, 0, size=4), "expected dim or size"),
        (lambda: target("mxfp9"), "the nearest names are 'mxfp4'"),
        (lambda: target("mxfp4_axis3").quantize(torch.ones(2, 3)), "expected a tensor with dimension 3"),
        (lambda: block_format("q43", "e8m0", (2, 2), (0, -2)).quantize(torch.ones(2, 3)), "expected axes that are different dimensions"),
        (lambda: target("bfp8_dim3").quantize(torch.ones(2, 3)), "expected a tensor with dimension 3"),
        (lambda: target("mxfp4").quantize(torch.ones(2), zero_point=1), "expected no zero_point with mxfp4"),
        (lambda: chop(torch.ones(2), "mxfp4", flip_prob=0.1), "expected flip_prob=0 with mxfp4"),
        (lambda: chop(torch.ones(2), "int8"), "expected a scale for int8"),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


# ---- gradients, chop, graphs ----


def test_gradients():
    x = torch.tensor([1.0, 511.0, 300.0, -480.0, -449.0], requires_grad=True)
    for clamped, expected in (("pass", [1, 1, 1, 1, 1]), ("zero", [1, 0, 1, 0, 0])):
        x.grad = None
        y = target("mxfp8_e4m3").quantize(x, clamped=clamped)
        assert y.tolist() == [1, 448, 288, -448, -448]  # the scale is 1
        y.mul_(2).sum().backward()
        assert x.grad.tolist() == [2 * e for e in expected]
    y = target("nvfp4").quantize(x.half())
    assert y.dtype == torch.float16


def test_chop_takes_targets_and_names():
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(2))
    for D in ("mxfp8_e4m3", target("mxfp8_e4m3"), block_format("e4m3fn", "e8m0", 32)):
        same(chop(x, D), target("mxfp8_e4m3").quantize(x))
        same(chop(x, D, "up"), target("mxfp8_e4m3").quantize(x, rounding="up"))
        np.testing.assert_array_equal(chop(x.numpy(), D), chop(x, D).numpy())
    same(chop(x, target("q43")), chop(x, "q43"))
    same(chop(x, target("bf16")), x.bfloat16().float())
    assert chop(1.3, "bfp4") == 1.25 and chop(np.float32(1.3), "bfp4") == 1.25
    draws = [chop(x, "mxfp4", "stochastic", torch.Generator().manual_seed(1)) for _ in range(2)]
    same(*draws)
    with torch_dtypes.rounding("down"):
        same(chop(x, "mxfp4"), target("mxfp4").quantize(x, rounding="down"))


SAMPLE = torch.linspace(-3, 5, 120).reshape(3, 40)
BLOCK = target("mxfp8_e4m3")


def everything(x):
    two = chop(x, "nvfp4") + chop(x, BLOCK, "up") + target("bfp6_dim0").quantize(x * 2)
    return two + BLOCK.quantize(x, clamped="zero") * x + block_format("q43", "bf16", 16, -2).quantize(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_graphs_and_transforms():
    same(make_fx(everything)(SAMPLE)(SAMPLE / 3), everything(SAMPLE / 3))
    same(make_fx(everything, tracing_mode="fake")(SAMPLE)(SAMPLE / 3), everything(SAMPLE / 3))
    stack = torch.stack([SAMPLE, SAMPLE * 100, SAMPLE.sin()])
    same(torch.func.vmap(everything)(stack), torch.stack([everything(s) for s in stack]))
    same(torch.func.vmap(everything, in_dims=1, out_dims=1)(stack.movedim(0, 1)), torch.stack([everything(s) for s in stack], 1))
    leaf = SAMPLE.clone().requires_grad_()
    everything(leaf).sum().backward()
    same(torch.func.grad(lambda x: everything(x).sum())(SAMPLE), leaf.grad)
    torch.testing.assert_close(torch.func.jvp(everything, (SAMPLE,), (torch.ones_like(SAMPLE),))[1], leaf.grad)


def in_a_graph(x):
    two = chop(x, "nvfp4") + chop(x, BLOCK, "up") + target("bfp6_dim0").quantize(x * 2)
    return two + BLOCK.quantize(x, clamped="zero") * x


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch's own
def test_compiled_in_one_graph():
    torch._dynamo.reset()
    compiled = torch.compile(in_a_graph, backend="aot_eager", fullgraph=True)
    leaves = [SAMPLE.clone().requires_grad_() for _ in range(2)]
    left, right = compiled(leaves[0]), in_a_graph(leaves[1])
    same(left, right)
    left.sum().backward(), right.sum().backward()
    same(leaves[0].grad, leaves[1].grad)
    with torch_dtypes.rounding("up_down"):
        torch.manual_seed(0)
        left = compiled(SAMPLE)
        torch.manual_seed(0)
        same(left, in_a_graph(SAMPLE))
    torch._dynamo.reset()


def test_a_tensor_scale_above_a_named_format():
    t = target("mxfp4_scaled")
    assert t == block_format("e2m1finite", "e8m0", 32, tensor_scale=True) and target("nvfp4_scaled") == target("nvfp4")
    assert t.name == "block<e2m1finite,e8m0,32>_scaled" and target(t.name) == t


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_tensor_scale_above_scales_of_float32s_whole_range(dtype):
    """Largest scale times largest element is no float32: the tensor is brought to 2^126, as far as 2^117 brings it."""
    x = torch.linspace(-4, 3, 96, dtype=dtype).view(3, 32) * torch.tensor([1, 2.0**-20, 2.0**-40], dtype=dtype).view(3, 1)
    same(target("mxfp4_scaled").quantize(x), target("mxfp4").quantize(x))  # times 2^117
    large = x * 2.0**98  # the largest magnitude is 2^100
    same(target("mxfp4_scaled").quantize(large), target("mxfp4").quantize(large))  # times 2^26
    for t in (2.0**-27, 2.0**-28):  # by hand, at and beyond float32's largest number
        same(target("mxfp4_scaled").quantize(large, scale=t), target("mxfp4").quantize(large))
    assert target("mxfp4_scaled").quantize(large[:1], scale=2.0**-60).eq(6 * 2.0**67 * large[:1].sign()).all()
    bf16 = block_format("e2m1finite", "bf16", 32, tensor_scale=True).quantize(large)
    assert ((bf16 - large).abs() <= large.abs().amax(1, keepdim=True) / 5).all()


def test_microsoft_floating_point():
    """MSFP12: a sign, 3 bits of significand, one exponent of 8 bits for 16 numbers."""
    assert target("msfp12") == block_float(4, size=16) and target("msfp16_stochastic").name == "bfp8_size16_stochastic"
    assert target("msfp12").bits_per_value == 4.5


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["floor", "rceil", "ceil", "even"])
@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"])
def test_scale_rules_as_torchao_has_them(name, rule):
    """Scales and numbers of random blocks and of such whose largest numbers are at the rules' edges. (A scale of 2^-127 counts as 2^-126 there.)"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="torchao is the oracle")
    elements = {
        "mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2, "mxfp6_e3m2": "fp6_e3m2", "mxfp6_e2m3": "fp6_e2m3",
        "mxfp4": torch.float4_e2m1fn_x2,
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 32, generator=generator) * torch.exp2(torch.randint(-100, 100, (1000, 1), generator=generator).float())
    edges = torch.tensor([448, 449, 480, 511.9, 512, 6, 6.5, 7, 7.5, 7.99, 8, 57344, 61440, 65535, 28, 30, 31, 32, 1.74, 1.75, 1.76, 1.93, 1.94])
    x = torch.cat([x, edges.view(-1, 1) * torch.linspace(-0.9, 1, 32)])
    scales, codes = module.to_mx(x, elements[name], 32, module.ScaleCalculationMode(rule))
    packed = quantize(x, f"{name}_{rule}")
    assert torch.equal(scales.view(torch.uint8).flatten(), packed.scale_codes.flatten())
    torch.testing.assert_close(packed.dequantize(), module.to_dtype(codes, scales, elements[name], 32, torch.float32), rtol=0, atol=0)
