"""Blocks with scales in tensors of every shape: axes, ragged ends, two dimensions, slices, whole
tensors; block floating point."""

import math

import pytest
import torch
from oracle_blocks import rows
from same_numbers import same

from torch_dtypes import block_float, block_format, target

# ---- shapes ----


def by_rows(t, x, size, axis):
    """Return the same result, computed block by block."""
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
    for view in (
        x,
        x.transpose(0, 2).contiguous().transpose(0, 2),
        x[:, ::2],
        x.expand(2, *shape)[0],
    ):
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
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)) * torch.tensor(
        [1.0, 100.0, 1e4]
    ).view(3, 1, 1)
    whole = block_float(6)
    same(block_float(6, 0).quantize(x), torch.stack([whole.quantize(s) for s in x]))
    same(block_float(6, 1).quantize(x), torch.stack([whole.quantize(x[:, i]) for i in range(4)], 1))
    same(
        block_float(6, -1).quantize(x),
        torch.stack([whole.quantize(x[..., i]) for i in range(5)], -1),
    )
    assert whole.scales(x).numel() == 1 and block_float(6, -2).scales(x).shape == (1, 4, 1)
    same(
        block_format("q43", "e8m0", None, 1).quantize(x),
        block_format("q43", "e8m0", 4, 1).quantize(x),
    )
    same(target("mxfp4").quantize(x[0, 0, 0]), target("mxfp4").quantize(x[0, 0, :1])[0])
    for t in (whole, target("mxfp4"), target("nvfp4"), block_float(6, 0)):
        assert t.quantize(x[:0]).shape == (0, 4, 5) and t.quantize(x[:, :, :0]).shape == (3, 4, 0)


# ---- block floating point ----


def qpytorch(x, bits, maximum):
    """Round one block by QPyTorch's definition: x / 2^(floor(log2 max) - bits + 2), an integer,
    clipped symmetrically."""
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
    draw = block_float(4, 0, rounding="stochastic").quantize(
        x, generator=torch.Generator().manual_seed(0)
    )
    assert (
        set(draw[:, 1:].flatten().tolist()) == {0.5, 0.75} and abs(draw[:, 1:].mean() - 0.7) < 0.002
    )
    again = target("bfp4_dim0_stochastic").quantize(x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draw, again)
    y = target("mxfp4_stochastic").quantize(x, generator=torch.Generator().manual_seed(0))
    assert (
        set(y[:, 1:].flatten().tolist()) == {0.5, 0.75, 1.0, 0.625} - {0.625, 1.0}
        and y[:, 0].eq(1).all()
    )
    for mode, values in (("stochastic_equal", {0.5, 0.75}), ("up_down", {0.5, 1.0})):
        assert set(block_float(4, 0).quantize(x, rounding=mode)[:, 1:].flatten().tolist()) == values
