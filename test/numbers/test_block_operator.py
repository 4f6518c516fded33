"""torch_dtypes::chop_blocks rounds blocks of a contiguous last dimension in one pass. Its bits
equal those of the stock operators, which other shapes take."""

import math

import pytest
import torch
from oracle_blocks import SPECS, rows
from same_numbers import same
from torch.fx.experimental.proxy_tensor import make_fx

import torch_dtypes
from torch_dtypes import target

SAMPLE = torch.linspace(-3, 5, 120).reshape(3, 40)


ONE_PASS = [
    "mxfp4_rceil",
    "mxfp6_e3m2_even",
    "mxfp8_e4m3_ceil",
    "bfp5_size7",
    "block<posit8es1_saturate,e8m0,5>_emax0",
    "block<q43,e4m0,3>",
]


@pytest.mark.parametrize("name", [*SPECS, *ONE_PASS])
@pytest.mark.parametrize("mode", torch_dtypes.ROUNDING_MODES)
def test_one_pass_agrees_with_stock_operators(name, mode):
    """A view that is not contiguous takes the stock operators."""
    t = target(name).with_rounding(mode)
    assert t._in_one_pass
    x = torch.tensor(rows(8, 9, 75, 60)) * torch.tensor([1.0, 1e-30, 1e30] * 3).view(9, 1)
    x[2, 3], x[4, 40], x[5, 70] = math.nan, math.inf, -math.inf
    x[6, :8] = torch.tensor([1e-45, -1e-45, 3e38, -3e38, 1e-38, -0.0, 0.0, 1.0])
    x[7] = 0.0
    for sample in (x, x[:, :64].contiguous(), x[3], x[:, :2].contiguous(), x.view(3, 3, 75)):
        wide = torch.stack([sample, sample], -1)[..., 0]
        assert not wide.is_contiguous()
        draws = [torch.Generator().manual_seed(5) for _ in range(2)]
        one, composed = t.quantize(sample, generator=draws[0]), t.quantize(wide, generator=draws[1])
        same(one, composed)


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
    arguments = (SAMPLE, "e4m3fn_saturate", None, 32, 8, 1.0, True, -127, 127)
    torch.library.opcheck(torch.ops.torch_dtypes.chop_blocks.default, arguments)
    torch.library.opcheck(
        torch.ops.torch_dtypes.chop_blocks.default,
        (SAMPLE.clone().requires_grad_(), *arguments[1:]),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (torch.ones(4).double(), "q43", None, 2, 0, 1.0, True, -127, 127),
            "expected a tensor of float32",
        ),
        (
            (torch.ones(4, dtype=torch.posit32es2), "q43", None, 2, 0, 1.0, True, -127, 127),
            r"but got torch\.posit32es2",
        ),
        (
            (torch.ones(4, 4).t(), "q43", None, 2, 0, 1.0, True, -127, 127),
            "expected a contiguous tensor",
        ),
        ((torch.ones(4), "q43", None, 0, 0, 1.0, True, -127, 127), "expected blocks of 1 to 1024"),
        ((torch.ones(4), "q43", None, 2, 0, 1.0, True, -1000, 127), "expected exponents of scales"),
        ((torch.ones(4), "fp64", None, 2, 0, 1.0, True, -127, 127), "expected an element format"),
        (
            (torch.ones(4), "q99", None, 2, 0, 1.0, True, -127, 127),
            "expected the name of a number format",
        ),
    ],
)
def test_one_pass_called_by_hand(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        torch.ops.torch_dtypes.chop_blocks(*arguments)
