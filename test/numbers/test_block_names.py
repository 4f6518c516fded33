"""Block formats by name and by parameters: equal values for both, invalid ones, and the
requirements on a tensor."""

import copy
import pickle

import pytest
import torch

from torch_dtypes import block_float, block_format, chop, target

NAMES = [
    "mxfp8_e4m3",
    "mxint8_stochastic",
    "nvfp4",
    "mxfp4_axis0_rceil_up",
    "mxfp6_e2m3_axisminus2",
    "bfp8",
    "bfp8_dim0",
    "bfp12_dimminus1",
    "bfp8_size16_axis1",
    "block<posit8es1_saturate,e8m0,64>_emax0_ceil",
    "block<posit8es1_saturate,e8m0,64>_emaxminus3",
    "block<e4m3_saturate,e4m3fn_saturate,16x16>_axis0x1_scaled",
    "block<e2m1finite,e8m0,all>_tensor",
    "block<e2m1finite,e5m0,8>",
    "block<e2m1finite,e8m7_saturate,all>_dim2_ceil",
    "mxfp4_even_to_odd",
    "block<e2m1finite,e8m0,16xall>_axis0xminus1",
    "block<e2m1finite,e8m0,16x16>",
    "nvfp4_axis0_nopad",
    "bfp8_size16_ceil_nopad_up",
    "nvfp4_four_over_six",
    "nvfp4_16x16_axis0x1_four_over_six_max_nopad_stochastic",
    "mxint4_rceil",
    "nvint4_axis0",
    "amdfp4",
]


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    t = target(name)
    assert t.name == name and repr(t) == f"target({name!r})"
    assert target(t.name) == t == copy.deepcopy(t) == pickle.loads(pickle.dumps(t)) and hash(
        t
    ) == hash(copy.deepcopy(t))
    assert not t.needs_scale and t.dtype is None
    assert (
        t.with_rounding("down").rounding == "down"
        and t.with_rounding("down").with_rounding(t.rounding) == t
    )


def test_constructors_and_names_agree():
    assert block_format("e4m3fn", "e8m0", 32) == target("mxfp8_e4m3") and target(
        "mxfp4_e2m1"
    ) == target("mxfp4")
    assert block_format(torch.q52, "e8m0", 32) == target("mxfp8_e5m2") and block_float(
        8, size=32
    ) == target("mxint8")
    assert block_format("ocp_e2m1", "e4m3fn", 16, tensor_scale=True) == target("nvfp4")
    assert target("mxint4") == block_float(4, size=32) == target("bfp4_size32")
    assert target("nvint4") == block_format("fixed3_0_symmetric", "e4m3fn", 16, tensor_scale=True)
    assert target("nvfp4_16x16") == block_format(
        "e2m1finite", "e4m3fn", (16, 16), tensor_scale=True
    )
    assert target("amdfp4") == block_format("e2m1finite", "ue5m3fn", 16)
    assert [
        target(n).bits_per_value for n in ("mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "nvfp4", "bfp8")
    ] == [8.25, 6.25, 4.25, 4.5, 8]
    assert (
        target("block<e3m4,e8m0,4x8>")
        == block_format("e3m4", "e8m0", (4, 8))
        == block_format("e3m4", "e8m0", (4, 8), (-2, -1))
    )
    assert (
        block_format("q43_up", "e8m0", 8).rounding
        == "up"
        == block_format("q43", "e8m0", 8, rounding="up").rounding
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: block_format("q43", "e9m0", 32), "expected a scale of 2 to 8 exponent bits"),
        (
            lambda: block_format("q43", "posit32es2", 32),
            "expected a block's scale as 'e8m0' or a format whose values float32 has",
        ),
        (lambda: block_format("fp64", "e8m0", 32), "expected elements with float32's exponents"),
        (lambda: block_format("q43", "e8m0", 0), "expected size from 1 to"),
        (lambda: block_format("q43", "e8m0", (4, 4), 0), "expected as many sizes as axes"),
        (lambda: block_format("q43", "e8m0", 32, None), "expected size=None with axis=None"),
        (lambda: block_format("q43", "e8m0", 32, dim=0), "expected size=None with dim"),
        (
            lambda: block_format("q43", "e8m0", 32, scale_rule="floors"),
            "expected scale_rule to be one of 'floor', 'ceil', 'even', 'rceil'",
        ),
        (
            lambda: block_format("q43", "fp32", 32, scale_rule="floor"),
            "expected scale_rule to be one of 'nearest', 'ceil'",
        ),
        (
            lambda: block_format("posit8es1", "e8m0", 32, scale_rule="even"),
            "expected float or fixed-point elements with scale_rule='even'",
        ),
        (
            lambda: block_format("q43", "fp32", 32, emax=0),
            "expected emax with power-of-two scales only",
        ),
        (
            lambda: block_format("q43", "e8m0", 32, emax=0, scale_rule="rceil"),
            "expected scale_rule 'floor' or 'ceil' with emax",
        ),
        (
            lambda: block_format("q43", "e8m0", 32, tensor_scale=1),
            "expected True or False for tensor_scale",
        ),
        (lambda: block_float(1), "expected bits from 2 to 24, but got 1"),
        (lambda: block_float(8, 0, size=4), "expected dim or size"),
        (lambda: target("mxfp9"), "the nearest names are 'mxfp4'"),
        (
            lambda: target("mxfp4_axis3").quantize(torch.ones(2, 3)),
            "expected a tensor with dimension 3",
        ),
        (
            lambda: block_format("q43", "e8m0", (2, 2), (0, -2)).quantize(torch.ones(2, 3)),
            "expected axes that are different dimensions",
        ),
        (
            lambda: target("bfp8_dim3").quantize(torch.ones(2, 3)),
            "expected a tensor with dimension 3",
        ),
        (
            lambda: target("mxfp4").quantize(torch.ones(2), zero_point=1),
            "expected no zero_point with mxfp4",
        ),
        (lambda: chop(torch.ones(2), "mxfp4", flip_prob=0.1), "expected flip_prob=0 with mxfp4"),
        (lambda: chop(torch.ones(2), "int8"), "expected a scale for int8"),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_tensor_scale_above_a_named_format():
    t = target("mxfp4_scaled")
    assert t == block_format("e2m1finite", "e8m0", 32, tensor_scale=True) and target(
        "nvfp4_scaled"
    ) == target("nvfp4")
    assert t.name == "block<e2m1finite,e8m0,32>_scaled" and target(t.name) == t


def test_microsoft_floating_point():
    """MSFP12: a sign, 3 bits of significand, one exponent of 8 bits for 16 numbers."""
    assert (
        target("msfp12") == block_float(4, size=16)
        and target("msfp16_stochastic").name == "bfp8_size16_stochastic"
    )
    assert target("msfp12").bits_per_value == 4.5
