"""torch_dtypes::chop_blocks rounds blocks of a contiguous tensor in one pass, or two if the tensor
has a scale. Its bits equal those of the stock operators, which other tensors take."""

import math

import pytest
import torch
from oracle_blocks import SPECS, rows
from representatives import thin_out
from same_numbers import same
from torch.fx.experimental.proxy_tensor import make_fx
from vector_units import capabilities, run_for_capability

import torch_dtypes
from torch_dtypes import target

SAMPLE = torch.linspace(-3, 5, 120).reshape(3, 40)

POWERS = [
    *SPECS,
    "mxfp4_rceil",
    "mxfp6_e3m2_even",
    "mxfp8_e4m3_ceil",
    "bfp5_size7",
    "block<posit8es1_saturate,e8m0,5>_emax0",
    "block<q43,e4m0,3>",
    "mxfp4_axis0",
    "mxint8_axisminus2",
    "block<e2m1finite,e8m0,16x16>",
    "block<fixed1_6,e8m0,5x9>",
]
OTHERS = [
    "nvfp4",
    "nvfp4_axis0",
    "nvfp4_16x16",
    "nvfp4_ceil",
    "nvint4",
    "amdfp4",
    "block<q43,float32,20>",
    "block<posit8es1_saturate,e4m3fn_saturate,7>_scaled",
    "hif4",
    "hif4_axis0",
]
SHAPES = [(9, 75), (9, 64), (75,), (9, 2), (3, 3, 75), (2, 70, 5), (130, 66), (1, 1), (4, 0)]


def samples():
    """Yield tensors of several shapes and magnitudes, with special values."""
    x = torch.tensor(rows(8, 9, 75, 60)) * torch.tensor([1.0, 1e-30, 1e30] * 3).view(9, 1)
    x[2, 3], x[4, 40], x[5, 70] = math.nan, math.inf, -math.inf
    x[6, :8] = torch.tensor([1e-45, -1e-45, 3e38, -3e38, 1e-38, -0.0, 0.0, 1.0])
    x[7] = 0.0
    long = x.flatten().repeat(16)
    for shape in SHAPES:
        yield long[: math.prod(shape)].view(shape).contiguous()
    # Finite numbers alone: a scale of the tensor that counts, and an empty one.
    yield torch.tensor(rows(9, 40, 100, 8))
    yield torch.zeros(3, 40)


def check(name, mode):
    t = target(name).with_rounding(mode)
    assert t._kernel_rule is not None
    for sample in samples():
        if t.shape.find_missing_axis(sample.dim()) is not None:
            continue
        # A view that is not contiguous takes the stock operators.
        wide = torch.stack([sample, sample], -1)[..., 0]
        assert not wide.is_contiguous() or wide.numel() < 2
        draws = [torch.Generator().manual_seed(5) for _ in range(2)]
        one, composed = t.quantize(sample, generator=draws[0]), t.quantize(wide, generator=draws[1])
        same(one, composed)


CASES = [(name, mode) for name in (*POWERS, *OTHERS) for mode in torch_dtypes.ROUNDING_MODES]


@pytest.mark.parametrize(("name", "mode"), thin_out(CASES, 7))
def test_one_pass_agrees_with_stock_operators(name, mode):
    check(name, mode)


@pytest.mark.whole
@pytest.mark.parametrize("capability", capabilities())
def test_vector_units(capability):
    run_for_capability(__file__, capability, [["nearest_even", "up"]])


@pytest.mark.parametrize("scale", [0.37, torch.tensor([2.0**-130]), math.nan])
def test_a_given_scale_of_the_tensor(scale):
    scale = torch.tensor(scale) if scale != scale else scale
    for sample in samples():
        wide = torch.stack([sample, sample], -1)[..., 0]
        for name in ("nvfp4", "amdfp4_axisminus1"):
            same(*(target(name).quantize(x, scale=scale) for x in (sample, wide)))


def test_one_pass_in_graphs_and_threads():
    graph = make_fx(lambda x: target("mxfp8_e4m3").quantize(x))(SAMPLE)
    assert torch.ops.torch_dtypes.chop_blocks.default in [n.target for n in graph.graph.nodes]
    x = torch.randn(1000, 100, generator=torch.Generator().manual_seed(0))
    threads, results = torch.get_num_threads(), []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            results.append(
                target("mxfp4_stochastic").quantize(x, generator=torch.Generator().manual_seed(1))
            )
    finally:
        torch.set_num_threads(threads)
    same(*results)
    arguments = (SAMPLE, "e4m3fn_saturate", None, [32], [-1], "", FLOOR)
    torch.library.opcheck(torch.ops.torch_dtypes.chop_blocks.default, arguments)
    torch.library.opcheck(
        torch.ops.torch_dtypes.chop_blocks.default,
        (SAMPLE.clone().requires_grad_(), *arguments[1:]),
    )


FLOOR = (8.0, 1.0, 1.0, -127.0, 127.0)
HERE = ([2], [-1], "", FLOOR)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(4).double(), "q43", None, *HERE), "expected a tensor of float32"),
        ((torch.ones(4, dtype=torch.posit32es2), "q43", None, *HERE), r"but got torch\.posit32es2"),
        ((torch.ones(4, 4).t(), "q43", None, *HERE), "expected a contiguous tensor"),
        ((torch.ones(4), "q43", None, [0], *HERE[1:]), "expected blocks of 1 to 1024"),
        ((torch.ones(4), "q43", None, [2], [1], "", FLOOR), "expected blocks along one dimension"),
        (
            (torch.ones(4, 4, 4), "q43", None, [2, 2], [0, 1], "", FLOOR),
            "expected blocks along one dimension or along the last two",
        ),
        (
            (torch.ones(4), "q43", None, [2], [-1], "", (8.0, 1.0, 1.0, -1000.0, 127.0)),
            "expected exponents of scales",
        ),
        ((torch.ones(4), "q43", None, [2], [-1], "e4m3", FLOOR), "expected 4 numbers as the rule"),
        ((torch.ones(4), "fp64", None, *HERE), "expected an element format"),
        ((torch.ones(4), "q99", None, *HERE), "expected the name of a number format"),
    ],
)
def test_one_pass_called_by_hand(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        torch.ops.torch_dtypes.chop_blocks(*arguments)


def main(modes):
    for name, mode in CASES:
        if mode in modes:
            check(name, mode)


if __name__ == "__main__":
    import sys

    main(sys.argv[2:])
