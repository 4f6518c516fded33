"""Blocks with scales: every element at every scale, every mode and rule, against exact rationals;
float scales, specials."""

import math
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
from same_numbers import same

from torch_dtypes import block_format, quantize, target

FLOATS = [name for name in SPECS if name != "mxint8"]
RULES = ("floor", "ceil", "even", "rceil")


def exactly(values):
    """Convert float64 numbers to float32. Those that float32 lacks (far below its normal numbers)
    are rounded."""
    return torch.tensor(np.array(values)).float()


# ---- elements and scales ----


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_at_every_scale(name):
    """A block that holds all codes rounds to itself, whatever power of two it is multiplied by."""
    values = oracle.table(SPECS[name]).decode()
    values = torch.tensor(values[np.isfinite(values)])
    exponents = torch.arange(-127, 128 - math.frexp(float(values.max()))[1] + 1)
    x = values * torch.exp2(exponents.double()).unsqueeze(1)
    t = block_format(target(name).element, "e8m0", len(values))
    same(t.quantize(x), x)
    assert torch.equal(t.scales(x).squeeze(), torch.exp2(exponents.double()))
    x = x[(x.abs().amax(1) < 3e38) & (exponents > -100)].float()  # float32, where it holds them all
    same(t.quantize(x), x)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("mode", oracle.MODES)
def test_every_boundary_in_every_mode(name, mode):
    table = oracle.table(SPECS[name])
    inputs = table.all_inputs()
    bound = 2.0 ** math.frexp(float(table.values[-1]))[1]
    inputs = inputs[
        np.isfinite(inputs) & (np.abs(inputs) < bound) & ((np.abs(inputs) > 1e-250) | (inputs == 0))
    ]
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
        expected = [oracle_blocks.quantize_row(row, SPECS[name], mode, 32, rule) for row in x]
        same(
            t.quantize(torch.tensor(x), rounding=mode),
            exactly(expected) + (0.0 if name == "mxint8" else -0.0),
        )


@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("name", ["mxfp4", "mxint8", "mxfp8_e5m2"])
def test_modes_on_extreme_magnitudes(name, mode):
    """Try float32's subnormal numbers, its largest numbers, and both in one block. Tiny ones round
    by their sign."""
    finfo = torch.finfo(torch.float32)
    parts = (
        [1e-45, -1e-45, 3e-42, -2e-40],
        [finfo.max, -1e-45, 1e-45, -3e38],
        [2.0**127, 1e-45, 1.0, -1e-38],
        [2.0**-126, -1e-45, 1e-39, 0.0],
    )
    x = np.array(parts, dtype=np.float32)
    t = block_format(target(name).element, "e8m0", 4)
    expected = [oracle_blocks.quantize_row(row, SPECS[name], mode, 4) for row in x]
    same(t.quantize(torch.tensor(x), rounding=mode), exactly(expected))


@pytest.mark.parametrize("rule", RULES)
def test_other_elements_and_sizes(rule):
    for spec, element in (
        (binary(4, 3, overflow="saturate"), torch.q43),
        (Fixed(2, 1), "fixed2_1"),
        (binary(3, 0, specials="none"), "e3m0finite"),
    ):
        t = block_format(element, "e8m0", 7, scale_rule=rule)
        x = rows(2, 3, 17)
        expected = np.array(
            [oracle_blocks.quantize_row(row, spec, "nearest_even", 7, rule) for row in x]
        )
        same(t.quantize(torch.tensor(x)), exactly(expected))
    for es in (0, 1, 2) if rule != "even" else ():
        for emax in (None, 0) if rule in ("floor", "ceil") else (None,):
            t = block_format(f"posit8es{es}", "e8m0", 7, scale_rule=rule, emax=emax)
            expected = np.array(
                [
                    oracle_blocks.quantize_row(
                        row, oracle.posit(8, es), "nearest_even", 7, rule, emax=emax
                    )
                    for row in x
                ]
            )
            torch.testing.assert_close(
                t.quantize(torch.tensor(x)), exactly(expected), rtol=0, atol=0
            )


def test_narrow_scales():
    t = block_format("e2m1finite", "e4m0", 4)  # 2^-7 to 2^7
    assert t.scales(
        torch.tensor([1e9, 0, 0, 0, 1e-9, 0, 0, 0, 3.0, 0, 0, 0])
    ).flatten().tolist() == [2.0**7, 2.0**-7, 0.5]
    assert t.quantize(torch.tensor([1e9, 0, 0, -1e9])).tolist() == [6 * 2.0**7, 0, 0, -6 * 2.0**7]


