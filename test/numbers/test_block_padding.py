"""Lengths that are not multiples of the block size are padded, or refused before any work."""

import copy
import math
import pickle

import pytest
import torch
from same_numbers import same

import torch_dtypes
from torch_dtypes import block_float, block_format, chop, quantize, target

NOT_PADDED = {  # by name: a shape that its blocks divide, and one that needs padding
    "mxfp4_nopad": ((3, 64), (3, 63)),
    "nvfp4_nopad": ((16,), (25,)),
    "hif4_nopad": ((2, 128), (128, 2)),
    "mxint8_axis0_nopad": ((32, 3), (33, 3)),
    "bfp8_size5_nopad": ((150,), (2, 3)),
    "mxfp4_ceil_nopad_stochastic": ((2, 0), (0, 2)),
    "mxfp8_e5m2_axisminus2_nopad": ((32, 1), (1, 32)),
    "block<e3m4,e8m0,4x8>_scaled_nopad": ((2, 8, 16), (8, 4)),
    "block<q43,e8m0,4xall>_axis0xminus1_emax0_nopad": ((4, 3), (3, 4)),
}


@pytest.mark.parametrize("name", NOT_PADDED)
def test_without_padding_blocks_are_whole(name):
    t, (whole, ragged) = target(name), NOT_PADDED[name]
    padded = target(name.replace("_nopad", ""))
    assert padded.pad and not t.pad and t != padded and len({t, padded, target(t.name)}) == 2
    assert pickle.loads(pickle.dumps(t)) == copy.deepcopy(t) == target(
        t.name
    ) == t and "_nopad" in repr(t)
    assert t.with_rounding("up").with_rounding(t.rounding) == t and not t.with_rounding("up").pad
    x = torch.linspace(-3, 5, math.prod(whole)).reshape(whole)
    seeds = [torch.Generator().manual_seed(1) for _ in range(3)]
    same(chop(x, name, generator=seeds[0]), padded.quantize(x, generator=seeds[1]))
    same(
        quantize(x, name, generator=seeds[2]).dequantize(),
        chop(x, name, generator=seeds[0].manual_seed(1)),
    )
    # Every layout and dtype of the numbers.
    for transposed in (x, x.double().transpose(0, -1).contiguous().transpose(0, -1), x.half()):
        t.quantize(transposed), t.scales(transposed)
    bad = torch.ones(ragged)
    message = (
        r"^expected whole blocks of \d+ along dimension -?\d for .*_nopad.*, which does not pad, "
        r"but got \d+ numbers"
    )
    for call in (
        t.quantize,
        t.scales,
        lambda x: chop(x, name),
        lambda x: chop(x.numpy(), name),
        lambda x: quantize(x, name),
    ):
        with pytest.raises(ValueError, match=message):
            call(bad)
    padded.quantize(bad), quantize(bad, padded)


def test_without_padding_in_constructors():
    assert block_format("e2m1finite", "e8m0", 32, pad=False) == target("mxfp4_nopad")
    assert (
        block_float(8, size=16, pad=False) == target("bfp8_size16_nopad") == target("msfp16_nopad")
    )
    with pytest.raises(
        ValueError, match=r"but got 1 numbers there, in shape \(\): pad the tensor to 32"
    ):
        chop(1.5, "mxfp4_nopad")
    with pytest.raises(ValueError, match="expected a size with pad=False, but got size=None"):
        block_float(8, 0, pad=False)
    with pytest.raises(ValueError, match="expected a size with pad=False"):
        target("bfp8_nopad")
    with pytest.raises(TypeError, match="expected True or False for pad, but got 0"):
        block_format("q43", "e8m0", 32, pad=0)
    rows_of_all = block_format("q43", "e8m0", (4, None), (0, 1), pad=False)
    assert (
        rows_of_all.adapt_to(1).pad
        and not rows_of_all.adapt_to(2).pad
        and target(rows_of_all.adapt_to(1).name) == rows_of_all.adapt_to(1)
    )


def test_without_padding_in_layers_and_optimizers():
    """The error comes before the model, a weight or a gradient has changed, and names the layer."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 25), torch.nn.Linear(25, 32))
    before = [type(m) for m in model]
    with pytest.raises(
        ValueError,
        match=r"weight of '1' \(rule .*\): expected whole blocks of 32 along dimension -1 .* but "
        r"got 25 numbers",
    ):
        rule = {"forward": {"weight": "mxfp4_nopad"}}
        torch_dtypes.quantize_(model, {torch.nn.Linear: rule})
    with pytest.raises(ValueError, match=r"weight of '0' .* but got 25 numbers"):  # input_grad
        torch_dtypes.quantize_(model, {torch.nn.Linear: {"weight": "mxfp4_nopad"}})
    with pytest.raises(ValueError, match=r"grad of '0' .* but got 25 numbers"):
        torch_dtypes.quantize_(model, {"0": {"grad": "mxfp4_nopad"}})
    assert [type(m) for m in model] == before
    torch_dtypes.quantize_(
        model,
        {
            "0": {"forward": {"weight": "mxfp4_nopad", "activation": "mxfp4_nopad"}},
            "1": {"activation": "mxfp4_nopad"},
        },
    )
    with pytest.raises(ValueError, match="but got 25 numbers"):
        model(torch.ones(2, 32))
    torch_dtypes.dequantize_(model)
    kept = [p.clone() for p in model.parameters()]
    for where in ("weight", "grad", "master"):
        with pytest.raises(ValueError, match="expected whole blocks of 32"):
            torch_dtypes.optim.LowPrecision(
                torch.optim.SGD(model.parameters(), 0.1), **{where: "mxfp4_nopad"}
            )
    assert all(map(torch.equal, kept, model.parameters()))
