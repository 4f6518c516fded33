"""Blocks that choose between two scales: four over six, against exact rationals."""

import numpy as np
import oracle_blocks
import pytest
import torch
from oracle import binary
from oracle_blocks import rows

from torch_dtypes import block_format, quantize, rounding, target

E4M3, E2M1 = binary(4, 3, specials="fn", overflow="saturate"), binary(2, 1, specials="none")
RULES = ("four_over_six", "four_over_six_max")


@pytest.mark.parametrize("spread", [1, 12])  # similar blocks; blocks that underflow beside others
@pytest.mark.parametrize("rule", RULES)
def test_against_rationals(rule, spread):
    x = np.concatenate([rows(4, 8, 50, spread).reshape(-1), np.zeros(16, np.float32)])
    expected, fours = oracle_blocks.four_over_six(x, E2M1, E4M3, rule == RULES[1])
    t = target(f"nvfp4_{rule}")
    assert np.array_equal(t.quantize(torch.tensor(x)).numpy(), expected)
    assert 0.1 < np.mean(fours) < 0.9  # both are chosen
    assert t == block_format("e2m1finite", "e4m3fn", 16, scale_rule=rule, tensor_scale=True)
    assert t.full_scale == 6 * 256


def test_a_block_that_four_makes_exact():
    """10, 20, 30 and 40: exact at 4, but 30 becomes 26.67 at 6."""
    x = torch.tensor([10.0, 20.0, 30.0, 40.0])
    t = block_format("e2m1finite", "fp32", 4, scale_rule="four_over_six")
    assert t.quantize(x).tolist() == x.tolist() and t.scales(x) == 10
    six = block_format("e2m1finite", "fp32", 4)
    assert six.quantize(x)[2].item() == pytest.approx(80 / 3)


def test_equal_errors_take_six():
    x = torch.tensor([0.0, 12.0])
    t = block_format("e2m1finite", "fp32", 2, scale_rule="four_over_six")
    assert t.scales(x) == 2 and t.scales(torch.zeros(2)) == 2.0**-126


@pytest.mark.parametrize("rule", RULES)
def test_no_block_is_worse_than_at_six_or_four(rule):
    """With the same scale of the tensor, the chosen error is the smaller one."""
    x = torch.tensor(rows(7, 20, 48, 2))

    def errors(y):
        e = (y.double() - x.double()).abs().unflatten(-1, (-1, 16))
        return e.amax(-1) if rule.endswith("max") else e.square().sum(-1)

    t, above = target(f"nvfp4_{rule}"), 2.0**-7
    six = target("nvfp4").quantize(x, scale=above)
    chosen = t.quantize(x, scale=above)
    assert (errors(chosen) <= errors(six)).all() and (errors(chosen) < errors(six)).any()
    own = t.scales(x, scale=above) / target("nvfp4").scales(x, scale=above)
    assert own.min() == 1 and 1.3 < own.max() < 1.7


def test_squares():
    x = torch.tensor(rows(8, 32, 32, 1))
    t = target("nvfp4_16x16_four_over_six")
    blocks = x.unflatten(0, (2, 16)).unflatten(2, (2, 16)).transpose(1, 2).reshape(-1)
    flat = block_format("e2m1finite", "e4m3fn", 256, scale_rule=RULES[0], tensor_scale=True)
    y = flat.quantize(blocks).view(2, 2, 16, 16).transpose(1, 2).reshape(32, 32)
    assert torch.equal(t.quantize(x), y)


def test_random_rounding_keeps_the_choice():
    """The choice is made to nearest, and then the elements are rounded at random."""
    x = torch.tensor(rows(9, 16, 64, 1))
    plain, random = (quantize(x, f"nvfp4_four_over_six{mode}") for mode in ("", "_stochastic"))
    assert torch.equal(plain.scales, random.scales)
    assert not torch.equal(plain.dequantize(), random.dequantize())
    with rounding("down"):
        assert torch.equal(quantize(x, "nvfp4_four_over_six").scales, plain.scales)


def test_infinities_and_gradients():
    x = torch.randn(2, 32)
    x[0, 3], x[1, 20] = torch.inf, torch.nan
    x.requires_grad_()
    y = target("nvfp4_four_over_six").quantize(x)
    bad = y.isnan().unflatten(-1, (2, 16))
    assert bad.all(-1).tolist() == bad.any(-1).tolist() == [[True, False], [False, True]]
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_errors():
    with pytest.raises(ValueError, match="expected elements 'e2m1finite', whose largest numbers"):
        target("nvint4_four_over_six")
    with pytest.raises(ValueError, match="expected scale_rule to be one of 'floor'"):
        target("mxfp4_four_over_six")


def test_pytorchs_names():
    """Compare with the names in the proposal for quantize_tensor (pytorch issue 195481)."""
    assert block_format("e4m3fn", "e8m0", 32, scale_rule="rceil_e8m0") == target("mxfp8_e4m3_rceil")
    assert block_format(
        "e2m1finite", "e4m3fn", 16, scale_rule="nvfp4_e4m3", tensor_scale=True
    ) == target("nvfp4")


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_graphs_and_transforms():
    x = torch.tensor(rows(3, 6, 48, 2))
    t = target("nvfp4_four_over_six")
    compiled = torch.compile(lambda v: t.quantize(v), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), t.quantize(x))
    each = torch.vmap(t.quantize)(x)
    assert torch.equal(each, torch.stack([t.quantize(row) for row in x]))
    wide = t.quantize(x.double())
    assert wide.dtype == torch.float64 and (wide - t.quantize(x)).abs().max() < 1e-5 * x.abs().max()