@pytest.mark.parametrize("name", SPECS)
def test_gfloat(name):
    """Compare with another implementation, which has -2 in mxint8."""
    info = getattr(gfloat_formats, f"format_info_{ {'mxfp4': 'mxfp4_e2m1'}.get(name, name) }")
    t = block_format("fixed1_6", "e8m0", 32) if name == "mxint8" else target(name)
    x = rows(3, 30, 32).astype(np.float64)
    expected = [
        gfloat.block.quantize_block(info, row, gfloat.block.compute_scale_amax) for row in x
    ]
    torch.testing.assert_close(
        t.quantize(torch.tensor(x)), torch.tensor(np.array(expected)), rtol=0, atol=0
    )


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["floor", "rceil", "ceil", "even"])
@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"])
def test_scale_rules_as_torchao_has_them(name, rule):
    """Compare scales and numbers of random blocks, and of blocks whose largest numbers are at the
    rules' limits. (torchao counts a scale of 2^-127 as 2^-126.)"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip(
            "torchao.prototype.mx_formats.mx_tensor", reason="torchao is the oracle"
        )
    elements = {
        "mxfp8_e4m3": torch.float8_e4m3fn,
        "mxfp8_e5m2": torch.float8_e5m2,
        "mxfp6_e3m2": "fp6_e3m2",
        "mxfp6_e2m3": "fp6_e2m3",
        "mxfp4": torch.float4_e2m1fn_x2,
    }
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 32, generator=generator) * torch.exp2(
        torch.randint(-100, 100, (1000, 1), generator=generator).float()
    )
    edges = torch.tensor(
        [
            448,
            449,
            480,
            511.9,
            512,
            6,
            6.5,
            7,
            7.5,
            7.99,
            8,
            57344,
            61440,
            65535,
            28,
            30,
            31,
            32,
            1.74,
            1.75,
            1.76,
            1.93,
            1.94,
        ]
    )
    x = torch.cat([x, edges.view(-1, 1) * torch.linspace(-0.9, 1, 32)])
    scales, codes = module.to_mx(x, elements[name], 32, module.ScaleCalculationMode(rule))
    packed = quantize(x, f"{name}_{rule}")
    assert torch.equal(scales.view(torch.uint8).flatten(), packed.scale_codes.flatten())
    torch.testing.assert_close(
        packed.dequantize(),
        module.to_dtype(codes, scales, elements[name], 32, torch.float32),
        rtol=0,
        atol=0,
    )


# ---- float scales, and a scale of the tensor above them ----


def test_nvfp4():
    e4m3, e2m1 = binary(4, 3, specials="fn", overflow="saturate"), binary(2, 1, specials="none")
    for seed, spread in ((4, 1), (5, 12)):  # similar blocks, then some that underflow beside others
        x = rows(seed, 6, 50, spread).reshape(-1)
        x = np.concatenate([x, np.zeros(16, np.float32)])
        same(
            target("nvfp4").quantize(torch.tensor(x)),
            torch.tensor(oracle_blocks.nvfp4(x, e2m1, e4m3)),
        )
    t = target("nvfp4")
    assert t.tensor_scale and t.largest == 2688 and t.bits_per_value == 4.5


def test_nvfp4_with_a_given_tensor_scale():
    x = torch.tensor(rows(6, 4, 32, 2))
    above = x.abs().max() / 2688
    same(
        target("nvfp4").quantize(x, scale=2.0**-10),
        block_format("e2m1finite", "e4m3fn", 16).quantize(x * 2.0**10) * 2.0**-10,
    )
    assert (
        target("nvfp4").quantize(x, scale=above) - target("nvfp4").quantize(x)
    ).abs().max() < 1e-6 * x.abs().max()
    with pytest.raises(ValueError, match="expected one number as the scale of the whole tensor"):
        target("nvfp4").quantize(x, scale=torch.ones(4, 1))


@pytest.mark.parametrize("magnitude", [1e-45, 1e-38, 1e-33, 5e37])
def test_nvfp4_at_the_ends_of_float32(magnitude):
    x = torch.tensor([1.0, -2.0, 3.0, 4.0, 6.0, 0.5, 0.0, 0.0] * 2) * magnitude
    y = target("nvfp4").quantize(x)
    assert y.isfinite().all() and ((y - x).abs() <= x.abs() * 0.34 + 1e-40).all()


def test_float_scales():
    x = torch.tensor([1.0, -3.0, 5.915, 0.3])
    up = block_format("e2m1finite", "bf16", 4, scale_rule="ceil")
    assert (
        up.scales(x) == 253 / 256 and block_format("e2m1finite", "bf16", 4).scales(x) == 252 / 256
    )
    assert block_format("e2m1finite", "fp32", 4).scales(x) == torch.tensor(5.915) / 6
    assert block_format("e2m1finite", "fp32", 4).quantize(torch.zeros(4)).tolist() == [0] * 4
    assert block_format("e2m1finite", "e4m3fn", 4).scales(torch.full((4,), 1e9)) == 448


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_tensor_scale_above_scales_of_float32s_whole_range(dtype):
    """Largest scale times largest element exceeds float32. The tensor is scaled to 2^126 instead,
    by a factor of at most 2^117."""
    x = torch.linspace(-4, 3, 96, dtype=dtype).view(3, 32) * torch.tensor(
        [1, 2.0**-20, 2.0**-40], dtype=dtype
    ).view(3, 1)
    same(target("mxfp4_scaled").quantize(x), target("mxfp4").quantize(x))  # times 2^117
    large = x * 2.0**98  # the largest magnitude is 2^100
    same(target("mxfp4_scaled").quantize(large), target("mxfp4").quantize(large))  # times 2^26
    for t in (2.0**-27, 2.0**-28):  # by hand, at and beyond float32's largest number
        same(target("mxfp4_scaled").quantize(large, scale=t), target("mxfp4").quantize(large))
    assert (
        target("mxfp4_scaled")
        .quantize(large[:1], scale=2.0**-60)
        .eq(6 * 2.0**67 * large[:1].sign())
        .all()
    )
    bf16 = block_format("e2m1finite", "bf16", 32, tensor_scale=True).quantize(large)
    assert ((bf16 - large).abs() <= large.abs().amax(1, keepdim=True) / 5).all()


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
